"""`roundtrip host-config`: print what tells a host of a server. It edits no files, and prints no key.

The facts about hosts are in `known_clients.toml`, each with its source and date.
"""

import json
import os
import re
import shlex
import sys
import tomllib
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from roundtrip.cli.command import Command, CommandFailed
from roundtrip.cli.loading import TARGET, TARGET_HELP, load_any_server
from roundtrip.known_clients import ClientFact, KnownClient, known_client
from roundtrip.server.key_files import KEY_FILE_VARIABLE, KEYS_VARIABLE, KeyFile

__all__ = ["COMMAND", "HostFacts", "Launch", "all_hosts", "snippet"]

_DATA: Final = "known_clients.toml"
_NAMES: Final = ("claude-code", "claude-desktop", "cursor", "vscode", "inspector", "mcp-json")
"""The hosts of the data file, so that the parser need not read it; a test compares them."""
_KEY_FILE: Final = "keys"
"""The key file that is used if it is there, as `roundtrip new` makes it."""

_DESCRIPTION: Final = """\
Print what tells a host of a server: a command, or a part of the host's file. It edits no files. It names this
interpreter, this folder and your key file, and prints no key."""

_EPILOG: Final = f"""\
keys:
  The host passes {KEY_FILE_VARIABLE} to the server: the file of --key-file, else that of {KEY_FILE_VARIABLE}, else
  `{_KEY_FILE}` in this folder. Without one, each start of the server makes a key, and calls do not survive it.

output:
  The text for the host is printed on standard output, and where it belongs on standard error.

exit codes:
  0  printed
  2  not printed; standard error has the reason"""


@dataclass(frozen=True, slots=True)
class HostFacts:
    """Facts about a host: the text that tells it of a server."""

    name: str
    title: str
    place: str
    """The place of the text."""
    sources: tuple[ClientFact, ...]
    client: str = ""
    """The name that it announces; empty if it has none of its own."""
    version: str = ""
    json: str = ""
    """The key of the servers in its file; empty if it is told by a command."""
    stdio_type: str = ""
    http_type: str = ""
    env_flag: str = ""
    stdio: tuple[str, ...] = ()
    http: tuple[str, ...] = ()
    http_note: str = ""

    @property
    def known(self) -> KnownClient | None:
        """Return what it can be asked, if that is known."""
        return known_client(self.client, self.version or _LATEST) if self.client else None


_LATEST: Final = "9999"


@dataclass(frozen=True, slots=True)
class Launch:
    """Server that a host starts, or reaches at an address."""

    name: str
    url: str | None = None
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])


@cache
def all_hosts() -> tuple[HostFacts, ...]:
    """Return all hosts, in the order of the file."""
    data = tomllib.loads(files("roundtrip").joinpath(_DATA).read_text(encoding="utf-8"))
    return tuple(_host_of(entry) for entry in data["hosts"])


def _host_of(entry: dict[str, Any]) -> HostFacts:
    sources = tuple(ClientFact(**source) for source in entry["sources"])
    words: dict[str, Any] = {key: tuple(entry[key]) for key in ("stdio", "http") if key in entry}
    values: dict[str, Any] = {**entry, **words, "sources": sources}
    return HostFacts(**values)


def snippet(host: HostFacts, launch: Launch) -> str:
    """Return the text that tells a host of a server."""
    if not host.json:
        return shlex.join(_filled(host, launch, host.stdio if launch.url is None else host.http))
    if launch.url is None:
        entry = _with_type(host.stdio_type, {"command": launch.command[0], "args": list(launch.command[1:])})
        if launch.env:
            entry["env"] = dict(launch.env)
    elif host.http:
        program, *words = _filled(host, launch, host.http)
        entry = _with_type(host.stdio_type, {"command": program, "args": words})
    else:
        entry = _with_type(host.http_type, {"url": launch.url})
    return json.dumps({host.json: {launch.name: entry}}, indent=2, ensure_ascii=False)


def _with_type(kind: str, entry: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, **entry} if kind else entry


