"""The probe: a tool that no list shows, through which `roundtrip doctor` learns whether instances fit together.

It tells what an operator has to compare, and nothing that is secret. A client that calls it can write nothing into the
ledger of its own choosing: the marks are made here, few at a time, and are forgotten within a minute.
"""

import hashlib
import logging
import os
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Final

from mcp.server.mcpserver.exceptions import ToolError

from roundtrip.ledger.contract import LedgerDown
from roundtrip.server.context import Context
from roundtrip.server.effects import Effects
from roundtrip.server.identity import Identity
from roundtrip.server.keys import Protection
from roundtrip.server.tools.options import ToolSpec
from roundtrip.server.tools.registered import RegisteredTool, ToolDefaults, register

__all__ = ["PROBE_TOOL", "PROBE_VARIABLE", "Probe", "probe_wanted"]

PROBE_TOOL: Final = "roundtrip_probe"
PROBE_VARIABLE: Final = "ROUNDTRIP_PROBE"

logger = logging.getLogger("roundtrip")

_ON: Final = frozenset({"1", "true", "yes", "on"})
_OFF: Final = frozenset({"", "0", "false", "no", "off"})

_BUILD: Final = "1"
"""What the probe is, whatever the build around it: a call of it must go from one build to the next."""

_QUESTION: Final = "understood"
_MARK: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
_MARK_SECONDS: Final = 60.0
_MARKS: Final = 32
"""How many marks of this process the ledger may hold at one time."""

_HIDDEN: Final = "(hidden)"
"""What stands for all tools that not every client sees."""


def probe_wanted(given: bool | None, *, environment: Mapping[str, str]) -> bool:
    """Whether a server has the probe, by its argument or else by the environment.

    Raises:
        ValueError: The variable says neither yes nor no.
    """
    if given is not None:
        return given
    said = environment.get(PROBE_VARIABLE, "").strip().lower()
    if said not in _ON | _OFF:
        raise ValueError(f"{PROBE_VARIABLE}={said!r} is neither yes nor no; set it to 1 or 0")
    return said in _ON


_MAX_BUILDS = 64
_MAX_BUILD_CHARS = 200


class Probe:
    """The probe of one server.

    Args:
        identity: Tells what the server is, now.
        everyone_sees: The tools that every client sees.
        registered: All of its tools.
        protection: Tells whom a request comes from.
        effects: Those of the server.
        defaults: Those of its tools.
    """

    def __init__(
        self,
        *,
        identity: Callable[[], Identity],
        everyone_sees: Callable[[RegisteredTool], bool],
        registered: Callable[[], Iterable[RegisteredTool]],
        protection: Protection,
        effects: Effects,
        defaults: ToolDefaults,
    ) -> None:
        self._identity = identity
        self._everyone_sees = everyone_sees
        self._registered = registered
        self._protection = protection
        self._effects = effects
        self.fellows: tuple[str, int] | None = None
        """What this process has in common with the other workers of its service, and how many those are with it."""
        self._pid = -1
        self._instance = ""
        self._marked: deque[float] = deque()
        plain = ToolDefaults(defaults.limits, build=_BUILD)
        self.tool = register(self._run, ToolSpec(name=PROBE_TOOL), defaults=plain)

    @property
    def instance(self) -> str:
        """What this process is known by; another one after a fork."""
        if self._pid != os.getpid():
            self._pid, self._instance = os.getpid(), os.urandom(6).hex()
            self._marked.clear()
        return self._instance

    async def _run(self, ctx: Context, journey: bool = False, claim: bool = False, look: str = "") -> dict[str, Any]:
        """For `roundtrip doctor`: compare the instances of this service."""
        if not journey:
            return await self._facts(ctx, claim=claim, look=look)
        began = await ctx.step("began", self._own_name)
        question = f"A probe by `roundtrip doctor`, which answers by itself. It began on instance {began}"
        await ctx.ask(_QUESTION, question, bool)
        return {"instance": self.instance, "began": began}

    def _own_name(self) -> str:
        return self.instance

    async def _facts(self, ctx: Context, *, claim: bool, look: str) -> dict[str, Any]:
        if look and not _MARK.fullmatch(look):
            raise ToolError("look= takes a mark, as claim=true gives one")
        identity = self._identity()
        facts: dict[str, Any] = {
            "instance": self.instance,
            "roundtrip": _version("roundtrip"),
            "mcp": _version("mcp"),
            "python": ".".join(map(str, sys.version_info[:3])),
            "name": identity.name,
            "keys": identity.keys,
            "own_key": identity.own_key,
            "audience": identity.audience,
            "build": identity.build,
            "builds": self._builds(),
            "tools": self._tools(),
            "ledger": identity.ledger,
            "reach": identity.reach.name.lower(),
            "exactly_once": identity.exactly_once,
            "caller": self._caller(ctx),
        }
        if self.fellows is not None:
            facts["group"], facts["workers"] = self.fellows
        if identity.exactly_once and claim:
            facts["mark"], facts["marked"] = await self._mark()
        if identity.exactly_once and look:
            facts["saw"], facts["looked"] = await self._look(look)
        # Last, and so nearest to the moment of the answer: a ledger may take its time.
        facts["clock"] = time.time()
        return facts

    def _tools(self) -> dict[str, str]:
        """A digest of each tool; those that not everybody sees are one, so that their names are not told."""
        digests: dict[str, str] = {}
        hidden: list[str] = []
        for tool in self._registered():
            name = tool.name if tool.version is None else f"{tool.name}@{tool.version}"
            digest = _digest(f"{tool.function.build}\n{tool.listing.model_dump_json(by_alias=True, exclude_none=True)}")
            if self._everyone_sees(tool):
                digests[name] = digest
            else:
                hidden.append(f"{name} {digest}")
        if hidden:
            digests[_HIDDEN] = _digest("\n".join(sorted(hidden)))
        return digests

    def _builds(self) -> list[str]:
        """The builds of the tools that everybody sees, as transcripts and tokens name them."""
        builds = {tool.function.build for tool in self._registered() if self._everyone_sees(tool)}
        return sorted(build[:_MAX_BUILD_CHARS] for build in builds)[:_MAX_BUILDS]

    def _caller(self, ctx: Context) -> str | None:
        """A digest of whom tokens are bound to: the caller knows who it is, and all instances have to agree on it."""
        principal = self._protection.principal(ctx.request_context)
        return None if principal is None else _digest(principal)

    async def _mark(self) -> tuple[str | None, str]:
        now = time.monotonic()
        while self._marked and self._marked[0] <= now - _MARK_SECONDS:
            self._marked.popleft()
        if len(self._marked) >= _MARKS:
            return None, "busy"
        self._marked.append(now)
        mark = os.urandom(16).hex()
        try:
            await self._effects.ledger.claim(
                _key(mark), self.instance, holder=self.instance, lease=_MARK_SECONDS, keep=_MARK_SECONDS
            )
        except LedgerDown as error:
            logger.warning("the probe found the ledger down: %s", error)
            return None, "down"
        return mark, "claimed"

    async def _look(self, mark: str) -> tuple[str | None, str]:
        try:
            seen = await self._effects.ledger.wait(_key(mark), patience=0)
        except LedgerDown as error:
            # Where it is and why it fails is for the server's log: the caller may be anybody.
            logger.warning("the probe found the ledger down: %s", error)
            return None, "down"
        return (None, "absent") if seen is None else (seen.terms, "seen")


def _key(mark: str) -> str:
    return f"probe:{mark}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@cache
def _version(package: str) -> str:
    # Not needed before somebody asks.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return "?"
