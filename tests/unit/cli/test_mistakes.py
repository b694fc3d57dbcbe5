"""What a command line with a mistake is told."""

import pytest

from roundtrip.cli import main


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What is written of wrong arguments."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "command"),
    [(("serve", "shop.py:server"), "serve"), (("trace", "ls", "calls.jsonl"), "trace ls"), (("demo",), "demo")],
)
def test_an_option_that_there_is_not_is_told_with_the_usage_of_its_command(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], command: str
) -> None:
    said = told(capsys, *arguments, "--bogus")
    assert said.startswith(f"usage: roundtrip {command} ")
    assert said.endswith(f"roundtrip {command}: error: unrecognized arguments: --bogus\n")


def test_files_that_may_be_left_out_are_not_told_to_be_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "trace", "show").endswith("the following arguments are required: ID\n")
