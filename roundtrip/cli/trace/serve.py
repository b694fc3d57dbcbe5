"""`roundtrip trace serve`: calls as pages in a browser, while they happen."""

import signal
from argparse import ArgumentParser, Namespace

from roundtrip.cli.command import Command, CommandFailed
from roundtrip.cli.parsing import add_files
from roundtrip.cli.trace.sources import named_files
from roundtrip.trace.reading.transcripts import NoTranscript

__all__ = ["COMMAND"]

_LARGEST_PORT = 65535


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument("--port", type=int, default=0, help="by default one that is free")
    add_files(parser)


def _run(arguments: Namespace) -> int:
    # The other commands do without a server.
    from roundtrip.trace.page.serving import HOST, TraceServer

    port: int = arguments.port
    if not 0 <= port <= _LARGEST_PORT:
        raise CommandFailed(f"--port {port}: there are ports from 1 to {_LARGEST_PORT}, and 0 for one that is free")
    try:
        server = TraceServer(named_files(arguments), port=port)
    except NoTranscript as error:
        raise CommandFailed(str(error)) from error
    except OSError as error:
        raise CommandFailed(f"cannot serve on {HOST}:{port}: {error.strerror}; try another --port") from error
    # A shell that starts it in the background has it ignored; whoever sends it means this server.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with server:
        print(f"{server.url}\n(the calls are shown there until Ctrl-C; the address is a secret)", flush=True)
        server.serve_forever()
    return 0


COMMAND = Command(
    description=(
        "Serve the list of calls, and a page for each, on this machine only, until Ctrl-C (exit code 130). Files and "
        "directories are read on as they are written. The address that is printed holds a secret, as everybody on "
        "this machine could open it otherwise."
    ),
    configure=_configure,
    run=_run,
)
