"""Tools in the form that the SDK and roundtrip share: resolvers fill parameters, and may return a question."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from mcp.server import MCPServer
from mcp.server.mcpserver import Elicit, Resolve, Sample
from mcp_types import CreateMessageResult, SamplingMessage, TextContent

from benchmarks.variants.signatures import declared, spelled
from benchmarks.workloads import (
    CONSENT_MESSAGE,
    DRAFT_MESSAGE,
    TOOL,
    Compute,
    Confirm,
    Consent,
    Draft,
    Plain,
    Word,
    Words,
    Workload,
    computed,
    result_text,
    word_message,
)

Function: TypeAlias = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Markers:
    """The SDK's or roundtrip's marker classes. roundtrip's are subclasses of the SDK's."""

    resolve: Callable[[Function], Resolve]
    elicit: type[Elicit[Any]]
    sample: type[Sample]
    once: Callable[[Function], Resolve] | None = None
    """Marks a function whose value is final. None if the library has no such marker."""


def register(server: MCPServer[Any], workload: Workload, *, markers: Markers) -> bool:
    """Register the workload's tool on the server. Return False if these markers cannot express it."""
    in_threads = workload.in_threads
    match workload:
        case Plain(tools=tools):
            for number in range(1, tools):
                server.tool(name=f"other_{number}")(_greeter(in_threads))
            server.tool(name=TOOL)(_greeter(in_threads))
        case Compute(count=count, seconds=seconds):
            server.tool(name=TOOL)(_computing(count, seconds, markers, in_threads))
        case Confirm():
            server.tool(name=TOOL)(_confirming(markers, in_threads))
        case Words(rounds=rounds, once=once):
            resolve = markers.once if once else markers.resolve
            if resolve is None:
                return False
            server.tool(name=TOOL)(_wording(rounds, markers, resolve, in_threads))
        case Draft(questions=questions):
            server.tool(name=TOOL)(_drafting(questions, markers, in_threads))
        case _:
            raise NotImplementedError(type(workload).__name__)
    return True


def _greeter(in_threads: bool) -> Function:
    def work(name: str) -> str:
        return result_text(name, ["hello"])

    return spelled(declared(work, in_threads=in_threads), name=TOOL, parameters={"name": str}, returns=str)


def _computing(count: int, seconds: float, markers: Markers, in_threads: bool) -> Function:
    def work(name: str, **values: str) -> str:
        return result_text(name, values.values())

    steps = {f"value_{number}": _step(number, seconds, in_threads) for number in range(count)}
    parameters = {name: Annotated[str, markers.resolve(step)] for name, step in steps.items()}
    return spelled(
        declared(work, in_threads=in_threads), name=TOOL, parameters={"name": str, **parameters}, returns=str
    )


def _step(number: int, seconds: float, in_threads: bool) -> Function:
    async def step() -> str:
        if seconds:
            await asyncio.sleep(seconds)
        return computed(number)

    def blocking_step() -> str:
        if seconds:
            time.sleep(seconds)
        return computed(number)

    return spelled(blocking_step if in_threads else step, name=f"step_{number}", parameters={}, returns=str)


def _confirming(markers: Markers, in_threads: bool) -> Function:
    def ask() -> Elicit[Consent]:
        return markers.elicit(CONSENT_MESSAGE, Consent)

    consent = spelled(declared(ask, in_threads=in_threads), name="consent", parameters={}, returns=Elicit[Consent])

    def work(name: str, answer: Consent) -> str:
        return result_text(name, [str(answer.ok)])

    parameters = {"name": str, "answer": Annotated[Consent, markers.resolve(consent)]}
    return spelled(declared(work, in_threads=in_threads), name=TOOL, parameters=parameters, returns=str)


def _wording(
    rounds: Sequence[int], markers: Markers, resolve: Callable[[Function], Resolve], in_threads: bool
) -> Function:
    def work(name: str, **values: Word) -> str:
        return result_text(name, (value.text for value in values.values()))

    number = 0
    latest: dict[str, Any] = {}
    for size in rounds:
        asking = {number + offset: _question(number + offset, latest, markers, in_threads) for offset in range(size)}
        # The tool receives only the last round. Earlier answers reach it through the wording of the questions.
        latest = {f"word_{key}": Annotated[Word, resolve(question)] for key, question in asking.items()}
        number += size
    return spelled(declared(work, in_threads=in_threads), name=TOOL, parameters={"name": str, **latest}, returns=str)


def _question(number: int, before: dict[str, Any], markers: Markers, in_threads: bool) -> Function:
    def question(**values: Word) -> Elicit[Word]:
        return markers.elicit(word_message(number, [value.text for value in values.values()]), Word)

    return spelled(
        declared(question, in_threads=in_threads), name=f"question_{number}", parameters=before, returns=Elicit[Word]
    )


def _drafting(questions: int, markers: Markers, in_threads: bool) -> Function:
    def write() -> Sample:
        message = SamplingMessage(role="user", content=TextContent(text=DRAFT_MESSAGE))
        return markers.sample([message], max_tokens=6000)

    def work(name: str, draft: CreateMessageResult, answer: Word) -> str:
        return result_text(name, [str(len(_text(draft))), answer.text])

    writing = spelled(declared(write, in_threads=in_threads), name="draft", parameters={}, returns=Sample)
    draft = Annotated[CreateMessageResult, markers.resolve(writing)]
    answer: Any = draft
    for number in range(1, questions + 1):
        question = _question_about(number, answer, markers, in_threads)
        answer = Annotated[Word, markers.resolve(question)]
    return spelled(
        declared(work, in_threads=in_threads),
        name=TOOL,
        parameters={"name": str, "draft": draft, "answer": answer},
        returns=str,
    )


def _question_about(number: int, before: Any, markers: Markers, in_threads: bool) -> Function:
    def question(before: Word | CreateMessageResult) -> Elicit[Word]:
        text = before.text if isinstance(before, Word) else _text(before)
        return markers.elicit(word_message(number, [text]), Word)

    return spelled(
        declared(question, in_threads=in_threads),
        name=f"question_{number}",
        parameters={"before": before},
        returns=Elicit[Word],
    )


def _text(result: CreateMessageResult) -> str:
    return result.content.text if isinstance(result.content, TextContent) else ""
