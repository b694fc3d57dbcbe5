"""Networks that also send legs from a hostile client. The server must reject these legs, and the legs must have no
effect.
"""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, ElicitResult, InputRequest, InputResponse
from pydantic_core import to_jsonable_python

from roundtrip.client.legs import LegRequest
from roundtrip.testing.attacks.answers import NOT_ASKED, UNASKED_ANSWER, invalid_responses, other_answers
from roundtrip.testing.attacks.apps import bad_tickets, broken_answers, other_rounds
from roundtrip.testing.attacks.reading import readable_in, texts_in
from roundtrip.testing.attacks.requests import other_arguments
from roundtrip.testing.attacks.states import flip, forged, tampered
from roundtrip.testing.clocks import Clock
from roundtrip.testing.networks.app_attacks import AppAnswer
from roundtrip.testing.networks.deliveries import Breach, Inapplicable, LegDelivery
from roundtrip.testing.networks.fleet import acting_as
from roundtrip.testing.networks.network import Route
from roundtrip.testing.question_pages import pages_among

# Hide this module's frames in the tracebacks of failing tests.
__tracebackhide__ = True

_DAY_SECONDS: Final = 86400.0
_MAX_OTHER_TOOLS: Final = 3
_CLOCK_HINT: Final = (
    " (it must look up `time.time` on each call; if its tokens are valid for longer, use Delay(seconds=...))"
)
_MIN_SECRET_CHARS: Final = 6
"""The minimum length of a text that Eavesdrop looks for. A shorter text may appear in a token by chance."""


class Delay:
    """A network that delivers every token twice: a day late, and on time. The server must reject the late token.

    Args:
        seconds: The delay.
    """

    name = "delay"

    def __init__(self, seconds: float = _DAY_SECONDS) -> None:
        self._seconds = seconds

    async def carry(self, leg: LegRequest, route: Route) -> LegDelivery:
        """Send the leg twice: after its deadline, and then before it."""
        if not route.fleet.is_in_this_process:
            raise Inapplicable("Delay can change the clock only in this process: use User(server), not User(url)")
        # Concurrent legs share one clock.
        async with route.notes.setdefault("turning", anyio.Lock()):
            if leg.state is not None:
                clock = Clock()
                clock.advance(self._seconds)
                with clock.set():
                    late = await route.aside(leg)
                _require_rejection(late, f"a token arrived {self._seconds:g} s late", _CLOCK_HINT)
            return await route.onward(leg)


class Tamper:
    """A network that also sends changed tokens, changed task ids, changed app tickets, and rewritten copies of readable
    tokens.

    The server must reject all of them with the same error.
    """

    name = "tamper"

    async def carry(self, leg: LegRequest, route: Route) -> LegDelivery:
        """Send changed copies of the token, task id or ticket, and then the leg."""
        if (answer := AppAnswer.of(leg, route)) is not None:
            return await answer.carry(bad_tickets(answer.ticket))
        changed: list[tuple[str, LegRequest]] = []
        if leg.state is not None:
            changed = [
                (f"a token with {what}", replace(leg, state=state))
                for what, state in (*tampered(leg.state), *forged(leg.state))
            ]
        elif leg.task_id is not None:
            changed = [(f"a task id with {what}", replace(leg, task_id=id)) for what, id in tampered(leg.task_id)]
        changes_by_answer: dict[str, str] = {}
        for what, copy in changed:
            delivery = await route.aside(copy)
            _require_rejection(delivery, f"{what} arrived")
            changes_by_answer.setdefault(delivery.told, what)
        if len(changes_by_answer) > 1:
            texts = "; ".join(f"{what}: {answer}" for answer, what in changes_by_answer.items())
            raise Breach(f"all bad tokens must get the same error, because differences help an attacker; got {texts}")
        return await route.onward(leg)


