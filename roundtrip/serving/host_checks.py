"""`Host` and `Origin` checks against DNS rebinding, in which a web page points its own host name at this machine.

The two headers are checked separately. The SDK has one switch for both, so it ignores the allowed origins if it accepts
every host. Responses to allowed origins also have CORS headers. Without these headers, browsers would block calls from
other origins.
"""

import ipaddress
import logging
import re
from collections.abc import Collection, Iterable
from functools import lru_cache
from http import HTTPStatus
from typing import Final, NamedTuple

from starlette.middleware.cors import CORSMiddleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from roundtrip.limited_logs import LimitedLog

ANY: Final = "*"
_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
_HOST: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\[\]:/?#@\\\s]+)(?::([0-9]{1,5}|\*))?")
_ORIGIN: Final = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*)://(.+)")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}

_log = LimitedLog(logging.getLogger("roundtrip"))


class Host(NamedTuple):
    """A host name and its port; the port is None if absent, or if a rule accepts any port."""

    name: str
    port: int | None


class Origin(NamedTuple):
    """A page's scheme, host name and port; the port is None if a rule accepts any port."""

    scheme: str
    name: str
    port: int | None


_NULL: Final = Origin("null", "", None)


def host_from(text: str) -> Host:
    """Parse a host from a `Host` header or a flag.

    Raises:
        ValueError: The text is not a name or address, with or without a port.
    """
    if text.count(":") > 1 and not text.startswith("["):
        text = f"[{text}]"
    match = _HOST.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        name, port = match[1].lower(), match[2]
        if name.startswith("["):
            name = f"[{ipaddress.IPv6Address(name[1:-1]).compressed}]"
    except ValueError:
        raise ValueError("a host must be NAME or NAME:PORT, without a scheme or a path") from None
    return Host(name, None if port in (None, ANY) else int(port))


def origin_from(text: str) -> Origin:
    """Parse an origin from an `Origin` header or a flag.

    Raises:
        ValueError: The text is not an origin.
    """
    if text == "null":
        return _NULL
    match = _ORIGIN.fullmatch(text)
    if match is None:
        raise ValueError("an origin must be SCHEME://NAME or SCHEME://NAME:PORT, such as https://app.example.com")
    scheme = match[1].lower()
    try:
        host = host_from(match[2])
    except ValueError:
        raise ValueError("an origin must be SCHEME://NAME or SCHEME://NAME:PORT, without a path") from None
    port = host.port
    if port is None and not match[2].endswith(":*"):
        port = _DEFAULT_PORTS.get(scheme)
    return Origin(scheme, host.name, port)


class HostChecks:
    """ASGI middleware that rejects requests with a `Host` or `Origin` that is not allowed.

    Args:
        app: The application that serves allowed requests.
        hosts: The allowed hosts; `*` allows any host. If the list is empty, a server on a loopback address accepts only
            this machine's names, and any other server accepts any host.
        origins: The allowed origins, in addition to the origins of the allowed hosts; `*` allows any origin. If at
            least one origin is listed, all origins are checked, even if any host is allowed.
        loopback: True if the service listens on a loopback address. The loopback names are then allowed.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str], origins: Iterable[str], *, loopback: bool) -> None:
        self._app = app
        hosts, origins = [*hosts], [*origins]
        self._checks_host = ANY not in hosts and (loopback or bool(hosts))
        self._checks_origin = ANY not in origins and (self._checks_host or bool(origins))
        names = [name for name in (*hosts, *(_LOOPBACK if loopback else ())) if name != ANY]
        self._hosts = {host_from(name) for name in names}
        self._origins = {
            *(origin_from(one) for one in origins if one != ANY),
            *(Origin(scheme, name, port) for name, port in self._hosts for scheme in _DEFAULT_PORTS),
        }
        # Cache the lookups, because nearly all requests name the same host.
        self._knows = lru_cache(maxsize=16)(self._knows_host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or reject it."""
        app = self._app
        if scope["type"] == "http":
            if self._checks_host and not self._names_host(scope):
                _log.warning(
                    "rejected a request whose Host is not allowed; list this server's names with --allowed-host"
                )
                app = PlainTextResponse("Invalid Host header", HTTPStatus.MISDIRECTED_REQUEST)
            elif self._checks_origin and not _is_among(self._origins, _values(scope, b"origin")):
                _log.warning(
                    "rejected a request from a page whose Origin is not allowed; allow it with --allowed-origin"
                )
                app = PlainTextResponse("Invalid Origin header", HTTPStatus.FORBIDDEN)
        await app(scope, receive, send)

    def _names_host(self, scope: Scope) -> bool:
        values = _values(scope, b"host")
        return len(values) == 1 and self._knows(values[0])

    def _knows_host(self, value: str) -> bool:
        try:
            host = host_from(value)
        except ValueError:
            return False
        if host in self._hosts or (host.name, None) in self._hosts:
            return True
        # Clients omit the scheme's default port.
        return host.port is None and any((host.name, port) in self._hosts for port in _DEFAULT_PORTS.values())


class CrossOrigin(CORSMiddleware):
    """ASGI middleware for CORS, which tells browsers which origins may call a path and read its responses.

    Args:
        app: The application that serves all requests.
        path: The path that pages may call.
        origins: The allowed origins, as for `HostChecks`.
    """

    def __init__(self, app: ASGIApp, path: str, origins: Iterable[str]) -> None:
        origins = [*origins]
        super().__init__(
            app,
            allow_origins=[ANY] if ANY in origins else (),
            allow_methods=["GET", "POST", "DELETE"],
            # Clients send custom headers, such as those declared by `x-mcp-header`.
            allow_headers=[ANY],
            expose_headers=["Mcp-Session-Id", "WWW-Authenticate", "Retry-After"],
            # Pages with these origins may call a server on the user's private network.
            allow_private_network=ANY not in origins,
        )
        self._path = path.rstrip("/")
        self._origins = {origin_from(one) for one in origins if one != ANY}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        is_own_path = scope["type"] == "http" and scope["path"].rstrip("/") == self._path
        await (super().__call__(scope, receive, send) if is_own_path else self.app(scope, receive, send))

    def is_allowed_origin(self, origin: str) -> bool:
        """Return True if pages with this origin may call the server."""
        return self.allow_all_origins or _is_among(self._origins, [origin])


def _is_among(known: Collection[Origin], values: Iterable[str]) -> bool:
    """Return True if all `Origin` header values are known. Only web pages send an `Origin`."""
    try:
        origins = [origin_from(value) for value in values]
    except ValueError:
        return False
    return all(origin in known or origin._replace(port=None) in known for origin in origins)


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]
