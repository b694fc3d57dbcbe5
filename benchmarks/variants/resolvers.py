"""The tools in the form the SDK and roundtrip share: parameters filled by resolvers that may return a question."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from mcp.server import MCPServer
from mcp.server.mcpserver import Elicit, Resolve

from benchmarks.variants.signatures import spelled
from benchmarks.workloads import (
    CONSENT_MESSAGE,
    TOOL,
    Compute,
    Confirm,
    Consent,
    Plain,
    Word,
    Words,
    Workload,
    computed,
    said,
    word_message,
)

Function: TypeAlias = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Markers:
    """The marker classes of one of the two: roundtrip's are subclasses of the SDK's."""

    resolve: Callable[[Function], Resolve]
    elicit: type[Elicit[Any]]


def register(server: MCPServer[Any], workload: Workload, *, markers: Markers) -> None:
    """Give the server the workload's tool."""
    match workload:
        case Plain(tools=tools):
            for number in range(1, tools):
                server.tool(name=f"other_{number}")(_greeter())
            server.tool(name=TOOL)(_greeter())
        case Compute(count=count, seconds=seconds):
            server.tool(name=TOOL)(_computing(count, seconds, markers))
        case Confirm():
            server.tool(name=TOOL)(_confirming(markers))
        case Words(rounds=rounds):
            server.tool(name=TOOL)(_wording(rounds, markers))
        case _:
            raise NotImplementedError(type(workload).__name__)


def _greeter() -> Function:
    async def work(name: str) -> str:
        return said(name, ["hello"])

    return work


def _computing(count: int, seconds: float, markers: Markers) -> Function:
    async def work(name: str, **values: str) -> str:
        return said(name, values.values())

    steps = {f"value_{number}": _step(number, seconds) for number in range(count)}
    parameters = {name: Annotated[str, markers.resolve(step)] for name, step in steps.items()}
    return spelled(work, name=TOOL, parameters={"name": str, **parameters}, returns=str)


def _step(number: int, seconds: float) -> Function:
    async def step() -> str:
        if seconds:
            await asyncio.sleep(seconds)
        return computed(number)

    return spelled(step, name=f"step_{number}", parameters={}, returns=str)


def _confirming(markers: Markers) -> Function:
    async def ask() -> Elicit[Consent]:
        return markers.elicit(CONSENT_MESSAGE, Consent)

    consent = spelled(ask, name="consent", parameters={}, returns=Elicit[Consent])

    async def work(name: str, answer: Consent) -> str:
        return said(name, [str(answer.ok)])

    parameters = {"name": str, "answer": Annotated[Consent, markers.resolve(consent)]}
    return spelled(work, name=TOOL, parameters=parameters, returns=str)


def _wording(rounds: Sequence[int], markers: Markers) -> Function:
    async def work(name: str, **values: Word) -> str:
        return said(name, (value.text for value in values.values()))

    number = 0
    latest: dict[str, Any] = {}
    for size in rounds:
        asking = {number + offset: _question(number + offset, latest, markers) for offset in range(size)}
        # The tool consumes the last round only; what went before reaches it through the wording of the questions.
        latest = {f"word_{key}": Annotated[Word, markers.resolve(question)] for key, question in asking.items()}
        number += size
    return spelled(work, name=TOOL, parameters={"name": str, **latest}, returns=str)


def _question(number: int, before: dict[str, Any], markers: Markers) -> Function:
    async def question(**values: Word) -> Elicit[Word]:
        return markers.elicit(word_message(number, [value.text for value in values.values()]), Word)

    return spelled(question, name=f"question_{number}", parameters=before, returns=Elicit[Word])
