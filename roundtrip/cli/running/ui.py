"""Run `roundtrip ui`."""

import ipaddress
import os
import signal
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

import anyio

from roundtrip.cli.command import CommandFailed
from roundtrip.cli.running.listening import listen_at, require_port
from roundtrip.cli.running.loading import load_attached
from roundtrip.cli.trace.sources import named_files, warn
from roundtrip.playground.hosting import PageHost
from roundtrip.trace.index.database import IndexUnusable
from roundtrip.trace.index.index import CallIndex, index_path
from roundtrip.trace.page.loopback import Loopback
from roundtrip.trace.reading.transcripts import NoTranscript
from roundtrip.trace.writing.audit import audit_path
from roundtrip.trace.writing.names import TRACE_VARIABLE
from roundtrip.ui.access import Access, LocalAccess, NamedUsers, UsersUnusable, add_user, read_users
from roundtrip.ui.app import UiApp
from roundtrip.ui.forks import Forks
from roundtrip.ui.stored import OperatedCalls

__all__ = ["run"]


def run(arguments: Namespace) -> int:
    """Run the command with its arguments, and return its exit code."""
    require_port("--port", arguments.port)
    if arguments.add_user is not None:
        if arguments.users is None:
            raise CommandFailed("--add-user needs the file of users; give --users FILE")
        try:
            token = add_user(arguments.users, arguments.add_user)
        except UsersUnusable as error:
            raise CommandFailed(str(error)) from error
        print(token)
        return 0
    return anyio.run(_serve, arguments)


async def _serve(arguments: Namespace) -> int:
    # A store can be looked at without transcripts.
    is_stored_only = arguments.server is not None and not arguments.files and TRACE_VARIABLE not in os.environ
    names = [] if is_stored_only else named_files(arguments)
    server = load_attached(arguments.server) if arguments.server is not None else None
    with listen_at(arguments.host, arguments.port) as listening:
        access, address = _access(arguments, listening.getsockname()[1])
        path = audit_path(arguments.audit, names, os.environ)
        index = _open_index(names, [] if path is None else [path])
        stored = OperatedCalls(server, answers=arguments.test_user)
        app = UiApp(access, index, stored, Forks(arguments.server, names), path, arguments.server)
        host = PageHost(app)
        ended: list[int] = []

        async def end_at_signal() -> None:
            with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
                async for number in signals:
                    host.should_exit = True
                    ended.append(number)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(end_at_signal)
            tasks.start_soon(app.take_lines)
            print(address, flush=True)
            if server is not None and stored.problem:
                print(
                    f"roundtrip ui: tasks and approvals cannot be shown: {stored.problem}", file=sys.stderr, flush=True
                )
            await host.serve(sockets=[listening])
            tasks.cancel_scope.cancel()
        index.close()
    if signal.SIGINT in ended:
        raise KeyboardInterrupt
    return 0


def _access(arguments: Namespace, port: int) -> "tuple[Access, str]":
    """Return the rule by which requests may enter, and what to print of the address."""
    if arguments.users is None:
        if not _is_loopback(arguments.host):
            raise CommandFailed("a --host that other machines reach needs --users FILE and --base-url https://…")
        loopback = Loopback(port, arguments.host)
        note = "(the calls are shown there until Ctrl-C; the address is a secret)"
        return LocalAccess(loopback), f"{loopback.url}\n{note}"
    if arguments.base_url is None:
        raise CommandFailed("--users needs --base-url, the address of the pages in browsers")
    url = _base_url(arguments.base_url)
    try:
        users = read_users(arguments.users)
    except UsersUnusable as error:
        raise CommandFailed(str(error)) from error
    note = f"(the calls are shown there to the users of {arguments.users}, from port {port}, until Ctrl-C)"
    return NamedUsers(users, url), f"{url}\n{note}"


def _base_url(text: str) -> str:
    """Return the address of the pages, with a slash at its end.

    Raises:
        CommandFailed: It is no address, or would show tokens to the network.
    """
    try:
        parts: SplitResult = urlsplit(text)
        host = parts.hostname
    except ValueError as error:
        raise CommandFailed(f"--base-url must be an address such as https://calls.example ({error})") from error
    if parts.scheme not in ("http", "https") or not host or parts.username or parts.query or parts.fragment:
        raise CommandFailed("--base-url must be an address such as https://calls.example")
    if parts.scheme == "http" and not _is_loopback(host):
        raise CommandFailed(
            "--base-url must begin with https://, because tokens must not cross a network in clear text"
        )
    return f"{text.rstrip('/')}/"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _open_index(names: Sequence[str], later: Sequence[Path]) -> "CallIndex":
    """Return the index of the transcripts; a temporary one if theirs cannot be written."""
    try:
        try:
            return CallIndex(names, index_path(names), later=later)
        except IndexUnusable as error:
            warn(f"{error}; a temporary index is made instead")
            return CallIndex(names, later=later)
    except (NoTranscript, IndexUnusable) as error:
        raise CommandFailed(str(error)) from error
