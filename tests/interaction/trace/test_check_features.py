"""Unchanged code is compatible with its own recordings, whatever features a call uses, and a check changes nothing."""

import itertools
import time
from pathlib import Path
from typing import Annotated, Any

import anyio
import pytest
from mcp_types import CallToolResult

from roundtrip import Context, Resolve, Server
from roundtrip.checking.checking import check_calls
from roundtrip.checking.reports import Checked, as_text
from roundtrip.ledger import MemoryLedger
from roundtrip.testing import Era, LegByLeg, User
from roundtrip.trace.writing.recorder import Recorder
from tests.interaction.trace.features import FEATURES, GUESTS, KEY, serve
from tests.interaction.trace.sites import Site, play
from tests.interaction.trace.transcribed import calls_of


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_unchanged_code_is_compatible_and_nothing_is_changed(site: Site, era: Era) -> None:
    async def scenario() -> None:
        await site.record(era)
        found = await site.check()
        told = {name: as_text(checked) for name, checked in zip(FEATURES, found, strict=True)}
        verdicts = {name: checked.headline for name, checked in zip(FEATURES, found, strict=True)}
        assert verdicts == dict.fromkeys(FEATURES, "compatible"), told

    anyio.run(scenario)


def test_a_call_in_flight_survives_a_check(site: Site) -> None:
    async def scenario() -> None:
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

    anyio.run(scenario)


def test_prompts_and_templates_that_no_longer_ask_diverge_and_do_not_run(site: Site) -> None:
    server: Server[Any] = Server("hotels", keys=[KEY])

    @server.prompt()
    async def praise(hotel: str) -> str:
        site.effect.append("praise, now")
        return hotel

    @server.resource("hotel://{hotel}/menu")
    async def menu(hotel: str) -> str:
        site.effect.append("menu, now")
        return hotel

    async def scenario() -> None:
        recording = serve(MemoryLedger(), site.effect, trace=Recorder(site.calls, reveal="all"))
        for name in ("prompt", "template"):
            await play(recording, FEATURES[name], Era.RETRY)
        found: list[Checked] = []
        await check_calls(server, calls_of(site.calls), found.append, now=time.time())
        assert [checked.headline for checked in found] == ["diverges at round 1"] * 2
        assert "no prompt with this name can ask" in as_text(found[0])
        assert site.effect == ["praise", "menu"]

    anyio.run(scenario)


def test_call_needing_the_body_of_another_is_not_replayed(site: Site) -> None:
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

    async def scenario() -> None:
        await User(make()).call("praise", hotel="Ritz")
        assert site.effect == ["Ritz"]
        found: list[Checked] = []
        await check_calls(make(), calls_of(site.calls), found.append, now=time.time())
        assert site.effect == ["Ritz"]
        assert [checked.not_replayed is not None for checked in found] == [True, True]
        assert "a resolver or dependency calls tool 'stars'" in "".join(map(as_text, found))

    anyio.run(scenario)


def test_call_that_failed_in_its_body_is_checked_until_there(site: Site) -> None:
    seconds = itertools.count()

    def make() -> Server[Any]:
        server: Server[Any] = Server("hotels", keys=[KEY], trace=Recorder(site.calls, reveal="all"))

        @server.tool()
        async def hurry(hotel: str, ctx: Context) -> str:
            site.effect.append(hotel)
            await ctx.ask("ready", f"Second {next(seconds)}. Ready?", bool)
            return "ready"

        return server

    async def scenario() -> None:
        call = await User(make(), {"ready": [True] * 2}, era=Era.RETRY, allow_error=True).call("hurry", hotel="Ritz")
        assert "another message each time" in call.failure
        found: list[Checked] = []
        await check_calls(make(), calls_of(site.calls), found.append, now=time.time())
        assert site.effect == ["Ritz"] * call.legs
        (checked,) = found
        assert checked.headline == "compatible", as_text(checked)
        assert checked.notes == ["the body asks from round 1 on, and was not run: only its parameters were checked"]

    anyio.run(scenario)
