"""A client of tasks on a bad network: its updates, and other requests, are lost, doubled, reordered and late."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import anyio
import httpx

from tests.kit.peer import ENDED, Peer
from tests.kit.wire import Json, accept

__all__ = ["POISON", "Order", "TaskClient", "secrets_of"]

POISON: Final = "poison"
"""The answer of a late copy. It must not count."""
_PATIENCE: Final = 240.0
"""Seconds in which one request, or one task, must come to its end."""
_PAUSES: Final = (0.05, 0.1, 0.2, 0.5, 1.0)
_POLL: Final = 0.4
"""Seconds between two polls, at most."""
_LATER: Final = 3.0
_HANGS_UP: Final = 0.1
_OUT_OF_REACH: Final = -32000


def secrets_of(number: int) -> dict[str, Any]:
    """Return the right answers of an order, none of which another order has."""
    return {
        "who": f"hush-{number}",
        "color": f"hush-red-{number}",
        "size": 770_000 + number,
        "copies": 990_000 + number,
    }


@dataclass
class Order:
    """One task, as its client sees it."""

    number: int
    chance: random.Random
    handles: set[str] = field(default_factory=set[str])
    texts: dict[str, str] = field(default_factory=dict[str, str])
    """The message of each question, by its key."""
    answered: set[str] = field(default_factory=set[str])
    """The keys whose answers were acknowledged."""
    end: Json | None = None
    wrong: list[str] = field(default_factory=list[str])

    @property
    def task_id(self) -> str:
        (task_id,) = self.handles
        return task_id

    def answer(self, key: str) -> Json:
        """Return the answer to a question. The first one to `size` may be invalid."""
        name, _, again = key.partition("#")
        if name == "size" and not again and self.number % 5 == 0:
            return accept(value="many")
        return accept(value=secrets_of(self.number)[name])


class TaskClient:
    """Client of all orders.

    Args:
        http: Its connections.
        url: The address.
        seed: The seed of its choices.
        mischief: The probability of each kind of mischief, for each update and for the request that makes the task.
    """

    def __init__(self, http: httpx.AsyncClient, url: str, *, seed: int, mischief: float) -> None:
        self._peer = Peer(http, f"{url}/mcp")
        self._seed = seed
        self._mischief = mischief
        self.counted: Counter[str] = Counter()

    async def play(self, number: int, later: anyio.abc.TaskGroup) -> Order:
        """Place an order, and answer its questions until it has ended."""
        order = Order(number, random.Random(f"{self._seed} {number}"))
        try:
            with anyio.fail_after(_PATIENCE):
                await self._place(order, later)
                await self._follow(order, later)
        except TimeoutError:
            order.wrong.append(f"did not end in {_PATIENCE:g} s")
        except AssertionError as error:
            order.wrong.append(str(error))
        return order

    async def _place(self, order: Order, later: anyio.abc.TaskGroup) -> None:
        request: Json = {"name": "order", "arguments": {"number": order.number}}
        asked = await self._deliver("tools/call", **request)
        request["requestState"] = asked["requestState"]
        request["inputResponses"] = {"who": accept(value=secrets_of(order.number)["who"])}

        async def send() -> None:
            order.handles.add((await self._deliver("tools/call", **request))["taskId"])

        await self._mistreat(order, send, later)
        await send()

    async def _mistreat(self, order: Order, send: Any, later: anyio.abc.TaskGroup) -> None:
        """Send a request that may be repeated, and lose its response, double it, or repeat it later."""
        if self._happens(order, "responses lost"):
            with anyio.move_on_after(order.chance.uniform(0, _HANGS_UP)):
                await send()
        if self._happens(order, "doubled"):
            async with anyio.create_task_group() as group:
                group.start_soon(send)
                group.start_soon(send)
        if self._happens(order, "repeated later"):
            later.start_soon(self._after_a_while, order, send)

    async def _after_a_while(self, order: Order, send: Any) -> None:
        await anyio.sleep(order.chance.uniform(0, _LATER))
        await send()

    async def _follow(self, order: Order, later: anyio.abc.TaskGroup) -> None:
        while True:
            await anyio.sleep(order.chance.uniform(0, _POLL))
            before = frozenset(order.answered)
            task = await self._deliver("tasks/get", taskId=order.task_id)
            if task["status"] in ENDED:
                break
            questions: Json = task.get("inputRequests", {})
            self._check(order, questions, before)
            if questions:
                await self._answer(order, list(questions), later)
        order.end = task
        if self._happens(order, "answers and cancellations after the end"):
            await self._update(order, {key: accept(value=POISON) for key in order.texts})
            await self._deliver("tasks/cancel", taskId=order.task_id)
        if (again := await self._deliver("tasks/get", taskId=order.task_id)) != task:
            order.wrong.append(f"ended as {task}, and later as {again}")

    def _check(self, order: Order, questions: Mapping[str, Any], answered: frozenset[str]) -> None:
        """Check that a key names one question, and is not open again once it was answered."""
        for key, request in questions.items():
            text = request["params"]["message"]
            if f"no. {order.number}?" not in text:
                order.wrong.append(f"was asked another's question: {text}")
            if order.texts.setdefault(key, text) != text:
                order.wrong.append(f"key {key} was used for {order.texts[key]!r} and for {text!r}")
            if key in answered:
                order.wrong.append(f"key {key} was open again after its answer")

    async def _answer(self, order: Order, keys: Sequence[str], later: anyio.abc.TaskGroup) -> None:
        parts = [list(keys)]
        if len(keys) > 1 and self._happens(order, "updates reordered"):
            parts = [[key] for key in reversed(keys)]
        for part in parts:
            if self._happens(order, "updates lost"):
                continue
            responses = {key: order.answer(key) for key in part}
            send = partial(self._update, order, responses)
            await self._mistreat(order, send, later)
            await send()
            order.answered.update(part)
            if self._happens(order, "late updates with other answers"):
                poison: Json = {key: accept(value=POISON) for key in part}
                later.start_soon(self._after_a_while, order, partial(self._update, order, poison))

    async def _update(self, order: Order, responses: Json) -> None:
        self.counted["updates"] += 1
        known = {"resultType": "complete"}
        shown = await self._deliver("tasks/update", taskId=order.task_id, inputResponses=responses)
        if {name: value for name, value in shown.items() if name != "_meta"} != known:
            order.wrong.append(f"an update was answered with {shown}")

    def _happens(self, order: Order, what: str) -> bool:
        if order.chance.random() >= self._mischief:
            return False
        self.counted[what] += 1
        return True

    async def _deliver(self, method: str, **params: Any) -> Json:
        """Send a request until it is answered, and return its result.

        Raises:
            AssertionError: The answer is an error.
        """
        for attempt in range(10_000):
            self.counted["requests"] += 1
            try:
                response = await self._peer.send(method, **params)
            except (httpx.TransportError, ValueError) as error:
                # nginx answers with a page if no instance listens.
                self.counted[f"sent again: {type(error).__name__}"] += 1
            else:
                error = response.get("error")
                if error is None:
                    return response["result"]
                if error["code"] != _OUT_OF_REACH or "try again later" not in error["message"]:
                    raise AssertionError(f"{method} was answered with {error}")
                self.counted["sent again: out of reach"] += 1
            await anyio.sleep(_PAUSES[min(attempt, len(_PAUSES) - 1)])
        raise AssertionError(f"{method} was never answered")
