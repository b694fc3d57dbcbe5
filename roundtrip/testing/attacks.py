"""Networks that also send what a hostile client would: it must be refused, and change nothing."""

import base64
import binascii
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from mcp_types import (
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequest,
    InputResponse,
    ListRootsResult,
)

from roundtrip.clients.legs import Leg, asking
from roundtrip.testing.clocks import Clock
from roundtrip.testing.deliveries import Breach, Delivery, Inapplicable
from roundtrip.testing.fleet import acting_as
from roundtrip.testing.forms import invalid_answers, other_valid_answer, valid_answer
from roundtrip.testing.network import Route

__all__ = ["Delay", "Eavesdrop", "Garble", "Interleave", "Invent", "Strip", "Swap", "Tamper"]

_DAY: Final = 86400.0
_OTHER_TOOLS: Final = 3
_AGAIN: Final = 10
_NOBODY_ASKED: Final = "roundtrip.testing: nobody asked"
_SHORTEST_SECRET: Final = 6
"""Characters below which a text may be in a token by chance."""


class Delay:
    """Every leg that brings a token also arrives a day later, when it must be refused.

    Args:
        seconds: How much later.
    """

    name = "delay"

    def __init__(self, seconds: float = _DAY) -> None:
        self._seconds = seconds

    async def carry(self, leg: Leg, route: Route) -> Delivery:
        """Send it late, and in time."""
        if not route.fleet.is_in_this_process:
            raise Inapplicable("the clock can be turned for servers in this process only: User(server), not User(url)")
        if leg.state is not None:
            clock = Clock()
            clock.advance(self._seconds)
            with clock.set():
                late = await route.onward(leg)
            _require_refusal(late, f"a token arrived {self._seconds:g} s late")
        return await route.onward(leg)


class Tamper:
    """Every token also arrives changed, in a dozen ways. All must be refused, and with the same words."""

    name = "tamper"

    async def carry(self, leg: Leg, route: Route) -> Delivery:
        """Send it changed, and as it is."""
        if leg.state is not None:
            told: dict[str, str] = {}
            for what, state in _tampered(leg.state):
                delivery = await route.onward(replace(leg, state=state))
                _require_refusal(delivery, f"a token with {what} arrived")
                told.setdefault(delivery.told, what)
            if len(told) > 1:
                texts = "; ".join(f"with {what}: {answer}" for answer, what in told.items())
                raise Breach(f"bad tokens are told apart, which tells an attacker what to try next: {texts}")
        return await route.onward(leg)


class Swap:
    """Every token also arrives with another request than its own: other arguments, another tool, another user."""

    name = "swap"

    async def carry(self, leg: Leg, route: Route) -> Delivery:
        """Send it with other requests, and with its own."""
        if leg.state is not None:
            for name, value in leg.arguments.items():
                other = replace(leg, arguments={**leg.arguments, name: _another(value)})
                _require_refusal(await route.onward(other), f"a token arrived with another {name!r}")
            if leg.method == "tools/call":
                others = [name for name in await route.fleet.tools() if name != leg.name]
                for name in others[:_OTHER_TOOLS]:
                    delivery = await route.onward(replace(leg, name=name))
                    _require_refusal(delivery, f"a token of {leg.name!r} arrived at {name!r}")
            if route.fleet.principal is not None:
                with acting_as("roundtrip.testing: somebody else"):
                    delivery = await route.onward(leg)
                _require_refusal(delivery, "a user's token arrived from somebody else")
        return await route.onward(leg)


class Strip:
    """One answer of every round is lost on the way. It must be asked for again, and the others be kept (S7)."""

    name = "strip"

    async def carry(self, leg: Leg, route: Route) -> Delivery:
        """Send it without one answer, and that one when it is asked for again."""
        if not leg.answers:
            return await route.onward(leg)
        lost = next(iter(leg.answers))
        answers: Mapping[str, InputResponse] = {key: value for key, value in leg.answers.items() if key != lost}
        delivery = await route.onward(replace(leg, answers=answers))
        if delivery.asks is None or lost not in (delivery.asks.input_requests or {}):
            raise Breach(
                f"the answer to {lost!r} was lost; it was not asked for again, but answered with {delivery.told}"
            )
        for _ in range(_AGAIN):
            asked = delivery.asks
            if asked is None or not (asked.input_requests or {}).keys() <= leg.answers.keys():
                return delivery
            answers = {key: leg.answers[key] for key in asked.input_requests or {}}
            delivery = await route.onward(replace(leg, state=asked.request_state, answers=answers))
        raise Breach(f"the answer to {lost!r} was lost once; it is asked for again and again")


