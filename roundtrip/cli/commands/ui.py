"""`roundtrip ui`: pages on which operators watch and manage the calls of all instances."""

from pathlib import Path
from typing import Final

from roundtrip.cli.command import Command
from roundtrip.cli.parsing import PORT, TARGET, TARGET_HELP, OptionsAnywhere, add_files, add_operator_log

_LOOPBACK: Final = "127.0.0.1"

_DESCRIPTION: Final = """\
Show a fleet's calls on live pages: what waits, what failed and why, rejected tokens, and statistics. With --server, the
pages also show the tasks and approvals in the server's ledger. There you can cancel, retry and expire calls, send
reminders, and replay a recorded call with other answers."""

_EPILOG: Final = """\
access:
  By default, only your user on this machine can open the pages, and the printed address is a secret. For access from
  other machines, give --host, --base-url and --users. Browsers reach --base-url through a proxy that terminates TLS.
  Each user in the file has a name and a token. `roundtrip ui --users FILE --add-user NAME` adds a user and prints the
  token.

actions:
  Each action is written to the operator log, with its outcome and the user. Without a log, actions are disabled.

index:
  The pages use the index of `roundtrip trace index`, create it if needed, and keep it up to date."""


def _configure(parser: OptionsAnywhere) -> None:
    parser.add_option("--server", TARGET, f"the server for stored calls and forks: {TARGET_HELP}")
    parser.add_option("--port", "N", "the port of the pages; default: a free port", type=PORT, default=0)
    parser.add_option("--host", "ADDRESS", "the address to listen on; default: %(default)s", default=_LOOPBACK)
    parser.add_option("--base-url", "URL", "the address at which browsers reach the pages: https://calls.example")
    parser.add_option("--users", "FILE", "a file with the users who may open the pages", type=Path)
    parser.add_option("--add-user", "NAME", "add a user to the --users file, or renew the user's token, and exit")
    add_operator_log(parser)
    parser.add_switch("--test-user", "answer questions as a test user; only for development servers")
    add_files(parser)


COMMAND = Command(_DESCRIPTION, _configure, _EPILOG)
