"""One leg of one call: resolve, ask or execute, and end with a result, with questions, or refused.

This is the only place that moves a call, and it moves it through the table's events alone. Both eras take the same
way: a retry leg ends at `ask` and the next one starts with `resume`; a live leg waits there and goes on.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import anyio
from mcp_types import InputRequest, InputRequiredResult, InputResponse

from roundtrip.errors import CannotAsk
from roundtrip.graph.plan import Plan
from roundtrip.graph.walk import Refusal, Walk
from roundtrip.machine.call import Call, Observer
from roundtrip.machine.journal import Journal
from roundtrip.machine.table import Event, State
from roundtrip.runtime.answers import Answers, Open
from roundtrip.runtime.eras import Client, ask_live, is_retry_era, require_channel

__all__ = ["Authored", "Finished", "Leg", "Limits", "Refused", "Suspended", "open_call", "serve"]


@dataclass(frozen=True, slots=True)
class Limits:
    """The two clocks of a call: thinking time per leg, and its whole age. In seconds."""

    ttl: float
    max_age: float


@dataclass(frozen=True, slots=True)
class Finished:
    """The body ran to its end."""

    value: Any


@dataclass(frozen=True, slots=True)
class Suspended:
    """The leg ends with questions, to be resumed from the state."""

    requests: dict[str, InputRequest]
    state: str


@dataclass(frozen=True, slots=True)
class Authored:
    """The leg ends with a result in which the author asks by hand; `state` holds theirs, if they gave one."""

    result: InputRequiredResult
    state: str | None


@dataclass(frozen=True, slots=True)
class Refused:
    """The user declined or cancelled what the call could not do without."""

    refusal: Refusal


LegEnd = Finished | Suspended | Authored | Refused


@dataclass(slots=True)
class Leg:
    """What one leg works with. The clock and the ids are handed in: this floor has none of its own.

    `write` turns what the call remembers into the state to resume from.
    """

    call: Call
    plan: Plan
    client: Client
    born: float
    clock: Callable[[], float]
    limits: Limits
    write: Callable[[Journal], str]
    build: str = ""
    journal: Journal | None = None
    responses: Mapping[str, InputResponse] | None = None

    def remember(self, answers: Answers | None = None, *, authored: str | None = None) -> str:
        """The state that tells the next leg what it has to know.

        Raises:
            TokenTooLarge: It is more than a token may hold.
        """
        now = self.clock()
        journal = Journal(
            call_id=self.call.id,
            born=self.born,
            # No leg outlives the call's whole age, however late it starts.
            deadline=min(now + self.limits.ttl, self.born + self.limits.max_age),
            leg=self.call.leg,
            round=self.call.round,
            fingerprint=self.plan.fingerprint,
            build=self.build,
            entries=answers.with_unread() if answers is not None else {},
            asked=answers.still_asked() if answers is not None else {},
            computed=answers.computed if answers is not None else {},
            authored=authored,
        )
        return self.write(journal)


def open_call(journal: Journal | None, *, fresh_id: Callable[[], str], observers: Sequence[Observer]) -> Call:
    """The call a leg belongs to: a new one, or the one its journal tells of."""
    if journal is None:
        return Call(fresh_id(), observers=observers)
    return Call(
        journal.call_id,
        leg=journal.leg + 1,
        round=journal.round,
        state=State.AWAITING_INPUT,
        observers=observers,
    )


async def serve(
    leg: Leg,
    *,
    arguments: Mapping[str, Any],
    context: Any,
    execute: Callable[[dict[str, Any]], Awaitable[Any]],
) -> LegEnd:
    """Serve one leg.

    Args:
        leg: The call, its plan and its client.
        arguments: The tool's validated arguments, as resolvers may ask for them by name.
        context: What a parameter annotated as context receives.
        execute: Runs the body with the values of its filled parameters.

    Raises:
        RoundtripError: The call cannot go on (a question cannot be put, an answer was invalid too often, ...).
        Exception: What the author's code raised.
    """
    call = leg.call
    try:
        if call.state is State.AWAITING_INPUT:
            call.apply(Event.RESUME)
            call.apply(Event.RESOLVE)
        else:
            call.apply(Event.BEGIN)
        values: dict[str, Any] = {}
        answers = None
        if leg.plan.nodes:
            answers = Answers(leg.plan, leg.journal, build=leg.build)
            ended = await _resolve(leg, answers, arguments, context, values)
            if ended is not None:
                return ended
        call.apply(Event.EXECUTE)
        value = await execute(values)
        if isinstance(value, InputRequiredResult):
            call.apply(Event.ASK, keys=tuple(value.input_requests or ()), authored=True)
            state = value.request_state
            return Authored(value, leg.remember(authored=state) if state is not None else None)
        call.apply(Event.FINISH)
    except CannotAsk as error:
        call.apply(Event.REJECT, error=str(error))
        raise
    except anyio.get_cancelled_exc_class():
        call.apply(Event.FAIL, error="cancelled")
        raise
    except Exception as error:
        call.apply(Event.FAIL, error=f"{type(error).__name__}: {error}")
        raise
    return Finished(value)


async def _resolve(
    leg: Leg, answers: Answers, arguments: Mapping[str, Any], context: Any, values: dict[str, Any]
) -> Suspended | Refused | None:
    """Fill `values`; or end the leg, with questions or a refusal."""
    call, client = leg.call, leg.client
    walk = Walk(
        leg.plan,
        arguments=arguments,
        context=context,
        settle=answers.settle,
        recall=answers.recall,
        remember=answers.remember,
    )
    retry = is_retry_era(client.protocol_version)
    if leg.journal is not None:
        answers.deliver(leg.responses or {}, leg.journal.asked)
    await walk.advance()
    while walk.refusal is None and walk.waiting:
        if answers.adopt(walk.is_blocked):
            walk.answered()
            await walk.advance()
            continue
        answers.check_volatile()
        batch = [answers.open[node.key] for node, _ in walk.order()]
        if not retry:
            # First, as without a session the server has not kept what the client declared either.
            require_channel(client, batch)
        for waiting in batch:
            waiting.question.require(waiting.key, client.capabilities)
        if call.observed:
            call.apply(Event.ASK, **_detail(batch))
        else:
            call.apply(Event.ASK)
        if retry:
            return Suspended({waiting.key: waiting.request() for waiting in batch}, leg.remember(answers))
        responses = await ask_live(client, batch)
        call.apply(Event.RESUME)
        call.apply(Event.RESOLVE)
        answers.deliver(responses, {waiting.key: waiting.asked for waiting in batch})
        walk.answered()
        await walk.advance()
    if walk.refusal is None:
        walk.fill(values)
    if walk.refusal is None:
        return None
    call.apply(Event.REFUSE, reason=str(walk.refusal))
    return Refused(walk.refusal)


def _detail(batch: Sequence[Open]) -> dict[str, Any]:
    return {
        "keys": tuple(waiting.key for waiting in batch),
        "reasons": {waiting.key: waiting.reason for waiting in batch},
    }
