"""The demo itself: one order through the fleet, each leg on an instance that has not seen it before."""

import functools
import os
import secrets
import signal
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final

import anyio
from mcp.client import Client
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    InputRequiredResult,
    InputResponse,
    TextContent,
)
from pydantic import ValidationError

from roundtrip.client.failures import innermost
from roundtrip.demo.fleet import DemoFleet, DemoInstance
from roundtrip.demo.instance import HOST
from roundtrip.demo.people import Person, ScriptedPerson
from roundtrip.demo.reports import Change
from roundtrip.demo.shop import TOOL, Receipt
from roundtrip.revisions import FIRST_OF_RETRY_ERA

__all__ = ["CUSTOMER", "DemoFailed", "tour"]

_NAMES: Final = ("ash", "birch", "cedar")
_ARGUMENTS: Final = {"title": "Dune"}
_LEG_SECONDS: Final = 20.0
_TERMINATED: Final = 143

CUSTOMER: Final[Person] = ScriptedPerson(
    {
        "edition": {"binding": "hardcover"},
        "delivery": {"way": "post", "note": "Ring twice"},
        "consent": {"agreed": True},
    }
)
"""Who answers where nobody else does."""

LegResult = CallToolResult | InputRequiredResult
Answers = Mapping[str, InputResponse]

_say = functools.partial(print, flush=True)


class DemoFailed(Exception):
    """The demo could not be brought to its end."""


@dataclass(frozen=True, slots=True)
class Served:
    """Who served one leg: the instance it was sent to, and the processes that say that they served it."""

    name: str
    pid: int
    reported: frozenset[int]


def tour(person: Person) -> bool:
    """Drive an order through the fleet and print what happens.

    Returns:
        Whether the order was placed and every leg was served by a process that had served none before.

    Raises:
        DemoFailed: A leg ended with a protocol error, or not in time.
        InstanceFailed: An instance did not start, or went away.
    """
    _reach_loopback_directly()
    with _ended_by_terminate(), DemoFleet(_NAMES, key=secrets.token_hex(32)) as fleet:
        _say("Three instances of one bookshop. They share a key, and nothing else.")
        for instance in fleet.instances:
            _say(f"  {instance.name:<6} pid {instance.pid:<8} {instance.url()}")
        legs, result = _order(fleet, person)
    return _conclude(legs, result)


def _order(fleet: DemoFleet, person: Person) -> tuple[list[Served], CallToolResult]:
    legs: list[Served] = []
    state: str | None = None
    answers: Answers | None = None
    while True:
        instance = fleet.instances[len(legs) % len(fleet.instances)]
        if instance.used:
            _replace(instance)
        served, result = _leg(len(legs) + 1, instance, answers, state)
        legs.append(served)
        if len(legs) == 1:
            _replace(instance)
        if isinstance(result, CallToolResult):
            return legs, result
        state = result.request_state
        answers = {key: _ask(person, key, request) for key, request in (result.input_requests or {}).items()}


def _leg(
    number: int, instance: DemoInstance, answers: Answers | None, state: str | None
) -> tuple[Served, CallToolResult | InputRequiredResult]:
    url = instance.url()
    _say(f"\nLeg {number} is served by {instance.name} (pid {instance.pid})")
    try:
        result = anyio.run(_send, url, answers, state)
    except ExceptionGroup as group:
        raise DemoFailed(f"leg {number} did not reach {instance.name}: {innermost(group)}") from group
    instance.used = True
    changes = instance.changes_of_leg()
    for change in changes:
        _say(f"  {_told(change)}")
    if isinstance(result, InputRequiredResult):
        _say(f"  token: {len(result.request_state or '')} bytes")
    return Served(instance.name, instance.pid, frozenset(change.pid for change in changes)), result


