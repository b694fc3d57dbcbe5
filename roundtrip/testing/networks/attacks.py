"""Networks that also send what a hostile client would: it must be refused, and change nothing."""

import base64
import binascii
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

import anyio
from mcp_types import (
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequest,
    InputResponse,
    ListRootsRequest,
    ListRootsResult,
)

from roundtrip.client.legs import LegRequest, asking
from roundtrip.errors import TokenRejected
from roundtrip.machine.journal import to_json
from roundtrip.machine.journal_bytes import unpack_open
from roundtrip.testing.clocks import Clock
from roundtrip.testing.forms import invalid_answers, other_valid_answer, valid_answer
from roundtrip.testing.networks.deliveries import Breach, Inapplicable, LegDelivery
from roundtrip.testing.networks.fleet import acting_as
from roundtrip.testing.networks.network import Route
from roundtrip.tokens.binding import read_claims
from roundtrip.tokens.token import read_unverified

__all__ = ["Delay", "Eavesdrop", "Garble", "Interleave", "Invent", "Strip", "Swap", "Tamper"]

# A failing test shows where the test failed, and not the way through here.
__tracebackhide__ = True

_DAY: Final = 86400.0
_OTHER_TOOLS: Final = 3
_NOBODY_ASKED: Final = "roundtrip.testing: nobody asked"
_TIME_OF_DAY: Final = (
    " (its clock is `time.time`, looked up when it is called; for tokens that live longer there is Delay(seconds=...))"
)
_SHORTEST_SECRET: Final = 6
"""Characters below which a text may be in a token by chance."""

_LAYERS: Final = 4
_MOST_READINGS: Final = 2000
_MOST_BYTES: Final = 1_000_000
_HEADER: Final = 5
"""Bytes that may come before what is compressed."""
_ZLIB_OR_GZIP: Final = 32
_LETTERS: Final = re.compile(rb"[A-Za-z0-9+/_-]{8,}")
_HEXADECIMAL: Final = re.compile(rb"[0-9A-Fa-f]{8,}")


class Delay:
    """Every leg that brings a token also arrives a day later, when it must be refused.

    Args:
        seconds: How much later.
    """

    name = "delay"

    def __init__(self, seconds: float = _DAY) -> None:
        self._seconds = seconds

    async def carry(self, leg: LegRequest, route: Route) -> LegDelivery:
        """Send it late, and in time."""
        if not route.fleet.is_in_this_process:
            raise Inapplicable("the clock can be turned for servers in this process only: User(server), not User(url)")
        # There is one clock for all, also for what is sent at the same time.
        async with route.notes.setdefault("turning", anyio.Lock()):
            return await self._late_and_in_time(leg, route)

    async def _late_and_in_time(self, leg: LegRequest, route: Route) -> LegDelivery:
        if leg.state is not None:
            clock = Clock()
            clock.advance(self._seconds)
            with clock.set():
                late = await route.aside(leg)
            _require_refusal(late, f"a token arrived {self._seconds:g} s late", _TIME_OF_DAY)
        return await route.onward(leg)


class Tamper:
    """Every token also arrives changed, in a dozen ways. All must be refused, and with the same words."""

    name = "tamper"

    async def carry(self, leg: LegRequest, route: Route) -> LegDelivery:
        """Send it changed, and as it is."""
        if leg.state is not None:
            told: dict[str, str] = {}
            for what, state in _tampered(leg.state):
                delivery = await route.aside(replace(leg, state=state))
                _require_refusal(delivery, f"a token with {what} arrived")
                told.setdefault(delivery.told, what)
            if len(told) > 1:
                texts = "; ".join(f"with {what}: {answer}" for answer, what in told.items())
                raise Breach(f"bad tokens are told apart, which tells an attacker what to try next: {texts}")
        return await route.onward(leg)


