"""Approvals of many tasks on three instances with Redis, which are killed: none is lost, and none decided twice."""

import os
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import anyio
import httpx
import pytest

from roundtrip import Approvals, Context, Pages, Server
from roundtrip.server.tasks import claim
from tests.kit.approving import BASE, GROUPS, KEY, reader, user_of
from tests.kit.hosts import HttpProcess
from tests.kit.peer import Peer, text_of
from tests.kit.programs import needs
from tests.kit.stores import ledger_at, place_of, servers
from tests.kit.tiers import Tier, current_tier
from tests.kit.waiting import WAIT

pytestmark = [pytest.mark.anyio, needs("redis"), pytest.mark.timeout(900)]

PLACE: Final = "CHAOS_APPROVALS"
TASKS, KILLS = (1000, 30) if current_tier() is Tier.NIGHTLY else (60, 6)


def shop() -> Server[Any]:
    claim.LEASE_SECONDS = 2.0
    server = Server[Any](
        "shop",
        keys=[KEY],
        principal=user_of,
        pages=Pages(base_url=BASE, authenticate=reader, wait=0),
        approvals=Approvals(groups=GROUPS, on_pending=lambda approval: None),
        ledger=ledger_at(os.environ[PLACE]),
    )

    @server.tool(task="required")
    async def sign(number: int, ctx: Context) -> str:
        """Sign a contract."""
        first = await ctx.approve("first", f"Sign {number}?", by="finance", remind=1)
        return f"{number} was signed by {first.who}: {first.reason}"

    return server


class Attack:
    """Tasks that need approvals, people who approve them, and instances that die meanwhile."""

    def __init__(self, fleet: Sequence[HttpProcess], http: httpx.AsyncClient) -> None:
        self._fleet = fleet
        self._http = http
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
            for number in range(TASKS):
                group.start_soon(make, number)
        return made

    async def kill(self) -> None:
        """Kill instances one after the other, and start them again."""
        for _ in range(KILLS):
            # In the middle of the decisions, whenever that is.
            before = self.decided.total()
            with anyio.move_on_after(2):
                while self.decided.total() < before + TASKS // (2 * KILLS):  # noqa: ASYNC110
                    await anyio.sleep(0.01)
            victim = self._dice.choice(self._fleet)
            await anyio.to_thread.run_sync(victim.kill)
            victim.start(shop)
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


async def test_approvals_survive_killed_instances(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with servers() as started, ExitStack() as stack:
        monkeypatch.setenv(PLACE, place_of("redis", started, tmp_path))
        fleet = [stack.enter_context(HttpProcess()) for _ in range(3)]
        for instance in fleet:
            instance.start(shop)
        async with httpx.AsyncClient(timeout=WAIT) as http:
            attack = Attack(fleet, http)
            results: dict[int, str] = {}
            with anyio.fail_after(WAIT + TASKS):
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
    assert attack.killed == KILLS
    assert left.json()["approvals"] == []
    assert sorted(results) == list(range(TASKS))
    for number, text in results.items():
        who = text.split(" by ")[1].partition(":")[0]
        assert text == f"{number} was signed by {who}: {who} Sign {number}?"
    # A decision whose response was lost with its instance is not counted.
    assert set(attack.decided.values()) <= {0, 1}
    assert len(attack.decided) == TASKS
