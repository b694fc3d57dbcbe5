"""Guard pages for the user of this machine alone: their address, the `Host` of requests, and headers of responses.

Other users of the machine can reach the port of a page, but only the owner may see it, so the address holds a secret.
A request must name this machine, as another site may point its own name to it (DNS rebinding), and would then have the
same origin.
"""

import hmac
import secrets
from collections.abc import Sequence
from typing import Final

from roundtrip.pages.headers import page_headers

HOST: Final = "127.0.0.1"

_SECRET_BYTES: Final = 16


class Loopback:
    """Address of pages on one port, with its secret.

    Args:
        port: The port.
        host: The address of this machine on which they are served.
    """

    def __init__(self, port: int, host: str = HOST) -> None:
        self._port = port
        self._host = f"[{host}]" if ":" in host else host
        self.secret = secrets.token_urlsafe(_SECRET_BYTES)

    @property
    def url(self) -> str:
        """Return the address under which all pages are."""
        return f"http://{self._host}:{self._port}/{self.secret}/"

    def names(self, hosts: Sequence[str]) -> bool:
        """Return True if a request has one `Host` header, and that names this port of this machine."""
        names = (self._host, HOST, "localhost")
        return len(hosts) == 1 and hosts[0].lower() in [f"{name}:{self._port}" for name in names]

    def sent_from_here(self, origins: Sequence[str], host: str) -> bool:
        """Return True if a request has one `Origin` header, and a page of the same host sent it."""
        return list(origins) == [f"http://{host.lower()}"]

    def place_of(self, path: str) -> str | None:
        """Return the rest of a path after the secret; None for another secret, or without the slash after it."""
        secret, slash, place = path.removeprefix("/").partition("/")
        if not slash or not hmac.compare_digest(secret.encode("utf-8", "replace"), self.secret.encode()):
            return None
        return place


def headers_for(policy: str) -> dict[str, str]:
    """Return the headers of a response with this content security policy."""
    return page_headers(f"{policy}; frame-ancestors 'none'")
