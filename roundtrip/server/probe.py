"""Answer `roundtrip doctor`, which compares the instances of a service, through a tool that no list shows.

The probe returns facts for an operator to compare, and no secrets. A client that calls it cannot choose the text that
is written into the ledger: the probe makes the marks, few at a time, and they expire within a minute.
"""

import hashlib
import logging
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mcp.server.mcpserver.exceptions import ToolError

from roundtrip.errors import ChannelMissing
from roundtrip.ledger.contract import LedgerDown, Reach
from roundtrip.legs.parts import Parts
from roundtrip.on_demand import load_on_use
from roundtrip.server.context import Context
from roundtrip.stored.storage import Storage
from roundtrip.switches import PROBE_TOOL
from roundtrip.tools.options import ToolSpec
from roundtrip.tools.registered import RegisteredTool, ToolDefaults, register
from roundtrip.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from roundtrip.stored import operations
    from roundtrip.stored.service import CallService
else:
    load_on_use(globals(), "roundtrip.stored.operations")


logger = logging.getLogger("roundtrip")

_BUILD: Final = "1"
"""The same build in every application, so that a call of the probe can continue on an instance of another build."""

_QUESTION: Final = "understood"
_MARK: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
_BACKLOG_SECONDS: Final = 10.0
_MAX_TASKS: Final = 2000
_MARK_SECONDS: Final = 60.0
_MAX_MARKS: Final = 32
"""Marks of this process that the ledger may hold at one time."""
_MARK_BYTES: Final = 16
_INSTANCE_BYTES: Final = 6
_MAX_BUILDS: Final = 64
_MAX_BUILD_CHARS: Final = 200

_SHARED_FACTS: Final = ("name", "keys", "own_key", "audience", "build", "ledger", "exactly_once")
"""Facts of an identity that the probe tells as they are."""
_HIDDEN: Final = "(hidden)"
"""The entry for all tools that some clients do not see."""


class Identity(NamedTuple):
    """Facts that must be equal on all instances of a service. None of them is secret."""

    name: str
    keys: tuple[str, ...]
    """The public names of the server's keys, the signing one first; none if `request_state_security=` has a codec."""
    audience: str
    """The service that tokens are for."""
    build: str
    """A digest of the tools: their names, schemas, and the source of their functions and resolvers."""
    ledger: str
    """The class of the ledger."""
    reach: Reach
    """The processes that share the ledger."""
    exactly_once: bool
    """True if any tool must run exactly once."""
    own_key: bool
    """True if this process made its key, so that no other can resume its calls."""
    stores_calls: bool = False
    """True if calls may be stored: for tasks, question pages, models or approvals."""
    takes_probe: bool = True
    """True if the server can have the probe of `roundtrip doctor`; only a `roundtrip.Server` can."""
    channels: tuple[str, ...] = ("form",)
    """The channels in which the server's questions can reach users."""

    @property
    def needs_ledger(self) -> bool:
        """Return True if its processes must share a ledger."""
        return self.exactly_once or self.stores_calls


def identity_of(name: str, *, parts: Parts, tools: Iterable[str], exactly_once: bool, stores_calls: bool) -> Identity:
    """Return the identity of a server whose legs run here.

    Args:
        name: Its name.
        parts: The parts of its legs.
        tools: A text for each tool, which differs where the tool does.
        exactly_once: True if any tool must run exactly once.
        stores_calls: True if it can store calls.
    """
    protection, ledger = parts.protection, parts.effects.ledger
    audience = protection.policy.audience
    return Identity(
        name=name,
        keys=protection.hints,
        audience=audience if audience is not None else name,
        build=_digest("\n\n".join(sorted(tools))),
        ledger=type(ledger).__name__,
        reach=ledger.reach,
        exactly_once=exactly_once,
        own_key=protection.own_key,
        stores_calls=stores_calls,
    )


def identity_of_tools(name: str, *, parts: Parts, tools: Iterable[RegisteredTool], stores_calls: bool) -> Identity:
    """Return the identity of a `roundtrip.Server` with these tools."""
    tools = list(tools)
    told = (
        f"{tool.name}@{tool.version or ''}\n{tool.function.build}\n{bool(tool.spec.get('exactly_once'))}\n"
        f"{tool.listing.model_dump_json(by_alias=True, exclude_none=True)}"
        for tool in tools
    )
    exactly_once = any(tool.spec.get("exactly_once") for tool in tools)
    return identity_of(name, parts=parts, tools=told, exactly_once=exactly_once, stores_calls=stores_calls)


