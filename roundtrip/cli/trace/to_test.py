"""`roundtrip trace to-test`: a recorded call as a test for pytest."""

from argparse import ArgumentParser, Namespace

from roundtrip.checking.playable import Era, ServerName, write_test
from roundtrip.checking.recorded import NotReplayable, recorded_call
from roundtrip.cli.command import Command, CommandFailed
from roundtrip.cli.parsing import add_call, add_files, add_output
from roundtrip.cli.trace.sources import find_call, load, write_out
from roundtrip.safe_text import printable

__all__ = ["COMMAND"]


def _configure(parser: ArgumentParser) -> None:
    add_call(parser)
    parser.add_argument(
        "--server",
        metavar="MODULE:SERVER",
        required=True,
        help="where the test imports the server from, by import path: shop.app:server",
    )
    parser.add_argument("--both", action="store_true", help="make it in both eras, not only in the recorded one")
    parser.add_argument(
        "--no-result",
        action="store_true",
        help="do not expect the recorded result, which may hold what differs from run to run, such as ids and times",
    )
    add_output(parser)
    add_files(parser)


def _run(arguments: Namespace) -> int:
    try:
        server = ServerName(arguments.server)
    except ValueError as error:
        raise CommandFailed(f"--server {error}") from error
    traced = load(arguments)
    found = find_call(traced, arguments.call)
    within = [call for call in traced.calls.values() if call.began is not None and call.began.within == found.id]
    try:
        call = recorded_call(found, whole=True)
        eras: tuple[Era, ...] = ("retry", "live") if arguments.both else (call.era,)
        if "live" in eras and any(call.rounds for call in within):
            raise NotReplayable("a function that it called asked over the open connection, too, and none plays that")
        source = write_test(call, server, eras=eras, with_result=not arguments.no_result)
    except NotReplayable as error:
        raise CommandFailed(f"no test can be made of the call {printable(found.id)}: {error}") from error
    write_out(arguments, source.removesuffix("\n"))
    return 0


COMMAND = Command(
    description=(
        "Write a test for pytest in which a scripted user makes a recorded call again, and expects the recorded "
        "questions and result. It needs no more than roundtrip, pytest and the server's module. The call has to be "
        "recorded with reveal: Server(trace=Recorder(path, reveal='all')), or ROUNDTRIP_TRACE_REVEAL=all. The test "
        "holds what was said in the call. Bodies do run in it."
    ),
    configure=_configure,
    run=_run,
)
