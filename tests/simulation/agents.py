"""Agents of a simulated fleet: they call again, begin again, replay their answers, disagree, decline and leave."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from tests.simulation.clients import asks, comes_back, text_of
from tests.simulation.fleet import DECLINED_SECONDS, Json, Network, Unanswered

__all__ = ["INTENTS", "OTHERWISE", "Agent", "Said", "Wish", "whose"]

INTENTS: Final = ("charge", "refund", "reserve", "restock")
"""The tools of `shop.py` with `once_per=`."""
OTHERWISE: Final = "were not used"
"""Part of the error for answers that another request has given otherwise."""

_PATIENCE: Final = 70.0
_SLACK_SECONDS: Final = 100.0
_MOST_CHAINS: Final = 40
"""Times that an agent begins again, before it counts as one that never gets through."""
_FORGED: Final = "forged-row"

Habit = Literal["steady", "forgetful", "replaying", "leaving"]


def _tells_decline(text: str) -> bool:
    """Return True for a decline. An error about other arguments only mentions declines."""
    return "decline" in text and "other arguments" not in text


class Said(NamedTuple):
    """How a request has ended for an agent."""

    sent: float
    received: float
    end: Json
    given: Mapping[str, Json]
    """The answers that its chain of requests has given, to questions that it was asked."""


def whose(user: str, tool: str, order: str) -> str:
    """Return the name of an intent, for people and judges."""
    return f"{tool} of {order} for {user}"


@dataclass(eq=False)
class Wish:
    """What a user wants of one tool: one body, whichever of the user's agents asks for it."""

    user: str
    order: str
    tool: str
    amount: int
    agents: list[Agent] = field(default_factory=list["Agent"])
    broken: list[str] = field(default_factory=list[str])
    first_decline_sent: float = math.inf
    first_decline_told: float = math.inf
    last_decline: float = -math.inf
    """The last time at which a declining request was under way."""
    told: float = math.inf
    """The time at which an agent first knew the body's end."""

    @property
    def name(self) -> str:
        """Return its name."""
        return whose(self.user, self.tool, self.order)

    @property
    def amounts(self) -> set[int]:
        """Return the amounts that its agents ask for."""
        return {agent.amount for agent in self.agents}

    @property
    def is_of_one_mind(self) -> bool:
        """Return True if no agent has ever given another answer than the others."""
        return len({repr(sorted(agent.answers.items())) for agent in self.agents}) < 2 and not any(
            agent.mistakes or agent.has_declined for agent in self.agents
        )


