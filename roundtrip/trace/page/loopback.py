"""Protection for pages that only this machine's user may open: a secret address, the `Host` check, and headers.

Other users on the machine can reach the port, so the address contains a secret. A request's `Host` must name this
machine. Otherwise another site could point its own name to this machine (DNS rebinding), and the site's pages would
have the same origin.
"""

import hmac
import secrets
from collections.abc import Sequence
from typing import Final

from roundtrip.pages.headers import page_headers

HOST: Final = "127.0.0.1"

_SECRET_BYTES: Final = 16


class Loopback:
    """Secret address for the pages on one port.

    Args:
        port: The port.
        host: The local address on which the pages are served.
    """

    def __init__(self, port: int, host: str = HOST) -> None:
        self._port = port
        self._host = f"[{host}]" if ":" in host else host
        self.secret = secrets.token_urlsafe(_SECRET_BYTES)

    def sibling(self) -> "Loopback":
        """Return an address on the same port with another secret."""
        return Loopback(self._port, self._host.strip("[]"))

    @property
    def url(self) -> str:
        """Return the base address for all pages."""
        return f"http://{self._host}:{self._port}/{self.secret}/"

    def names(self, hosts: Sequence[str]) -> bool:
        """Return True if a request has exactly one `Host` header, which names this port on this machine."""
        names = (self._host, HOST, "localhost")
        return len(hosts) == 1 and hosts[0].lower() in [f"{name}:{self._port}" for name in names]

    def place_of(self, path: str) -> str | None:
        """Return the part of a path after the secret. Return None if the secret is wrong or no slash follows it."""
        secret, slash, place = path.removeprefix("/").partition("/")
        if not slash or not hmac.compare_digest(secret.encode("utf-8", "replace"), self.secret.encode()):
            return None
        return place


def headers_for(policy: str) -> dict[str, str]:
    """Return the response headers that carry a content security policy."""
    return page_headers(f"{policy}; frame-ancestors 'none'")
