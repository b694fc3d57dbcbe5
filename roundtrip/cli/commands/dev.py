"""`roundtrip dev`: a playground in the browser, for a server that is being written."""

from typing import Final

from roundtrip.cli.command import Command
from roundtrip.cli.parsing import PORT, OptionsAnywhere, add_header

_DESCRIPTION: Final = """\
Open a playground for a server: a page in the browser on which you call its tools, and answer its questions as a user
of a client would. Beside it the page shows the call's states, its token, the messages on the wire and the trace."""

_EPILOG: Final = """\
SERVER is a file with one server (cinema.py) or MODULE:SERVER, of roundtrip, of the SDK or of FastMCP; an http(s)
address; or a command that serves stdio, in quotes: "python server.py". Only servers with roundtrip that this
command starts show states and a trace.

while you edit:
  A change of a Python file in this folder, or in the folder of the server's file, replaces the process of the server.
  An open call of 2026-07-28 goes on, with the same token. If the changed code fails, the code before it serves on.

secrets:
  The page shows everything that the server records of its calls. It is served to this machine and your user only, and
  the address that this command prints is a secret. The trace is in a temporary folder, which is removed at the end."""


def _configure(parser: OptionsAnywhere) -> None:
    parser.add_argument(
        "server", metavar="SERVER", help="MODULE:SERVER or a file, an http(s) address, or a command that serves stdio"
    )
    parser.add_option("--port", "N", "the port of the page; default: a free one", type=PORT, default=0)
    parser.add_option(
        "--server-port", "N", "the port of the server itself, for Pages(base_url=...); default: a free one", type=PORT
    )
    parser.add_switch("--open", "open the page in the browser")
    add_header(parser)
    parser.add_option(
        "--approver",
        "'NAME: VALUE'",
        "decide approvals on the page as another person than the caller, who logs in by this HTTP header",
        repeats=True,
    )


COMMAND = Command(_DESCRIPTION, _configure, _EPILOG)
