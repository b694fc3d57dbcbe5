"""The probe: a hidden tool that answers `roundtrip doctor`, which compares a service's instances.

The probe returns facts that an operator can compare; none of them is secret. Any client can call the probe, so clients
must not choose what the probe writes into the ledger. The probe generates its marks itself, limits their number, and
lets each mark expire after a minute.
"""

import hashlib
import logging
import os
import re
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
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
from roundtrip.tools.promises import OncePolicy
from roundtrip.tools.registered import RegisteredTool, ToolDefaults, register
from roundtrip.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from roundtrip.once import rekeying
    from roundtrip.stored import operations
    from roundtrip.stored.service import CallService

load_on_use(globals(), "roundtrip.once.rekeying", "roundtrip.stored.operations")


logger = logging.getLogger("roundtrip")

_BUILD: Final = "1"
"""The probe tool's build name. It is the same for all application builds, so every instance can continue a probe call.
"""

_QUESTION: Final = "understood"
_MARK: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
_BACKLOG_SECONDS: Final = 10.0
_MAX_TASKS: Final = 2000
_MAX_PAGES: Final = 20
_MARK_SECONDS: Final = 60.0
_MAX_MARKS: Final = 32
"""The maximum number of marks that this process keeps in the ledger."""
_MARK_BYTES: Final = 16
_INSTANCE_BYTES: Final = 6
_MAX_BUILDS: Final = 64
_MAX_BUILD_CHARS: Final = 200

_SHARED_FACTS: Final = ("name", "keys", "own_key", "audience", "build", "ledger", "exactly_once", "channels")
"""Identity facts that the probe returns unchanged."""
_HIDDEN: Final = "(hidden)"
"""The shared entry name of all tools that are hidden from some clients."""


class Identity(NamedTuple):
    """Facts that must be equal on all of a service's instances. No fact is secret."""

    name: str
    keys: tuple[str, ...]
    """Public names for the server's keys, with the signing key first. The tuple is empty if `request_state_security=`
    uses an author's codec.
    """
    audience: str
    """The service that accepts the tokens."""
    build: str
    """A digest of the tools' names, schemas and source code, including their resolvers' source."""
    ledger: str
    """The ledger's class name."""
    reach: Reach
    """Which processes share the ledger."""
    exactly_once: bool
    """True if any tool must run exactly once."""
    own_key: bool
    """True if this process generated its key. No other process can then resume its calls."""
    stores_calls: bool = False
    """True if the server may store calls for tasks, question pages, models or approvals."""
    takes_probe: bool = True
    """True if the server can offer the probe for `roundtrip doctor`; only a `roundtrip.Server` can."""
    channels: tuple[str, ...] = ("form",)
    """The channels that can carry the server's questions to users."""

    @property
    def needs_ledger(self) -> bool:
        """Return True if the service's processes must share a ledger."""
        return self.exactly_once or self.stores_calls