class Probe:
    """Probe of one server."""

    def __init__(
        self,
        tools: ToolRegistry,
        *,
        parts: Parts,
        storage: Storage,
        identity: Callable[[], Identity],
        defaults: ToolDefaults,
    ) -> None:
        self._identity = identity
        self._storage = storage
        self._tools = tools
        self._parts = parts
        self.fellows: tuple[str, int] | None = None
        """The id of the group of workers that this process belongs to, and their number."""
        self.transport: str | None = None
        """The way of requests over HTTP on 2026-07-28, and the reason for it; None before any application was made."""
        self._pid = -1
        self._instance = ""
        self._marked: deque[float] = deque()
        self._backlog: tuple[float, dict[str, Any]] | None = None
        """The report on the store of tasks, and its time: reading the store takes long."""
        plain = ToolDefaults(defaults.limits, defaults.foreign, build=_BUILD)
        self.tool = register(self._run, ToolSpec(name=PROBE_TOOL), defaults=plain)

    @property
    def instance(self) -> str:
        """Return the name of this process; a fork gets another one."""
        if self._pid != os.getpid():
            self._pid, self._instance = os.getpid(), self._parts.system.entropy(_INSTANCE_BYTES).hex()
            self._marked.clear()
        return self._instance

    async def _run(self, ctx: Context, journey: bool = False, claim: bool = False, look: str = "") -> dict[str, Any]:
        """Answer `roundtrip doctor`, which compares the instances of this service."""
        if not journey:
            return await self._facts(ctx, claim=claim, look=look)
        began = await ctx.step("began", lambda: self.instance)
        question = f"A probe by `roundtrip doctor`, which answers by itself. It began on instance {began}"
        try:
            await ctx.ask(_QUESTION, question, bool)
        except ChannelMissing as error:
            # The doctor reports it. The log would warn of a client that no user has.
            raise ToolError(str(error)) from error
        return {"instance": self.instance, "began": began}

    async def _facts(self, ctx: Context, *, claim: bool, look: str) -> dict[str, Any]:
        if look and not _MARK.fullmatch(look):
            raise ToolError("look= must be a mark that claim=true returned")
        identity = self._identity()
        facts: dict[str, Any] = {
            "instance": self.instance,
            "roundtrip": _version("mcp-roundtrip"),
            "mcp": _version("mcp"),
            "python": ".".join(map(str, sys.version_info[:3])),
            **{name: getattr(identity, name) for name in _SHARED_FACTS},
            "builds": self._builds(),
            "tools": self._digests(),
            "reach": identity.reach.name.lower(),
            "caller": self._caller(ctx),
        }
        if self.transport is not None:
            facts["transport"] = self.transport
        if self.fellows is not None:
            facts["group"], facts["workers"] = self.fellows
        tasks = self._storage.tasks
        if tasks is not None:
            facts["tasks"] = await self._tasks(tasks)
        if identity.needs_ledger and claim:
            facts["mark"], facts["marked"] = await self._mark()
        if identity.needs_ledger and look:
            facts["saw"], facts["looked"] = await self._look(look)
        # Read the clock last: the ledger may be slow, and doctor compares this time with that of the answer.
        facts["clock"] = self._parts.system.time()
        return facts

    async def _tasks(self, tasks: "CallService") -> dict[str, Any]:
        """Return how many tasks are in which state, and under which keys; nothing of a single task."""
        now = self._parts.system.monotonic()
        if self._backlog is None or now - self._backlog[0] > _BACKLOG_SECONDS:
            try:
                backlog = await operations.CallOperations(tasks.book).backlog(limit=_MAX_TASKS)
            except LedgerDown as error:
                logger.warning("the probe found the store of tasks down: %s", error)
                told: dict[str, Any] = {"down": True}
            else:
                told = {**backlog._asdict(), "own_keys": tasks.book.seal.hints}
            self._backlog = now, told
        return {**self._backlog[1], "runs": bool(tasks.runs_tasks)}

    def _digests(self) -> dict[str, str]:
        """Return a digest of each tool; tools that some clients do not see share one, which hides their names."""
        digests: dict[str, str] = {}
        hidden: list[str] = []
        for tool in self._tools.registered:
            name = tool.name if tool.version is None else f"{tool.name}@{tool.version}"
            digest = _digest(f"{tool.function.build}\n{tool.listing.model_dump_json(by_alias=True, exclude_none=True)}")
            if self._tools.is_for_everyone(tool):
                digests[name] = digest
            else:
                hidden.append(f"{name} {digest}")
        if hidden:
            digests[_HIDDEN] = _digest("\n".join(sorted(hidden)))
        return digests

    def _builds(self) -> list[str]:
        """Return the builds of the tools that every client sees, as transcripts and tokens name them."""
        builds = {tool.function.build for tool in self._tools.registered if self._tools.is_for_everyone(tool)}
        return sorted(build[:_MAX_BUILD_CHARS] for build in builds)[:_MAX_BUILDS]

    def _caller(self, ctx: Context) -> str | None:
        """Return a digest of the principal that tokens are bound to; all instances have to agree on it."""
        principal = self._parts.protection.principal(ctx.request_context)
        return None if principal is None else _digest(principal)

    async def _mark(self) -> tuple[str | None, str]:
        now = self._parts.system.monotonic()
        while self._marked and self._marked[0] <= now - _MARK_SECONDS:
            self._marked.popleft()
        if len(self._marked) >= _MAX_MARKS:
            return None, "busy"
        self._marked.append(now)
        mark = self._parts.system.entropy(_MARK_BYTES).hex()
        try:
            await self._parts.effects.ledger.claim(
                _key(mark), self.instance, holder=self.instance, lease=_MARK_SECONDS, keep=_MARK_SECONDS
            )
        except LedgerDown as error:
            logger.warning("the probe found the ledger down: %s", error)
            return None, "down"
        return mark, "claimed"

    async def _look(self, mark: str) -> tuple[str | None, str]:
        try:
            seen = await self._parts.effects.ledger.wait(_key(mark), patience=0)
        except LedgerDown as error:
            # Its address and error are for the server's log only: any client may call the probe.
            logger.warning("the probe found the ledger down: %s", error)
            return None, "down"
        return (None, "absent") if seen is None else (seen.answers_digest, "seen")


def _key(mark: str) -> str:
    return f"probe:{mark}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@cache
def _version(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return "?"
