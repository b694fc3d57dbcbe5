"""What the clients of each fault do."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Final

import anyio

from tests.chaos.intents.client import Asked, Gone, Intent, Leg, Post, Refused, Reply

__all__ = ["Play", "Player"]

MOST_ROUNDS: Final = 8
_LIVE: Final = 0.25
"""How likely a client speaks the live era."""
_HANGS_UP: Final = 0.1
_TIMES_OUT: Final = 1.0
_LATER: Final = 1.0

Send = Callable[[Leg], Awaitable[Reply]]


@dataclass(eq=False)
class Player:
    """Plays the clients of all intents, and keeps how each of their calls ended."""

    post: Post
    chance: random.Random
    ends: list[tuple[Intent, Reply]] = field(default_factory=list[tuple[Intent, Reply]])
    later: anyio.abc.TaskGroup | None = None
    covers_calls: bool = True
    """False while an instance may know no intents, so that a second call is a separate call."""

    # Calls.

    async def call(self, intent: Intent, *, send: Send | None = None, is_live: bool | None = None) -> Reply:
        """Make a call and play it to its end, by a client of either era."""
        if self.is_chosen(_LIVE) if is_live is None else is_live:
            reply = await self.post.live(intent, once=not self.covers_calls)
        else:
            reply = await self.walk(intent, send=send)
        self.ends.append((intent, reply))
        return reply

    async def walk(self, intent: Intent, *, send: Send | None = None, leaves_at: int | None = None) -> Reply:
        """Play a call of the retry era until it ends, or until the client leaves."""
        send = send or self.post.deliver
        reply = await send(Leg(intent))
        for asked in range(MOST_ROUNDS):
            if not isinstance(reply, Asked):
                return reply
            if asked == leaves_at:
                return Gone()
            reply = await send(self.answer(intent, reply))
        return Refused("lost: asked too often")

    def answer(self, intent: Intent, asked: Asked) -> Leg:
        """Return the leg that answers questions."""
        for _, message in asked.questions:
            self.post.check_question(intent, message)
        return Leg(intent, asked.state, tuple((key, intent.answer(key)) for key, _ in asked.questions))

    def is_chosen(self, probability: float) -> bool:
        return self.chance.random() < probability

    # Ways to send a leg.

    async def lossy(self, leg: Leg, *, hangs_up: float = _HANGS_UP) -> Reply:
        """Lose the response, or hang up before it comes, and send the leg again."""
        match self.chance.randrange(3):
            case 0:
                self.post.counted["responses lost"] += 1
                await self.post.deliver(leg)
            case 1:
                self.post.counted["hung up on"] += 1
                with anyio.move_on_after(self.chance.uniform(0, hangs_up)):
                    await self.post.deliver(leg)
            case _:
                pass
        return await self.post.deliver(leg)

    async def impatient(self, leg: Leg) -> Reply:
        """Hang up on an instance that does not answer, and send the leg again."""
        with anyio.move_on_after(_TIMES_OUT):
            return await self.post.deliver(leg)
        self.post.counted["timed out"] += 1
        return await self.post.deliver(leg)

    async def repeated(self, leg: Leg) -> Reply:
        """Send a leg some times at once, and perhaps again later."""
        replies: list[Reply] = []

        async def deliver(after: float = 0.0) -> None:
            await anyio.sleep(after)
            replies.append(await self.post.deliver(leg))

        if self.later is not None and self.is_chosen(0.25):
            self.post.counted["sent again later"] += 1
            self.later.start_soon(deliver, self.chance.uniform(0, _LATER))
        async with anyio.create_task_group() as group:
            for _ in range(self.chance.choice((1, 2, 3))):
                group.start_soon(deliver)
        return replies[0]

    async def answers_repeated(self, leg: Leg) -> Reply:
        """Repeat a leg that has a token. One without a token would be another call."""
        if leg.state is None:
            return await self.post.deliver(leg)
        return await (self.lossy if self.is_chosen(0.5) else self.repeated)(leg)

    # Faults.

    async def loses_responses(self, intent: Intent) -> None:
        if self.is_chosen(_LIVE):
            with anyio.move_on_after(self.chance.uniform(0, _HANGS_UP)):
                self.post.counted["hung up on"] += 1
                await self.post.live(intent)
            await self.call(intent, is_live=True)
        else:
            await self.call(intent, send=self.lossy, is_live=False)

    async def repeats_legs(self, intent: Intent) -> None:
        await self.call(intent, send=self.repeated, is_live=False)

    async def repeats_call(self, intent: Intent) -> None:
        """Call again while the first call runs, and after it has ended."""
        async with anyio.create_task_group() as group:
            group.start_soon(self.call, intent)
            if self.is_chosen(0.5):
                await anyio.sleep(self.chance.uniform(0, _HANGS_UP))
                group.start_soon(self.call, intent)
        await self.call(intent)

    async def begins_again(self, intent: Intent) -> None:
        """Call from the first round for each answer, and give all earlier answers again, as LangGraph does."""
        known: list[Leg] = []
        reply: Reply = Refused("lost: asked too often")
        for _ in range(MOST_ROUNDS):
            reply = await self.post.deliver(Leg(intent))
            for given in known:
                if not isinstance(reply, Asked) or [key for key, _ in reply.questions] != [k for k, _ in given.answers]:
                    self.post.wrong.append(f"{intent}: began again, and was not asked {given.answers} but got {reply}")
                    break
                reply = await self.post.deliver(replace(given, state=reply.state))
            if not isinstance(reply, Asked):
                break
            known.append(self.answer(intent, reply))
        self.ends.append((intent, reply))

    async def is_two(self, intent: Intent) -> None:
        """Call by two clients at once, of which one may give other answers or other arguments."""
        other = intent
        match self.chance.randrange(6):
            case 0:
                other = replace(intent, copies=7)
            case 1:
                other = replace(intent, is_contrary=True)
            case _:
                pass

        async def call(intent: Intent) -> None:
            reply = await self.call(intent)
            if reply == Refused("answered otherwise"):
                # It says to call again, and goes on with the answers that were used.
                await self.call(intent)

        async with anyio.create_task_group() as group:
            for each in (intent, other):
                group.start_soon(call, each)

    async def leaves(self, intent: Intent) -> None:
        """Leave after some rounds or within a request, and let another client call."""
        at = self.chance.randrange(2)
        with anyio.move_on_after(self.chance.uniform(0, 2 * _HANGS_UP) if self.is_chosen(0.5) else 60):
            if self.is_chosen(_LIVE):
                await self.post.live(intent, leaves_at=at)
            else:
                await self.walk(intent, leaves_at=at)
        await self.call(intent)

    async def endures(self, intent: Intent) -> None:
        """Call while processes die or stop, sometimes by two clients, and sometimes again after the end."""
        async with anyio.create_task_group() as group:
            for _ in range(1 + self.is_chosen(0.3)):
                group.start_soon(lambda: self.call(intent, send=self.impatient))
        if self.is_chosen(0.3):
            await self.call(intent, send=self.impatient)

    async def suffers_everything(self, intent: Intent) -> None:
        """Call by several clients at once, each with a fault of its own, while processes die."""
        sends: list[Send] = [self.lossy, self.repeated, self.impatient]
        async with anyio.create_task_group() as group:
            if self.is_chosen(0.3):
                group.start_soon(lambda: self.walk(intent, leaves_at=self.chance.randrange(2)))
            for _ in range(self.chance.choice((1, 2, 3))):
                group.start_soon(lambda: self.call(intent, send=self.chance.choice(sends)))
        await self.call(intent, send=self.impatient)

    async def goes_on(self, intent: Intent) -> None:
        """Call during a rollout, and repeat earlier calls."""
        await self.call(intent)
        if self.is_chosen(0.5) and self.ends:
            earlier, _ = self.chance.choice(self.ends)
            await self.call(earlier)

    async def repeats_legs_of_one_call(self, intent: Intent) -> None:
        """Repeat legs only, as long as an instance knows no intents."""
        if self.covers_calls:
            await self.repeats_call(intent)
        else:
            await self.call(intent, send=self.answers_repeated)


Play = Callable[[Player, Intent], Awaitable[None]]