class Swap:
    """A network that also delivers every token with other arguments, to another tool, and from another user.

    The other user also tries to read, answer and cancel the user's tasks, and to answer in the user's app.
    """

    name = "swap"

    async def carry(self, leg: LegRequest, route: Route) -> LegDelivery:
        """Send the token with other requests, and then the leg."""
        if route.fleet.principal is not None and not route.fleet.is_in_memory:
            raise Inapplicable("with principal=, Swap works only in memory: use User(server, over='memory')")
        if (answer := AppAnswer.of(leg, route)) is not None:
            return await answer.carry(await answer.foreign_tickets())
        if leg.state is not None:
            tools = await route.fleet.tools() if leg.method == "tools/call" else {}
            for name, others in other_arguments(leg.arguments, tools.get(leg.name, {})):
                for value in others:
                    delivery = await route.aside(replace(leg, arguments={**leg.arguments, name: value}))
                    _require_rejection(delivery, f"a token arrived with another {name!r} argument", may_fail=True)
                    if delivery.is_rejected:
                        break
                    # If the tool itself failed, for example because it does not know the value, try the next value.
            names = [name for name in tools if name != leg.name][:_MAX_OTHER_TOOLS]
            for name in [f"{leg.name}x"] if leg.method == "resources/read" else names:
                delivery = await route.aside(replace(leg, name=name))
                _require_rejection(delivery, f"a token for {leg.name!r} arrived at {name!r}", may_fail=True)
            if route.fleet.principal is not None:
                with acting_as("roundtrip.testing: another user"):
                    delivery = await route.aside(leg)
                _require_rejection(delivery, "a user's token arrived from another user")
        if leg.task_id is not None and route.fleet.is_in_memory:
            await self._attack_task(route, leg.task_id, leg.answers or {})
        return await route.onward(leg)

    async def _attack_task(self, route: Route, task_id: str, answers: Mapping[str, InputResponse]) -> None:
        own, foreign = route.fleet.requests_to(task_id), route.fleet.requests_to(f"{flip(task_id[0])}{task_id[1:]}")
        with acting_as("roundtrip.testing: another user"):
            for what, mine, unknown in (
                ("read", own.get, foreign.get),
                ("answered", partial(own.update, answers), partial(foreign.update, answers)),
                ("cancelled", own.cancel, foreign.cancel),
            ):
                errors = [await _error_of(mine), await _error_of(unknown)]
                if errors[0] is None or errors[0] != errors[1]:
                    raise Breach(
                        f"another user {what} the user's task, and the server answered with {errors[0] or 'a result'}; "
                        f"it must answer with {errors[1] or 'a result'}, as it does for an unknown task"
                    )


async def _error_of(request: Callable[[], Awaitable[object]]) -> str | None:
    try:
        await request()
    except MCPError as error:
        return f"the error {error.code} {error.error.message!r}"
    return None


class Strip:
    """A network that loses one answer per round. The server must ask only the lost answer's question again (S7)."""

    name = "strip"

    async def carry(self, leg: LegRequest, route: Route) -> LegDelivery:
        """Send the leg without one answer, and send the missing answer when the server asks again."""
        before = route.before(leg)
        expected = before.names if before is not None else set[str]()
        pages = pages_among(before.asks if before is not None else None, route.fleet.at)
        lost = next((key for key in leg.answers or {} if key in expected - pages), None)
        if leg.answers is None or lost is None:
            return await route.onward(leg)
        answers: Mapping[str, InputResponse] = {key: value for key, value in leg.answers.items() if key != lost}
        delivery = await route.onward(replace(leg, answers=answers))
        asked = delivery.names
        if lost not in asked:
            raise Breach(
                f"the answer to {lost!r} was lost; the server must ask again, but it answered with {delivery.told}"
            )
        if delivery.asks is None or not asked <= leg.answers.keys():
            return delivery
        answers = {key: leg.answers[key] for key in leg.answers if key in asked}
        again = await route.onward(leg.answering(delivery.asks, answers))
        # The server may also repeat questions whose answers were invalid.
        forgotten = (asked & answers.keys()) - {lost} - again.names
        if forgotten and not again.is_rejected:
            raise Breach(
                f"only the answer to {lost!r} was lost, but the server also asked {_quote(sorted(forgotten))} again; "
                "the server must keep the answers that arrived"
            )
        return again


