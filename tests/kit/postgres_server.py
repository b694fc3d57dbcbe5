"""A test's own PostgreSQL server, if its programs are installed."""

import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from tests.kit.waiting import WAIT

__all__ = ["PostgresServer", "is_installed", "postgres_server"]

_FOLDERS: Final = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
_PROGRAMS: Final = os.pathsep.join([os.environ.get("PATH", os.defpath), *map(str, reversed(_FOLDERS))])
_INITDB: Final = shutil.which("initdb", path=_PROGRAMS)
_POSTGRES: Final = shutil.which("postgres", path=_PROGRAMS)
_PSQL: Final = shutil.which("psql", path=_PROGRAMS)
_INITDB_OPTIONS: Final = ("--username=tests", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C")
_OPTIONS: Final = ("fsync=off", "full_page_writes=off", "listen_addresses=")


def is_installed() -> bool:
    """Return True if the programs are installed."""
    return None not in (_INITDB, _POSTGRES, _PSQL)


class PostgresServer:
    """Server on a socket file. Tests can stop and restart it."""

    def __init__(self, folder: Path, *, durable: bool) -> None:
        self._folder = folder
        self._durable = durable
        self._process: subprocess.Popen[bytes] | None = None
        # PostgreSQL does not run as root.
        self._user = _other_user() if os.geteuid() == 0 else None

    @property
    def url(self) -> str:
        return f"postgresql://tests@/postgres?host={self._folder}"

    def create(self) -> None:
        if not is_installed():
            pytest.skip("PostgreSQL is not installed")
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        command = [str(_INITDB), "--pgdata", str(self._folder / "data"), *_INITDB_OPTIONS]
        subprocess.run(command, check=True, capture_output=True, timeout=WAIT, user=self._user, cwd="/")

    def start(self) -> None:
        commit = f"synchronous_commit={'on' if self._durable else 'off'}"
        options = [word for option in (*_OPTIONS, commit) for word in ("-c", option)]
        command = [str(_POSTGRES), "-D", str(self._folder / "data"), "-k", str(self._folder), *options]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, user=self._user, cwd="/")
        ends = time.monotonic() + WAIT
        while self.command("SELECT 1") != "1":
            if time.monotonic() > ends or self._process.poll() is not None:
                raise AssertionError((self._folder / "log").read_text())
            time.sleep(0.02)

    def command(self, statement: str) -> str:
        """Run a statement, and return its output."""
        command = [str(_PSQL), "-h", str(self._folder), "-U", "tests", "-d", "postgres", "-Atqc", statement]
        return subprocess.run(command, capture_output=True, text=True, timeout=WAIT).stdout.strip()

    def kill(self) -> None:
        """End the server and its processes at once."""
        if self._process is not None:
            self._process.send_signal(3)  # SIGQUIT: without a shutdown, as after a crash
            self._process.wait(WAIT)
            self._process = None


def _other_user() -> str:
    names = {user.pw_name for user in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


@contextmanager
def postgres_server(*, durable: bool = False) -> Generator[PostgresServer]:
    """Run a server.

    Args:
        durable: Keep committed data after `PostgresServer.kill`.
    """
    # A socket's path must be short, and pytest's folders have long paths.
    with TemporaryDirectory(prefix="rt") as folder:
        server = PostgresServer(Path(folder), durable=durable)
        server.create()
        server.start()
        try:
            yield server
        finally:
            server.kill()
