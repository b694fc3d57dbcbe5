"""`roundtrip audit` of modules and of commands, which it starts itself."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.kit.hosts import ROOT
from tests.kit.waiting import WAIT

CINEMA: Final = """\
import pathlib
from roundtrip import Context, Server

server = Server("cinema")


@server.tool()
async def book(film: str, ctx: Context) -> str:
    row = await ctx.ask("row", f"Which row for {film}?", str)
    return f"{film}, row {row}"


@server.tool()
async def burn() -> str:
    pathlib.Path("burned").touch()
    return "burned"


if __name__ == "__main__":
    server.run()
"""
BOOK: Final = 'book={"film": "Dune"}'


def audit(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    (folder / "cinema.py").write_text(CINEMA)
    return subprocess.run(
        [sys.executable, "-m", "roundtrip", "audit", "--body-size", "1", "--json", *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=2 * WAIT,
        check=False,
    )


@pytest.mark.parametrize("server", [["cinema.py:server"], ["--", sys.executable, "cinema.py"]], ids=["module", "stdio"])
def test_module_or_command_is_audited(server: list[str], tmp_path: Path) -> None:
    ran = audit(tmp_path, "--tool", BOOK, *server)
    assert ran.returncode == 0, ran.stderr
    data = json.loads(ran.stdout)
    verdicts = {one["clause"]: one["verdict"] for one in data["findings"]}
    assert data["server"].split()[0] == "cinema"
    assert (verdicts["S4.tampered"], verdicts["S9.content"]) == ("passed", "passed")
    assert verdicts["S3.keys"] == ("could not be tried" if "--" in server else "passed")
    assert not (tmp_path / "burned").exists()