class Invent:
    """Answers arrive that nobody asked for: without a token, before their question, and to questions that do not exist.

    None may count (S8).
    """

    name = "invent"

    async def carry(self, leg: Leg, route: Route) -> Delivery:
        """Send answers too early, and then in time with others added."""
        if leg.answers:
            delivery = await route.onward(replace(leg, state=None))
            _require_no_result(delivery, f"answers to {_names(leg.answers)} arrived without a token")
            before = route.carried[-1].leg
            if before.answers is not None:
                early = replace(before, answers={**leg.answers, **before.answers})
                delivery = await route.onward(early)
                _require_no_result(delivery, f"answers to {_names(leg.answers)} arrived before they were asked for")
        extra = ElicitResult(action="accept", content={"value": _NOBODY_ASKED})
        return await route.onward(replace(leg, answers={**(leg.answers or {}), _NOBODY_ASKED: extra}))


class Garble:
    """Every answer also arrives as nonsense: of another type or kind, with fields missing. None may be taken."""

    name = "garble"

    async def carry(self, leg: Leg, route: Route) -> Delivery:
        """Send nonsense, and the answer."""
        asked = route.carried[-1].asks if route.carried else None
        for key, request in (asked.input_requests or {} if asked is not None else {}).items():
            for what, garbage in _garbage(request):
                delivery = await route.onward(replace(leg, answers={**(leg.answers or {}), key: garbage}))
                _require_no_result(delivery, f"the answer to {key!r} was {what}")
        return await route.onward(leg)


class Interleave:
    """Another call of the same function goes on at the same time, in which the user answers otherwise.

    It is played up to where the genuine one has got, and never to its end.
    """

    name = "interleave"

    async def carry(self, leg: Leg, route: Route) -> Delivery:
        """Play the other call, and send."""
        if route.carried:
            other = await route.onward(route.carried[0].leg)
            for past in [delivery.leg for delivery in route.carried[1:]]:
                if other.asks is None:
                    break
                answers = _other_answers(other.asks.input_requests or {}, past.answers or {})
                other = await route.onward(replace(past, state=other.asks.request_state, answers=answers))
        return await route.onward(leg)


class Eavesdrop:
    """Every token is read by somebody who has no key. What the server computed must not be in it.

    What roundtrip's servers compute is known; of other servers, it has to be said.

    Args:
        secrets: Texts that must not be readable in any token.
    """

    name = "eavesdrop"

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = tuple(secrets)

    async def carry(self, leg: Leg, route: Route) -> Delivery:
        """Send, and read the token that comes back."""
        delivery = await route.onward(leg)
        token = delivery.asks.request_state if delivery.asks is not None else None
        if token is not None:
            said = json.dumps(_plain([leg.arguments, leg.answers, *[past.leg.answers for past in route.carried]]))
            computed = [
                text for text in _texts(delivery.computed) if len(text) >= _SHORTEST_SECRET and text not in said
            ]
            readable = list(_readings(token))
            for secret in (*self._secrets, *computed):
                if any(
                    secret.encode() in reading or json.dumps(secret)[1:-1].encode() in reading for reading in readable
                ):
                    raise Breach(f"the token can be read without a key, and in it is {secret!r}")
        return delivery


def _require_refusal(delivery: Delivery, what: str) -> None:
    if not delivery.is_refused:
        raise Breach(f"{what}, and was answered with {delivery.told}, where it must be refused")


def _require_no_result(delivery: Delivery, what: str) -> None:
    if delivery.done is not None:
        raise Breach(f"{what}, and it was taken: {delivery.told}")
    if delivery.crashed:
        raise Breach(f"{what}, and the server crashed: {delivery.told}")


