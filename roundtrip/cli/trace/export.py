"""Provide `roundtrip trace export` and `to-test`: write calls as files and tests.

To add a format, write a module with a function from a `TracedCall` to a text, and list it in `_FORMATS`.
"""

from argparse import Namespace
from collections.abc import Callable
from typing import Final

from roundtrip.cli.command import reported
from roundtrip.cli.parsing import OptionsAnywhere
from roundtrip.cli.trace.calls import ReadCalls, call_named, find_call
from roundtrip.cli.trace.sources import load, view, write_out
from roundtrip.text import printable
from roundtrip.trace.explaining.sequence import mermaid
from roundtrip.trace.page.document import html
from roundtrip.trace.reading.calls import TracedCall

_FORMATS: Final[dict[str, tuple[Callable[[TracedCall], str], str]]] = {
    "--html": (html, "a page: one file that loads nothing, to step through the rounds"),
    "--mermaid": (mermaid, "a Mermaid sequence diagram"),
}
"""The functions that write a call as text, without a newline at its end."""


def _export_options(parser: OptionsAnywhere) -> None:
    formats = parser.add_mutually_exclusive_group(required=True)
    for option, (write, help) in _FORMATS.items():
        formats.add_argument(option, dest="write", action="store_const", const=write, help=help)


def _export(arguments: Namespace) -> int:
    write_out(arguments, arguments.write(find_call(arguments)))
    return 0


def _test_options(parser: OptionsAnywhere) -> None:
    parser.add_option(
        "--server",
        "MODULE:SERVER",
        "where the test imports the server from, by import path: shop.app:server",
        required=True,
    )
    parser.add_switch("--both", "make it in both eras, not only in the recorded one")
    parser.add_switch(
        "--no-result",
        "do not expect the recorded result, for results that differ from run to run, such as ids and times",
    )


def _to_test(arguments: Namespace) -> int:
    from roundtrip.checking.playable import ServerName, write_test_of
    from roundtrip.checking.recorded import NotReplayable

    with reported(ValueError, about="--server "):
        server = ServerName(arguments.server)
    traced = load(arguments)
    found = call_named(ReadCalls(traced), arguments.call)
    with reported(NotReplayable, about=f"cannot make a test of the call {printable(found.id)}: "):
        calls = traced.calls.values()
        source = write_test_of(found, calls, server, both=arguments.both, with_result=not arguments.no_result)
    write_out(arguments, source.removesuffix("\n"))
    return 0


COMMANDS: Final = {
    "export": view(
        "Write one call to standard output, or to the file that --output names. It has what the transcript has: "
        "answers and texts only if they were recorded with reveal=.",
        _export,
        call=True,
        options=_export_options,
        output=True,
    ),
    "to-test": view(
        "Write a test for pytest in which a scripted user makes a recorded call again, and expects the recorded "
        "questions and result. It needs no more than roundtrip, pytest and the server's module. The call must be "
        "recorded with reveal: Server(trace=Recorder(path, reveal='all')), or ROUNDTRIP_TRACE_REVEAL=all. The test "
        "contains the values of the call. It does run bodies.",
        _to_test,
        call=True,
        options=_test_options,
        output=True,
    ),
}