class Agent:
    """Agent that calls a tool for its user, perhaps as one of several.

    Args:
        wish: What it wants.
        network: Its way to the fleet.
        seen: The requests of all clients, which thieves have.
        chance: Decides what it does.
    """

    def __init__(self, wish: Wish, network: Network, seen: list[tuple[str, str, Json]], chance: random.Random) -> None:
        self.wish = wish
        self.number = len(wish.agents)
        self.tool = wish.tool
        self.order = wish.order
        self.name = f"agent {self.number} of {wish.name}"
        wish.agents.append(self)
        self._network = network
        self._seen = seen
        self._chance = chance
        self.habit: Habit = chance.choice(["steady", "steady", "forgetful", "replaying", "replaying", "leaving"])
        if self.number == 0 and chance.random() < 0.2:
            self.habit = "leaving"
        self.amount = wish.amount + (1 if chance.random() < 0.1 else 0)
        first = wish.agents[0]
        if self is first or chance.random() < 0.3:
            self.answers: Mapping[str, Any] = {
                "seats": chance.randrange(1, 1000),
                "row": f"row-{chance.randrange(1000)}-of-{self.order}",
            }
        else:
            self.answers = first.answers
        self.declines = chance.random() < 0.12
        self.has_declined = self.declines
        self.mistakes = 0 if self.habit == "replaying" else chance.choice([0, 0, 0, 1])
        self._mistakes = self.mistakes
        self._given: list[Json] = []
        """The responses that it gives again, in order, whenever it begins again."""
        self._sent: list[tuple[Json, dict[str, Json]]] = []
        self._rounds_until_leaving = chance.randrange(3) if self.habit == "leaving" else math.inf
        self.has_left = False
        self.shown: list[str] = []
        self.said: list[Said] = []

    async def run(self) -> None:
        """Call the tool, perhaps several times."""
        chance = self._chance
        await asyncio.sleep(chance.choice([chance.uniform(0, 30), chance.uniform(0, 150)]))
        for again in range(chance.choice([1, 2, 3])):
            if again:
                await asyncio.sleep(chance.choice([1.0, chance.uniform(0, 100)]))
                if self._is_declined() and chance.random() < 0.5:
                    await asyncio.sleep(DECLINED_SECONDS + 150)
                    # The user has changed their mind.
                    self.declines = False
            await self._call()
            if self.has_left:
                return
            if self._sent and chance.random() < 0.4:
                # A leg may arrive again, long after.
                params, given = chance.choice(self._sent)
                await self._exchange(params, given, tries=3)

    def _is_declined(self) -> bool:
        return bool(self.said) and _tells_decline(text_of(self.said[-1].end))

    async def _call(self) -> None:
        """Call until there is an end. Each time, it begins without a token."""
        self._given.clear()
        for _ in range(_MOST_CHAINS):
            if await self._chain():
                return
        self.wish.broken.append(f"{self.name} began {_MOST_CHAINS} times, and never got an end")

    async def _chain(self) -> bool:
        """Begin from the first round. Return True if the call has ended."""
        params: Json = {"name": self.tool, "arguments": {"order": self.order, "amount": self.amount}}
        given: dict[str, Json] = {}
        place = 0
        while True:
            response = await self._exchange(params, given)
            if response is None:
                return False
            if not asks(response):
                text = text_of(response)
                if OTHERWISE in text or "requestState" in text:
                    self._given.clear()
                    return False
                return True
            if self._rounds_until_leaving <= 0:
                self.has_left = True
                return True
            self._rounds_until_leaving -= 1
            result = response["result"]
            requests = result.get("inputRequests", {})
            for request in requests.values():
                self._look(request["params"]["message"])
            responses = self._replayed(place, requests) if self.habit == "replaying" else None
            if responses is None:
                responses = await self._answer(requests)
                if self.habit == "replaying":
                    self._given.append(responses)
                    return False
            place += 1
            given |= {_name_of(key): response for key, response in responses.items()}
            if self._chance.random() < 0.05 and "row" not in responses:
                # It answers a question that its token has not asked.
                responses = {**responses, "row": {"action": "accept", "content": {"value": _FORGED}}}
            params = {**params, "requestState": result["requestState"], "inputResponses": responses}
            self._sent.append((params, dict(given)))
            self._seen.append((self.wish.user, "tools/call", params))
            if self.habit == "forgetful" and self._chance.random() < 0.15:
                return False
            if self._chance.random() < 0.1 and len(self._sent) > 1:
                await self._exchange(*self._chance.choice(self._sent), tries=2)

    def _replayed(self, place: int, requests: Json) -> Json | None:
        """Return the responses that it gave to a round before; None if the round is new."""
        if place >= len(self._given):
            return None
        responses = self._given[place]
        if responses.keys() == requests.keys():
            return responses
        # Another agent has answered what this one would answer again.
        if len(self.wish.agents) == 1:
            self.wish.broken.append(f"{self.name} was asked in another order: {sorted(requests)}")
        del self._given[place:]
        return None

    async def _exchange(self, params: Json, given: dict[str, Json], *, tries: float = math.inf) -> Json | None:
        """Send a request until a response comes; None if the agent gives up, and begins again."""
        loop, wish = asyncio.get_running_loop(), self.wish
        sent = loop.time()
        declines = any(each["action"] == "decline" for each in params.get("inputResponses", {}).values())
        if declines:
            wish.first_decline_sent = min(wish.first_decline_sent, sent)
            wish.last_decline = math.inf
        try:
            response = await self._send(params, tries)
        finally:
            if declines:
                wish.last_decline = loop.time()
        if response is None:
            return None
        now, text = loop.time(), text_of(response)
        if asks(response):
            is_early = wish.first_decline_told < sent and now < wish.first_decline_sent + DECLINED_SECONDS
            if "requestState" not in params and is_early:
                wish.broken.append(f"nag: {self.name} was asked again soon after a decline")
            return response
        if _tells_decline(text):
            wish.first_decline_told = min(wish.first_decline_told, now)
            if "requestState" not in params and sent > wish.last_decline + DECLINED_SECONDS + _SLACK_SECONDS:
                wish.broken.append(f"nag: {self.name} got an old decline")
        self.said.append(Said(sent, now, response, dict(given)))
        return response

    async def _send(self, params: Json, tries: float) -> Json | None:
        chance = self._chance
        while tries > 0:
            tries -= 1
            try:
                response = await self._network.post(
                    self.wish.user, "tools/call", params, tasks=False, patience=_PATIENCE, whose=self.wish.name
                )
            except Unanswered:
                if self.habit != "steady" and chance.random() < 0.5:
                    return None
                continue
            if not comes_back(response):
                return response
            await asyncio.sleep(chance.uniform(0.5, 5))
            if self.habit == "forgetful" and chance.random() < 0.3:
                return None
        return None

    async def _answer(self, requests: Mapping[str, Json]) -> Json:
        await asyncio.sleep(self._chance.choice([0.1, 0.1, self._chance.uniform(0, 90)]))
        return {key: self._response(request["params"]["message"]) for key, request in requests.items()}

    def _look(self, message: str) -> None:
        self.shown.append(message)
        if self.order not in message:
            self.wish.broken.append(f"{self.name} was asked {message!r}")

    def _response(self, message: str) -> Json:
        if "Refund" in message:
            return {"action": "decline"} if self.declines else {"action": "accept", "content": {}}
        name = "seats" if "how many" in message else "row"
        if name == "seats" and self.declines and self.tool in ("reserve", "restock"):
            return {"action": "decline"}
        if name == "seats" and self._mistakes:
            self._mistakes -= 1
            return {"action": "accept", "content": {"value": "several"}}
        return {"action": "accept", "content": {"value": self.answers[name]}}


def _name_of(key: str) -> str:
    return "seats" if "how_many" in key else key