class Swap:
    """Every token also arrives with another request than its own: other arguments, another tool, another user."""

    name = "swap"

    async def carry(self, leg: LegRequest, route: Route) -> LegDelivery:
        """Send it with other requests, and with its own."""
        if route.fleet.principal is not None and not route.fleet.is_in_memory:
            raise Inapplicable("somebody else than the principal= can send a request in memory only")
        if leg.state is not None:
            tools = await route.fleet.tools() if leg.method == "tools/call" else {}
            for name, others in _other_arguments(leg.arguments, tools.get(leg.name, {})):
                for value in others:
                    delivery = await route.aside(replace(leg, arguments={**leg.arguments, name: value}))
                    _require_no_use(delivery, f"a token arrived with another {name!r}")
                    if delivery.is_refused:
                        break
                    # It failed for a reason of its own, as no such value exists. That proves nothing; another may.
            if leg.method == "tools/call":
                for name in [name for name in tools if name != leg.name][:_OTHER_TOOLS]:
                    delivery = await route.aside(replace(leg, name=name))
                    _require_no_use(delivery, f"a token of {leg.name!r} arrived at {name!r}")
            if leg.method == "resources/read":
                other = replace(leg, name=f"{leg.name}x")
                _require_no_use(await route.aside(other), f"a token of {leg.name!r} arrived at {other.name!r}")
            if route.fleet.principal is not None:
                with acting_as("roundtrip.testing: somebody else"):
                    delivery = await route.aside(leg)
                _require_refusal(delivery, "a user's token arrived from somebody else")
        return await route.onward(leg)


class Strip:
    """One answer of every round is lost on the way. It must be asked for again, and the others be kept (S7)."""

    name = "strip"

    async def carry(self, leg: LegRequest, route: Route) -> LegDelivery:
        """Send it without one answer, and that one when it is asked for again."""
        before = route.before(leg)
        expected = _keys(before) if before is not None else set[str]()
        lost = next((key for key in leg.answers or {} if key in expected), None)
        if leg.answers is None or lost is None:
            return await route.onward(leg)
        answers: Mapping[str, InputResponse] = {key: value for key, value in leg.answers.items() if key != lost}
        delivery = await route.onward(replace(leg, answers=answers))
        asked = _keys(delivery)
        if lost not in asked:
            raise Breach(
                f"the answer to {lost!r} was lost; it was not asked for again, but answered with {delivery.told}"
            )
        if delivery.asks is None or not asked <= leg.answers.keys():
            return delivery
        answers = {key: leg.answers[key] for key in leg.answers if key in asked}
        again = await route.onward(replace(leg, state=delivery.asks.request_state, answers=answers))
        # What is asked for even now was no good answer, and is rightly asked for again.
        forgotten = (asked & answers.keys()) - {lost} - _keys(again)
        if forgotten and not again.is_refused:
            raise Breach(
                f"the answer to {lost!r} was lost, and {_names(sorted(forgotten))} asked for again, "
                "whose answers had come with that request: they must be kept"
            )
        return again


class Invent:
    """Answers arrive that nobody asked for: without a token, before their question, and to questions that do not exist.

    None may count (S8).
    """

    name = "invent"

    async def carry(self, leg: LegRequest, route: Route) -> LegDelivery:
        """Send answers too early, and then in time with others added."""
        past = route.history(leg)
        if leg.answers and past:
            known: dict[str, InputResponse] = {}
            for one in past:
                known.update(one.leg.answers or {})
            known.update(leg.answers)
            known.pop(_NOBODY_ASKED, None)
            delivery = await route.aside(replace(past[0].leg, answers=known))
            what = f"answers to {_names(known)} came without a token, where {_names(_keys(past[0]))} should be asked"
            _require_no_trust(delivery, _keys(past[0]), what)
            early = leg.answers.keys() - _keys(past[-2]) if len(past) > 1 else None
            if early:
                before = past[-1].leg
                answers = {**{key: leg.answers[key] for key in sorted(early)}, **(before.answers or {})}
                delivery = await route.aside(replace(before, answers=answers))
                what = f"answers to {_names(sorted(early))} came before they were asked for"
                _require_no_trust(delivery, _keys(past[-1]), what)
        extra = ElicitResult(action="accept", content={"value": _NOBODY_ASKED})
        delivery = await route.onward(replace(leg, answers={**(leg.answers or {}), _NOBODY_ASKED: extra}))
        if delivery.error is not None and (honest := await route.onward(leg)).error is None:
            raise Breach(
                f"an answer to what nobody asked came besides, and was answered with {delivery.told} "
                f"instead of {honest.told}: it must be ignored"
            )
        return delivery


