"""Audit an application or a server on a port of this machine."""

from collections.abc import Mapping
from typing import Any, Final

from starlette.types import ASGIApp

from roundtrip.audit.auditing import AuditPlan, audit
from roundtrip.audit.findings import AuditReport, ClauseVerdict
from roundtrip.audit.sessions import AuditedTool, AuditLimits
from roundtrip.audit.wires import http_wire
from roundtrip.client.legs import within
from tests.interaction.audit.wrong_servers import WrongServer
from tests.kit.hosts import hosted
from tests.kit.waiting import WAIT

__all__ = ["USERS", "audited", "clauses_failed_by", "failed", "told"]

USERS: Final = ({"authorization": "Bearer ada"}, {"authorization": "Bearer eve"})
_DUNE: Final = {"film": "Dune"}


async def audited(
    app: ASGIApp,
    *tools: str,
    path: str = "/mcp",
    arguments: Mapping[str, Any] = _DUNE,
    patience: float = WAIT,
    lifespan: Any = "off",
    users: tuple[Mapping[str, str], Mapping[str, str]] = USERS,
    **options: Any,
) -> AuditReport:
    limits = options.pop("limits", AuditLimits(timeout=patience, body_bytes=2**20))
    named = tuple(AuditedTool(name, arguments) for name in tools)
    plan = AuditPlan("here", named, limits=limits, has_other=True, **options)

    async def on(address: str) -> AuditReport:
        async with http_wire(f"{address}{path}", patience, users) as wire:
            return await audit(plan, wire)

    return await within(hosted(app, lifespan=lifespan), on)


def failed(report: AuditReport) -> set[str]:
    """Return the ids of the clauses that failed."""
    return {one.clause.id for one in report.findings if one.verdict is ClauseVerdict.FAILED}


async def clauses_failed_by(fault: type[WrongServer]) -> set[str]:
    """Audit a server with a fault, and return the ids of the clauses that failed."""
    return failed(await audited(fault(), *fault.tools, **fault.options))


def told(report: AuditReport, clause: str) -> list[str]:
    """Return the texts about a clause."""
    return [text for one in report.findings if one.clause.id == clause for text in one.texts]
