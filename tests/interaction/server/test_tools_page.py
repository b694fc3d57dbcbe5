"""The statements of the page about tools, one row for each behavior, through a real client on either era."""

import logging
import re
from typing import Any, Final

import pytest

from roundtrip import InvalidSignature, Server
from roundtrip.testing import Era, User
from tests.interaction.tools_page.arguments import TYPES, VALIDATION
from tests.interaction.tools_page.describing import DESCRIBING
from tests.interaction.tools_page.errors import ERRORS, OutOfStock, raising
from tests.interaction.tools_page.registering import REFUSED, REGISTERING
from tests.interaction.tools_page.results import RESULTS
from tests.interaction.tools_page.rows import Json, Row, faults
from tests.interaction.tools_page.seen import DUPLICATES, VISIBILITY, twice
from tests.kit.raised import raised

pytestmark = pytest.mark.anyio

PAGE: Final[dict[str, list[Row]]] = {
    "registering": REGISTERING,
    "describing": DESCRIBING,
    "types": TYPES,
    "validation": VALIDATION,
    "results": RESULTS,
    "errors": ERRORS,
    "visibility": VISIBILITY,
    "duplicates": DUPLICATES,
}


@pytest.mark.parametrize("part", PAGE)
async def test_every_row_of_the_page_holds(era: Era, part: str) -> None:
    assert await faults(PAGE[part], era) == {}


def test_invalid_tools_are_rejected_at_registration() -> None:
    errors = {what: raised(make, Server[Any]("page")) for what, (make, _) in REFUSED.items()}
    assert [what for what, error in errors.items() if not isinstance(error, InvalidSignature)] == []
    assert [what for what, error in errors.items() if not re.search(REFUSED[what][1], str(error))] == []


@pytest.mark.parametrize("choice", [None, "warn", "replace"])
def test_duplicate_tool_warns_where_configured(choice: str | None, caplog: pytest.LogCaptureFixture) -> None:
    options: Json = {} if choice is None else {"on_duplicate_tools": choice}
    twice(Server[Any]("page", **options))
    levels = [record.levelno for record in caplog.records if "Tool already exists" in record.getMessage()]
    assert levels == ([] if choice == "replace" else [logging.WARNING])


async def test_failure_traceback_appears_only_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    server = Server[Any]("page")
    raising(OutOfStock("no more"))(server)
    assert (await User(server).call("tool")).text == "Error executing tool tool: no more"
    assert any("OutOfStock: no more" in (record.exc_text or "") for record in caplog.records)
