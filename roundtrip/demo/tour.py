"""The demo tour: it sends one order through the fleet, and each leg is served by a new process."""

import functools
import os
import secrets
import signal
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final, cast

import anyio
import anyio.to_thread
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    InputResponse,
    TextContent,
)
from pydantic import ValidationError

from roundtrip.client.failures import innermost
from roundtrip.client.legs import Era, LegRequest, LegResult, callbacks, drive, never_live, send, within
from roundtrip.client.person import PersonAtTerminal
from roundtrip.demo.fleet import DemoInstance, demo_fleet
from roundtrip.demo.instance import HOST, Change
from roundtrip.demo.shop import TOOL, Receipt

_NAMES: Final = ("ash", "birch", "cedar")
_FIRST_LEG: Final = LegRequest(TOOL, {"title": "Dune"})
_LEG_SECONDS: Final = 20.0
_TERMINATED: Final = 143
_ANSWERS: Final[Mapping[str, dict[str, Any]]] = {
    "edition": {"binding": "hardcover"},
    "delivery": {"way": "post", "note": "Ring twice"},
    "consent": {"agreed": True},
}

_say = functools.partial(print, flush=True)


class DemoFailed(Exception):
    """The demo did not finish."""


@dataclass(frozen=True, slots=True)
class _TourLeg:
    """A leg, with the instance that received it and the processes that reported having served it."""

    name: str
    pid: int
    served_by: frozenset[int]


def tour(person: PersonAtTerminal | None = None) -> bool:
    """Send an order through the fleet, and print the state changes on each leg.

    Args:
        person: The user who answers the questions; if it is None, scripted answers are used.

    Returns:
        True if the order was placed, and each leg was served by a new process.

    Raises:
        DemoFailed: A leg ended with a protocol error, or took too long.
        InstanceFailed: An instance did not start, or ended.
    """
    _reach_loopback_directly()
    with _exit_on_terminate(), demo_fleet(_NAMES, key=secrets.token_hex(32)) as instances:
        _say("Three instances of one bookshop. They share a key, and nothing else.")
        for instance in instances:
            _say(f"  {instance.name:<6} pid {instance.pid:<8} {instance.url()}")
        order = _Order(instances, person)
        result = anyio.run(order.place)
    return _conclude(order.legs, result)


class _Order:
    """One order. Each leg goes to the next instance. If that instance has already served a leg, its process is replaced
    first.
    """

    def __init__(self, instances: Sequence[DemoInstance], person: PersonAtTerminal | None) -> None:
        self._instances = instances
        self._person = person
        self.legs: list[_TourLeg] = []

    async def place(self) -> CallToolResult:
        return cast("CallToolResult", await drive(_FIRST_LEG, send=self._send, answer=self._answer))

    async def _send(self, leg: LegRequest) -> LegResult:
        instance = self._instances[len(self.legs) % len(self._instances)]
        if instance.has_served:
            _replace(instance)
        # Wait in a thread, so that Ctrl-C still works.
        url = await anyio.to_thread.run_sync(instance.url, abandon_on_cancel=True)
        number = len(self.legs) + 1
        _say(f"\nLeg {number} is served by {instance.name} (pid {instance.pid})")
        client = Client(url, mode=Era.RETRY.mode, **callbacks(never_live, sample=False, list_roots=False))
        try:
            result = await within(
                client, lambda client: send(client.session, leg), scope=anyio.fail_after(_LEG_SECONDS)
            )
        except TimeoutError as error:
            raise DemoFailed(f"leg {number} took more than {_LEG_SECONDS:.0f} s") from error
        except MCPError as error:
            raise DemoFailed(f"leg {number} ended with error {error.code}: {error}") from error
        except Exception as error:
            raise DemoFailed(f"leg {number} did not reach {instance.name}: {innermost(error)}") from error
        instance.has_served = True
        changes = await anyio.to_thread.run_sync(instance.changes_of_leg, abandon_on_cancel=True)
        for change in changes:
            _say(f"  {_change_text(change)}")
        if isinstance(result, InputRequiredResult):
            _say(f"  token: {len(result.request_state or '')} bytes")
        self.legs.append(_TourLeg(instance.name, instance.pid, frozenset(change.pid for change in changes)))
        if number == 1:
            _replace(instance)
        return result

    async def _answer(self, result: InputRequiredResult) -> Mapping[str, InputResponse]:
        answers: dict[str, InputResponse] = {}
        for key, request in (result.input_requests or {}).items():
            if not isinstance(request, ElicitRequest) or not isinstance(request.params, ElicitRequestFormParams):
                raise DemoFailed(f"question {key!r} is not a form")
            _say(f"\n  {key}: {request.params.message.splitlines()[0]}")
            if self._person is not None:
                answer = await self._person.fill_in(request.params)
            else:
                answer = ElicitResult(action="accept", content=_ANSWERS[key])
            content = ", ".join(f"{name}={value!r}" for name, value in (answer.content or {}).items())
            _say(f"  {key}: {answer.action}{f' with {content}' if content else ''}")
            answers[key] = answer
        return answers


def _replace(instance: DemoInstance) -> None:
    old_pid = instance.pid
    instance.replace()
    _say(f"\nKilled {instance.name} (pid {old_pid}), and restarted it as pid {instance.pid}")


def _change_text(change: Change) -> str:
    remark = f"  {change.remark}" if change.remark else ""
    if change.keys:
        reasons = {key: change.reasons.get(key, "new") for key in change.keys}
        remark = "  " + ", ".join(key if reason == "new" else f"{key} ({reason})" for key, reason in reasons.items())
    arrow = f"-- {change.event} ".ljust(12, "-") + ">"
    return f"{change.source:>14} {arrow} {change.target}{remark}"


def _conclude(legs: list[_TourLeg], result: CallToolResult) -> bool:
    try:
        receipt = Receipt.model_validate(result.structured_content)
        is_placed, text = receipt.placed and not result.is_error, receipt.summary
    except ValidationError:
        is_placed, text = False, " ".join(block.text for block in result.content if isinstance(block, TextContent))
    _say(f"\nResult: {text}")
    route = ", ".join(f"{leg.name} (pid {leg.pid})" for leg in legs)
    pids = {leg.pid for leg in legs}
    is_apart = len(pids) == len(legs) and all(leg.served_by == frozenset({leg.pid}) for leg in legs)
    _say(f"Served by {route}: {'each leg had its own process' if is_apart else 'not every leg had its own process'}.")
    _say("The order went through." if is_placed else "The order did not go through.")
    return is_placed and is_apart


def _reach_loopback_directly() -> None:
    """Do not use a proxy from the environment for requests to this machine."""
    for variable in ("NO_PROXY", "no_proxy"):
        current = os.environ.get(variable)
        os.environ[variable] = f"{current},{HOST}" if current else HOST


@contextmanager
def _exit_on_terminate() -> Generator[None]:
    """Make SIGTERM raise an exception, as Ctrl-C does, so that the demo ends its instances."""

    def exit_process(number: int, frame: FrameType | None) -> Any:
        raise SystemExit(_TERMINATED)

    previous = signal.signal(signal.SIGTERM, exit_process)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
