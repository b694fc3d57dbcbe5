"""Scenarios that run in this process."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from statistics import mean
from time import process_time_ns
from typing import Final, Protocol, TypeAlias

from starlette.types import ASGIApp

from benchmarks.asgi import serving
from benchmarks.dialogue import Leg, Poster, play
from benchmarks.sockets import listening
from benchmarks.variants import Variant
from benchmarks.wire import WrongReply, list_tools, read_list
from benchmarks.workloads import TOOL, Plain, Workload, compute, confirm, draft, plain, threaded, words

Call: TypeAlias = Callable[[], Awaitable[tuple[float, ...]]]
"""Do the work once, check it, and return one value for each row in its scenario."""


class Unit(Enum):
    """Unit for a row's values."""

    NANOSECONDS = "ns"
    BYTES = "bytes"
    RATIO = "ratio"
    PER_SECOND = "per second"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    name: str
    title: str
    unit: Unit = Unit.NANOSECONDS
    is_compared: bool = True
    """True if a ratio between two peers is meaningful. It is not if one of them has almost nothing to do."""


class Scenario(Protocol):
    """Work that every peer can do, and that can be measured."""

    @property
    def rows(self) -> tuple[Row, ...]:
        """Return the table rows that it fills."""
        ...

    @property
    def calls(self) -> int:
        """Return how many calls a batch has."""
        ...

    @property
    def most_rounds(self) -> int | None:
        """Return a limit for the rounds, if the scenario is slow and steady."""
        ...

    def prepared(self, variant: Variant) -> AbstractAsyncContextManager[Call | None]:
        """Prepare a peer for it. Yield `None` if the peer has no such feature."""
        ...


@dataclass(frozen=True, slots=True)
class Reading:
    """A row, and a function that reads its value from a call's legs."""

    row: Row
    take: Callable[[Sequence[Leg]], float]


Host: TypeAlias = Callable[[ASGIApp], AbstractAsyncContextManager[Poster]]
"""Starts an application."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """Scenario that calls a tool, by default over raw ASGI."""

    workload: Workload
    readings: tuple[Reading, ...]
    calls: int
    most_rounds: int | None = None
    host: Host = serving

    @property
    def rows(self) -> tuple[Row, ...]:
        """Return the table rows that it fills."""
        return tuple(reading.row for reading in self.readings)

    def prepared(self, variant: Variant) -> AbstractAsyncContextManager[Call | None]:
        """Start a server with the variant and the workload's tool."""

        async def once(endpoint: Poster) -> tuple[float, ...]:
            legs = await play(endpoint, self.workload)
            return tuple(reading.take(legs) for reading in self.readings)

        return _served(variant, self.workload, once, host=self.host)


@dataclass(frozen=True, slots=True)
class SettledCalls:
    """Scenario with whole calls over raw ASGI, and the work that the server does after its responses."""

    workload: Workload
    rows: tuple[Row, ...]
    calls: int = 1
    most_rounds: int | None = None
    calls_per_value: int = 40
    """How many calls one value averages."""
    pause: float = 0.05
    """Seconds after which the server has done all its work."""

    def prepared(self, variant: Variant) -> AbstractAsyncContextManager[Call | None]:
        """Start a server with the variant and the workload's tool."""

        async def once(endpoint: Poster) -> tuple[float, ...]:
            busy = 0.0
            for _ in range(self.calls_per_value):
                busy += _whole(await play(endpoint, self.workload))
                # One turn of the event loop, as between two requests.
                busy += await _processor_time(asyncio.sleep(0))
            busy += await _processor_time(asyncio.sleep(self.pause))
            return (busy / self.calls_per_value,)

        return _served(variant, self.workload, once)


async def _processor_time(work: Awaitable[None]) -> float:
    start = process_time_ns()
    await work
    return process_time_ns() - start


@dataclass(frozen=True, slots=True)
class ToolList:
    """Scenario that lists the tools over raw ASGI."""

    workload: Plain
    rows: tuple[Row, ...]
    calls: int
    most_rounds: int | None = None

    def prepared(self, variant: Variant) -> AbstractAsyncContextManager[Call | None]:
        """Start a server with the variant and the workload's tools."""

        async def once(endpoint: Poster) -> tuple[float, ...]:
            request = list_tools()
            response = await endpoint.post(request.body, headers=request.headers)
            names = read_list(response)
            if TOOL not in names or len(names) != self.workload.tools:
                raise WrongReply(f"listed {len(names)} tools where there are {self.workload.tools}")
            return (response.elapsed_ns,)

        return _served(variant, self.workload, once)


