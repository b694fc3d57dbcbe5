"""An nginx of a test's own in front of running instances, where the program is found.

It listens on loopback only, runs as the user of the test, and keeps its files in a folder that goes with it.
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

__all__ = ["NGINX", "host_of", "listening", "nginx", "runnable", "serving"]

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
    map $http_mcp_session_id $target {{ {homes} default fleet; }}
    {sessions}
    server {{
        listen {listen};
        location / {{
            proxy_pass http://$target;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $http_host;
            proxy_buffering off;
            proxy_read_timeout 1h;
            {headers}
            {extra}
        }}
        location @unreachable {{
            default_type application/json;
            if ($target != fleet) {{ return 404 '{gone}'; }}
            return 502;
        }}
    }}
}}
"""

_GONE: Final = '{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Session not found: its instance is gone"}}'

_NAMED: Final = """
    upstream {name} {{ server {host} max_fails=0; keepalive 16; keepalive_timeout 2s; }}
"""

# A session id leaves as NAME.ID and comes back to the instance of that name as ID.
_SESSIONS: Final = """
    map $upstream_addr $instance {{ {names} default ""; }}
    map $upstream_http_mcp_session_id $named_session {{ "" ""; default $instance.$upstream_http_mcp_session_id; }}
    map $http_mcp_session_id $session {{ "~^i[0-9]+\\.(?<own>[0-9a-f]+)$" $own; default $http_mcp_session_id; }}
"""

_HEADERS: Final = """
            proxy_hide_header Mcp-Session-Id;
            add_header Mcp-Session-Id $named_session always;
            proxy_set_header Mcp-Session-Id $session;
            error_page 502 504 = @unreachable;
"""


def host_of(address: str) -> str:
    """Return host and port of an instance, given as they are or as a URL"""
    return urlsplit(address).netloc or address


def _sessions_of(hosts: Sequence[str]) -> str:
    groups = "".join(_NAMED.format(name=f"i{at}", host=host) for at, host in enumerate(hosts))
    names = " ".join(f'"~(^| ){host.replace(".", "[.]")}$" i{at};' for at, host in enumerate(hosts))
    return groups + _SESSIONS.format(names=names)


def runnable(text: str, folder: Path) -> str:
    """Return a configuration of the machine's own nginx as one that any user may run from a folder."""
    places = "".join(
        f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    head, http, rest = text.partition("http {")
    return f"pid {folder}/nginx.pid; error_log {folder}/error.log; {head}{http} access_log off; {places}{rest}"


@contextmanager
def serving(configuration: Path, *sockets: socket.socket) -> Generator[subprocess.Popen[bytes]]:
    """Run nginx on a file of configuration that listens where the sockets do; clients may connect at once."""
    if NGINX is None:
        pytest.skip("nginx is not installed")
    folder = configuration.parent
    inherited = {"NGINX": "".join(f"{one.fileno()};" for one in sockets)} if sockets else {}
    # A socket that is handed over is one that no other process can take in between.
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
def nginx(upstreams: Sequence[str], *, affinity: bool = False, extra: str = "") -> Generator[str]:
    """The address (`http://127.0.0.1:PORT`) of an nginx that goes round robin over instances.

    Args:
        upstreams: The instances, as URLs or as `host:port`.
        affinity: Have a session stay with the instance that opened it.
        extra: Directives for the location, such as `proxy_next_upstream error timeout non_idempotent;`.
    """
    hosts = [host_of(upstream) for upstream in upstreams]
    with tempfile.TemporaryDirectory(prefix="nginx-") as name, listening() as door:
        folder = Path(name)
        listen = f"127.0.0.1:{door.getsockname()[1]}"
        text = _CONFIGURATION.format(
            servers=" ".join(f"server {host} max_fails=0;" for host in hosts),
            homes=" ".join(f'"~^i{at}[.]" i{at};' for at in range(len(hosts))) if affinity else "",
            sessions=_sessions_of(hosts) if affinity else "",
            listen=listen,
            gone=_GONE,
            headers=_HEADERS if affinity else "",
            extra=extra,
        )
        configuration = folder / "nginx.conf"
        configuration.write_text(runnable(text, folder))
        with serving(configuration, door):
            yield f"http://{listen}"
