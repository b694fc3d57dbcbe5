"""Page access, either by a secret address for this machine's user, or by a token for each named user."""

import base64
import binascii
import hmac
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request

from roundtrip.trace.page.loopback import Loopback
from roundtrip.trace.page.requests import PageRejected, check_local_request
from roundtrip.trace.writing.files import locked_folder_of
from roundtrip.trace.writing.operator_log import user_of_system

_USER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", re.ASCII)
_LINE: Final = re.compile(rf"({_USER.pattern}) sha256:([0-9a-f]{{64}})", re.ASCII)
_TOKEN_BYTES: Final = 24
_FILE_MODE: Final = 0o600
_OTHERS_MODE: Final = 0o077
_COMMAND: Final = "roundtrip ui"


class UsersUnusable(Exception):
    """The users file cannot be used. The message says why and what to do."""


@dataclass(frozen=True, slots=True)
class AuthorizedRequest:
    """A request that passed the access check."""

    user: str
    place: str
    """The path below the base address."""
    is_from_here: bool
    """True if a page with the same origin sent the request."""


class LocalAccess:
    """Access by a secret address, for the user who started the command."""

    def __init__(self, loopback: Loopback) -> None:
        self._loopback = loopback
        self._user = user_of_system()

    def enter(self, request: Request) -> AuthorizedRequest:
        """Check a request. Return its user and path.

        Raises:
            PageRejected: The user is not allowed to open the pages.
        """
        return AuthorizedRequest(self._user, *check_local_request(request, self._loopback, _COMMAND))


class NamedUsers:
    """Access by name and token, for users on other machines. Their requests come through a proxy that terminates TLS.

    Args:
        users: Token digests by user name.
        base_url: The public base address.
    """

    def __init__(self, users: Mapping[str, str], base_url: str) -> None:
        self._users = dict(users)
        parts = urlsplit(base_url)
        # Browsers omit the default port.
        self._host = parts.netloc.lower().removesuffix(":443" if parts.scheme == "https" else ":80")
        self._origin = f"{parts.scheme}://{self._host}"
        self._path = f"{parts.path.rstrip('/')}/"

    def enter(self, request: Request) -> AuthorizedRequest:
        """Check a request. Return its user and path.

        Raises:
            PageRejected: The user is not allowed to open the pages.
        """
        if [host.lower() for host in request.headers.getlist("host")] != [self._host]:
            raise PageRejected(HTTPStatus.FORBIDDEN, "this server accepts only the host in its --base-url")
        user = self._authenticate(request.headers.getlist("authorization"))
        if user is None:
            raise PageRejected(
                HTTPStatus.UNAUTHORIZED,
                "log in with a user name and its token",
                **{"WWW-Authenticate": 'Basic realm="roundtrip ui", charset="UTF-8"'},
            )
        path: str = request.scope["path"]
        if not path.startswith(self._path):
            raise PageRejected(HTTPStatus.NOT_FOUND, "there is no such page")
        is_from_here = [one.lower() for one in request.headers.getlist("origin")] == [self._origin]
        return AuthorizedRequest(user, path.removeprefix(self._path), is_from_here)

    def _authenticate(self, credentials: list[str]) -> str | None:
        scheme, _, encoded = (credentials[0] if len(credentials) == 1 else "").partition(" ")
        if scheme.lower() != "basic":
            return None
        try:
            name, _, token = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            return None
        # For an unknown name, compare with an impossible digest, so that rejecting it takes as long as rejecting a
        # wrong token.
        is_right = hmac.compare_digest(_digest(token), self._users.get(name, "0" * 64))
        return name if is_right and name in self._users else None


Access = LocalAccess | NamedUsers
"""Access check for requests."""


def read_users(path: Path) -> dict[str, str]:
    """Read the token digests from a users file.

    Raises:
        UsersUnusable: The file cannot be read, has no users, or has an invalid line.
    """
    try:
        mode = path.stat().st_mode
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError as error:
        raise UsersUnusable(f"cannot read {str(path)!r}: {error.strerror}; add a user with --add-user NAME") from error
    except UnicodeDecodeError as error:
        raise UsersUnusable(f"{str(path)!r} is not a users file; add a user with --add-user NAME") from error
    if mode & _OTHERS_MODE:
        raise UsersUnusable(f"{str(path)!r} must be readable only by its owner; run chmod 600")
    users: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        found = _LINE.fullmatch(line.strip())
        if found is not None:
            users[found[1]] = found[2]
        elif line.strip():
            raise UsersUnusable(f"line {number} of {str(path)!r} is not a user entry; add users with --add-user NAME")
    if not users:
        raise UsersUnusable(f"{str(path)!r} has no users; add one with --add-user NAME")
    return users


def add_user(path: Path, name: str) -> str:
    """Add a user to a file, or give an existing user a new token. Return the token. The file stores only a digest of
    the token.

    Raises:
        UsersUnusable: The name is invalid, or the file cannot be used.
    """
    if _USER.fullmatch(name) is None:
        raise UsersUnusable(f"a name must consist of 1 to 64 letters, digits and the characters . _ @ -, got {name!r}")
    # Without the lock, two concurrent commands could each read the old file, and one of the added users would be lost.
    with locked_folder_of(path, waits=True):
        return _write_user(path, name)


def _write_user(path: Path, name: str) -> str:
    users = read_users(path) if path.exists() and path.stat().st_size else {}
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    users[name] = _digest(token)
    text = "".join(f"{one} sha256:{digest}\n" for one, digest in users.items())
    # Replace the file atomically, so that readers never see an incomplete file.
    new_file = path.with_name(f"{path.name}.{secrets.token_hex(8)}.new")
    try:
        with open(new_file, "x", encoding="ascii", opener=lambda name, flags: os.open(name, flags, _FILE_MODE)) as file:
            file.write(text)
        new_file.replace(path)
    except OSError as error:
        raise UsersUnusable(f"cannot write {str(path)!r}: {error.strerror}") from error
    return token


def _digest(token: str) -> str:
    # Tokens are random, so a fast digest is secure enough.
    return sha256(token.encode()).hexdigest()
