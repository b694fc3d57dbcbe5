"""`roundtrip trace export` and `to-test`: write calls as files and tests.

To add a format, write a function that turns a `TracedCall` into text, and list it in `_FORMATS`.
"""

from argparse import Namespace
from collections.abc import Callable
from typing import Final

from roundtrip.cli.command import report_errors
from roundtrip.cli.parsing import OptionsAnywhere
from roundtrip.cli.trace.calls import LoadedCalls, find_call, select_call
from roundtrip.cli.trace.sources import load, view, write_out
from roundtrip.text import printable
from roundtrip.trace.explaining.sequence import mermaid
from roundtrip.trace.page.document import html
from roundtrip.trace.reading.calls import TracedCall

_FORMATS: Final[dict[str, tuple[Callable[[TracedCall], str], str]]] = {
    "--html": (html, "a self-contained HTML page for stepping through the rounds"),
    "--mermaid": (mermaid, "a Mermaid sequence diagram"),
}
"""Each option, mapped to a render function and a help text. The function renders a call as text without a trailing
newline.
"""


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
        "the server that the test imports, by import path: shop.app:server",
        required=True,
    )
    parser.add_switch("--both", "run the test in both eras, not only in the recorded one")
    parser.add_switch(
        "--no-result",
        "do not expect the recorded result; for results that differ between runs, such as ids and times",
    )


def _to_test(arguments: Namespace) -> int:
    from roundtrip.checking.playable import ServerName, write_test_of
    from roundtrip.checking.recorded import NotReplayable

    with report_errors(ValueError, about="--server "):
        server = ServerName(arguments.server)
    traced = load(arguments)
    call = select_call(LoadedCalls(traced), arguments.call)
    with report_errors(NotReplayable, about=f"cannot make a test from call {printable(call.id)}: "):
        calls = traced.calls.values()
        source = write_test_of(call, calls, server, both=arguments.both, with_result=not arguments.no_result)
    write_out(arguments, source.removesuffix("\n"))
    return 0


COMMANDS: Final = {
    "export": view(
        "Write one call to standard output or to the --output file. The file contains what the transcript contains: "
        "answers and texts only if the server recorded them with reveal=.",
        _export,
        call=True,
        options=_export_options,
        output=True,
    ),
    "to-test": view(
        "Write a pytest test that repeats a recorded call with a scripted user, and expects the recorded questions and "
        "result. The test needs only roundtrip, pytest and the server's module. The call must be recorded with reveal: "
        "Server(trace=Recorder(path, reveal='all')), or ROUNDTRIP_TRACE_REVEAL=all. The test contains the call's "
        "values. Running the test executes tool bodies.",
        _to_test,
        call=True,
        options=_test_options,
        output=True,
    ),
}
