"""The owner of a connection, in tables of this machine and in written ones."""

import os
import socket
import subprocess
import sys

import pytest

from roundtrip.server.loopback_peers import is_of_another_user, owner_in

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


CONNECT = "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); s.recv(1)"
CONNECT_6 = (
    "import socket, sys; s = socket.socket(socket.AF_INET6); s.connect(('::ffff:127.0.0.1', int(sys.argv[1])));"
    " s.recv(1)"
)

CONNECT_TO_6 = "import socket, sys; s = socket.create_connection(('::1', int(sys.argv[1]))); s.recv(1)"


@linux
@pytest.mark.parametrize(
    ("program", "host"),
    [(CONNECT, "127.0.0.1"), (CONNECT_6, "127.0.0.1"), (CONNECT_TO_6, "::1")],
    ids=["IPv4", "IPv4 by IPv6", "IPv6"],
)
@pytest.mark.parametrize("uid", ["mine", "nobody's"])
def test_real_connection_is_told_by_its_user(program: str, host: str, uid: str) -> None:
    if uid != "mine" and os.getuid() != 0:
        pytest.skip("only root can start programs of others")
    user = None if uid == "mine" else 65534
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as server:
        server.settimeout(20)
        port = server.getsockname()[1]
        with subprocess.Popen(["/usr/bin/env", "python3", "-c", program, str(port)], user=user) as process:
            connection, client = server.accept()
            with connection:
                assert is_of_another_user(client[:2], (host, port)) == (user is not None)
            assert process.wait(20) == 0
