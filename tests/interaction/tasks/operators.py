"""Operators of stored calls, who write an operator log."""

from pathlib import Path
from typing import Any

from roundtrip.stored.operations import CallOperations, LoggedOperations
from roundtrip.trace.reading.transcripts import read_files
from roundtrip.trace.writing.lines import ActedLine
from roundtrip.trace.writing.operator_log import OperatorLog
from tests.kit.peer import Peer

__all__ = ["asking", "logged", "operator_of"]


async def asking(peer: Peer, tool: str = "order", key: str = "size", **arguments: Any) -> tuple[str, str]:
    """Return a task that asks, and its call."""
    task = (await peer.call(tool, **arguments))["taskId"]
    await peer.asked(task, key)
    return task, task.split(".")[0]


def operator_of(server: Any, path: Path | None = None, *, by: str = "ana") -> LoggedOperations:
    """Return the operations of a person on the calls of a server."""
    service = server.internals.storage.tasks
    assert service is not None
    return LoggedOperations(CallOperations(service.book), OperatorLog(path, program="ui", by=by))


def logged(path: Path) -> list[ActedLine]:
    """Return the lines of an operator log."""
    lines = read_files([path]).lines
    assert all(isinstance(line, ActedLine) for line in lines)
    return [line for line in lines if isinstance(line, ActedLine)]
