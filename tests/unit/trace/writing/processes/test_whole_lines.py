"""Several processes that write to one file lose no line."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.kit.hosts import ROOT, WAIT

WRITER = """
import sys
from pathlib import Path
from roundtrip.trace.writing.files import LineFile
name, count, path, max_bytes = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
file = LineFile(path, max_bytes=max_bytes, keep=100)
for number in range(count):
    file.append([f'{{"who": "{name}", "number": {number}, "fill": "{"x" * (number % 300)}"}}\\n'.encode()])
"""


@pytest.mark.parametrize("max_bytes", [40_000, 0], ids=["transcript", "operator log"])
def test_concurrent_writers_and_rotation_lose_no_line(tmp_path: Path, max_bytes: int) -> None:
    path = tmp_path / "calls.jsonl"
    command = [sys.executable, "-c", WRITER]
    writers = [
        subprocess.Popen([*command, name, "400", str(path), str(max_bytes)], cwd=ROOT) for name in ("a", "b", "c")
    ]
    assert [writer.wait(3 * WAIT) for writer in writers] == [0, 0, 0]
    files = sorted(tmp_path.iterdir(), key=lambda file: -int(file.suffix[1:]) if file.suffix[1:].isdigit() else 1)
    # A process that opens the file while another writes may begin with an empty line, which readers skip.
    texts = [line for file in files for line in file.read_bytes().splitlines() if line.strip()]
    lines: list[dict[str, Any]] = [json.loads(line) for line in texts]
    assert Counter(line["who"] for line in lines) == {"a": 400, "b": 400, "c": 400}
    assert len({(line["who"], line["number"]) for line in lines}) == 1200
    assert (len(files) > 3) == (max_bytes > 0)
