"""The owner of a real connection of another program."""

import os
import socket
import subprocess
import sys

import pytest

from roundtrip.channels.local.loopback_peers import is_of_another_user
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs the tables of Linux")

CONNECT = "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); s.recv(1)"
CONNECT_6 = (
    "import socket, sys; s = socket.socket(socket.AF_INET6); s.connect(('::ffff:127.0.0.1', int(sys.argv[1])));"
    " s.recv(1)"
)

CONNECT_TO_6 = "import socket, sys; s = socket.create_connection(('::1', int(sys.argv[1]))); s.recv(1)"


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
        server.settimeout(WAIT)
        port = server.getsockname()[1]
        with subprocess.Popen(["/usr/bin/env", "python3", "-c", program, str(port)], user=user) as process:
            connection, client = server.accept()
            with connection:
                assert is_of_another_user(client[:2], (host, port)) == (user is not None)
            assert process.wait(WAIT) == 0
