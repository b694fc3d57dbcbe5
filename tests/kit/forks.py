"""Fork processes that have already imported everything from a server process.

An interpreter takes two seconds to start and import the SDK, which is most of the time that many tests take. Otherwise
a forked process is normal: it has a separate id, environment and streams, receives signals, and dies separately.
"""

import atexit
import functools
import io
import json
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerProcess
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import IO, Any, Final, TypeVar

__all__ = [
    "FORKS",
    "ForkedProcess",
    "PipedProcess",
    "Program",
    "command_of",
    "commands_with",
    "is_readable",
    "run_in_process",
    "run_piped",
    "start",
]

_COMMANDS: Final = ["roundtrip.client.call", "roundtrip.cli", "roundtrip.demo.tour", "roundtrip.ui.app"]
"""Modules in the `roundtrip` command that import slowly."""

FORKS: Final = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        *_COMMANDS,
        "redis.asyncio",
        "roundtrip.ledger",
        "roundtrip.serving.application",
        "roundtrip.serving.supervisor",
        "roundtrip.testing.exploration.exploring",
        "roundtrip.testing.users",
        "tests.kit.hosts",
    ]
)

T = TypeVar("T")

Program = Callable[[Sequence[str]], int | None]
"""A module's `main`, which takes the command-line words and returns the exit code."""


class _Descriptor:
    """File descriptor that is sent to another process, where it gets another number."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> tuple[Callable[[Any], int], tuple[Any]]:
        return _restore_descriptor, (DupFd(self._number),)


def _restore_descriptor(sent: Any) -> int:
    return sent.detach()


def _run(
    program: Program, arguments: Sequence[str], folder: str, environment: Mapping[str, str], streams: Sequence[int]
) -> None:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [program.__module__, *arguments]
    sys.stdin = _open_stream(0, "r")
    sys.stdout = _open_stream(1, "w", line_buffering=os.isatty(1))
    sys.stderr = _open_stream(2, "w", errors="backslashreplace", line_buffering=True)
    sys.exit(program(arguments))


def _open_stream(stream: int, mode: str, **options: Any) -> io.TextIOWrapper:
    # Like an interpreter's streams, these stay open after collection.
    raw = open(stream, f"{mode}b", closefd=False)  # noqa: SIM115
    return io.TextIOWrapper(raw, encoding="utf-8", **options)


def run_in_process(work: Callable[..., T], *arguments: Any) -> T:
    """Call a function in a separate process, so that nothing stays in this process's memory."""
    with FORKS.Pool(1) as pool:
        return pool.apply(work, arguments)


class ForkedProcess:
    """Started process."""

    def __init__(self, process: ForkServerProcess) -> None:
        self._process = process
        if process.pid is None:
            raise RuntimeError("it was not started")
        self.pid: int = process.pid

    def poll(self) -> int | None:
        """Return the exit code, or the negative signal number that ended the process; None while it runs."""
        return self._process.exitcode

    def wait(self, seconds: float) -> int:
        """Wait until the process ends, and return its exit code.

        Raises:
            TimeoutExpired: The process still runs.
        """
        self._process.join(seconds)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(str(self._process), seconds)
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process, unless it has ended."""
        self._process.kill()


def start(
    program: Program,
    arguments: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    stdin: int | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
) -> ForkedProcess:
    """Run a program in a separate process.

    Args:
        program: The program.
        arguments: The words on its command line.
        cwd: Its working directory.
        env: Its environment; by default this process's.
        stdin: Its input; by default empty.
        stdout: Its output; by default this process's.
        stderr: Its error output; by default this process's.
    """
    with open(os.devnull, "rb") as nothing:
        given = [nothing.fileno() if stdin is None else stdin, 1 if stdout is None else stdout]
        streams = [_Descriptor(number) for number in (*given, 2 if stderr is None else stderr)]
        environment = dict(os.environ if env is None else env)
        process = FORKS.Process(
            target=_run, args=(program, list(arguments), str(cwd), environment, streams), daemon=True
        )
        process.start()
    return ForkedProcess(process)


def is_readable(descriptor: int, seconds: float) -> bool:
    """Wait until a descriptor is readable, or the time has passed. `select.select` accepts no number above 1,023."""
    return bool(wait([descriptor], max(0.0, seconds)))


_KILLED_SECONDS: Final = 20.0
"""The longest wait for a killed process."""


@dataclass(frozen=True, slots=True)
class PipedProcess:
    """Process with pipes to its streams."""

    process: ForkedProcess
    stdin: IO[str]
    stdout: IO[str]
    stderr: IO[str]


@contextmanager
def run_piped(program: Program, *arguments: str, cwd: Path) -> Generator[PipedProcess]:
    """Run a program with pipes to its streams, and kill it at the end of the `with` block."""
    (stdin, ours), (out, stdout), (told, stderr) = os.pipe(), os.pipe(), os.pipe()
    with (
        open(ours, "w", encoding="utf-8") as given,
        open(out, encoding="utf-8") as said,
        open(told, encoding="utf-8") as complained,
    ):
        try:
            process = start(program, arguments, cwd=cwd, stdin=stdin, stdout=stdout, stderr=stderr)
        finally:
            for number in (stdin, stdout, stderr):
                os.close(number)
        try:
            yield PipedProcess(process, given, said, complained)
        finally:
            process.kill()
            process.wait(_KILLED_SECONDS)


_RELAY: Final = """
import json, os, socket, sys
path, program, *arguments = sys.argv[1:]
request = json.dumps([program, arguments, os.getcwd(), dict(os.environ)]).encode()
with socket.socket(socket.AF_UNIX) as broker:
    broker.connect(path)
    socket.send_fds(broker, [len(request).to_bytes(4, "big")], [0, 1, 2])
    broker.sendall(request)
    for stream in (0, 1, 2):
        os.close(stream)
    code = broker.recv(1)
