"""Clients of both eras, which send requests to instances at random, and again when no answer comes."""

import itertools
import json
import random
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import httpx

from tests.chaos.intents.processes import Outlet
from tests.chaos.intents.shop import USER
from tests.kit.live_wire import HEADERS
from tests.kit.wire import EVERYTHING, Json, headers_of, meta_of

__all__ = ["Asked", "Done", "Gone", "Intent", "Leg", "Post", "Refused", "Reply"]

PATIENCE: Final = 90.0
"""Seconds for which one leg is sent again and again."""
_FIRST_PAUSE: Final = 0.03
_LONGEST_PAUSE: Final = 1.0
_REASONS: Final = {
    "the outcome of this call is unknown": "unknown",
    "answered otherwise": "answered otherwise",
    "has other arguments": "other arguments",
    "with other answers": "ended with other answers",
    "no key that opens": "unreadable",
    "another request took over this call": "taken over",
    "is still running": "still running",
    "ledger does not answer": "ledger down",
    "the server is stopping": "stopping",
    "the server stopped while": "stopping",
    "requestState": "token rejected",
    "Session not found": "no session",
    "Session terminated": "no session",
}
"""The documented errors, by a part of their texts."""
_AGAIN: Final = frozenset(("taken over", "still running", "ledger down", "token rejected", "no session"))
"""The errors after which the same request is sent again."""


@dataclass(frozen=True, slots=True)
class Intent:
    """What a user wants once."""

    user: str
    tool: str
    order: str
    copies: int = 1
    is_contrary: bool = False
    """True for a client that gives another answer than others."""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.user, self.tool, self.order

    def answer(self, name: str) -> Any:
        """Return the answer to a question, which no other intent's user gives."""
        if name == "first":
            return int(self.order) * 100 + sum(map(ord, self.user)) % 50 + 50 * self.is_contrary
        return True if name.startswith("confirm:") else f"{self.user}-{self.order}"


@dataclass(frozen=True, slots=True)
class Leg:
    """One request of a client of the retry era."""

    intent: Intent
    state: str | None = None
    answers: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """The leg ended with questions."""

    questions: tuple[tuple[str, str], ...]
    """Their names and messages."""
    state: str


@dataclass(frozen=True, slots=True)
class Done:
    """The call ended with this result."""

    result: Mapping[str, Any]
    is_recalled: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """The request ended with an error."""

    reason: str


@dataclass(frozen=True, slots=True)
class Gone:
    """The client left, or its connection was lost."""


Reply = Asked | Done | Refused | Gone


class _Again(Exception):
    """No reply came, or a reply that asks to send the request again."""


