"""Several processes that write to one file lose no line."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.kit.hosts import ROOT, WAIT

_MANY = """
import sys
from pathlib import Path
from roundtrip.trace.writing.audit import AuditLog
log = AuditLog(Path(sys.argv[1]), program="ui", by=sys.argv[2])
for number in range(100):
    with log.open(f"call-{number}", "order", "remind") as line:
        line.write("done")
"""


def test_several_processes_write_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    writers = [subprocess.Popen([sys.executable, "-c", _MANY, str(path), name], cwd=ROOT) for name in ("ana", "bob")]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    # A writer that sees half of the other's line begins with a newline: blank lines are ignored.
    lines = [json.loads(text) for text in path.read_text().splitlines() if text]
    assert [sum(line["by"] == name for line in lines) for name in ("ana", "bob")] == [100, 100]


WRITER = """
import sys
from pathlib import Path
from roundtrip.trace.writing.files import LineFile
name, count, path = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
file = LineFile(path, max_bytes=40_000, keep=100)
for number in range(count):
    file.append([f'{{"who": "{name}", "number": {number}, "fill": "{"x" * (number % 300)}"}}\\n'.encode()])
"""


def test_concurrent_writers_and_rotation_lose_no_line(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, name, "400", str(path)], cwd=ROOT) for name in ("a", "b", "c")
    ]
    assert [writer.wait(3 * WAIT) for writer in writers] == [0, 0, 0]
    files = sorted(tmp_path.iterdir(), key=lambda file: -int(file.suffix[1:]) if file.suffix[1:].isdigit() else 1)
    # A process that opens the file while another writes may begin with an empty line, which readers skip.
    texts = [line for file in files for line in file.read_bytes().splitlines() if line.strip()]
    lines: list[dict[str, Any]] = [json.loads(line) for line in texts]
    assert Counter(line["who"] for line in lines) == {"a": 400, "b": 400, "c": 400}
    assert len({(line["who"], line["number"]) for line in lines}) == 1200
    assert len(files) > 3
