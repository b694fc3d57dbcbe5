"""`roundtrip tasks`: list, show, cancel and retry stored tasks, and renew their keys."""

from argparse import ArgumentParser
from typing import Any, Final

from roundtrip.cli.command import Command
from roundtrip.cli.parsing import (
    STORED_EXIT_CODES,
    TARGET,
    TARGET_HELP,
    OptionsAnywhere,
    add_audit,
    add_even_once,
    add_json,
    add_reveal,
)

__all__ = ["COMMAND"]

_DESCRIPTION: Final = """\
Look at the tasks that are stored in a server's ledger, and change them. The server is loaded for its ledger and its
keys, and runs nothing."""

_ACTIONS: Final = {
    "ls": "list tasks, and calls that wait for a page, a model or an approval, the last changed first",
    "show": "show one task",
    "cancel": "cancel tasks, as their clients could",
    "retry": "let workers continue lost tasks behind their stored steps",
    "rekey": "encrypt all tasks with the newest key",
}
_LIMIT: Final = 50
STATES: Final = ("due", "running", "asking", "waiting", "completed", "failed", "lost", "cancelled")
"""The states of tasks, so that the parser need not import their machine; a test compares them."""


def _configure(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(
        title="actions", metavar="ACTION", dest="action", required=True, parser_class=OptionsAnywhere
    )
    for name, summary in _ACTIONS.items():
        action = actions.add_parser(name, help=summary)
        action.description = f"{summary[0].upper()}{summary[1:]}."
        action.add_argument("target", metavar=TARGET, help=TARGET_HELP)
        _configure_action(action, name)


def _configure_action(action: ArgumentParser, name: str) -> None:
    call: dict[str, Any] = {"metavar": "CALL", "help": "the id of a call or its task, the start of one, or `last`"}
    if name == "ls":
        listed = ", ".join(STATES)
        action.add_argument("--state", action="append", choices=STATES, metavar="STATE", help=listed)
        action.add_argument(
            "--limit", type=int, default=_LIMIT, metavar="N", help="the most tasks; default: %(default)s"
        )
    elif name == "show":
        action.add_argument("call", **call)
        add_reveal(action)
    elif name in ("cancel", "retry"):
        action.add_argument("calls", nargs="+", **call)
        add_audit(action)
    if name == "retry":
        add_even_once(action)
    if name in ("ls", "show"):
        add_json(action)


COMMAND = Command(_DESCRIPTION, _configure, STORED_EXIT_CODES)