@dataclass(eq=False)
class Post:
    """Sends requests to instances, and keeps every reply."""

    outlets: Sequence[Outlet]
    http: httpx.AsyncClient
    chance: random.Random
    counted: Counter[str] = field(default_factory=Counter[str])
    heard: dict[Intent, list[Reply]] = field(default_factory=lambda: defaultdict(list[Reply]))
    wrong: list[str] = field(default_factory=list[str])
    _ids: Any = field(default_factory=lambda: itertools.count(1))
    _sessions: dict[tuple[str, int | None], str] = field(default_factory=dict[tuple[str, int | None], str])

    async def deliver(self, leg: Leg) -> Reply:
        """Send a leg until it is answered."""
        return await self._persist(leg.intent, lambda: self._send(leg))

    async def live(self, intent: Intent, *, leaves_at: int | None = None, once: bool = False) -> Reply:
        """Call in the live era, and answer every question. A client that must not call twice calls `once`.

        Args:
            intent: What is called.
            leaves_at: The number of the question at which the client leaves.
            once: True to call only once if the connection is lost.
        """
        try:
            return await self._persist(intent, lambda: self._call(intent, leaves_at), once=once)
        except _Again:
            return Gone()

    async def _persist(self, intent: Intent, send: Any, *, once: bool = False) -> Reply:
        pause, ends, last = _FIRST_PAUSE, anyio.current_time() + PATIENCE, ""
        while anyio.current_time() < ends:
            try:
                reply: Reply = await send()
            except _Again as again:
                last = str(again)
                self.counted[f"again: {last}"] += 1
                if once and last not in ("ConnectError", "no session"):
                    raise
                await anyio.sleep(pause * self.chance.uniform(0.5, 1))
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            self.heard[intent].append(reply)
            return reply
        reply = Refused(f"lost: {last}")
        self.heard[intent].append(reply)
        return reply

    def _outlet(self) -> Outlet:
        return self.chance.choice([each for each in self.outlets if each.pid is not None] or self.outlets)

    async def _send(self, leg: Leg) -> Reply:
        self.counted["requests"] += 1
        arguments: Json = {"order": leg.intent.order, "copies": leg.intent.copies}
        params: Json = {"name": leg.intent.tool, "arguments": arguments, "_meta": meta_of("chaos", EVERYTHING)}
        if leg.state is not None:
            params["requestState"] = leg.state
            params["inputResponses"] = {
                key: {"action": "accept", "content": {"value": value}} for key, value in leg.answers
            }
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": "tools/call", "params": params}
        headers = {**headers_of("tools/call", params), USER: leg.intent.user}
        try:
            response = await self.http.post(f"{self._outlet().url}/mcp", json=message, headers=headers)
        except httpx.TransportError as error:
            raise _Again(type(error).__name__) from error
        if response.status_code in (502, 503, 504):
            raise _Again(str(response.status_code))
        told = response.text
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            messages = [line.removeprefix("data: ") for line in told.splitlines() if line.startswith("data: {")]
            if not messages:
                raise _Again("a stream that broke off")
            told = messages[-1]
        return self._read(leg.intent, told)

    def _read(self, intent: Intent, told: str) -> Reply:
        """Return a reply.

        Raises:
            _Again: It asks to send the request again.
        """
        try:
            answer: Json = json.loads(told)
        except ValueError:
            return self._refused(intent, told)
        if "error" in answer:
            return self._refused(intent, json.dumps(answer["error"]))
        result: Json = answer["result"]
        if result.get("resultType") == "input_required":
            requests: Json = result.get("inputRequests") or {}
            questions = tuple((key, request["params"]["message"]) for key, request in requests.items())
            return Asked(questions, result["requestState"])
        if result.get("isError"):
            return self._refused(intent, result["content"][0]["text"])
        return Done(result["structuredContent"], "roundtrip/recalled" in (result.get("_meta") or {}))

    def _refused(self, intent: Intent, text: str) -> Reply:
        reason = next((reason for part, reason in _REASONS.items() if part in text), None)
        if reason in _AGAIN:
            raise _Again(reason)
        if reason is None:
            self.wrong.append(f"{intent}: an error that is not documented: {text[:300]}")
        return Refused(reason or "undocumented")

    # The live era.

    async def _session(self, outlet: Outlet, user: str) -> tuple[str, dict[str, str]]:
        """Return the URL and the headers of a session with an instance, which is opened at its first use."""
        url, place = f"{outlet.url}/mcp", (user, outlet.pid)
        headers = {**HEADERS, USER: user}
        if place not in self._sessions:
            hello: Json = {
                "protocolVersion": HEADERS["mcp-protocol-version"],
                "capabilities": {"elicitation": {"form": {}}},
                "clientInfo": {"name": "chaos", "version": "1"},
            }
            message = {"jsonrpc": "2.0", "id": next(self._ids), "method": "initialize", "params": hello}
            answer = await self.http.post(url, json=message, headers=headers)
            if "mcp-session-id" not in answer.headers:
                raise _Again("no session")
            session = answer.headers["mcp-session-id"]
            ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            await self.http.post(url, json=ready, headers={**headers, "mcp-session-id": session})
            self._sessions[place] = session
        return url, {**headers, "mcp-session-id": self._sessions[place]}

    async def _call(self, intent: Intent, leaves_at: int | None) -> Reply:
        self.counted["requests"] += 1
        outlet = self._outlet()
        place = intent.user, outlet.pid
        arguments: Json = {"order": intent.order, "copies": intent.copies}
        asked = 0
        try:
            url, headers = await self._session(outlet, intent.user)
            async with aclosing(self._messages(url, headers, intent.tool, arguments)) as messages:
                async for message in messages:
                    if "method" not in message:
                        return self._read(intent, json.dumps(message))
                    if message["method"] != "elicitation/create":
                        continue
                    if asked == leaves_at:
                        return Gone()
                    asked += 1
                    await self._answer(url, headers, intent, message)
        except (httpx.TransportError, anyio.ClosedResourceError) as error:
            self._sessions.pop(place, None)
            raise _Again(type(error).__name__) from error
        except _Again as again:
            if str(again) == "no session":
                self._sessions.pop(place, None)
            raise
        raise _Again("a stream that broke off")

    async def _messages(
        self, url: str, headers: dict[str, str], tool: str, arguments: Json
    ) -> AsyncGenerator[dict[str, Any]]:
        params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": 1}}
        body = {"jsonrpc": "2.0", "id": next(self._ids), "method": "tools/call", "params": params}
        async with self.http.stream("POST", url, json=body, headers=headers) as response:
            if response.status_code == 404:
                raise _Again("no session")
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    yield json.loads(line.removeprefix("data:"))
                elif line.startswith("{"):
                    yield json.loads(line)

    async def _answer(self, url: str, headers: dict[str, str], intent: Intent, question: Json) -> None:
        message: str = question["params"]["message"]
        name = self.name_of(message)
        self.check_question(intent, message)
        content = {"value": intent.answer(name)}
        said = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": content}}
        await self.http.post(url, json=said, headers=headers)

    @staticmethod
    def name_of(message: str) -> str:
        """Return the name of a question, which a client of the live era does not get."""
        if message.endswith(": first?"):
            return "first"
        return "second" if message.endswith(": second?") else "confirm:pay"

    def check_question(self, intent: Intent, message: str) -> None:
        """Note a question of another intent."""
        call = f"{intent.user} {intent.tool} {intent.order}"
        if not message.startswith((f"{call}:", f"{call} ", f'Pay for "{intent.order}"?', f"Pay for {intent.order}?")):
            self.wrong.append(f"{intent}: was asked {message!r}")
