"""Source of recorded values is laid out as a formatter lays it out."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from roundtrip.checking.literals import WIDTH, assignment, invocation, literal

RUFF = shutil.which("ruff", path=str(Path(sys.executable).parent))


@pytest.mark.skipif(RUFF is None, reason="ruff is not installed")
def test_literal_of_any_length_is_laid_out_like_a_formatter() -> None:
    lines: list[str] = []
    for length in range(WIDTH - 20, WIDTH + 5):
        for text in ("x" * length, "日" * (length // 2), "e\u0301" * length, "\u0915\u093f" * (length // 2)):
            lines += [assignment("TEXT", text), assignment("KEPT", {"key": text}), assignment("MORE", [text, {"a": 1}])]
            lines += [invocation("call", [literal(text)]), invocation("call", [literal(text), "more=1"])]
        lines.append(invocation("call", ["x" * length]))
    source = "\n".join(lines) + "\n"
    done = subprocess.run(
        [str(RUFF), "format", "--isolated", f"--line-length={WIDTH}", "-"],
        input=source.encode(),
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.decode() == source