@asynccontextmanager
async def _served(
    variant: Variant,
    workload: Workload,
    once: Callable[[Poster], Awaitable[tuple[float, ...]]],
    *,
    host: Host = serving,
) -> AsyncGenerator[Call | None]:
    """Yield a call on a server with the variant, or `None` if the peer has no such feature."""
    app = variant.build(workload)
    if app is None:
        yield None
        return
    async with host(app) as endpoint:
        yield partial(once, endpoint)


def _whole(legs: Sequence[Leg]) -> float:
    return sum(leg.elapsed_ns for leg in legs)


def _ask_leg(legs: Sequence[Leg]) -> float:
    return legs[0].elapsed_ns


def _answer_leg(legs: Sequence[Leg]) -> float:
    return legs[-1].elapsed_ns


def _carrying_bytes(legs: Sequence[Leg]) -> float:
    # The first leg asks for the text, and the second brings it. Later legs carry it; the last one only in its request.
    return mean(leg.bytes for leg in legs[2:-1])


def _last_state(legs: Sequence[Leg]) -> float:
    return legs[-2].state_bytes


def _whole_call(
    name: str,
    title: str,
    *,
    workload: Workload,
    calls: int,
    most_rounds: int | None = None,
    host: Host = serving,
) -> Conversation:
    return Conversation(workload, (Reading(Row(name, title), _whole),), calls=calls, most_rounds=most_rounds, host=host)


def _questions(count: int, *, calls: int) -> Conversation:
    noun = "question" if count == 1 else "independent questions"
    return Conversation(
        words(count),
        (
            Reading(Row(f"ask-{count}", f"{count} {noun}, ask leg"), _ask_leg),
            Reading(Row(f"answer-{count}", f"{count} {noun}, answer leg"), _answer_leg),
        ),
        calls=calls,
    )


def _token(count: int) -> Conversation:
    noun = "answer" if count == 1 else "answers"
    row = Row(f"token-{count}", f"token, {count} {noun} of 40 characters", Unit.BYTES)
    # The state with the answers is returned with the question that depends on them.
    return Conversation(words(count, 1, long=True), (Reading(row, _last_state),), calls=1, most_rounds=5)


def _once(count: int, *, calls: int) -> Conversation:
    title = f"chain of {count} questions, remember=True, whole call"
    return _whole_call(f"once-{count}", title, workload=words(*[1] * count, once=True), calls=calls)


def _sampled() -> Conversation:
    row = Row("sampled", "leg with 20 kB of earlier sampled text", Unit.BYTES)
    return Conversation(draft(4), (Reading(row, _carrying_bytes),), calls=1, most_rounds=5)


def _threaded(conversation: Conversation) -> Conversation:
    """Return the same conversation with plain `def` functions."""
    readings = tuple(
        replace(one, row=replace(one.row, name=f"{one.row.name}-def", title=f"{one.row.title}, plain `def`"))
        for one in conversation.readings
    )
    return replace(conversation, workload=threaded(conversation.workload), readings=readings)


_CONVERSATIONS: Final[tuple[Conversation, ...]] = (
    _whole_call("plain", "plain call", workload=plain(), calls=100),
    _whole_call("plain-100", "plain call, 100 tools registered", workload=plain(tools=100), calls=30),
    _whole_call("elicit", "two-round elicitation, both legs", workload=confirm(), calls=40),
    _whole_call("http", "the same over HTTP, client included", workload=confirm(), calls=20, host=listening),
    _questions(1, calls=40),
    _questions(4, calls=20),
    _questions(16, calls=8),
    _whole_call("chain-4", "chain of 4 questions, whole call", workload=words(*[1] * 4), calls=10),
    _whole_call("chain-16", "chain of 16 questions, whole call", workload=words(*[1] * 16), calls=2),
    _whole_call("chain-64", "chain of 64 questions, whole call", workload=words(*[1] * 64), calls=1),
    _once(16, calls=2),
    _once(32, calls=1),
    _once(64, calls=1),
    _whole_call("slow-10", "10 resolvers of 50 ms", workload=compute(10, seconds=0.05), calls=1, most_rounds=5),
    _whole_call("trivial-10", "10 trivial resolvers", workload=compute(10, seconds=0), calls=80),
)

IN_PROCESS: Final[tuple[Scenario, ...]] = (
    *(each for one in _CONVERSATIONS for each in (one, _threaded(one))),
    SettledCalls(confirm(), (Row("elicit-settled", "two-round elicitation, and work after the responses"),)),
    ToolList(plain(tools=100), (Row("list-100", "list of 100 tools"),), calls=5),
    _token(1),
    _token(4),
    _token(16),
    _sampled(),
)
