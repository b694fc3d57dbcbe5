"""`roundtrip dev`: a playground in the browser for a server under development."""

from typing import Final

from roundtrip.cli.command import Command
from roundtrip.cli.parsing import PORT, OptionsAnywhere, add_header

_DESCRIPTION: Final = """\
Open a playground for a server: a browser page on which you call its tools and answer its questions, as a client's user
would. The page also shows the call's states, its token, the messages on the wire and the trace."""

_EPILOG: Final = """\
SERVER is a roundtrip, SDK or FastMCP server, as a file with one server (cinema.py) or as MODULE:SERVER; an http(s)
address; or a command that serves stdio, in quotes: "python server.py". The page shows states and a trace only for
roundtrip servers that this command starts.

while you edit:
  If a Python file changes in this folder or in the server file's folder, the command replaces the server process. Open
  calls on 2026-07-28 continue with the same token. If the new code fails, the old code keeps serving.

secrets:
  The page shows everything that the server records about its calls. Only your user on this machine can open it, and
  the printed address is a secret. The trace is in a temporary folder, which is removed at the end."""


def _configure(parser: OptionsAnywhere) -> None:
    parser.add_argument(
        "server", metavar="SERVER", help="MODULE:SERVER or a file, an http(s) address, or a command that serves stdio"
    )
    parser.add_option("--port", "N", "the page's port; default: a free port", type=PORT, default=0)
    parser.add_option(
        "--server-port", "N", "the server's port, for Pages(base_url=...); default: a free port", type=PORT
    )
    parser.add_switch("--open", "open the page in the browser")
    add_header(parser)
    parser.add_option(
        "--approver",
        "'NAME: VALUE'",
        "decide approvals on the page as a different user than the caller, authenticated by this HTTP header",
        repeats=True,
    )


COMMAND = Command(_DESCRIPTION, _configure, _EPILOG)