class Invent:
    """A network that invents answers. It sends answers without a token, answers to questions that are asked later, and
    an answer to an unknown question. An app sends its earlier answers again, also after the end.

    The server must not use these answers (S8).
    """

    name = "invent"

    async def carry(self, leg: LegRequest, route: Route) -> LegDelivery:
        """Send answers too early, and then send the leg with an answer to an unknown question."""
        if (answer := AppAnswer.of(leg, route)) is not None:
            return await answer.carry(other_rounds(one.leg.arguments for one in answer.earlier))
        past = route.history(leg)
        if leg.answers and past:
            known: dict[str, InputResponse] = {}
            for one in past:
                known.update(one.leg.answers or {})
            known.update(leg.answers)
            known.pop(NOT_ASKED, None)
            delivery = await route.aside(replace(past[0].leg, answers=known))
            # With `once_per=`, the request joins the user's call, and the server asks any question that is open there.
            expected = set[str]() if delivery.has_intent else past[0].names
            what = f"answers to {_quote(known)} came without a token, so it must ask {_quote(expected) or 'them'}"
            if delivery.has_intent or not _is_merged(delivery, past[-1], route):
                _require_no_trust(delivery, expected, what)
            # A stored call accepts an answer to an open question at any time.
            early = leg.answers.keys() - past[-2].names if len(past) > 1 and not _is_stored(leg, route) else set[str]()
            if early:
                before = past[-1].leg
                answers = {**{key: leg.answers[key] for key in sorted(early)}, **(before.answers or {})}
                delivery = await route.aside(replace(before, answers=answers))
                what = f"answers to {_quote(sorted(early))} came before their questions"
                _require_no_trust(delivery, past[-1].names, what)
        delivery = await route.onward(replace(leg, answers={**(leg.answers or {}), NOT_ASKED: UNASKED_ANSWER}))
        if delivery.done is not None:
            for answer in route.notes.get("app answers", [])[-1:]:
                await answer.attack(other_rounds([answer.leg.arguments]))
        if delivery.error is not None and (honest := await route.onward(leg)).error is None:
            raise Breach(
                f"an answer to an unknown question was added, and the server answered with {delivery.told} "
                f"instead of {honest.told}; the server must ignore that answer"
            )
        return delivery


class Garble:
    """A network that also sends invalid answers, which have a wrong type, a wrong kind or missing fields. An app also
    sends texts that its form cannot send.
    """

    name = "garble"

    async def carry(self, leg: LegRequest, route: Route) -> LegDelivery:
        """Send invalid answers, and then the leg."""
        if (answer := AppAnswer.of(leg, route)) is not None:
            return await answer.carry(broken_answers(leg.arguments["answers"]))
        before = route.before(leg)
        asks = before.asks if before is not None else None
        requests = (asks.input_requests if asks is not None else None) or {}
        pages = pages_among(asks, route.fleet.at)
        if _is_stored(leg, route) and not pages:
            return await self._carry_to_stored_call(leg, route, requests)
        for key, request in requests.items():
            if key in pages:
                continue
            for what, garbage in invalid_responses(request):
                delivery = await route.aside(replace(leg, answers={**(leg.answers or {}), key: garbage}))
                _require_no_trust(delivery, [key], f"the answer to {key!r} came as {what}")
        return await route.onward(leg)

    async def _carry_to_stored_call(
        self, leg: LegRequest, route: Route, requests: Mapping[str, InputRequest]
    ) -> LegDelivery:
        """Send one invalid answer, and then the leg. A stored call must ask again under a new key."""
        garbled_before: set[str] = route.notes.setdefault("garbled", set())
        for key, request in requests.items():
            name = key.partition("#")[0]
            if name in garbled_before:
                # Send only one invalid answer per question, because attempts are limited and the user may also send an
                # invalid answer.
                continue
            honest = (leg.answers or {}).get(key)
            garbled = next(invalid_responses(request), None)
            if honest is None or garbled is None or (isinstance(honest, ElicitResult) and honest.action != "accept"):
                continue
            garbled_before.add(name)
            what, garbage = garbled
            delivery = await route.onward(replace(leg, answers={**(leg.answers or {}), key: garbage}))
            _require_no_trust(delivery, (), f"the answer to {key!r} came as {what}")
            if delivery.asks is None:
                return delivery
            again = [one for one in delivery.names if one not in requests and one.startswith(name)]
            if key in delivery.names or len(again) != 1:
                raise Breach(
                    f"the answer to {key!r} came as {what}; the call must ask again under one new key, but it asked "
                    f"{_quote(sorted(delivery.names))}"
                )
            return await route.onward(leg.answering(delivery.asks, {again[0]: honest}))
        return await route.onward(leg)


