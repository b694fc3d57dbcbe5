"""A feature joins legs by the seams: an option, a port, a fact of the trace, and no change of the core."""

from typing import Any, NamedTuple

import pytest

from roundtrip import Depends, Server
from roundtrip.engine.leg import Leg
from roundtrip.engine.silent_body import Execute
from roundtrip.legs.extensions import LegExtension, LegPart, OpenLeg
from roundtrip.legs.functions import AskingFunction
from roundtrip.legs.parts import Parts
from roundtrip.server import attach
from roundtrip.testing import Era, User
from roundtrip.tracing import Beginning, TokenRejection
from tests.kit.players import connect, text_of

pytestmark = pytest.mark.anyio


class Numbered(NamedTuple):
    """Fact: a body of a numbered tool begins."""

    number: int


class NumberedBodies(LegExtension):
    """Numbers the bodies of chosen tools, whose calls have a token before they run."""

    def __init__(self, tools: set[str]) -> None:
        self.tools = tools
        self.count = 0

    def concerns(self, function: AskingFunction) -> bool:
        return function.name in self.tools

    def join(self, leg: OpenLeg) -> LegPart:
        return _NumberedPart(self, leg)


class _NumberedPart(LegPart):
    needs_engine = True

    def __init__(self, feature: NumberedBodies, leg: OpenLeg) -> None:
        self._feature = feature
        self._leg = leg

    def complete(self, leg: Leg) -> None:
        leg.ports.needs_token = self._leg.in_retry_era and leg.journal is None

    def around(self, execute: Execute) -> Execute:
        async def numbered(filled: Any, context: Any) -> Any:
            self._feature.count += 1
            if (watch := self._leg.call.watch) is not None:
                watch(Numbered(self._feature.count))
            return await execute(filled, context)

        return numbered


class Facts:
    """Tracer that keeps the legs and the facts of the feature."""

    def __init__(self) -> None:
        self.legs: list[tuple[str, int]] = []
        self.numbers: list[int] = []

    def begin(self, beginning: Beginning) -> Any:
        self.legs.append((beginning.tool, beginning.leg))
        return self.watch

    def watch(self, fact: Any) -> None:
        if isinstance(fact, Numbered):
            self.numbers.append(fact.number)

    def reject(self, rejection: TokenRejection) -> None:
        raise AssertionError(rejection)


def plug_in(feature: LegExtension, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = attach.extensions_of

    def with_feature(parts: Parts, **more: Any) -> tuple[LegExtension, ...]:
        return (*listed(parts, **more), feature)

    monkeypatch.setattr(attach, "extensions_of", with_feature)


@pytest.mark.parametrize("era", [Era.RETRY, Era.LIVE])
async def test_feature_joins_legs_by_an_option_a_port_and_a_fact(era: Era, monkeypatch: pytest.MonkeyPatch) -> None:
    feature, facts = NumberedBodies({"print"}), Facts()
    plug_in(feature, monkeypatch)
    server = Server("press", trace=facts)

    @server.tool(name="print")
    async def print_it() -> str:
        return "printed"

    @server.tool
    async def read() -> str:
        return "read"

    user = User(server, era=era)
    for _ in range(2):
        assert (await user.call("print")).text == "printed"
    assert (await user.call("read")).text == "read"

    assert facts.numbers == [1, 2]
    legs = [1, 2] if era is Era.RETRY else [1]
    assert facts.legs == [("print", leg) for _ in range(2) for leg in legs] + [("read", 1)]


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_feature_wraps_bodies_of_every_kind_without_a_tracer(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    feature = NumberedBodies({"print"})
    plug_in(feature, monkeypatch)
    server = Server("press", trace=False)

    def paper() -> str:
        return "A4"

    def print_it(on: str = Depends(paper)) -> str:
        return f"printed on {on}"

    async def print_async(on: str = Depends(paper)) -> str:
        return f"printed on {on}"

    server.add_tool(print_it if kind == "plain" else print_async, name="print")
    async with connect(server, Era.LIVE) as client:
        assert text_of(await client.call_tool("print", {})) == "printed on A4"
    assert feature.count == 1
