"""Calls with repeated requests: the trace shows the end of the call, and the call can be checked and made a test."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from mcp_types import CreateMessageResult, ElicitResult, TextContent

from roundtrip.checking.checking import check_calls
from roundtrip.checking.playable import ServerName, write_test
from roundtrip.checking.recorded import NotReplayable, recorded_call
from roundtrip.checking.reports import Checked, as_text
from roundtrip.ledger import MemoryLedger
from roundtrip.testing import LegByLeg, LegRequest
from roundtrip.trace.explaining.explanations import ExplainedSubject, explain
from roundtrip.trace.reading.calls import TracedCall
from roundtrip.trace.writing.recorder import Recorder
from tests.interaction.trace.features import Effect, serve
from tests.interaction.trace.stories import STORIES, recorded
from tests.interaction.trace.transcribed import calls_of


@pytest.mark.parametrize("name", STORIES)
def test_trace_reports_the_end_and_unchanged_code_is_compatible(tmp_path: Path, name: str) -> None:
    story = STORIES[name]
    call = recorded(story, tmp_path / "calls.jsonl")
    assert call.state is story.state
    (told,) = [explanation.text for explanation in explain(call) if explanation.subject is ExplainedSubject.REPLAY]
    assert story.told in told
    assert not story.untold or story.untold not in told
    assert ("safe to do twice" in told) is (story.bodies > 1)
    found: list[Checked] = []
    anyio.run(_check(call, found))
    assert [checked.headline for checked in found] == ["compatible"], as_text(found[0])


def test_a_leg_that_only_the_ledger_answered_is_no_alarm(tmp_path: Path) -> None:
    story, path = STORIES["recalled"], tmp_path / "calls.jsonl"
    recorded(story, path)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    # The serving that ran the body was another instance's, whose transcript is not here.
    path.write_text("".join(lines[:2] + lines[4:]), encoding="utf-8")
    (call,) = calls_of(path)
    found: list[Checked] = []
    anyio.run(_check(call, found))
    assert [checked.headline for checked in found] == ["compatible"]
    with pytest.raises(NotReplayable, match="answered by the ledger"):
        recorded_call(call, whole=True)


def _check(call: TracedCall, found: list[Checked]) -> Callable[[], Any]:
    async def check() -> None:
        await check_calls(serve(MemoryLedger(), Effect()), [call], found.append, now=time.time())

    return check


OTHER_KINDS: Final = {
    "form": ("resolver", "guests", CreateMessageResult(role="assistant", content=TextContent(text="2"), model="m")),
    "sample": ("sample", "idea", ElicitResult(action="accept", content={"adults": 2})),
    "roots": ("roots", "folders", ElicitResult(action="accept", content={"adults": 2})),
}


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_no_test_is_written_of_an_answer_of_another_kind(tmp_path: Path, kind: str) -> None:
    tool, key, answer = OTHER_KINDS[kind]
    path = tmp_path / "calls.jsonl"

    async def scenario() -> None:
        legs = LegByLeg([serve(MemoryLedger(), Effect(), trace=Recorder(path, reveal="all"))])
        await legs.leg(tool, {"hotel": "Ritz"})
        await legs.send(LegRequest(tool, {"hotel": "Ritz"}, {key: answer}, legs.token))

    anyio.run(scenario)
    (call,) = calls_of(path)
    assert [(read.action, read.how, read.data) for read in call.rounds[0].answers] == [(None, "invalid", None)]
    with pytest.raises(NotReplayable, match="to another kind of question"):
        write_test(recorded_call(call, whole=True), ServerName("shop:server"), eras=("retry",), with_result=True)
    found: list[Checked] = []
    anyio.run(_check(call, found))
    assert [checked.headline for checked in found] == ["compatible"], as_text(found[0])
