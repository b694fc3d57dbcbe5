"""Scripts of `roundtrip completion`."""

from typing import Final

import pytest

from roundtrip.cli import main

SHELLS: Final = ("bash", "zsh", "fish")


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out
