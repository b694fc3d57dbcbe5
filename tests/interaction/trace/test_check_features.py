"""Unchanged code is compatible with its own recordings, whatever features a call uses, and a check changes nothing."""

from pathlib import Path
from typing import Annotated, Any, Final

import pytest
from mcp_types import CallToolResult, CreateMessageResult, ElicitResult, TextContent

from roundtrip import Resolve, Server
from roundtrip.checking.playable import ServerName, write_test
from roundtrip.checking.recorded import NotReplayable, recorded_call
from roundtrip.checking.reports import as_text
from roundtrip.ledger import MemoryLedger
from roundtrip.machine.table import State
from roundtrip.testing import Era, LegByLeg, LegRequest, User
from roundtrip.trace.explaining.explanations import ExplainedSubject, explain
from roundtrip.trace.writing.recorder import Recorder
from tests.interaction.trace.features import FEATURES, GUESTS, KEY, Effect, serve
from tests.interaction.trace.sites import Site, check_all, play
from tests.interaction.trace.stories import STORIES, recorded
from tests.interaction.trace.transcribed import calls_of

pytestmark = pytest.mark.anyio


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def test_unchanged_code_is_compatible_and_nothing_is_changed(site: Site, era: Era) -> None:
    await site.record(era)
    found = await site.check(forks=40)
    told = {name: as_text(checked) for name, checked in zip(FEATURES, found, strict=True)}
    verdicts = {name: checked.headline for name, checked in zip(FEATURES, found, strict=True)}
    assert verdicts == dict.fromkeys(FEATURES, "compatible") | {"exactly_once_body": "not checked"}, told


async def test_a_call_in_flight_survives_a_check(site: Site) -> None:
    ledger = site.ledger()
    server = serve(ledger, site.effect, trace=Recorder(site.calls, reveal="all"))
    legs = LegByLeg([server])
    for name, answers in (("exactly_once", {"guests": GUESTS}), ("exactly_once_plain", {})):
        site.effect.clear()
        await legs.leg(name, {"hotel": "Ritz"})
        for checked in await site.check():
            assert checked.headline == "compatible", as_text(checked)
        site.effect.closed = False
        result = await legs.leg(name, {"hotel": "Ritz"}, answers=answers, state=legs.token)
        assert isinstance(result, CallToolResult)
        assert not result.is_error
        assert len(site.effect) == 1
        for checked in await site.check():
            assert checked.headline == "compatible", as_text(checked)
    await ledger.aclose()


async def test_prompts_and_templates_that_no_longer_ask_diverge_and_do_not_run(site: Site) -> None:
    server: Server[Any] = Server("hotels", keys=[KEY])

    @server.prompt()
    async def praise(hotel: str) -> str:
        site.effect.append("praise, now")
        return hotel

    @server.resource("hotel://{hotel}/menu")
    async def menu(hotel: str) -> str:
        site.effect.append("menu, now")
        return hotel

    recording = serve(MemoryLedger(), site.effect, trace=Recorder(site.calls, reveal="all"))
    for name in ("prompt", "template"):
        await play(recording, FEATURES[name], Era.RETRY)
    found = await check_all(server, site.calls)
    assert [checked.headline for checked in found] == ["diverges at round 1"] * 2
    assert "the server has no prompt with this name that can ask questions" in as_text(found[0])
    assert site.effect == ["praise", "menu"]


async def test_call_needing_the_body_of_another_is_not_checked(site: Site) -> None:
    def make() -> Server[Any]:
        server: Server[Any] = Server("hotels", keys=[KEY], trace=Recorder(site.calls, reveal="all"))

        @server.tool()
        async def stars(hotel: str) -> int:
            site.effect.append(hotel)
            return 5

        async def rated(hotel: str) -> str:
            return str(await server.call_tool("stars", {"hotel": hotel}))

        @server.tool()
        async def praise(hotel: str, rated: Annotated[str, Resolve(rated)]) -> str:
            return rated

        return server

    await User(make()).call("praise", hotel="Ritz")
    assert site.effect == ["Ritz"]
    found = await check_all(make(), site.calls)
    assert site.effect == ["Ritz"]
    # The call of the other tool is no client's, and left out.
    assert [checked.not_checked is not None for checked in found] == [True]
    assert "it calls tool 'stars', whose body runs only with `roundtrip trace fork --run`" in "".join(
        map(as_text, found)
    )


@pytest.mark.parametrize("name", STORIES)
async def test_repeated_request_is_explained_and_compatible(tmp_path: Path, name: str) -> None:
    story, path = STORIES[name], tmp_path / "calls.jsonl"
    call = await recorded(story, path)
    assert call.state is State.COMPLETED
    (told,) = [explanation.text for explanation in explain(call) if explanation.subject is ExplainedSubject.REPLAY]
    assert story.told in told
    assert not story.untold or story.untold not in told
    assert ("safe to do twice" in told) is (story.bodies > 1)
    found = await check_all(serve(MemoryLedger(), Effect()), path)
    assert [checked.headline for checked in found] == ["compatible"], as_text(found[0])


async def test_a_leg_that_only_the_ledger_answered_is_no_alarm(tmp_path: Path) -> None:
    story, path = STORIES["recalled"], tmp_path / "calls.jsonl"
    await recorded(story, path)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    # The serving that ran the body was another instance's, whose transcript is not here.
    path.write_text("".join(lines[:2] + lines[4:]), encoding="utf-8")
    found = await check_all(serve(MemoryLedger(), Effect()), path)
    assert [checked.headline for checked in found] == ["compatible"]
    with pytest.raises(NotReplayable, match="got its result from the ledger"):
        recorded_call(calls_of(path)[0], whole=True)


IN_WORDS: Final = CreateMessageResult(role="assistant", content=TextContent(text="2"), model="m")
IN_A_FORM: Final = ElicitResult(action="accept", content={"adults": 2})


@pytest.mark.parametrize(
    ("tool", "key", "answer"),
    [("resolver", "guests", IN_WORDS), ("sample", "idea", IN_A_FORM), ("roots", "folders", IN_A_FORM)],
)
async def test_no_test_is_written_of_an_answer_of_another_kind(
    site: Site, tool: str, key: str, answer: CreateMessageResult | ElicitResult
) -> None:
    legs = LegByLeg([serve(MemoryLedger(), Effect(), trace=Recorder(site.calls, reveal="all"))])
    await legs.leg(tool, {"hotel": "Ritz"})
    await legs.send(LegRequest(tool, {"hotel": "Ritz"}, {key: answer}, legs.token))
    (call,) = calls_of(site.calls)
    assert [(read.action, read.how, read.data) for read in call.rounds[0].answers] == [(None, "invalid", None)]
    with pytest.raises(NotReplayable, match="belonged to another kind of question"):
        write_test(recorded_call(call, whole=True), ServerName("shop:server"), eras=("retry",), with_result=True)
    found = await check_all(serve(MemoryLedger(), Effect()), site.calls)
    assert [checked.headline for checked in found] == ["compatible"], as_text(found[0])
