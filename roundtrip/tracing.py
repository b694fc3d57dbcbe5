"""What a server tells its tracers: of each request that reaches a function, and of each token it refuses.

A tracer is asked to watch a serving when it begins, and is told every fact of it in order: those of the runtime
(`roundtrip.machine.facts`), and those below, which only the server knows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from roundtrip.errors import RejectionReason
from roundtrip.machine.call import Call, Step
from roundtrip.machine.facts import Watch
from roundtrip.machine.journal import Journal
from roundtrip.machine.table import Event, State

__all__ = [
    "Beginning",
    "Closed",
    "DeclinedFact",
    "LinkedWatch",
    "Raised",
    "Returned",
    "ServedFunction",
    "StepObserver",
    "TokenRejection",
    "Tracer",
    "Tracers",
    "Unfailing",
    "Wrote",
]

logger = logging.getLogger("roundtrip")

Era = Literal["retry", "live", "direct"]


class ServedFunction(NamedTuple):
    """What is the same of all servings of one function."""

    method: str
    tool: str
    version: str | None
    build: str
    plan: str


class Beginning(NamedTuple):
    """A request reached its function."""

    call_id: str
    leg: int
    round: int
    subject: ServedFunction
    era: Era
    protocol: str | None
    principal: str | None
    journal: Journal | None
    """What the client brought."""
    token_bytes: int | None
    arguments: Mapping[str, Any]
    within: str | None
    replaces: str | None
    """The expired call that this one is begun in the place of."""

    @property
    def tool(self) -> str:
        """The name of what was called."""
        return self.subject.tool


class TokenRejection(NamedTuple):
    """A token was refused. `journal` is what it held, where it is authentic."""

    reason: RejectionReason
    method: str
    tool: str | None
    protocol: str | None
    principal: str | None
    journal: Journal | None
    token_bytes: int | None


class Wrote(NamedTuple):
    """What the call remembers was written, for the client to bring along."""

    journal: Journal


class Returned(NamedTuple):
    """The function's result, as the client will have it."""

    value: Any


class Raised(NamedTuple):
    """What ended the leg that did not end well."""

    error: BaseException


class DeclinedFact(NamedTuple):
    """What the user would not answer."""

    reason: str


class Closed(NamedTuple):
    """The request has been served; the last fact. The size is that of the token that goes out, if one does."""

    token_bytes: int | None


class LinkedWatch:
    """A watch whose serving is a span, to which that of the next leg will have a link: the token takes it there."""

    __slots__ = ("_watch", "traceparent")

    def __init__(self, watch: Watch, traceparent: str) -> None:
        self._watch = watch
        self.traceparent = traceparent

    def __call__(self, fact: Any) -> None:
        """Take one fact in."""
        self._watch(fact)


@runtime_checkable
class Tracer(Protocol):
    """Watches what a server serves; give it to `Server(trace=...)`."""

    def begin(self, beginning: Beginning) -> Watch:
        """Watch one serving."""
        ...

    def refuse(self, refusal: TokenRejection) -> None:
        """Take note of a token that was refused."""
        ...


class Unfailing:
    """Marks a tracer whose watches take care of their own failures."""


class StepObserver:
    """A plain function as a tracer: it is told each change of state of each call."""

    def __init__(self, observe: Callable[[Step], None]) -> None:
        self._observe = observe

    def begin(self, beginning: Beginning) -> Watch:
        """Watch one serving."""
        del beginning
        observe = self._observe

        def watch(fact: Any) -> None:
            if isinstance(fact, Step):
                observe(fact)

        return watch

    def refuse(self, refusal: TokenRejection) -> None:
        """Tell of a token that was refused, as a step of its call."""
        journal = refusal.journal
        call = Call(
            journal.call_id if journal is not None else "unknown",
            leg=journal.leg + 1 if journal is not None else 1,
            round=journal.round if journal is not None else 0,
            state=State.AWAITING_INPUT if journal is not None else State.RECEIVED,
            watch=self._observe,
        )
        call.apply(Event.REJECT, reason=refusal.reason.value)


class Tracers:
    """All tracers of a server as one, none of which can end the call that it watches."""

    def __init__(self, tracers: Iterable[Tracer]) -> None:
        self._set(tuple(tracers))

    def _set(self, tracers: tuple[Tracer, ...]) -> None:
        self._tracers = tracers
        # What most servers have that are recorded at all is told directly.
        self._unfailing = len(self._tracers) == 1 and isinstance(self._tracers[0], Unfailing)

    def add(self, tracer: Tracer) -> None:
        """Have one more watch what begins from now on."""
        self._set((*self._tracers, tracer))

    def remove(self, tracer: Tracer) -> None:
        """Take away one that was added."""
        self._set(tuple(one for one in self._tracers if one is not tracer))

    def __bool__(self) -> bool:
        return bool(self._tracers)

    def begin(self, beginning: Beginning) -> Watch:
        """Have one serving watched by all."""
        watches: list[Watch] = []
        for tracer in self._tracers:
            try:
                watches.append(tracer.begin(beginning))
            except Exception:
                logger.exception("a tracer failed at the beginning of a call; it will not see this one")
        if self._unfailing and watches:
            return watches[0]

        def watch(fact: Any) -> None:
            for each in watches:
                try:
                    each(fact)
                except Exception:
                    logger.exception("a tracer failed on %s; the call is not affected", type(fact).__name__)

        # A token has room for one.
        linked = next((each for each in watches if isinstance(each, LinkedWatch)), None)
        return watch if linked is None else LinkedWatch(watch, linked.traceparent)

    def refuse(self, refusal: TokenRejection) -> None:
        """Tell all of a token that was refused."""
        for tracer in self._tracers:
            try:
                tracer.refuse(refusal)
            except Exception:
                logger.exception("a tracer failed on a refused token")
