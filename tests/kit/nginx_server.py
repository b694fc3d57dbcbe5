"""A test's own nginx in front of running instances, if the program is installed.

It listens only on loopback, runs as the test's user, and keeps its files in a temporary folder.
"""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest

from tests.kit.hosts import listening
from tests.kit.waiting import WAIT

__all__ = ["NGINX", "for_any_user", "host_of", "listening", "nginx", "run_nginx"]

NGINX: Final = shutil.which("nginx", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")

_CONFIGURATION: Final = """
worker_processes 1;
events {{ worker_connections 4096; }}
http {{
    upstream fleet {{
        {servers}
        keepalive 64;
        keepalive_timeout 2s;
    }}
    server {{
        listen {listen};
        location / {{
            proxy_pass http://fleet;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $http_host;
            proxy_buffering off;
            proxy_read_timeout 1h;
            {extra}
        }}
    }}
}}
"""


def host_of(address: str) -> str:
    """Return an instance's host and port, from `host:port` or a URL."""
    return urlsplit(address).netloc or address


def for_any_user(text: str, folder: Path) -> str:
    """Return a system-wide nginx configuration in a form that any user may run from a folder."""
    places = "".join(
        f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    head, http, rest = text.partition("http {")
    return f"pid {folder}/nginx.pid; error_log {folder}/error.log; {head}{http} access_log off; {places}{rest}"


@contextmanager
def run_nginx(configuration: Path, *sockets: socket.socket) -> Generator[subprocess.Popen[bytes]]:
    """Run nginx with a configuration file that listens where the sockets do. Clients may connect at once."""
    if NGINX is None:
        pytest.skip("nginx is not installed")
    folder = configuration.parent
    inherited = {"NGINX": "".join(f"{one.fileno()};" for one in sockets)} if sockets else {}
    # nginx inherits the socket, so that no other process can take the port in between.
    for one in sockets:
        # nginx assumes that the socket does not block. Otherwise it would wait forever if a client has already left.
        one.setblocking(False)
    command = [NGINX, "-p", str(folder), "-c", str(configuration), "-e", str(folder / "start.log"), "-g", "daemon off;"]
    process = subprocess.Popen(
        command, env={**os.environ, **inherited}, pass_fds=[one.fileno() for one in sockets], stdin=subprocess.DEVNULL
    )
    try:
        ends = time.monotonic() + WAIT
        while not (folder / "nginx.pid").exists():
            if time.monotonic() > ends or process.poll() is not None:
                raise AssertionError((folder / "start.log").read_text())
            time.sleep(0.02)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(WAIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(WAIT)


@contextmanager
def nginx(upstreams: Sequence[str], *, extra: str = "") -> Generator[str]:
    """Yield the address (`http://127.0.0.1:PORT`) of an nginx that balances round robin over instances.

    Args:
        upstreams: The instances, as URLs or as `host:port`.
        extra: Directives for the location, such as `proxy_next_upstream error timeout non_idempotent;`.
    """
    hosts = [host_of(upstream) for upstream in upstreams]
    with tempfile.TemporaryDirectory(prefix="nginx-") as name, listening() as door:
        folder = Path(name)
        listen = f"127.0.0.1:{door.getsockname()[1]}"
        text = _CONFIGURATION.format(
            servers=" ".join(f"server {host} max_fails=0;" for host in hosts),
            listen=listen,
            extra=extra,
        )
        configuration = folder / "nginx.conf"
        configuration.write_text(for_any_user(text, folder))
        with run_nginx(configuration, door):
            yield f"http://{listen}"