class Interleave:
    """A network that also calls the same function concurrently, with other answers.

    The concurrent call advances as far as the user's call, and is then abandoned. Both calls must begin with the same
    questions.
    """

    name = "interleave"

    async def carry(self, leg: LegRequest, route: Route) -> LegDelivery:
        """Play the concurrent call, and send the leg."""
        history = route.history(leg)
        past = [one.leg for one in history]
        if past:
            other = await route.aside(past[0])
            other_names, own_names = other.names, history[0].names
            if _is_merged(other, history[-1], route):
                return await route.onward(leg)
            if not other.is_rejected and other_names != own_names:
                raise Breach(
                    f"concurrent calls of {leg.name!r} must begin with the same questions, but one call asked "
                    f"{_quote(sorted(other_names)) or 'nothing'}, and the other asked {_quote(sorted(own_names))}; "
                    "does the server keep data between calls (in a global or a cache)?"
                )
            for one in past[1:]:
                if other.asks is None:
                    break
                answers = other_answers(other.asks.input_requests or {}, one.answers or {})
                other = await route.aside(one.answering(other.asks, answers))
        return await route.onward(leg)


class Eavesdrop:
    """A network that reads every token without a key. It must not find computed values in a token.

    roundtrip servers report their computed values. For other servers, pass the values as `secrets`.

    Args:
        secrets: Texts that must not be readable in any token.
    """

    name = "eavesdrop"

    def __init__(self, secrets: str | Iterable[object] = ()) -> None:
        self._secrets = (secrets,) if isinstance(secrets, str) else tuple(map(str, secrets))

    async def carry(self, leg: LegRequest, route: Route) -> LegDelivery:
        """Send the leg, and read the token in the response."""
        delivery = await route.onward(leg)
        token = delivery.asks.request_state if delivery.asks is not None else None
        if token is not None:
            if delivery.transitions is None and not self._secrets:
                raise Inapplicable(
                    "this server does not report computed values; list the secrets, such as secrets=['4711']"
                )
            own_values = json.dumps(
                to_jsonable_python([leg.arguments, leg.answers, *[past.leg.answers for past in route.carried]])
            )
            texts = (
                text
                for text in texts_in(delivery.computed)
                if len(text) >= _MIN_SECRET_CHARS and text not in own_values
            )
            for secret in readable_in(token, (*self._secrets, *texts)):
                raise Breach(f"the token is readable without a key, and contains {secret!r}")
        return delivery


def _is_stored(leg: LegRequest, route: Route) -> bool:
    """Return True if the leg's call is a task, or if the call asks its questions on a question page."""
    return leg.task_id is not None or any(pages_among(one.asks, route.fleet.at) for one in route.history(leg))


def _is_merged(repeated: LegDelivery, waiting: LegDelivery, route: Route) -> bool:
    """Return True if the server merged the repeated call into the user's waiting call.

    Servers merge such calls so that an approval is requested only once, or because of `once_per=`.
    """
    return repeated.has_intent or all(
        bool(one.names) and one.names == pages_among(one.asks, route.fleet.at) for one in (repeated, waiting)
    )


def _require_rejection(delivery: LegDelivery, what: str, hint: str = "", *, may_fail: bool = False) -> None:
    """Require that the server rejected the leg. With `may_fail`, a failed tool is also allowed."""
    failed = isinstance(delivery.result, CallToolResult) and delivery.result.is_error
    if not delivery.is_rejected and not (may_fail and failed):
        raise Breach(f"{what}, and the server answered with {delivery.told}; the server must reject the request{hint}")


def _require_no_trust(delivery: LegDelivery, keys: Iterable[str], what: str) -> None:
    """Require that the server asked these questions again, or rejected the leg."""
    if delivery.crashed:
        raise Breach(f"{what}, and the server crashed: {delivery.told}")
    has_skipped_question = bool(delivery.names) and not set(keys) <= delivery.names
    if delivery.done is not None or has_skipped_question:
        raise Breach(
            f"{what}, and the server continued with {delivery.told}. The server accepts answers to questions "
            "that it has not asked, or keeps data between calls (in a global or a cache)"
        )


def _quote(answers: Iterable[str]) -> str:
    return ", ".join(map(repr, answers))