os._exit(code[0] if code else 1)
"""
"""A program that imports nothing heavy. It passes its streams to a forked process, and ends with its exit code."""


def command_of(program: Program, *arguments: str) -> list[str]:
    """Return a command line that runs a program in a forked process, on the command's streams.

    The forked process ends when the command is killed, and the command ends when the forked process does.
    """
    return _relay_command(_broker(), program, *arguments)


def _relay_command(path: str, program: Program, *arguments: str) -> list[str]:
    name = f"{program.__module__}:{program.__qualname__}"
    return [sys.executable, "-I", "-S", "-c", _RELAY, path, name, *arguments]


@functools.cache
def _broker() -> str:
    """Start the process that serves commands, and return its socket's path."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with _listening(f"{folder}/broker") as listening:
        FORKS.Process(target=_serve_until_parent_ends, args=(_Descriptor(listening.fileno()),), daemon=True).start()
    return f"{folder}/broker"


@contextmanager
def commands_with(env: Mapping[str, str], folder: Path) -> Generator[Callable[..., list[str]]]:
    """Yield a function like `command_of`, for processes that have imported everything in another environment.

    For example, that environment can hide modules.
    """
    program = (
        f"import sys, {', '.join(_COMMANDS)}; from tests.kit.forks import serve_commands; serve_commands(sys.argv[1])"
    )
    path = str(folder / "broker")
    with _listening(path) as listening:
        number = listening.fileno()
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(number)], env=env, stdin=subprocess.PIPE, pass_fds=[number]
        )
    with process:
        yield functools.partial(_relay_command, path)


@contextmanager
def _listening(path: str) -> Generator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listening:
        # Bind before a process serves the socket, so that no command comes too early.
        listening.bind(path)
        listening.listen(64)
        yield listening


def serve_commands(descriptor: str) -> None:
    """Serve the commands on a socket until standard input ends."""
    _serve_commands(int(descriptor), 0)


def _serve_until_parent_ends(descriptor: int) -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        _serve_commands(descriptor, parent.sentinel)


def _serve_commands(descriptor: int, sentinel: int) -> None:
    # The kernel reaps the forked processes.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(fileno=descriptor) as listening:
        while sentinel not in wait([listening, sentinel]):
            command, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _serve_command(command)
            command.close()


def _serve_command(command: socket.socket) -> None:
    size, streams, _, _ = socket.recv_fds(command, 4, 3)
    with command.makefile("rb") as given:
        name, arguments, folder, environment = json.loads(given.read(int.from_bytes(size, "big")))

    def die_with_the_command() -> None:
        command.recv(1)
        os._exit(1)

    threading.Thread(target=die_with_the_command, daemon=True).start()
    module, _, function = name.partition(":")
    os.environ.update(environment)
    try:
        _run(getattr(import_module(module), function), arguments, folder, environment, streams)
    except SystemExit as ended:
        sys.stdout.flush()
        command.sendall(bytes([ended.code if isinstance(ended.code, int) else ended.code is not None]))
        raise
