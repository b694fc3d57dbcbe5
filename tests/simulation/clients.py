"""Clients of a simulated fleet: they answer, change their minds, give up waiting, and send requests again."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Mapping
from typing import Any, Final

from tests.simulation.fleet import Json, Network, Unanswered

__all__ = ["ONCE", "TOOLS", "Client", "asks", "comes_back", "text_of"]

TOOLS: Final = ("book", "pay", "ship", "report", "transfer", "collect")
"""The tools of `shop.py`."""
TASKS: Final = frozenset(("report", "transfer", "collect"))
ONCE: Final = frozenset(("pay", "ship", "transfer"))
"""Those whose body must not run twice."""

_PATIENCE: Final = 70.0
_MISCHIEF_TRIES: Final = 3
"""With more, a client whose requests are lost would outlive its own token."""
"""Seconds for which a client waits for a response."""
_LATER: Final = ("send the same request again", "try again later")
"""Errors that ask the client to come back."""
_MISCHIEF: Final = 0.1
_WAVERS: Final = 0.15
"""The share of legs that a client sends with two sets of answers, of tools that run once."""
_VALID_SECONDS: Final = 200.0
"""Time after a leg in which its token does not expire."""
_ENDED: Final = frozenset(("completed", "failed", "cancelled"))


class Client:
    """Client that makes one call and carries it to its end.

    Args:
        order: The name of its order, which no other client has.
        tool: The tool that it calls.
        network: Its way to the fleet.
        seen: The requests of all clients, which thieves have.
        chance: Decides what it does.
    """

    def __init__(
        self, order: str, tool: str, network: Network, seen: list[tuple[str, str, Json]], chance: random.Random
    ) -> None:
        self.order = order
        self.name = f"{tool} of {order}"
        self.tool = tool
        self.user = f"user of {order}"
        self._network = network
        self._seen = seen
        self._chance = chance
        self.answers: Mapping[str, Any] = {
            "seats": chance.randrange(1, 1000),
            # With the order, as everything that must not lie readable in the store.
            "where": f"place-{chance.randrange(1000)}-of-{order}",
            "row": f"row-{chance.randrange(1000)}-of-{order}",
            "sure": chance.random() < 0.5,
        }
        self.declines = chance.random() < 0.1
        self.cancels = tool in TASKS and chance.random() < 0.15
        self.has_asked_to_cancel = False
        self._mistakes = chance.choice([0, 0, 0, 1, 2])
        self.asked: list[str] = []
        self.ends: list[Json] = []
        """What the server said at the end, each time that the client asked."""
        self.other_ends: list[Json] = []
        """What it said when other answers, to the questions of the same leg, ended the call."""
        self.late_end: Json | None = None
        """What it said to other answers after the end."""
        self.has_wavered = False
        """True once it has sent other answers."""
        self.broken: list[str] = []

    @property
    def is_task(self) -> bool:
        """Return True if its tool runs in the background."""
        return self.tool in TASKS

    async def run(self) -> None:
        """Make the call, until it ends."""
        await asyncio.sleep(self._chance.uniform(0, 30))
        if self.is_task:
            await self._run_task()
        else:
            await self._run_legs()

    async def _send(self, method: str, params: Json, *, tries: float = math.inf) -> Json:
        """Send a request until a response comes that does not ask to come back later, or so many times."""
        while True:
            try:
                response = await self._network.post(self.user, method, params, tasks=self.is_task, patience=_PATIENCE)
            except Unanswered:
                if (tries := tries - 1) < 1:
                    return {"error": "no answer"}
                continue
            if not comes_back(response):
                return response
            await asyncio.sleep(self._chance.uniform(0.5, 5))

    async def _run_legs(self) -> None:
        params: Json = {"name": self.tool, "arguments": {"order": self.order}}
        others: list[tuple[float, Json]] = []
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        while True:
            if self.tool in ONCE and "requestState" in params:
                others.append((loop.time(), {**params, "inputResponses": _changed(params["inputResponses"])}))
            if others and self._chance.random() < _WAVERS:
                response, other = await asyncio.gather(
                    self._send("tools/call", params), self._send("tools/call", others[-1][1])
                )
                self.has_wavered = True
                if not asks(other):
                    self.other_ends.append(other)
            else:
                response = await self._send("tools/call", params)
            result = response.get("result", {})
            if not asks(response):
                self.ends.append(response)
                is_once = "requestState" in params and self.tool in ONCE
                if self._chance.random() < 0.5 and is_once and loop.time() - asked_at < _VALID_SECONDS:
                    # It lost the result, and asks for it.
                    self.ends.append(await self._send("tools/call", params))
                valid = [other for at, other in others if loop.time() - at < _VALID_SECONDS]
                if valid and self._chance.random() < 0.3:
                    self.has_wavered = True
                    self.late_end = await self._send("tools/call", self._chance.choice(valid))
                return
            params, asked_at = {**params, "requestState": result["requestState"]}, loop.time()
            params["inputResponses"] = await self._answer(result.get("inputRequests", {}))
            self._seen.append((self.user, "tools/call", params))
            await self._do_mischief()

    async def _run_task(self) -> None:
        params = {"name": self.tool, "arguments": {"order": self.order}}
        response = await self._send("tools/call", params)
        while asks(response):
            # A round without questions names a call that must run once, before anything is stored.
            params = {**params, "requestState": response["result"]["requestState"]}
            response = await self._send("tools/call", params)
        if "taskId" not in response.get("result", {}):
            self.ends.append(response)
            return
        task_id = response["result"]["taskId"]
        self._seen.append((self.user, "tasks/get", {"taskId": task_id}))
        pays_after = self._chance.randrange(1, 10) if self.tool == "collect" else -1
        cancels_after = self._chance.randrange(1, 40)
        while True:
            await asyncio.sleep(self._chance.uniform(0.2, 8))
            await self._do_mischief()
            response = await self._send("tasks/get", {"taskId": task_id})
            task = response.get("result", {})
            if task.get("status") in _ENDED or not task:
                self.ends.append(task or response)
                if len(self.ends) == 2:
                    return
                if self._chance.random() < 0.3:
                    # Too late: what has ended stays as it is.
                    await self._send("tasks/cancel", {"taskId": task_id})
                continue
            cancels_after, pays_after = cancels_after - 1, pays_after - 1
            if pays_after == 0:
                await self._pay(task_id.partition(".")[0])
            if self.cancels and cancels_after == 0:
                self.has_asked_to_cancel = True
                await self._send("tasks/cancel", {"taskId": task_id})
            elif requests := task.get("inputRequests"):
                given = await self._answer(requests)
                await self._send("tasks/update", {"taskId": task_id, "inputResponses": given})

    async def _pay(self, call_id: str) -> None:
        """Send the signal until it is stored, and then another one, which must not count."""
        for paid in (self.answers["seats"], 0):
            while True:
                if await self._network.signal(call_id, "payment", paid):
                    break
                await asyncio.sleep(self._chance.uniform(0.5, 5))

    async def _do_mischief(self) -> None:
        """Use what belongs to another client, or to another request; the fleet must reject it."""
        if self._chance.random() > _MISCHIEF:
            return
        user, method, params = self._chance.choice(self._seen)
        if user == self.user:
            if method == "tasks/get":
                return
            if self._chance.random() < 0.5:
                # A leg may arrive again. Only the judge of the bodies sees what comes of it.
                await self._send(method, params, tries=_MISCHIEF_TRIES)
                return
            params = {**params, "arguments": {"order": f"{self.order} of another"}}
        response = await self._send(method, params, tries=_MISCHIEF_TRIES)
        if "error" not in response:
            self.broken.append(f"{self.user} used {method} of {user}, and got {str(response)[:200]}")

    async def _answer(self, requests: Mapping[str, Json]) -> Json:
        await asyncio.sleep(self._chance.choice([0.1, self._chance.uniform(0, 90)]))
        return {key: self._response(request["params"]["message"]) for key, request in requests.items()}

    def _response(self, message: str) -> Json:
        self.asked.append(message)
        if self.order not in message:
            self.broken.append(f"{self.order} was asked {message!r}")
        words = {"how many": "seats", "where": "where", "which row": "row", "sure": "sure"}
        if "Pay for" in message:
            return {"action": "accept", "content": {}}
        name = next(name for word, name in words.items() if word in message)
        if name == "seats" and self.declines:
            return {"action": "decline"}
        if name == "seats" and self._mistakes:
            self._mistakes -= 1
            return {"action": "accept", "content": {"value": "several"}}
        return {"action": "accept", "content": {"value": self.answers[name]}}


def _changed(responses: Json) -> Json:
    """Return other answers to the same questions."""
    changed: Json = {}
    for key, response in responses.items():
        value = response.get("content", {}).get("value")
        is_number = isinstance(value, int)
        content = {"value": not value if isinstance(value, bool) else value + 1} if is_number else None
        changed[key] = {"action": "accept", "content": content} if is_number else {"action": "cancel"}
    return changed


def asks(response: Json) -> bool:
    """Return True if the call goes on with another leg."""
    return response.get("result", {}).get("resultType") == "input_required"


def comes_back(response: Json) -> bool:
    """Return True for an error that asks the client to send the request again."""
    text = text_of(response)
    return any(word in text for word in _LATER)


def text_of(response: Json) -> str:
    """Return a response's error; an empty text if there is none."""
    result = response.get("result", {})
    if result.get("isError"):
        return str(result["content"][0].get("text", ""))
    return str(response.get("error", {}).get("message", ""))
