"""`roundtrip completion` knows what the parser knows."""

import pytest

from roundtrip.cli.commands.calls import STATES
from roundtrip.cli.parsing import OptionsAnywhere
from roundtrip.ledger.machines import StoredState
from tests.kit.tables import check_each
from tests.unit.cli.completions import SHELLS, script


def test_each_option_of_the_parser_is_in_the_script(
    capsys: pytest.CaptureFixture[str], whole: dict[tuple[str, ...], OptionsAnywhere]
) -> None:
    def check(shell: str) -> None:
        text = script(shell, capsys)
        for words, parser in whole.items():
            for option in parser._option_string_actions:  # pyright: ignore[reportPrivateUsage]
                spelled = f"-l {option[2:]}" if shell == "fish" and option.startswith("--") else option
                assert (shell == "fish" and not option.startswith("--")) or spelled in text, (words, option)

    check_each(SHELLS, check)


def test_states_of_the_parser_are_those_of_the_machine() -> None:
    assert [state.value for state in StoredState] == list(STATES)