class Garble:
    """Every answer also arrives as nonsense: of another type or kind, with fields missing. None may be taken."""

    name = "garble"

    async def carry(self, leg: LegRequest, route: Route) -> LegDelivery:
        """Send nonsense, and the answer."""
        before = route.before(leg)
        asks = before.asks if before is not None else None
        for key, request in ((asks.input_requests if asks is not None else None) or {}).items():
            for what, garbage in _garbage(request):
                delivery = await route.aside(replace(leg, answers={**(leg.answers or {}), key: garbage}))
                _require_no_trust(delivery, [key], f"the answer to {key!r} came as {what}")
        return await route.onward(leg)


class Interleave:
    """Another call of the same function goes on at the same time, in which the user answers otherwise.

    It is played up to where the genuine one has got, and never to its end. It must be asked the same at first.
    """

    name = "interleave"

    async def carry(self, leg: LegRequest, route: Route) -> LegDelivery:
        """Play the other call, and send."""
        history = route.history(leg)
        past = [one.leg for one in history]
        if past:
            other = await route.aside(past[0])
            begun, genuine = _keys(other), _keys(history[0])
            if not other.is_refused and begun != genuine:
                raise Breach(
                    f"another call of {leg.name!r} was begun meanwhile, and asked {_names(sorted(begun)) or 'nothing'} "
                    f"where this one had been asked {_names(sorted(genuine))}: is something kept from one call to the "
                    "next?"
                )
            for one in past[1:]:
                if other.asks is None:
                    break
                answers = _other_answers(other.asks.input_requests or {}, one.answers or {})
                other = await route.aside(replace(one, state=other.asks.request_state, answers=answers))
        return await route.onward(leg)


class Eavesdrop:
    """Every token is read by somebody who has no key. What the server computed must not be in it.

    What roundtrip's servers compute is known; of other servers, it has to be said.

    Args:
        secrets: Texts that must not be readable in any token.
    """

    name = "eavesdrop"

    def __init__(self, secrets: str | Iterable[object] = ()) -> None:
        self._secrets = (secrets,) if isinstance(secrets, str) else tuple(map(str, secrets))

    async def carry(self, leg: LegRequest, route: Route) -> LegDelivery:
        """Send, and read the token that comes back."""
        delivery = await route.onward(leg)
        token = delivery.asks.request_state if delivery.asks is not None else None
        if token is not None:
            if delivery.steps is None and not self._secrets:
                raise Inapplicable("this server does not tell what it computes: name it, as in secrets=['4711']")
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


def _require_refusal(delivery: LegDelivery, what: str, hint: str = "") -> None:
    if not delivery.is_refused:
        raise Breach(f"{what}, and was answered with {delivery.told}, where it must be refused{hint}")


def _require_no_use(delivery: LegDelivery, what: str) -> None:
    """What came with a request that is not its own may fail with the request, but must not get it on."""
    final = delivery.final
    if not delivery.is_refused and not (isinstance(final, CallToolResult) and final.is_error):
        raise Breach(f"{what}, and was answered with {delivery.told}, where it must be refused")


def _require_no_trust(delivery: LegDelivery, keys: Iterable[str], what: str) -> None:
    """Answers that must not count: what they claim to answer is asked again, or all is refused."""
    if delivery.crashed:
        raise Breach(f"{what}, and the server crashed: {delivery.told}")
    asks = delivery.asks
    passed_over = asks is not None and bool(asks.input_requests) and not set(keys) <= (asks.input_requests or {}).keys()
    if delivery.done is not None or passed_over:
        raise Breach(
            f"{what}, and it went on with {delivery.told}. Either it takes answers that it has not asked for, or it "
            "keeps something from one call to the next (a global, a cache)"
        )


def _keys(delivery: LegDelivery) -> set[str]:
    asks = delivery.asks
    return set(asks.input_requests or {}) if asks is not None else set()


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


