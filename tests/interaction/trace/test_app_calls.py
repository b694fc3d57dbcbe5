"""Traces of calls whose questions an app showed."""

import json
from typing import Any, Final

import anyio
import pytest

from roundtrip.cli import main
from roundtrip.testing import Conversation, Era, User
from tests.interaction.trace.deploys import Recording, checked

CINEMA: Final = """\
from typing import Any

from pydantic import BaseModel, field_validator
from starlette.requests import Request

from roundtrip import Context, Pages, Server


class Seat(BaseModel):
    row: int

    @field_validator("row")
    @classmethod
    def is_even(cls, row: int) -> int:
        if row % 2:
            raise ValueError("must be even")
        return row


async def reader(request: Request) -> str | None:
    return request.headers.get("x-user")


def ann(context: Any) -> str:
    return "ann"


server = Server(
    "cinema", keys=[b"k" * 32], principal=ann, pages=Pages(base_url="https://cinema.example", authenticate=reader)
)


@server.tool()
async def book(film: str, ctx: Context) -> str:
    seat = await ctx.ask("seat", f"Which row for {film}?", Seat)
    size = await ctx.ask("size", "How many?", int)
    return f"{size} for {film}, row {seat.row}"
"""


def record(recording: Recording, era: Era, client: Any = "apps") -> Conversation:
    """Record a call in which one answer was wrong."""
    user = User(recording.load(CINEMA), {"seat": [3, 4], "size": 2}, era=era, client=client, record_messages=True)
    call = anyio.run(lambda: user.call("book", film="Solaris"))
    assert call.text == "2 for Solaris, row 4"
    assert call.names == ["seat", "seat", "size"]
    return call


@pytest.mark.parametrize("era", [Era.RETRY, Era.LIVE])
def test_every_round_in_an_app_is_shown_and_explained_so(
    recording: Recording, capsys: pytest.CaptureFixture[str], era: Era
) -> None:
    record(recording, era)
    assert main(["trace", "show", "last", str(recording.file)]) == 0
    assert capsys.readouterr().out.count("in an app in the conversation") == 3
    assert main(["trace", "explain", "last", str(recording.file)]) == 1
    captured = capsys.readouterr()
    assert "Question 'seat' was asked again in an app in the conversation in round 2" in captured.out
    assert "skipped" not in captured.err


@pytest.mark.parametrize("era", [Era.RETRY, Era.LIVE])
def test_requests_and_tickets_of_apps_are_in_no_trace_or_log(
    recording: Recording, caplog: pytest.LogCaptureFixture, era: Era
) -> None:
    with caplog.at_level("DEBUG", logger="roundtrip"):
        call = record(recording, era)
    sent = [message["params"] for sender, message in call.messages if sender == "client" and "params" in message]
    tickets = {params["arguments"]["ticket"] for params in sent if params.get("name") == "answer_call"}
    (secret,) = {ticket.partition(".")[2] for ticket in tickets}
    trace = recording.file.read_text(encoding="utf-8")
    found = [word for word in (secret, "answer_call", "look_at_call") if word in trace or word in caplog.text]
    assert found == []
    assert {json.loads(line)["call"] for line in trace.splitlines()} == {next(iter(tickets)).partition(".")[0]}


@pytest.mark.parametrize("client", ["apps", "app-forms"])
@pytest.mark.parametrize("era", [Era.RETRY, Era.LIVE])
def test_call_in_an_app_is_checked_and_becomes_a_test(
    recording: Recording, capsys: pytest.CaptureFixture[str], era: Era, client: str
) -> None:
    record(recording, era, client)
    assert "book: compatible" in checked(recording, capsys, source=CINEMA)
    assert "asks 1 again" in checked(recording, capsys, ('"How many?"', '"How many tickets?"'), source=CINEMA)
    assert main(["trace", "to-test", "last", "--server", "recorded:server", str(recording.file)]) == 0
    assert "server, ANSWERS" in capsys.readouterr().out