def identity_of(name: str, *, parts: Parts, tools: Iterable[str], exactly_once: bool, stores_calls: bool) -> Identity:
    """Return the identity of a server whose legs run in this process.

    Args:
        name: The server's name.
        parts: The parts that the server's legs use.
        tools: One text per tool. Tools that differ must have different texts.
        exactly_once: True if any tool must run exactly once.
        stores_calls: True if the server can store calls.
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
    descriptions = (
        f"{tool.name}@{tool.version or ''}\n{tool.function.build}\n{tool.function.policy(OncePolicy) is not None}\n"
        f"{tool.listing.model_dump_json(by_alias=True, exclude_none=True)}"
        for tool in tools
    )
    exactly_once = any(tool.function.policy(OncePolicy) is not None for tool in tools)
    return identity_of(name, parts=parts, tools=descriptions, exactly_once=exactly_once, stores_calls=stores_calls)


class Probe:
    """The hidden tool on one server, and the facts that it returns."""

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
        self.worker_group: tuple[str, int] | None = None
        """The id of this process's worker group, and the number of workers in it."""
        self.transport: str | None = None
        """The transport that serves HTTP requests in revision 2026-07-28, and the reason for this choice. It is None
        until the server creates an ASGI application.
        """
        self._pid = -1
        self._instance = ""
        self._mark_times: deque[float] = deque()
        self._reports: dict[str, tuple[float, dict[str, Any]]] = {}
        """The last reports on the task store and on intents, with the times at which they were made. They are cached
        because reading a store is slow.
        """
        plain = ToolDefaults(defaults.limits, defaults.foreign, build=_BUILD)
        self.tool = register(self._run, ToolSpec(name=PROBE_TOOL), defaults=plain)

    @property
    def instance(self) -> str:
        """Return a random name for this process. A forked process gets a new name."""
        if self._pid != os.getpid():
            self._pid, self._instance = os.getpid(), self._parts.system.entropy(_INSTANCE_BYTES).hex()
            self._mark_times.clear()
        return self._instance

    async def _run(self, ctx: Context, journey: bool = False, claim: bool = False, look: str = "") -> dict[str, Any]:
        """Answer `roundtrip doctor`, which compares the instances of this service."""
        if not journey:
            return await self._facts(ctx, claim=claim, look=look)
        began = await ctx.step("began", lambda: self.instance)
        question = f"`roundtrip doctor` asks and answers this question itself. The call began on instance {began}"
        try:
            await ctx.ask(_QUESTION, question, bool)
        except ChannelMissing as error:
            # The doctor itself reports the missing channel, so the log must not warn about the doctor's client.
            raise ToolError(str(error)) from error
        return {"instance": self.instance, "began": began}

    async def _facts(self, ctx: Context, *, claim: bool, look: str) -> dict[str, Any]:
        if look and not _MARK.fullmatch(look):
            raise ToolError("look= must be a mark from an earlier response to claim=true")
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
        if self.worker_group is not None:
            facts["group"], facts["workers"] = self.worker_group
        tasks = self._storage.tasks
        if tasks is not None:
            report = await self._cached("tasks", lambda: self._tasks(tasks))
            facts["tasks"] = {**report, "runs": bool(tasks.runs_tasks)}
        policies = (tool.function.policy(OncePolicy) for tool in self._tools.registered)
        has_intents = any(once is not None and once.intent is not None for once in policies)
        if has_intents and identity.reach is not Reach.PROCESS:
            facts["intents"] = await self._cached("intents", self._intents)
        if identity.needs_ledger and claim:
            facts["mark"], facts["marked"] = await self._write_mark()
        if identity.needs_ledger and look:
            facts["saw"], facts["looked"] = await self._read_mark(look)
        # Read the clock last: the ledger may be slow, and the doctor compares this time with the answer's arrival time.
        facts["clock"] = self._parts.system.time()
        return facts

    async def _cached(self, subject: str, make: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        """Return a report that was made in the last seconds."""
        now = self._parts.system.monotonic()
        if subject not in self._reports or now - self._reports[subject][0] > _BACKLOG_SECONDS:
            try:
                report = await make()
            except LedgerDown as error:
                logger.warning("the probe could not count the ledger's %s: %s", subject, error)
                report = {"down": True}
            self._reports[subject] = now, report
        return self._reports[subject][1]

    async def _tasks(self, tasks: "CallService") -> dict[str, Any]:
        """Count the tasks in each state, and add the store's key hints. The report does not identify individual
        tasks.
        """
        backlog = await operations.CallOperations(tasks.book).backlog(limit=_MAX_TASKS)
        return {**backlog._asdict(), "own_keys": tasks.book.seal.hints}

    async def _intents(self) -> dict[str, Any]:
        """Count the ledger's entries of intents by the keys that they need."""
        keys, is_whole = await rekeying.IntentEntries(self._parts).count(pages=_MAX_PAGES)
        return {"keys": keys, "own_keys": self._parts.protection.hints, "is_whole": is_whole}

    def _digests(self) -> dict[str, str]:
        """Return a digest per tool. All tools that some clients cannot see share one digest, so that their names stay
        hidden.
        """
        digests: dict[str, str] = {}
        hidden: list[str] = []
        for tool in self._tools.registered:
            name = tool.name if tool.version is None else f"{tool.name}@{tool.version}"
            listing = tool.listing.model_dump_json(by_alias=True, exclude_none=True)
            asks_first = "\nconfirm" if tool.function.confirm is not None else ""
            digest = _digest(f"{tool.function.build}\n{listing}{asks_first}")
            if self._tools.is_for_everyone(tool):
                digests[name] = digest
            else:
                hidden.append(f"{name} {digest}")
        if hidden:
            digests[_HIDDEN] = _digest("\n".join(sorted(hidden)))
        return digests

    def _builds(self) -> list[str]:
        """Return the build names that transcripts and tokens use, for the tools that every client can see."""
        builds = {tool.function.build for tool in self._tools.registered if self._tools.is_for_everyone(tool)}
        return sorted(build[:_MAX_BUILD_CHARS] for build in builds)[:_MAX_BUILDS]

    def _caller(self, ctx: Context) -> str | None:
        """Return a digest of the principal that owns the caller's tokens. All instances must return the same digest."""
        principal = self._parts.protection.principal(ctx.request_context)
        return None if principal is None else _digest(principal)

    async def _write_mark(self) -> tuple[str | None, str]:
        now = self._parts.system.monotonic()
        while self._mark_times and self._mark_times[0] <= now - _MARK_SECONDS:
            self._mark_times.popleft()
        if len(self._mark_times) >= _MAX_MARKS:
            return None, "busy"
        self._mark_times.append(now)
        mark = self._parts.system.entropy(_MARK_BYTES).hex()
        try:
            await self._parts.effects.ledger.claim(
                _key(mark), self.instance, holder=self.instance, lease=_MARK_SECONDS, keep=_MARK_SECONDS
            )
        except LedgerDown as error:
            logger.warning("the probe could not reach the ledger: %s", error)
            return None, "down"
        return mark, "claimed"

    async def _read_mark(self, mark: str) -> tuple[str | None, str]:
        try:
            seen = await self._parts.effects.ledger.wait(_key(mark), patience=0)
        except LedgerDown as error:
            # The ledger's address and error belong in the server's log only, because any client may call the probe.
            logger.warning("the probe could not reach the ledger: %s", error)
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
