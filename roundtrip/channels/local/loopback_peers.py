"""Tell hosts that only this machine reaches, and connections of its other users, whose owners Linux tells."""

import os
import sys
from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Final

Endpoint = tuple[str, int]
"""Address and port of one side of a connection."""

_TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")
_MAPPED: Final = IPv6Address("::ffff:0:0")
"""The beginning of an IPv4 address that a socket of IPv6 uses."""
_ROOT: Final = 0


def is_loopback(host: str) -> bool:
    """Return True for a host that only this machine reaches."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_of_another_user(client: Endpoint, server: Endpoint) -> bool:
    """Return True if a connection on the loopback interface comes from a program of another user.

    Root is no other user: it can do all that the user can, and it owns the relays of virtual machines. A socket that
    its program has closed is root's, too, but its program can read no response.
    """
    if sys.platform != "linux":
        return False
    owner = owner_in(_read_tables(), client, server)
    return owner not in (None, _ROOT, os.getuid())


def owner_in(tables: Iterable[str], client: Endpoint, server: Endpoint) -> int | None:
    """Return the user id of the client's side of a connection; None if it is in no table.

    Args:
        tables: Tables of connections, as in `/proc/net/tcp`.
        client: The side of the client.
        server: The other side.
    """
    sides = {_written(client, server), _written(client, server, is_mapped=True)}
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
            # Some sandboxes have none.
            continue


def _written(client: Endpoint, server: Endpoint, *, is_mapped: bool = False) -> tuple[str, str]:
    """Return both sides as the tables have them; `is_mapped` for IPv4 addresses that a socket of IPv6 uses."""
    mine, other = (f"{_words_of(host, is_mapped=is_mapped)}:{port:04X}" for host, port in (client, server))
    return mine, other


def _words_of(host: str, *, is_mapped: bool) -> str:
    """Return an address as words of four bytes, each in the order of the machine."""
    address = ip_address(host)
    packed = _MAPPED.packed[:12] + address.packed if is_mapped and address.version == 4 else address.packed
    words = (packed[start : start + 4] for start in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
