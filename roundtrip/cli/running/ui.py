"""Run `roundtrip ui`."""

import os
import signal
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import anyio

from roundtrip.channels.local.loopback_peers import is_loopback
from roundtrip.cli.command import CommandFailed, report_errors
from roundtrip.cli.running.addresses import read_address
from roundtrip.cli.running.calls import operator_log_of
from roundtrip.cli.running.loading import load_attached
from roundtrip.cli.running.starting import listen_at
from roundtrip.cli.trace.sources import named_files, warn
from roundtrip.playground.hosting import PageHost
from roundtrip.trace.index.database import IndexUnusable
from roundtrip.trace.index.index import CallIndex, index_path
from roundtrip.trace.page.loopback import Loopback
from roundtrip.trace.reading.transcripts import NoTranscript
from roundtrip.trace.writing.names import TRACE_VARIABLE
from roundtrip.ui.access import Access, LocalAccess, NamedUsers, UsersUnusable, add_user, read_users
from roundtrip.ui.app import UiApp
from roundtrip.ui.forks import Forks
from roundtrip.ui.stored import OperatedCalls


def run(arguments: Namespace) -> int:
    """Run the command and return its exit code."""
    if arguments.add_user is not None:
        if arguments.users is None:
            raise CommandFailed("--add-user needs a users file; add --users FILE")
        with report_errors(UsersUnusable):
            token = add_user(arguments.users, arguments.add_user)
        print(token)
        return 0
    return anyio.run(_serve, arguments)


async def _serve(arguments: Namespace) -> int:
    # The pages can show stored calls even without transcripts.
    is_stored_only = arguments.server is not None and not arguments.files and TRACE_VARIABLE not in os.environ
    names = [] if is_stored_only else named_files(arguments)
    server = load_attached(arguments.server) if arguments.server is not None else None
    with listen_at(arguments.host, arguments.port) as listening:
        access, address = _access(arguments, listening.getsockname()[1])
        path = operator_log_of(arguments, names)
        index = _open_index(names, [] if path is None else [path])
        stored = OperatedCalls(server, answers=arguments.test_user)
        app = UiApp(access, index, stored, Forks(arguments.server, names), path)
        host = PageHost(app)
        signals_received: list[int] = []

        async def end_at_signal() -> None:
            with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
                async for number in signals:
                    host.should_exit = True
                    signals_received.append(number)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(end_at_signal)
            tasks.start_soon(app.read_lines)
            print(address, flush=True)
            if server is not None and stored.problem:
                print(f"roundtrip ui: cannot show tasks and approvals: {stored.problem}", file=sys.stderr, flush=True)
            await host.serve(sockets=[listening])
            tasks.cancel_scope.cancel()
        index.close()
    if signal.SIGINT in signals_received:
        raise KeyboardInterrupt
    return 0


def _access(arguments: Namespace, port: int) -> tuple[Access, str]:
    """Return the pages' access rule, and the announcement to print."""
    if arguments.users is None:
        if arguments.base_url is not None:
            raise CommandFailed("--base-url is the address for named users; add --users FILE, or remove it")
        if not is_loopback(arguments.host):
            raise CommandFailed(
                "a --host that other machines can reach needs authentication; add --users FILE and --base-url https://…"
            )
        loopback = Loopback(port, arguments.host)
        note = "(press Ctrl-C to stop the pages; keep this address secret)"
        return LocalAccess(loopback), f"{loopback.url}\n{note}"
    if arguments.base_url is None:
        raise CommandFailed("--users needs the address at which browsers reach the pages; add --base-url URL")
    read_address(arguments.base_url, name="--base-url", example="https://calls.example")
    with report_errors(UsersUnusable):
        users = read_users(arguments.users)
    note = f"(users from {arguments.users} can open the pages, served on port {port}; press Ctrl-C to stop)"
    url = f"{arguments.base_url.rstrip('/')}/"
    return NamedUsers(users, url), f"{url}\n{note}"


def _open_index(names: Sequence[str], later: Sequence[Path]) -> CallIndex:
    """Open the index of the transcripts. If the index file cannot be written, open a temporary index."""
    with report_errors(NoTranscript, IndexUnusable):
        try:
            return CallIndex(names, index_path(names), later=later)
        except IndexUnusable as error:
            warn(f"{error}; using a temporary index instead")
            return CallIndex(names, later=later)
