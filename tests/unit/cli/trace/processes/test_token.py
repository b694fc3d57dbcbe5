"""`roundtrip trace token` on a real terminal."""

import os
import pty
import time
from pathlib import Path

from roundtrip.cli import main
from tests.kit.forks import is_readable, start
from tests.unit.cli.trace.tokens import TOKEN, hostile_token


def on_a_terminal(file: Path, **environment: str) -> bytes:
    """Return the output on a real terminal."""
    ours, theirs = pty.openpty()
    try:
        environment = {**os.environ, "TERM": "xterm-256color", **environment}
        process = start(main, ["trace", "token", str(file)], cwd=file.parent, stdout=theirs, env=environment)
        os.close(theirs)
        received, deadline = b"", time.monotonic() + 60
        while is_readable(ours, deadline - time.monotonic()):
            try:
                received += os.read(ours, 4096)
            except OSError:
                break
        assert process.wait(60) == 0
        return received
    finally:
        os.close(ours)


def test_terminal_gets_our_colors_and_no_token_text(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(hostile_token(), encoding="utf-8")
    coloured = on_a_terminal(tmp_path / "token")
    assert b"\x1b[" in coloured
    assert b"\\x1b[31m\\x07\\u202e" in coloured
    assert b"\x07" not in coloured
    assert b"\x1b[31m" not in coloured


def test_terminal_opting_out_gets_no_colors(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN, encoding="utf-8")
    shown = on_a_terminal(tmp_path / "token", NO_COLOR="1")
    assert b"target" in shown
    assert b"\x1b[3" not in shown