def _other_arguments(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    """For each argument, and each that was left out, what might stand there instead."""
    properties = cast("Mapping[str, Any]", schema.get("properties") or {})
    for name in dict.fromkeys([*arguments, *properties]):
        shape = cast("Mapping[str, Any]", properties.get(name) or {})
        given = arguments.get(name)
        listed = [value for value in cast("list[Any]", shape.get("enum") or []) if value != given]
        made = _samples(shape) if name not in arguments else _others(given)
        yield name, [*listed, *(value for value in made if value != given or name not in arguments)]


def _others(value: Any) -> list[Any]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [value + 1, value - 1]
    if isinstance(value, str):
        digits = re.sub(r"\d(?=\D*$)", lambda last: str((int(last[0]) + 1) % 10), value)
        return [f"{value}x", digits, value[:-1], value.swapcase()]
    if isinstance(value, list):
        items = cast("list[Any]", value)
        changed = [[*items[:-1], other] for other in _others(items[-1])] if items else []
        return [*changed, [*items, *items[-1:]], items[:-1]]
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        return [{**fields, name: other} for name, item in fields.items() for other in _others(item)[:1]]
    return ["x"]


def _samples(shape: Mapping[str, Any]) -> list[Any]:
    """Values for an argument that was left out."""
    if "default" in shape:
        return _others(shape["default"])
    samples: dict[str, Any] = {"string": "x", "integer": 1, "number": 1.5, "boolean": True}
    return [sample for kind, sample in samples.items() if kind == shape.get("type")]


def _garbage(request: InputRequest) -> Iterator[tuple[str, InputResponse]]:
    if isinstance(request, ListRootsRequest):
        yield "the form of another question", ElicitResult(action="accept", content={"value": _NOBODY_ASKED})
    else:
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
    elif isinstance(values, int | float) and not isinstance(values, bool):
        yield str(values)
    elif isinstance(values, Mapping):
        for value in cast("Mapping[str, object]", values).values():
            yield from _texts(value)
    elif isinstance(values, Sequence):
        for value in cast("Sequence[object]", values):
            yield from _texts(value)


def _readings(token: str) -> Iterator[bytes]:
    """Everything that a token can be read as without a key, packed several times over as well."""
    yield from _open_text(token)
    read, layer = {token.encode()}, {token.encode()}
    for _ in range(_LAYERS):
        layer = {inner for outer in layer for inner in _unpacked(outer)} - read
        read |= layer
        if len(read) > _MOST_READINGS:
            break
    yield from read


def _open_text(token: str) -> Iterator[bytes]:
    """What is not sealed in one of roundtrip's own tokens, which may be deflated somewhere in its middle."""
    try:
        payload = read_unverified(token).payload
        if payload is None:
            return
        _, size = read_claims(payload)
        journal, _ = unpack_open(payload[size:])
    except (TokenRejected, ValueError):
        return
    answers = [{key: entry.data for key, entry in kept.items()} for kept in (journal.entries, journal.seeds)]
    yield to_json([*answers, *journal.asked, journal.version, journal.build, journal.call_id])


def _unpacked(packed: bytes) -> Iterator[bytes]:
    for run in _LETTERS.findall(packed):
        # What comes before it may not fill whole groups of four.
        for start in range(4):
            text = run[start:]
            try:
                yield base64.urlsafe_b64decode(text[: len(text) // 4 * 4] if len(text) % 4 == 1 else _padded(text))
            except binascii.Error:
                continue
    for run in _HEXADECIMAL.findall(packed):
        yield bytes.fromhex(run[: len(run) // 2 * 2].decode())
    for start in range(_HEADER):
        for bits in (zlib.MAX_WBITS | _ZLIB_OR_GZIP, -zlib.MAX_WBITS):
            try:
                yield zlib.decompressobj(bits).decompress(packed[start:], _MOST_BYTES)
            except zlib.error:
                continue


def _padded(text: bytes) -> bytes:
    return text + b"=" * (-len(text) % 4)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast("Sequence[Any]", value)]
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value
