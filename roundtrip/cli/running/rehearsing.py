"""Rehearsals of recorded calls on a loaded server. The server writes neither its log nor a transcript."""

import os
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from roundtrip.checking.recorded import NotReplayable
from roundtrip.cli.command import CommandFailed
from roundtrip.cli.running.loading import load_attached, without_log
from roundtrip.client.failures import innermost
from roundtrip.server.attach import Attached
from roundtrip.text import printable
from roundtrip.trace.writing.names import TRACE_VARIABLE

T = TypeVar("T")


def load_for_rehearsal(target: str) -> Attached:
    """Load a server of any kind, and return its roundtrip integration.

    Raises:
        CommandFailed: The module or server is missing or fails, or the server does not use roundtrip.
    """
    # A rehearsal must not write to the transcript with which it is compared.
    os.environ.pop(TRACE_VARIABLE, None)
    return load_attached(target)


def rehearse(work: Callable[[], Awaitable[T]]) -> T:
    """Run a rehearsal in a new event loop.

    Raises:
        NotReplayable: The call cannot be replayed.
        CommandFailed: The server failed.
    """
    try:
        # The report already contains the failures, so the server's log lines would only interrupt the report.
        with without_log():
            return anyio.run(work)
    except NotReplayable:
        raise
    except Exception as error:
        cause = innermost(error)
        text = printable(f"{type(cause).__name__}: {cause}")
        raise CommandFailed(f"the server failed, or could not start: {text}") from error
