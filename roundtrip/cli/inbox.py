"""`roundtrip inbox`: list, show, approve and reject approvals, by the API of a server's inbox."""

import json
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from typing import Any, Final, cast
from urllib.parse import quote, urlsplit

from roundtrip.cli.command import Command, CommandFailed
from roundtrip.cli.parsing import OptionsAnywhere, add_json
from roundtrip.safe_text import printable
from roundtrip.untrusted import mapping_of

__all__ = ["COMMAND"]

_TOKEN_VARIABLE: Final = "ROUNDTRIP_INBOX_TOKEN"  # noqa: S105 - its name
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
_SECONDS: Final = 30.0
_MAX_SHOWN_CHARS: Final = 70

_DESCRIPTION: Final = f"""\
Decide what waits for your approval on a server. SERVER is the address of its pages, such as https://shop.example.
The server gets a token as `Authorization: Bearer`, from ${_TOKEN_VARIABLE} or --token."""

_EPILOG: Final = """\
exit codes:
  0  done
  1  unknown, decided, or not yours to decide
  2  not done; standard error has the reason"""

_ACTIONS: Final = {
    "list": "list what waits for you, the oldest first",
    "show": "show one approval",
    "approve": "approve",
    "reject": "reject, with a reason",
}


def _configure(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(
        title="actions", metavar="ACTION", dest="action", required=True, parser_class=OptionsAnywhere
    )
    for name, summary in _ACTIONS.items():
        action = actions.add_parser(name, help=summary)
        action.description = f"{summary[0].upper()}{summary[1:]}."
        action.add_argument("server", metavar="SERVER", help="the address of the server's pages")
        if name != "list":
            action.add_argument(
                "approval", metavar="ID", help="the id of an approval, as `list` shows it, or its start"
            )
        if name in ("approve", "reject"):
            what = (
                "the reason, which is kept with the call, and shown to the person who asked if they have a page of it"
            )
            what += "" if name == "reject" else "; may be left out"
            action.add_argument("--reason", required=name == "reject", default="", metavar="TEXT", help=what)
        token = f"your token; other users of this machine may see it, so prefer ${_TOKEN_VARIABLE}"
        action.add_argument("--token", metavar="TOKEN", help=token)
        add_json(action)


def _run(arguments: Namespace) -> int:
    base = _base_of(arguments.server)
    token: str = arguments.token or os.environ.get(_TOKEN_VARIABLE, "")
    if not token:
        raise CommandFailed(f"a token is needed; set {_TOKEN_VARIABLE}, or give --token")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise CommandFailed("the token must be one word of printable ASCII")
    api = _Api(base, token)
    if arguments.action == "list":
        return _list(api, arguments)
    if not arguments.approval:
        raise CommandFailed("ID must not be empty")
    decision = None if arguments.action == "show" else {"decision": arguments.action, "reason": arguments.reason}
    answer = api.send(f"/{quote(arguments.approval, safe='')}", decision)
    if answer is None and (whole := _begun_with(api, arguments.approval)) is not None:
        answer = api.send(f"/{quote(whole, safe='')}", decision)
    if answer is None:
        print(
            "no such approval waits for you: check the id; it may be decided, or not yours to decide", file=sys.stderr
        )
        return 1
    _print(answer, arguments)
    return 0


def _begun_with(api: "_Api", start: str) -> str | None:
    """Return the id of the one pending approval that begins with a text; None if it is that text, or there is none.

    Raises:
        CommandFailed: Several begin with it.
    """
    found = [one["id"] for one in _pending(api) if one["id"].startswith(start)]
    if len(found) > 1 and start not in found:
        raise CommandFailed(f"{len(found)} approvals begin with {printable(start)!r}; give more of the id")
    return found[0] if len(found) == 1 and found != [start] else None


def _base_of(server: str) -> str:
    """Return the address of the API.

    Raises:
        CommandFailed: The address is invalid, or would show the token to the network.
    """
    try:
        parts = urlsplit(server)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise CommandFailed(f"SERVER must be an address such as https://shop.example ({error})") from error
    del port
    if parts.scheme not in ("http", "https") or not host or parts.username or parts.query or parts.fragment:
        raise CommandFailed("SERVER must be an address such as https://shop.example")
    if parts.scheme == "http" and host not in _LOOPBACK:
        raise CommandFailed("SERVER must begin with https://, because a token must not cross a network in clear text")
    base = server.rstrip("/")
    for path in ("/approvals/api", "/approvals", "/mcp"):
        if parts.path.rstrip("/").endswith(path):
            raise CommandFailed(
                f"SERVER must be the address of the pages without {path}; give {base.removesuffix(path)}"
            )
    return f"{base}/approvals/api"


class _Api:
    """API of an inbox."""

    def __init__(self, base: str, token: str) -> None:
        self._base = base
        self._headers = {"authorization": f"Bearer {token}"}

    def send(self, path: str, decision: Mapping[str, str] | None = None) -> dict[str, Any] | None:
        """Return what the server answers; None if the approval is not the person's to decide.

        Raises:
            CommandFailed: It could not be asked, or rejects the request.
        """
        import httpx2  # the SDK's own

        method = "GET" if decision is None else "POST"
        try:
            # A redirect could send the token elsewhere.
            with httpx2.Client(headers=self._headers, timeout=_SECONDS, follow_redirects=False) as http:
                response = http.request(method, f"{self._base}{path}", json=decision)
            body: Any = response.json() if response.content else {}
        except httpx2.ConnectError as error:
            server = self._base.removesuffix("/approvals/api")
            raise CommandFailed(
                f"the server could not be asked: nothing answers at {server}; start it, or give its address"
            ) from error
        except httpx2.HTTPError as error:
            raise CommandFailed(f"the server could not be asked: {type(error).__name__}") from error
        except ValueError as error:
            raise CommandFailed("the server has no inbox at this address: it did not answer in JSON") from error
        if response.status_code in (404, 409) and isinstance(body, dict) and "error" in body:
            return None
        if response.status_code == 401:
            raise CommandFailed("the server does not accept the token")
        if response.status_code != 200 or not isinstance(body, dict):
            why = printable(str(mapping_of(cast("object", body)).get("error", "")))
            raise CommandFailed(f"the server answered with status {response.status_code}{f': {why}' if why else ''}")
        return cast("dict[str, Any]", body)


def _pending(api: _Api) -> list[dict[str, Any]]:
    """Return all approvals that wait for the person.

    Raises:
        CommandFailed: The server has no inbox there.
    """
    found: list[dict[str, Any]] = []
    after: str | None = None
    while True:
        page = api.send("" if after is None else f"?after={quote(after, safe='')}")
        if page is None:
            raise CommandFailed("the server has no inbox at this address")
        found += page["approvals"]
        after = page["next"]
        if after is None:
            return found


def _list(api: _Api, arguments: Namespace) -> int:
    found = _pending(api)
    if arguments.json:
        print(json.dumps(found, indent=2))
        return 0
    from roundtrip.cli.trace.terminal import Column, Screen

    columns = (Column("id"), Column("by"), Column("asked by"), Column("until"), Column("message", folds=True))
    Screen().table(columns, [[_short(one[name]) for name in _SHOWN] for one in found])
    return 0


_SHOWN: Final = ("id", "by", "caller", "until", "message")


def _short(value: object) -> str:
    text = printable(str(value).partition("\n")[0])
    return text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]}…"


def _print(approval: Mapping[str, Any], arguments: Namespace) -> None:
    if arguments.json:
        print(json.dumps(approval, indent=2))
        return
    width = max(map(len, approval))
    for name, value in approval.items():
        text = printable(str(value), keep_newlines=True).replace("\n", f"\n{' ' * (width + 2)}")
        print(f"{name:{width}}  {text}")


COMMAND = Command(_DESCRIPTION, _configure, _EPILOG, _run)
