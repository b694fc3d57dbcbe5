"""Attack on the sessions of older clients: rolling reloads and killed workers, while clients are asked by form."""

import os
import random
import re
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
import httpx
import httpx2
from mcp.client import Client
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequestFormParams, ElicitRequestParams, ElicitResult

from tests.interaction.serving.services import KEY, Service
from tests.interaction.serving.session_shops import DONE
from tests.kit.players import text_of
from tests.kit.waiting import WAIT, until

__all__ = ["SessionAttack", "SessionReport", "attack_sessions"]

SHOP: Final = "tests.interaction.serving.session_shops:server_shop"
_WORKERS: Final = 4
_CLIENTS: Final = 12
_THINK_SECONDS: Final = 0.4
_LIFE_SECONDS: Final = 6.0
"""Seconds that a worker lives before it is killed. The supervisor pauses before it replaces a short-lived worker."""
_ALLOWED: Final = {
    "unknown session": re.compile("Session (not found|terminated)"),
    "stopping server": re.compile("the server is stopping, and can no longer receive answers"),
    "stopped server": re.compile("the server stopped while this call ran, so its outcome is unknown"),
    "ended stream": re.compile("SSE stream ended without a response|Connection closed"),
}
"""What the protocol allows a client to get from a worker that has ended."""


@dataclass(frozen=True, slots=True)
class SessionAttack:
    """Size of an attack. It ends when all calls, kills and reloads are done."""

    calls: int
    kills: int
    reloads: int
    seed: int = 1


@dataclass(slots=True)
class SessionReport:
    """What the clients of an attack got."""

    right: int = 0
    lost: Counter[str] = field(default_factory=Counter[str])
    """The calls that ended as the protocol allows, by reason."""
    wrong: list[str] = field(default_factory=list[str])
    """Results and questions of another session, and errors that the protocol does not allow."""
    sessions: int = 0
    kills: int = 0
    reloads: int = 0
    log: list[str] = field(default_factory=list[str])

    def text(self) -> str:
        """Return the report in one line."""
        lost = ", ".join(f"{count} {reason}" for reason, count in sorted(self.lost.items())) or "none"
        return (
            f"{self.right} right, {len(self.wrong)} wrong, lost: {lost}; {self.sessions} sessions, {self.kills} kills, "
            f"{self.reloads} reloads"
        )


class _Caller:
    """Client whose calls are numbered. It opens another session after its session has ended."""

    def __init__(
        self, url: str, numbers: Callable[[], int | None], report: SessionReport, chance: random.Random
    ) -> None:
        self._url = url
        self._next = numbers
        self._report = report
        self._chance = chance
        self._number: int | None = None

    async def _answer(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        del context
        asked = int(re.findall(r"\d+", params.message)[0])
        if asked != self._number or not isinstance(params, ElicitRequestFormParams):
            self._report.wrong.append(f"asked {asked} during call {self._number}")
        await anyio.sleep(self._chance.uniform(0, _THINK_SECONDS))
        return ElicitResult(action="accept", content={"value": 2 * asked})

    async def run(self) -> None:
        """Call until there are enough calls."""
        self._number = self._next()
        while self._number is not None:
            try:
                async with Client(self._url, mode="legacy", elicitation_callback=self._answer) as client:
                    self._report.sessions += 1
                    while self._number is not None and await self._call(client):
                        self._number = self._next()
            except* (MCPError, httpx.HTTPError, httpx2.HTTPError) as errors:
                # A worker ended while it opened or closed a session, or sent the result of a call, whose body has run.
                for error in errors.exceptions:
                    self._note_loss(error, "opening")
                self._number = self._next()

    async def _call(self, client: Client) -> bool:
        """Make one call; return False if the session has ended."""
        number = self._number
        try:
            with anyio.fail_after(WAIT):
                result = text_of(await client.call_tool("double", {"number": number}))
        except MCPError as error:
            self._note_loss(error, "call")
            self._number = self._next()
            return False
        except TimeoutError:
            self._report.wrong.append(f"call {number} hung")
            return False
        if result == f"{number} {2 * (number or 0)}":
            self._report.right += 1
        else:
            self._report.wrong.append(f"call {number} got {result!r}")
        return True

    def _note_loss(self, error: BaseException, where: str) -> None:
        text = str(error)
        reason = next((reason for reason, known in _ALLOWED.items() if known.search(text)), None)
        if not isinstance(error, MCPError):
            reason = type(error).__name__
        if reason is None:
            self._report.wrong.append(f"{where}: {text}")
        else:
            self._report.lost[f"{where}: {reason}"] += 1


def _kill(service: Service) -> bool:
    """Kill the oldest worker, if no worker is missing and it has lived long enough."""
    ticks = os.sysconf("SC_CLK_TCK")
    now = float(Path("/proc/uptime").read_text().split()[0])
    begun: dict[int, float] = {}
    for worker in service.workers():
        with suppress(OSError):
            begun[worker] = int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[19]) / ticks
    oldest = min(begun, key=lambda worker: begun[worker], default=None)
    if oldest is None or len(begun) < _WORKERS or now - begun[oldest] < _LIFE_SECONDS:
        return False
    os.kill(oldest, signal.SIGKILL)
    return True


def _reloads_in(service: Service) -> int:
    return sum("replaced all workers" in line or "stopped replacing" in line for line in service.log)


async def attack_sessions(plan: SessionAttack, folder: Path) -> SessionReport:
    """Run an attack, and return its report."""
    report, chance = SessionReport(), random.Random(plan.seed)
    done = folder / "done"
    done.touch()
    flags = ("--workers", str(_WORKERS), "--drain", "2")
    variables = {"ROUNDTRIP_KEYS": KEY, DONE: str(done)}
    made = 0
    attacked = plan.kills + plan.reloads == 0

    def next_number() -> int | None:
        nonlocal made
        if made >= plan.calls and attacked:
            return None
        made += 1
        return made

    with Service(SHOP, *flags, folder=folder, **variables) as service:

        async def attack() -> None:
            nonlocal attacked
            for number in range(max(plan.kills, plan.reloads)):
                # The reloads are spread over the kills, and each runs while workers are killed.
                if number * plan.reloads // max(plan.kills, plan.reloads) >= report.reloads < plan.reloads:
                    await until(lambda: _reloads_in(service) == report.reloads)
                    service.signal(signal.SIGHUP)
                    report.reloads += 1
                if number < plan.kills:
                    await until(lambda: _kill(service))
                    report.kills += 1
            await until(lambda: _reloads_in(service) == report.reloads)
            attacked = True

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(attack)
            for _ in range(_CLIENTS):
                tasks.start_soon(_Caller(service.url, next_number, report, chance).run)
        report.log = list(service.log)
    bodies = Counter(done.read_text().split())
    report.wrong.extend(f"call {number} ran {count} times" for number, count in bodies.items() if count > 1)
    return report
