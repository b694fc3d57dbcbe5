"""Calls with repeated requests: the trace shows the end of the call, and the call can be checked and made a test."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from roundtrip.machine.table import State
from roundtrip.testing import LegByLeg, LegRequest
from roundtrip.trace.explaining.explanations import ExplainedSubject, explain
from roundtrip.trace.reading.calls import TracedCall
from roundtrip.trace.writing.recorder import Recorder
from tests.interaction.trace.features import GUESTS, ROOM, Effect, serve
from tests.interaction.trace.test_to_test import Project
from tests.interaction.trace.transcribed import calls_of

Answers = dict[str, Any] | None


@dataclass(frozen=True)
class Story:
    """Legs after the first, each with the round of its token and its answers; and the expected explanations."""

    tool: str
    legs: Sequence[tuple[int, Answers]]
    state: State
    told: str
    """The answers of the duplicate."""
    bodies: int
    untold: str = ""


OTHERS: Final = {**GUESTS, "adults": 3}

STORIES: Final = {
    "recalled": Story(
        "exactly_once",
        [(0, {"guests": GUESTS}), (0, {"guests": GUESTS})],
        State.COMPLETED,
        "the ledger returned the recorded result, and its body did not run again",
        1,
        untold="other answers",
    ),
    "recalled_round_without_questions": Story(
        "exactly_once_plain", [(0, None), (0, None)], State.COMPLETED, "its body did not run again", 1, "answers"
    ),
    "recalled_failure": Story(
        "exactly_once_fails",
        [(0, {"guests": GUESTS}), (0, {"guests": GUESTS})],
        State.FAILED,
        "its body did not run again",
        1,
        untold="other answers",
    ),
    "ended_with_other_answers": Story(
        "exactly_once",
        [(0, {"guests": GUESTS}), (0, {"guests": OTHERS})],
        State.COMPLETED,
        "the call had ended with other answers, so it was rejected, and its body did not run again",
        1,
    ),
    "earlier_token_without_answers": Story(
        "resolver",
        [(0, {"guests": GUESTS}), (1, {"room": ROOM}), (0, None)],
        State.COMPLETED,
        ", but without its answers; its body did not run again",
        1,
        untold="other answers",
    ),
    "last_token_without_answers": Story(
        "resolver",
        [(0, {"guests": GUESTS}), (1, {"room": ROOM}), (1, None)],
        State.COMPLETED,
        ", but without its answers; its body did not run again",
        1,
    ),
    "earlier_leg_again": Story(
        "resolver",
        [(0, {"guests": GUESTS}), (1, {"room": ROOM}), (0, {"guests": GUESTS})],
        State.COMPLETED,
        "its body did not run again",
        1,
        untold="other answers",
    ),
    "lost_response": Story(
        "resolver",
        [(0, {"guests": GUESTS}), (1, {"room": ROOM}), (1, {"room": ROOM})],
        State.COMPLETED,
        "everything a body does must be safe to do twice",
        2,
        untold="other answers",
    ),
    "went_back": Story(
        "resolver",
        [(0, {"guests": OTHERS}), (0, {"guests": GUESTS}), (2, {"room": ROOM})],
        State.COMPLETED,
        "and with other answers; its body did not run again",
        1,
    ),
}


async def play(story: Story, path: Path, effect: Effect) -> None:
    server = serve(MemoryLedger(), effect, trace=Recorder(path, reveal="all"))
    legs = LegByLeg([server])
    await legs.leg(story.tool, {"hotel": "Ritz"})
    for round_, answers in story.legs:
        token = legs.rounds[round_].request_state
        await legs.leg(story.tool, {"hotel": "Ritz"}, answers=answers, state=token)


def recorded(story: Story, path: Path) -> TracedCall:
    effect = Effect()
    anyio.run(play, story, path, effect)
    assert len(effect) == story.bodies
    (call,) = calls_of(path)
    return call


@pytest.mark.parametrize("name", STORIES)
def test_trace_reports_the_end_of_the_call(tmp_path: Path, name: str) -> None:
    story = STORIES[name]
    call = recorded(story, tmp_path / "calls.jsonl")
    assert call.state is story.state
    (told,) = [explanation.text for explanation in explain(call) if explanation.subject is ExplainedSubject.REPLAY]
    assert story.told in told
    assert not story.untold or story.untold not in told
    assert ("safe to do twice" in told) is (story.bodies > 1)


@pytest.mark.parametrize("name", STORIES)
def test_unchanged_code_is_compatible(tmp_path: Path, name: str) -> None:
    call = recorded(STORIES[name], tmp_path / "calls.jsonl")
    found: list[Checked] = []

    async def check() -> None:
        await check_calls(serve(MemoryLedger(), Effect()), [call], found.append, now=time.time())

    anyio.run(check)
    (checked,) = found
    assert checked.headline == "compatible", as_text(checked)


SERVER: Final = """\
from features import Effect, serve
from roundtrip.ledger import MemoryLedger

server = serve(MemoryLedger(), Effect(), principal=lambda ctx: "ada")
"""


def test_a_test_of_it_passes(tmp_path: Path) -> None:
    project = Project(tmp_path / "project")
    project.serve((Path(__file__).parent / "features.py").read_text(encoding="utf-8"), "features")
    project.serve(SERVER, "shop")
    for name, story in STORIES.items():
        call = recorded(story, tmp_path / f"{name}.jsonl")
        source = write_test(
            recorded_call(call, whole=True), ServerName("shop:server"), eras=("retry",), with_result=True
        )
        (project.folder / f"test_{name}.py").write_text(source, encoding="utf-8")
    ended, out = project.run()
    assert ended == {name: {"passed"} for name in STORIES}, out


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
