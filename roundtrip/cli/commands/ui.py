"""`roundtrip ui`: pages on which operators see the calls of a fleet, and act on them."""

from pathlib import Path
from typing import Final

from roundtrip.cli.command import Command
from roundtrip.cli.parsing import PORT, TARGET, TARGET_HELP, OptionsAnywhere, add_files, add_operator_log

_LOOPBACK: Final = "127.0.0.1"

_DESCRIPTION: Final = """\
Show the calls of a fleet on pages, while they happen: what waits, what failed and why, rejected tokens, and figures.
With --server also the tasks and approvals that its ledger has stored; you can cancel, retry and expire them, send
reminders, and let a recorded call go another way."""

_EPILOG: Final = """\
access:
  By default the pages are for this machine and your user only, and the address that this command prints is a secret.
  For other machines give --host, --base-url and --users: browsers reach --base-url through a proxy that ends TLS, and
  each user of the file has a name and a token. `roundtrip ui --users FILE --add-user NAME` adds a user, and prints the
  token.

actions:
  Each action is written to the operator log, with its outcome and the user. Without a log there are no actions.

index:
  The pages use the index of `roundtrip trace index`, make it if needed, and keep it up to date."""


def _configure(parser: OptionsAnywhere) -> None:
    parser.add_option("--server", TARGET, f"{TARGET_HELP}; for stored calls, and for forks")
    parser.add_option("--port", "N", "the port of the pages; default: a free one", type=PORT, default=0)
    parser.add_option("--host", "ADDRESS", "default: this machine alone", default=_LOOPBACK)
    parser.add_option("--base-url", "URL", "the address of the pages in browsers: https://calls.example")
    parser.add_option("--users", "FILE", "users who may open the pages", type=Path)
    parser.add_option("--add-user", "NAME", "add a user to --users, or give one a new token, and end")
    add_operator_log(parser)
    parser.add_switch("--test-user", "answer questions as a test user: for development servers only")
    add_files(parser)


COMMAND = Command(_DESCRIPTION, _configure, _EPILOG)
