"""Run `roundtrip inbox`."""

import os
import sys
from argparse import Namespace
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import anyio
import httpx2

from roundtrip.cli.command import CommandFailed
from roundtrip.cli.commands.inbox import TOKEN_VARIABLE
from roundtrip.cli.running.addresses import read_address
from roundtrip.cli.trace.sources import present
from roundtrip.cli.trace.terminal import Column, Screen
from roundtrip.client.inbox import INBOX_PATH, InboxClient
from roundtrip.client.targets import TooLarge
from roundtrip.text import printable, shortened

_SECONDS: Final = 30.0
_MAX_SHOWN_CHARS: Final = 70
_MAX_PAGES: Final = 1000


def run(arguments: Namespace) -> int:
    """Run the command and return its exit code."""
    base = _base_of(arguments.server)
    token: str = arguments.token or os.environ.get(TOKEN_VARIABLE, "")
    if not token:
        raise CommandFailed(f"a token is required; set {TOKEN_VARIABLE}, or give --token")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise CommandFailed("the token must be one word of printable ASCII")
    inbox = _RemoteInbox(base, token)
    if arguments.action in ("list", "ls"):
        return _list(inbox, arguments)
    if not arguments.approval:
        raise CommandFailed("ID must not be empty")
    decision = None if arguments.action == "show" else {"decision": arguments.action, "reason": arguments.reason}
    answer = inbox.send(f"/{quote(arguments.approval, safe='')}", decision)
    if answer is None and (full_id := _complete_id(inbox, arguments.approval)) is not None:
        answer = inbox.send(f"/{quote(full_id, safe='')}", decision)
    if answer is None:
        print(
            "roundtrip inbox: no approval with this id waits for you; check the id: the approval may be decided, or "
            "not yours to decide",
            file=sys.stderr,
        )
        return 1
    present(arguments, lambda: answer, lambda screen: _draw(answer, screen))
    return 0


def _complete_id(inbox: "_RemoteInbox", start: str) -> str | None:
    """Complete a prefix to the full id of a pending approval. Return None if no id begins with the prefix, or if the
    prefix is already a full id.

    Raises:
        CommandFailed: Several ids begin with the prefix.
    """
    ids = [approval["id"] for approval in _pending(inbox) if approval["id"].startswith(start)]
    if len(ids) > 1 and start not in ids:
        raise CommandFailed(f"{len(ids)} approval ids begin with {printable(start)!r}; give more of the id")
    return ids[0] if len(ids) == 1 and ids != [start] else None


def _base_of(server: str) -> str:
    """Return the base address of the pages.

    Raises:
        CommandFailed: The address is invalid, or the token would cross a network in clear text.
    """
    parts = read_address(server, name="SERVER", example="https://shop.example")
    base = server.rstrip("/")
    for path in (INBOX_PATH, "/approvals", "/mcp"):
        if parts.path.rstrip("/").endswith(path):
            raise CommandFailed(
                f"SERVER must be the address of the pages without {path}; give {base.removesuffix(path)}"
            )
    return base


class _RemoteInbox:
    """An approver's inbox on a remote server. The approver's token gives access to it."""

    def __init__(self, base: str, token: str) -> None:
        self._base = base
        self._client = InboxClient(base, {"authorization": f"Bearer {token}"}, seconds=_SECONDS)

    def send(self, path: str, decision: Mapping[str, str] | None = None) -> Mapping[str, Any] | None:
        """Send a request and return the server's reply; None if the approver may not decide this approval.

        Raises:
            CommandFailed: The server is unreachable, or rejects the request.
        """
        try:
            status, body = anyio.run(self._client.ask, path, decision)
        except httpx2.ConnectError as error:
            raise CommandFailed(
                f"cannot reach the server: nothing answers at {self._base}; start the server, or correct the address"
            ) from error
        except (httpx2.HTTPError, TooLarge) as error:
            reason = str(error) if isinstance(error, TooLarge) else type(error).__name__
            raise CommandFailed(f"cannot reach the server: {reason}") from error
        fields = body or {}
        reason = f": {printable(str(fields['error']))}" if "error" in fields else ""
        if status == 401:
            raise CommandFailed(f"the server does not accept the token{reason}")
        if body is None and status in (200, 404):
            raise CommandFailed("the server has no inbox at this address: it did not answer with JSON")
        if status in (404, 409) and "error" in fields:
            return None
        if status != 200:
            raise CommandFailed(f"the server answered with status {status}{reason}")
        return fields


def _pending(inbox: _RemoteInbox) -> list[dict[str, Any]]:
    """Return all approvals that are waiting for this approver.

    Raises:
        CommandFailed: The server has no inbox at this address.
    """
    approvals: list[dict[str, Any]] = []
    path = ""
    for _ in range(_MAX_PAGES):
        page = inbox.send(path)
        if page is None or not isinstance(page.get("approvals"), list):
            raise CommandFailed("the server has no inbox at this address")
        approvals += page["approvals"]
        if page.get("next") is None:
            break
        path = f"?after={quote(page['next'], safe='')}"
    return approvals


def _list(inbox: _RemoteInbox, arguments: Namespace) -> int:
    approvals = _pending(inbox)
    columns = (Column("id"), Column("by"), Column("asked by"), Column("until"), Column("message", folds=True))
    rows = [[_short(approval[name]) for name in _LISTED_FIELDS] for approval in approvals]
    present(arguments, lambda: approvals, lambda screen: screen.table(columns, rows) if rows else None)
    if not rows:
        print("roundtrip inbox: no approval waits for you", file=sys.stderr)
    return 0


_LISTED_FIELDS: Final = ("id", "by", "caller", "until", "message")


def _short(value: object) -> str:
    return shortened(printable(str(value).partition("\n")[0]), _MAX_SHOWN_CHARS)


def _draw(approval: Mapping[str, Any], screen: Screen) -> None:
    width = max(map(len, approval))
    for name, value in approval.items():
        first, *others = str(value).split("\n")
        screen.line(f"{name:{width}}  {first}")
        for line in others:
            screen.line(line, indent=width + 2)
