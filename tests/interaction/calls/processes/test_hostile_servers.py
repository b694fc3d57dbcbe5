"""Text of a server never controls the terminal, and never passes for the client's own."""

import gzip
import sys
import unicodedata
from collections.abc import Generator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

if sys.platform == "win32":
    pytest.skip("Windows has no pseudo-terminals", allow_module_level=True)

from tests.interaction.calls.servers import hostile
from tests.interaction.calls.sessions import AtTerminal, Ended, person, script, served
from tests.interaction.doctor.shops import endless

each_era = pytest.mark.parametrize("era", ["retry", "live"])

SHOWN = r"\x1b]0;owned\x07\x1b[2J[bold red]\u202egnp.exe"
"""How the text that every word of the server carries has to look."""


@pytest.fixture(scope="module")
def trapper() -> Generator[str]:
    with served(hostile) as url:
        yield url


def obeyed(ended: Ended) -> set[str]:
    """Return the characters that a terminal acts on; our own are removed from the text before."""
    return {
        char
        for char in ended.out + ended.told
        if char != "\n" and unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
    }


@each_era
def test_hostile_texts_are_shown_and_not_obeyed(trapper: str, era: str) -> None:
    with person(trapper, "snare", "--step", "--era", era) as at:
        for _ in range(1 if era == "retry" else 3):
            at.wait_for("Press Enter to continue:")
            at.type("")
            if era == "live":
                answer(at)
        if era == "retry":
            for _ in range(3):
                answer(at)
        ended = at.end()
    assert ended.code == 0, ended.told
    assert obeyed(ended) == set()
    for initial in "MTDCPSGL":
        assert f"{initial}{SHOWN}" in ended.told, initial
    assert f"R{SHOWN}" in ended.out
    assert "Host:    evil.example" in ended.told
    # A second line of the server's text is either marked as its own or not a line.
    assert [line for line in ended.told.splitlines() if "forged" in line and line.startswith("\\x9b")] == []
    assert "cannot be opened from here" in ended.told


def answer(at: AtTerminal) -> None:
    """Answer any of the three questions: on the live era they come in any order."""
    shown = at.wait_for("type its number", ":cancel cancels):", "only a dot;")
    if "type its number" in shown:
        at.type("1")
    elif ":cancel cancels):" in shown:
        at.type("m")
    else:
        at.type("ok\n.")


@each_era
def test_lists_failures_and_errors_are_shown_and_not_obeyed(trapper: str, era: str) -> None:
    listed = script(trapper, "--era", era)
    failed = script(trapper, "refuse", "--era", era)
    unknown = script(trapper, "snare", "x=1", "--era", era)
    as_json = script(trapper, "refuse", "--era", era, "--json")
    assert (listed.code, failed.code, unknown.code, as_json.code) == (0, 1, 2, 1)
    assert f"D{SHOWN}" in listed.out
    assert f"E{SHOWN}" in failed.out
    for ended in (listed, failed, unknown, as_json):
        assert obeyed(ended) == set()


def test_output_is_plain_off_terminals_and_under_no_color(trapper: str) -> None:
    assert "\x1b" not in script(trapper, "snare", env={"FORCE_COLOR": "1"}).told
    with person(trapper, "snare", "--era", "retry", env={"NO_COLOR": "1"}) as at:
        at.reply("type its number", ":cancel")
        at.wait_for(":cancel cancels):")
        assert not [
            code for code in at.codes if any(part.startswith(("3", "4", "9")) for part in code[2:-1].split(";"))
        ]
        assert at.codes


class Flood:
    """Endless answers, in the place of a server."""

    def streamable_http_app(self, **options: Any) -> Starlette:
        del options

        async def squeezed(request: Request) -> Response:
            del request
            headers = {"content-encoding": "gzip"}
            return Response(gzip.compress(b" " * 2**26), headers=headers, media_type="application/json")

        every = ["GET", "POST", "DELETE"]
        return Starlette(routes=[Route("/mcp", endless, methods=every), Route("/squeezed", squeezed, methods=every)])


def flood() -> Any:
    return Flood()


@each_era
def test_an_answer_without_an_end_is_not_read_to_it(era: str) -> None:
    with served(flood) as url:
        for place, why in (("mcp", "larger than 32 MiB"), ("squeezed", "the response is compressed")):
            ended = script(url.replace("mcp", place), "--era", era)
            assert ended.code != 0
            assert why in ended.told
            assert len(ended.told.splitlines()) == 1
