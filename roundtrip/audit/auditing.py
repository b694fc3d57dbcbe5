"""Audit of one server: list its tools, play honest calls to the named tools, and then attack these tools."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from roundtrip.audit.answering import AnswerAttacks
from roundtrip.audit.findings import AuditReport, findings_in
from roundtrip.audit.messages import Ending, WireResponse
from roundtrip.audit.sessions import AuditedCall, AuditedTool, AuditLimits, AuditSession, LimitReached
from roundtrip.audit.states import StateAttacks
from roundtrip.audit.tasks import TaskAttacks
from roundtrip.audit.wires import AuditWire
from roundtrip.client.answers import NO_ANSWERS, AnswerFile
from roundtrip.untrusted import list_of, mapping_of

_MAX_PAGES: Final = 100


class AuditFailed(Exception):
    """The audit could not start, because the server does not answer or a named tool cannot be called."""


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """Audit settings: the server, its tools, and what the user promised for these tools."""

    target: str
    """The server's name in the report."""
    tools: tuple[AuditedTool, ...]
    """The tools to call. The audit does not call any other tools."""
    answers: AnswerFile = NO_ANSWERS
    limits: AuditLimits = field(default_factory=AuditLimits)
    has_other: bool = False
    """True if the connection can send another user's headers."""
    stale: float | None = None
    """Seconds after which the server must reject a state. If None, the audit skips this test."""
    once: frozenset[str] = frozenset()
    """The tools that must act only once, even if their last request is repeated."""
    secrets: tuple[str, ...] = ()
    """Texts that must not be readable in a request state."""


async def audit(plan: AuditPlan, wire: AuditWire) -> AuditReport:
    """Audit a server.

    Raises:
        AuditFailed: The audit could not start.
    """
    session = AuditSession(wire, plan.limits, plan.answers, has_other=plan.has_other)
    names = [tool.name for tool in plan.tools]
    try:
        server = await _list_named_tools(session, plan.tools)
    except LimitReached as limit:
        raise AuditFailed(f"{limit}") from limit
    try:
        await _attack(session, plan)
    except LimitReached as limit:
        for name in names:
            session.notes[name].give_up(f"{limit}")
    return AuditReport(
        server,
        plan.target,
        names,
        tuple(findings_in(session.notes)),
        session.sent,
        session.seconds,
        dict(session.begun),
        dict(session.ended),
    )


async def _list_named_tools(session: AuditSession, tools: Sequence[AuditedTool]) -> str:
    """List the tools, and return the server's name."""
    discovered = await session.send("server/discover", {})
    listed = await _list(session)
    for tool in tools:
        if tool.name not in listed:
            known = ", ".join(map(repr, listed)) or "none at all"
            raise AuditFailed(f"the server has no tool {tool.name!r}; its tools: {known}")
    session.schemas = listed
    for tool in tools:
        names = list_of(listed[tool.name].get("required"))
        missing = [name for name in names if isinstance(name, str) and name not in tool.arguments]
        if missing:
            needed = ", ".join(map(repr, missing))
            raise AuditFailed(f"the tool {tool.name!r} needs {needed}; write --tool '{tool.name}={{...}}'")
    return _name_of(discovered)


async def _list(session: AuditSession) -> dict[str, Mapping[str, Any]]:
    listed: dict[str, Mapping[str, Any]] = {}
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        response = await session.send("tools/list", {} if cursor is None else {"cursor": cursor})
        if response.result is None:
            raise AuditFailed(
                f"the server does not list its tools to a client on protocol revision 2026-07-28: {response.summary}"
            )
        tools = map(mapping_of, list_of(response.result.get("tools")))
        listed |= {str(tool.get("name")): mapping_of(tool.get("inputSchema")) for tool in tools if tool}
        cursor = response.result.get("nextCursor")
        if not isinstance(cursor, str):
            break
    return listed


async def _attack(session: AuditSession, plan: AuditPlan) -> None:
    calls = {tool.name: await session.play(tool) for tool in plan.tools}
    attacks = {tool.name: StateAttacks(session, tool, calls) for tool in plan.tools}
    for tool in plan.tools:
        if plan.stale is None:
            session.notes[tool.name].untried("S5.expiry", "add --stale SECONDS, the time until states expire")
        else:
            await attacks[tool.name].keep_stale()
        _require_end(session, tool, calls[tool.name])
    for tool in plan.tools:
        attacks[tool.name].read(plan.secrets)
        await attacks[tool.name].run(is_once=tool.name in plan.once)
        await AnswerAttacks(session, tool, calls[tool.name]).run()
        await TaskAttacks(session, tool).run()
    for attack in attacks.values():
        await attack.send_stale(seconds=plan.stale or 0.0)


def _require_end(session: AuditSession, tool: AuditedTool, call: AuditedCall) -> None:
    """If an honest call failed, record why attacks on its tool would prove nothing."""
    reason = call.trouble
    if reason is None and call.last.ending in (Ending.REJECTED, Ending.CRASHED, Ending.FAILED):
        reason = f"an honest call was answered with {call.last.summary}"
    if reason is not None:
        session.notes[tool.name].give_up(reason)


def _name_of(discovered: WireResponse) -> str:
    result = discovered.result or {}
    meta = mapping_of(result.get("_meta"))
    summary = mapping_of(result.get("serverInfo") or meta.get("io.modelcontextprotocol/serverInfo"))
    if not summary:
        return "a server without a name"
    return f"{summary.get('name')} {summary.get('version') or ''}".strip()
