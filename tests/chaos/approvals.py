"""An attack on approvals: tasks that need them, people who approve, and instances with Redis that are killed."""

import random
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from tests.chaos import approvals_shop
from tests.kit.hosts import HttpProcess
from tests.kit.peer import Peer, text_of
from tests.kit.stores import location_of, servers


class Attack:
    """Tasks that need approvals, people who approve them, and instances that die meanwhile."""

    def __init__(self, fleet: Sequence[HttpProcess], http: httpx.AsyncClient, *, tasks: int, kills: int) -> None:
        self._fleet = fleet
        self._http = http
        self._tasks = tasks
        self._kills = kills
        self._dice = random.Random(7)
        self.decided: Counter[str] = Counter()
        self.killed = 0

    def _any(self) -> str:
        return self._dice.choice(self._fleet).url

    async def create(self) -> dict[int, str]:
        """Make all tasks, and return their ids."""
        made: dict[int, str] = {}
        limit = anyio.CapacityLimiter(16)

        async def make(number: int) -> None:
            async with limit:
                peer = Peer(self._http, self._any(), headers={"x-user": "ann"})
                made[number] = (await peer.call("sign", number=number))["taskId"]

        async with anyio.create_task_group() as group:
            for number in range(self._tasks):
                group.start_soon(make, number)
        return made

    async def kill(self) -> None:
        """Kill instances one after the other, and start them again."""
        for _ in range(self._kills):
            # In the middle of the decisions, whenever that is.
            before = self.decided.total()
            with anyio.move_on_after(2):
                while self.decided.total() < before + self._tasks // (2 * self._kills):  # noqa: ASYNC110
                    await anyio.sleep(0.01)
            victim = self._dice.choice(self._fleet)
            await anyio.to_thread.run_sync(victim.kill)
            victim.start(approvals_shop.shop)
            self.killed += 1

    async def decide(self, name: str, done: anyio.Event) -> None:
        """Approve everything that a person finds in their inbox."""
        headers = {"authorization": f"Bearer token-of-{name}"}
        while not done.is_set():
            try:
                listed = await self._http.get(self._api(), headers=headers)
                for one in listed.json()["approvals"]:
                    decision = {"decision": "approve", "reason": f"{name} {one['message']}"}
                    self.decided[one["id"]] += 0
                    sent = await self._http.post(f"{self._api()}/{one['id']}", json=decision, headers=headers)
                    assert sent.status_code in (200, 409), sent.text
                    self.decided[one["id"]] += sent.status_code == 200
            except (httpx.HTTPError, ValueError):
                # The instance has died.
                await anyio.sleep(0.05)

    def _api(self) -> str:
        return f"{self._any().removesuffix('/mcp')}/approvals/api"

    async def result_of(self, task: str) -> str:
        """Return the result of a task, from any instance."""
        while True:
            try:
                peer = Peer(self._http, self._any(), headers={"x-user": "ann"})
                found = await peer.get(task)
                if found["status"] == "completed":
                    return text_of(found)
                assert found["status"] == "working", found
            except (httpx.HTTPError, ValueError):
                pass
            await anyio.sleep(0.1)


async def attacked(folder: Path, monkeypatch: pytest.MonkeyPatch, *, tasks: int, kills: int, seconds: float) -> None:
    with servers() as started, ExitStack() as stack:
        monkeypatch.setenv(approvals_shop.PLACE, location_of("redis", started, folder))
        fleet = [stack.enter_context(HttpProcess()) for _ in range(3)]
        for instance in fleet:
            instance.start(approvals_shop.shop)
        async with httpx.AsyncClient(timeout=10) as http:
            attack = Attack(fleet, http, tasks=tasks, kills=kills)
            results: dict[int, str] = {}
            with anyio.fail_after(seconds):
                made = await attack.create()
                done = anyio.Event()
                async with anyio.create_task_group() as group:
                    for name in ("fay", "fred"):
                        group.start_soon(attack.decide, name, done)
                    await attack.kill()
                    for number, task in made.items():
                        results[number] = await attack.result_of(task)
                    done.set()
            left: Any = await http.get(
                f"{fleet[0].url.removesuffix('/mcp')}/approvals/api", headers={"authorization": "Bearer token-of-fay"}
            )
    assert attack.killed == kills
    assert left.json()["approvals"] == []
    assert sorted(results) == list(range(tasks))
    for number, text in results.items():
        who = text.split(" by ")[1].partition(":")[0]
        assert text == f"{number} was signed by {who}: {who} Sign {number}?"
    # A decision whose response was lost with its instance is not counted.
    assert set(attack.decided.values()) <= {0, 1}
    assert len(attack.decided) == tasks