def _filled(host: HostFacts, launch: Launch, words: Sequence[str]) -> Iterator[str]:
    for word in words:
        match word:
            case "{env}":
                for name, value in launch.env.items():
                    yield from (host.env_flag, f"{name}={value}")
            case "{command}":
                yield from launch.command
            case "{name}":
                yield launch.name
            case "{url}":
                yield launch.url or ""
            case _:
                yield word


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument("host", metavar="HOST", choices=_NAMES, help=", ".join(_NAMES))
    parser.add_argument("target", nargs="?", metavar=TARGET, help=TARGET_HELP)
    parser.add_argument("--http", metavar="URL", help="the address of a server that is served over HTTP")
    parser.add_argument("--name", metavar="NAME", help="the server's name in the host; default: its own")
    parser.add_argument(
        "--key-file", metavar="FILE", help=f"the key file; default: ${KEY_FILE_VARIABLE}, or {_KEY_FILE}"
    )


def _run(arguments: Namespace) -> int:
    host = next(one for one in all_hosts() if one.name == arguments.host)
    launch, notes = _over_http(arguments) if arguments.http is not None else _over_stdio(arguments)
    if launch.url is not None and host.http_note:
        notes = [*notes, host.http_note]
    print(snippet(host, launch), flush=True)
    for line in (host.place, *_asked(host), *notes):
        print(f"roundtrip: {line}", file=sys.stderr)
    return 0


def _over_http(arguments: Namespace) -> tuple[Launch, list[str]]:
    from roundtrip.client.failures import CallFailed
    from roundtrip.client.targets import target_of

    if arguments.key_file is not None:
        raise CommandFailed("--key-file is for servers that the host starts; leave it out with --http")
    try:
        url = target_of(arguments.http).url
    except CallFailed as failure:
        raise CommandFailed(str(failure)) from failure
    if url is None:
        raise CommandFailed(f"--http must be an http(s) address, got {arguments.http!r}")
    if arguments.target is None and arguments.name is None:
        raise CommandFailed("give the server's name in the host with --name, or MODULE:SERVER")
    own = None if arguments.target is None else load_any_server(arguments.target).name
    return Launch(_name_of(arguments.name or own or "server"), url=url), []


def _over_stdio(arguments: Namespace) -> tuple[Launch, list[str]]:
    if arguments.target is None:
        raise CommandFailed(f"give the server as {TARGET} or a file, or its address with --http URL")
    server = load_any_server(arguments.target)
    command = ("-m", "roundtrip", "serve", arguments.target, "--stdio", "--folder", str(Path.cwd()))
    file = _key_file(arguments.key_file)
    env = {} if file is None else {KEY_FILE_VARIABLE: str(file)}
    name = _name_of(arguments.name or server.name or Path(arguments.target.partition(":")[0]).stem)
    notes = [] if file is not None or _has_keys(server) else [_no_key()]
    return Launch(name, command=(sys.executable, *command), env=env), notes


def _name_of(text: str) -> str:
    """Return a name of the characters that all hosts accept."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-") or "server"


def _key_file(given: str | None) -> Path | None:
    """Return the key file to name, after a look at it.

    Raises:
        CommandFailed: It is not a key file.
    """
    named = given or os.environ.get(KEY_FILE_VARIABLE)
    file = Path(named or _KEY_FILE).absolute()
    if not named and not file.is_file():
        return None
    try:
        KeyFile.read(file)
    except ValueError as error:
        if not named:
            # Another file of that name.
            return None
        raise CommandFailed(str(error)) from error
    return file


def _has_keys(server: Any) -> bool:
    """Return True if the code of a server gives it keys, or if it needs none."""
    from roundtrip.server.adapters.finding import attached

    found = attached(server)
    return found is None or (KEYS_VARIABLE not in os.environ and not found.identity().own_key)


def _no_key() -> str:
    make = f"make one with roundtrip keys new {_KEY_FILE}, and run this again"
    if KEYS_VARIABLE in os.environ:
        return f"{KEYS_VARIABLE} is not printed, as it is secret; the host needs a key file: {make}"
    return f"no key file: calls do not survive a restart of the server; {make}"


def _asked(host: HostFacts) -> Iterator[str]:
    known = host.known
    if known is None:
        return
    kinds = {"forms": known.form, "URLs": known.url, "its model": known.sampling, "roots": known.roots}
    said = ", ".join(f"{kind} {support}" for kind, support in kinds.items())
    yield f"what {host.title} can be asked, as of {known.sources[0].date}: {said}; see the page Hosts of the docs"


COMMAND = Command(_DESCRIPTION, _configure, _run, _EPILOG)
