"""Loopback checks: whether only this machine can reach a host, and on Linux, whether a connection comes from another
user.
"""

import os
import sys
from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Final

Endpoint = tuple[str, int]
"""Address and port at one end of a connection."""

_TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")
_MAPPED: Final = IPv6Address("::ffff:0:0")
"""The prefix that an IPv6 socket puts before an IPv4 address."""
_ROOT: Final = 0


def is_loopback(host: str) -> bool:
    """Return True if a host can be reached only from this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_of_another_user(client: Endpoint, server: Endpoint) -> bool:
    """Return True if a program of another user opened a loopback connection.

    Root does not count as another user: it can do everything that the user can, and it owns the relays of virtual
    machines. A socket that its program has closed also belongs to root, but that program can no longer read a response.
    """
    if sys.platform != "linux":
        return False
    owner = owner_in(_read_tables(), client, server)
    return owner not in (None, _ROOT, os.getuid())


def owner_in(tables: Iterable[str], client: Endpoint, server: Endpoint) -> int | None:
    """Return the user id of a connection's client; None if the tables do not list the connection.

    Args:
        tables: Connection tables, as in `/proc/net/tcp`.
        client: The client's endpoint.
        server: The server's endpoint.
    """
    sides = {_in_table_notation(client, server), _in_table_notation(client, server, is_mapped=True)}
    for table in tables:
        for line in table.splitlines():
            words = line.split()
            if len(words) > 7 and (words[1], words[2]) in sides:
                return int(words[7])
    return None


def _read_tables() -> Iterable[str]:
    for name in _TABLES:
        try:
            yield Path(name).read_text("ascii")
        except OSError:
            # Some sandboxes have no such table.
            continue


def _in_table_notation(client: Endpoint, server: Endpoint, *, is_mapped: bool = False) -> tuple[str, str]:
    """Return both endpoints in table notation. `is_mapped` is True if an IPv6 socket uses IPv4 addresses."""
    mine, other = (f"{_words_of(host, is_mapped=is_mapped)}:{port:04X}" for host, port in (client, server))
    return mine, other


def _words_of(host: str, *, is_mapped: bool) -> str:
    """Return an address as four-byte words, each in the machine's byte order."""
    address = ip_address(host)
    packed = _MAPPED.packed[:12] + address.packed if is_mapped and address.version == 4 else address.packed
    words = (packed[start : start + 4] for start in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
