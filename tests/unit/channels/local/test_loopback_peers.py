"""The owner of a connection, in tables of this machine and in written ones."""

import socket
import sys

import pytest

from roundtrip.channels.local.loopback_peers import is_of_another_user, owner_in

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
SERVER = ("127.0.0.1", 40001)
CLIENT = ("127.0.0.1", 50002)
little = pytest.mark.skipif(sys.byteorder != "little", reason="the lines are of a little-endian machine")
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs the tables of Linux")


def line(local: str, remote: str, uid: int) -> str:
    return f"   1: {local} {remote} 01 00000000:00000000 00:00000000 00000000  {uid}        0 12345 1 ffff\n"


@little
def test_owner_of_the_side_of_the_client_is_found() -> None:
    table = HEAD + line("0100007F:9C41", "0100007F:C352", 1000) + line("0100007F:C352", "0100007F:9C41", 1001)
    assert owner_in([HEAD, table], CLIENT, SERVER) == 1001
    assert owner_in([table], SERVER, CLIENT) == 1000
    assert owner_in([table], ("127.0.0.2", 50002), SERVER) is None
    assert owner_in([HEAD], CLIENT, SERVER) is None


@little
def test_socket_of_ipv6_is_found() -> None:
    prefix = "0000000000000000FFFF0000"
    table = HEAD + line(f"{prefix}0100007F:C352", f"{prefix}0100007F:9C41", 1002)
    assert owner_in([HEAD, table], CLIENT, SERVER) == 1002


@linux
def test_own_connection_is_not_of_another_user() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            connection, client = server.accept()
            with connection:
                assert not is_of_another_user(client[:2], ("127.0.0.1", port))
