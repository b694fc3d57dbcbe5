"""A client on a bad network: it sends legs twice, hangs up, loses responses, and sends unanswered legs again."""

import itertools
import json
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import httpx

from tests.kit.wire import EVERYTHING, Json, headers_of, meta_of

__all__ = ["PATIENCE", "Asked", "Client", "Completed", "Ended", "Leg", "Reply", "Unknown"]

PATIENCE: Final = 180.0
"""Seconds for which one leg is sent again and again."""
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0
_LATER: Final = 3.0
_HANGS_UP: Final = 0.2


@dataclass(frozen=True, slots=True)
class Leg:
    """One request of a call."""

    number: int
    """The call's, as this client counts them; it is an argument, too."""
    state: str | None = None
    answers: tuple[tuple[str, Any], ...] = ()
    last: bool = False
    """Whether its answers are the last ones."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The leg ended with questions."""

    questions: tuple[tuple[str, str], ...]
    """Their names and messages."""
    state: str


@dataclass(frozen=True, slots=True)
class Completed:
    """The call ended with this result."""

    result: tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Unknown:
    """The outcome of the call is unknown."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The call has ended, with other answers than this leg's."""


Reply = Asked | Completed | Unknown | Ended


class _Again(Exception):
    """No reply came, or a reply that asks to send the leg again."""


@dataclass
class Heard:
    """Replies to one call: those to every copy of its legs, in any order."""

    early: list[Reply] = field(default_factory=list[Reply])
    """For legs before the last one."""
    last: list[Reply] = field(default_factory=list[Reply])


class Client:
    """Sends the legs of all calls.

    Args:
        http: Has the address of the fleet.
        seed: Chance's.
        mischief: How likely a leg is to be sent twice at once, again later, to lose its response, and to be hung up on.
        path: Which till of the instances it calls.
    """

    def __init__(self, http: httpx.AsyncClient, *, seed: int = 0, mischief: float = 0.1, path: str = "/mcp") -> None:
        self._http = http
        self._path = path
        self._random = random.Random(seed)
        self._mischief = mischief
        self._ids = itertools.count(1)
        self.heard: dict[int, Heard] = {}
        self.counted: Counter[str] = Counter()

    async def leg(self, leg: Leg, later: anyio.abc.TaskGroup) -> Reply:
        """Return the reply to a leg, although it and its copies may be lost, repeated or late."""
        if self._chance():
            self.counted["responses lost"] += 1
            await self.deliver(leg)
        if self._chance():
            self.counted["hung up on"] += 1
            with anyio.move_on_after(self._random.uniform(0, _HANGS_UP)):
                await self.deliver(leg)
        if self._chance():
            self.counted["sent again later"] += 1
            later.start_soon(self._deliver_later, leg)
        if self._chance():
            self.counted["sent twice at once"] += 1
            return await self._deliver_twice(leg)
        return await self.deliver(leg)

    def _chance(self) -> bool:
        return self._random.random() < self._mischief

    async def _deliver_later(self, leg: Leg) -> None:
        await anyio.sleep(self._random.uniform(0, _LATER))
        await self.deliver(leg)

    async def _deliver_twice(self, leg: Leg) -> Reply:
        replies: list[Reply] = []

        async def deliver() -> None:
            replies.append(await self.deliver(leg))

        async with anyio.create_task_group() as group:
            group.start_soon(deliver)
            group.start_soon(deliver)
        return replies[0]

    async def deliver(self, leg: Leg) -> Reply:
        """Send a leg until it is answered."""
        pause = _FIRST_PAUSE
        with anyio.fail_after(PATIENCE):
            while True:
                try:
                    reply = await self._send(leg)
                except _Again as again:
                    self.counted[f"sent again: {again}"] += 1
                    await anyio.sleep(pause * self._random.uniform(0.5, 1))
                    pause = min(2 * pause, _LONGEST_PAUSE)
                    continue
                heard = self.heard.setdefault(leg.number, Heard())
                (heard.last if leg.last else heard.early).append(reply)
                return reply

    async def _send(self, leg: Leg) -> Reply:
        """Send a leg once.

        Raises:
            _Again: It should be sent again.
        """
        self.counted["requests"] += 1
        message = self._message(leg)
        try:
            headers = headers_of("tools/call", message["params"])
            response = await self._http.post(self._path, json=message, headers=headers)
        except httpx.TransportError as error:
            raise _Again(type(error).__name__) from error
        if "," in response.headers.get("x-upstreams", ""):
            self.counted["passed on by nginx to another instance"] += 1
        if response.status_code in (502, 503, 504):
            raise _Again(str(response.status_code))
        return _read(response)

    def _message(self, leg: Leg) -> Json:
        params: Json = {
            "name": "pay",
            "arguments": {"number": leg.number},
            "_meta": meta_of("chaos", EVERYTHING),
        }
        if leg.state is not None:
            params["requestState"] = leg.state
            params["inputResponses"] = {
                key: {"action": "accept", "content": {"value": value}} for key, value in leg.answers
            }
        return {"jsonrpc": "2.0", "id": next(self._ids), "method": "tools/call", "params": params}


def _read(response: httpx.Response) -> Reply:
    told = response.text
    if response.headers.get("content-type", "").startswith("text/event-stream"):
        messages = [line.removeprefix("data: ") for line in told.splitlines() if line.startswith("data: {")]
        if not messages:
            raise _Again("a stream that broke off")
        told = messages[-1]
    try:
        answer: Json = json.loads(told)
    except ValueError as error:
        raise AssertionError(f"HTTP {response.status_code}: {response.text[:300]}") from error
    if "error" in answer:
        data: Json = answer["error"].get("data") or {}
        reason = data.get("reason")
        if reason in ("still_running", "ledger_unavailable"):
            raise _Again(reason)
        raise AssertionError(f"an error of the protocol: {answer['error']}")
    result: Json = answer["result"]
    if result.get("resultType") == "input_required":
        requests: Json = result.get("inputRequests") or {}
        questions = tuple((key, request["params"]["message"]) for key, request in requests.items())
        return Asked(questions, result["requestState"])
    if not result.get("isError"):
        return Completed(tuple(sorted(result["structuredContent"].items())))
    (content,) = result["content"]
    if "the outcome of this call is unknown" in content["text"]:
        return Unknown()
    if "has ended already, with other answers" in content["text"]:
        return Ended()
    raise AssertionError(f"an error: {content['text']}")
