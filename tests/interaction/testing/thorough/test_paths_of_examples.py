"""No answer that a user may give makes one of the examples crash."""

from typing import Any

import pytest

from examples import everything, wizard
from examples.bookshop import ask, build_on, look_up, take_no
from roundtrip import Server
from roundtrip.testing import Era, PathOutcome, paths
from tests.interaction.testing.cinemas import ROOTS

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("server", "tool", "arguments"),
    [
        (wizard.server, "book_holiday", {}),
        (look_up.server, "set_aside", {"title": "Middlemarch"}),
        (build_on.server, "order", {"title": "Middlemarch"}),
        (ask.server, "order", {"title": "Middlemarch"}),
        (take_no.server, "order", {"title": "Middlemarch"}),
        (everything.server, "test_elicitation_sep1330_enums", {}),
        (everything.server, "test_input_required_result_multiple_inputs", {}),
        (everything.server, "test_input_required_result_multi_round", {}),
    ],
)
async def test_no_answer_makes_an_example_crash(
    server: Server[Any], tool: str, arguments: dict[str, Any], era: Era
) -> None:
    explored = await paths(server, tool, arguments, era=era, roots=ROOTS)
    explored.assert_no_crash()
    assert explored.outcomes[PathOutcome.COMPLETED]
    assert not explored.outcomes[PathOutcome.UNFINISHED]
    assert not explored.left_out
