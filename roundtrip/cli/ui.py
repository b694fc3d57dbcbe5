"""`roundtrip ui`: pages on which operators see the calls of a fleet, and act on them."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Final

from roundtrip.cli.command import Command
from roundtrip.cli.parsing import PORT, TARGET, TARGET_HELP, add_audit, add_files

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
  Each action is written to the audit log, with its outcome and the user. Without a place for it there are no actions.

index:
  The pages use the index of `roundtrip trace index`, make it if needed, and keep it up to date."""


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument("--server", metavar=TARGET, help=f"{TARGET_HELP}; for stored calls, and for forks")
    parser.add_argument("--port", type=PORT, default=0, metavar="N", help="the port of the pages; default: a free one")
    parser.add_argument("--host", default=_LOOPBACK, metavar="ADDRESS", help="default: this machine alone")
    parser.add_argument("--base-url", metavar="URL", help="the address of the pages in browsers: https://calls.example")
    parser.add_argument("--users", type=Path, metavar="FILE", help="users who may open the pages")
    parser.add_argument("--add-user", metavar="NAME", help="add a user to --users, or give one a new token, and end")
    add_audit(parser)
    parser.add_argument(
        "--test-user", action="store_true", help="answer questions as a test user: for development servers only"
    )
    add_files(parser)


COMMAND = Command(_DESCRIPTION, _configure, _EPILOG)