async def _send(url: str, answers: Answers | None, state: str | None) -> LegResult:
    """One leg by a client of its own, which knows nothing of the legs before but what it hands on.

    Raises:
        DemoFailed: It ended with a protocol error, or not in time.
        ExceptionGroup: The client did not get through.
    """
    ended: LegResult | MCPError | None = None
    with anyio.move_on_after(_LEG_SECONDS):
        async with Client(url, mode=FIRST_OF_RETRY_ERA, elicitation_callback=_never_live) as client:
            try:
                ended = await client.session.call_tool(
                    TOOL,
                    dict(_ARGUMENTS),
                    input_responses=dict(answers) if answers is not None else None,
                    request_state=state,
                    allow_input_required=True,
                )
            except MCPError as error:
                # Raised in here it would leave the client inside an exception group.
                ended = error
    if ended is None:
        raise DemoFailed(f"a leg took more than {_LEG_SECONDS:.0f} s")
    if isinstance(ended, MCPError):
        raise DemoFailed(f"a leg ended with error {ended.code}: {ended.message}") from ended
    return ended


async def _never_live(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
    """Declares that forms can be shown; they are shown between the legs, so nobody calls this."""
    del context, params
    raise DemoFailed("a question came over the open connection instead of in a result")


def _ask(person: Person, key: str, request: object) -> InputResponse:
    if not isinstance(request, ElicitRequest) or not isinstance(request.params, ElicitRequestFormParams):
        raise DemoFailed(f"question {key!r} is no form")
    lines = request.params.message.splitlines()
    _say(f"\n  {key}: {lines[0]}")
    for line in filter(None, lines[1:]):
        _say(f"    {line}")
    answer = person.answer(key, request.params)
    content = ", ".join(f"{name}={value!r}" for name, value in (answer.content or {}).items())
    _say(f"  {key}: {answer.action}{f' with {content}' if content else ''}")
    return answer


def _replace(instance: DemoInstance) -> None:
    before = instance.pid
    instance.replace()
    _say(f"\n{instance.name} (pid {before}) is killed, and started again as pid {instance.pid}")


def _told(change: Change) -> str:
    remark = f"  {change.remark}" if change.remark else ""
    if change.keys:
        remark = f"  {', '.join(_why(key, change) for key in change.keys)}"
    arrow = f"-- {change.event} ".ljust(12, "-") + ">"
    return f"{change.source:>14} {arrow} {change.target}{remark}"


def _why(key: str, change: Change) -> str:
    reason = change.reasons.get(key, "new")
    return key if reason == "new" else f"{key} ({reason})"


def _conclude(legs: list[Served], result: CallToolResult) -> bool:
    placed, text = _outcome(result)
    _say(f"\nResult: {text}")
    way = ", ".join(f"{leg.name} (pid {leg.pid})" for leg in legs)
    apart = len({leg.pid for leg in legs}) == len(legs) and all(leg.reported == frozenset({leg.pid}) for leg in legs)
    _say(f"Served by {way}: {'another process for every leg' if apart else 'not another process for every leg'}.")
    _say("The order went through." if placed else "The order did not go through.")
    return placed and apart


def _outcome(result: CallToolResult) -> tuple[bool, str]:
    try:
        receipt = Receipt.model_validate(result.structured_content)
    except ValidationError:
        text = " ".join(block.text for block in result.content if isinstance(block, TextContent))
        return False, text or "nothing that can be read"
    return receipt.placed and not result.is_error, receipt.summary


def _reach_loopback_directly() -> None:
    """Keep the client from sending what is for this machine to a proxy that the environment names."""
    for variable in ("NO_PROXY", "no_proxy"):
        named = os.environ.get(variable)
        os.environ[variable] = f"{named},{HOST}" if named else HOST


@contextmanager
def _ended_by_terminate() -> Generator[None]:
    """Make a termination unwind the stack as Ctrl-C does, so that the instances are ended."""

    def leave(number: int, frame: FrameType | None) -> Any:
        del number, frame
        raise SystemExit(_TERMINATED)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