def _names(answers: Iterable[str]) -> str:
    return ", ".join(map(repr, answers))


def _tampered(token: str) -> Iterator[tuple[str, str]]:
    middle = len(token) // 2
    yield "its first character changed", _flip(token[0]) + token[1:]
    yield "a character in its middle changed", token[:middle] + _flip(token[middle]) + token[middle + 1 :]
    yield "its last character changed", token[:-1] + _flip(token[-1])
    yield "its last character missing", token[:-1]
    yield "its first character missing", token[1:]
    yield "its second half missing", token[:middle]
    yield "padding at its end", f"{token}="
    yield "foreign characters at its end", f"{token}!!!!"
    yield "a line break at its end", f"{token}\n"
    yield "its letters in the other case", token.swapcase()
    yield "itself twice", token * 2
    yield "nothing but letters", "A" * len(token)
    yield "characters beyond ASCII", f"{token}\N{SNOWMAN}"


def _flip(character: str) -> str:
    """The neighbour of a character in base64: of the last one of a text, it is a bit that may mean nothing."""
    return {"A": "B", "_": "-", "-": "_", "9": "8", "z": "y", "Z": "Y"}.get(character, chr(ord(character) ^ 1))


def _another(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        return f"{value}x"
    return None if value is not None else "x"


def _garbage(request: InputRequest) -> Iterator[tuple[str, InputResponse]]:
    yield "the list of roots of another question", ListRootsResult(roots=[])
    params = asking(request)
    if not isinstance(request, ElicitRequest) or not isinstance(params, ElicitRequestFormParams):
        return
    schema = params.requested_schema
    if schema.get("required"):
        yield "accepted without any content", ElicitResult(action="accept")
    for content in invalid_answers(schema):
        yield f"the form filled in as {content!r}", ElicitResult.model_construct(action="accept", content=content)


def _other_answers(
    requests: Mapping[str, InputRequest], answers: Mapping[str, InputResponse]
) -> dict[str, InputResponse]:
    """What somebody else might answer, who agrees where the user did."""
    others: dict[str, InputResponse] = {}
    for key, request in requests.items():
        params, answer = asking(request), answers.get(key)
        if isinstance(answer, ElicitResult) and answer.content and isinstance(params, ElicitRequestFormParams):
            schema = params.requested_schema
            other = next(
                (one for one in (valid_answer(schema), other_valid_answer(schema)) if one != answer.content), None
            )
            others[key] = answer if other is None else ElicitResult(action="accept", content=other)
        elif answer is not None:
            others[key] = answer
    return others


def _texts(values: object) -> Iterator[str]:
    if isinstance(values, str):
        yield values
    elif isinstance(values, Mapping):
        for value in cast("Mapping[str, object]", values).values():
            yield from _texts(value)
    elif isinstance(values, Sequence):
        for value in cast("Sequence[object]", values):
            yield from _texts(value)


def _readings(token: str) -> Iterator[bytes]:
    """Everything that a token can be read as without a key."""
    yield token.encode()
    for part in {token, *token.replace("~", ".").split(".")}:
        for start in range(4):
            text = part[start:]
            text = text[: len(text) // 4 * 4] if len(text) % 4 == 1 else text
            try:
                read = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
            except (ValueError, binascii.Error):
                continue
            yield read
            # Packed in base64 once more, as envelopes are.
            for inner in (read, *_inflated(read)):
                yield inner
                for nested in inner.replace(b"~", b'"').split(b'"'):
                    try:
                        yield base64.urlsafe_b64decode(nested + b"=" * (-len(nested) % 4))
                    except (ValueError, binascii.Error):
                        continue


def _inflated(read: bytes) -> Iterator[bytes]:
    for start in range(5):
        for bits in (zlib.MAX_WBITS, -zlib.MAX_WBITS):
            try:
                yield zlib.decompressobj(bits).decompress(read[start:], 1_000_000)
            except zlib.error:
                continue


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast("Sequence[Any]", value)]
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value
