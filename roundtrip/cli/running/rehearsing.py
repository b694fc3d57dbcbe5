"""Rehearse recorded calls on the server that a command line names: without its log, and without a transcript."""

import os
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from roundtrip.adapters.finding import AttachedServer
from roundtrip.checking.recorded import NotReplayable
from roundtrip.cli.command import CommandFailed
from roundtrip.cli.running.loading import load_attached, without_log
from roundtrip.client.failures import innermost
from roundtrip.text import printable
from roundtrip.trace.writing.names import TRACE_VARIABLE

T = TypeVar("T")


def load_for_rehearsal(target: str) -> AttachedServer:
    """Load the roundtrip of a server of any class.

    Raises:
        CommandFailed: The module or server is missing or fails, or the server has no roundtrip.
    """
    # A rehearsal must not be written to the transcript that it is compared with.
    os.environ.pop(TRACE_VARIABLE, None)
    return load_attached(target)


def rehearse(work: Callable[[], Awaitable[T]]) -> T:
    """Run a rehearsal on an event loop of its own.

    Raises:
        NotReplayable: The call cannot be played.
        CommandFailed: The server failed.
    """
    try:
        # The report has the failures; log lines of the server would come in between.
        with without_log():
            return anyio.run(work)
    except NotReplayable:
        raise
    except Exception as error:
        cause = innermost(error)
        shown = printable(f"{type(cause).__name__}: {cause}")
        raise CommandFailed(f"the server could not be started, or failed: {shown}") from error
