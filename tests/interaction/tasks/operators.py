"""Operators of stored calls, who write an audit log."""

from pathlib import Path
from typing import Any

from roundtrip.stored.acting import AuditedOperations
from roundtrip.stored.operations import CallOperations
from roundtrip.trace.reading.transcripts import read_files
from roundtrip.trace.writing.audit import AuditLog
from roundtrip.trace.writing.lines import ActedLine
from tests.kit.peer import Peer

__all__ = ["asking", "logged", "operator_of"]


async def asking(peer: Peer, tool: str = "order", key: str = "size", **arguments: Any) -> tuple[str, str]:
    """Return a task that asks, and its call."""
    task = (await peer.call(tool, **arguments))["taskId"]
    await peer.asked(task, key)
    return task, task.split(".")[0]


def operator_of(server: Any, path: Path | None = None, *, by: str = "ana") -> AuditedOperations:
    """Return the operations of a person on the calls of a server."""
    service = server.task_service
    assert service is not None
    return AuditedOperations(CallOperations(service.book), AuditLog(path, program="ui", by=by))


def logged(path: Path) -> list[ActedLine]:
    """Return the lines of an audit log."""
    lines = read_files([path]).lines
    assert all(isinstance(line, ActedLine) for line in lines)
    return [line for line in lines if isinstance(line, ActedLine)]
