"""`roundtrip calls`: list and show calls, and act on stored calls."""

from typing import Any, Final

from roundtrip.cli.command import Command
from roundtrip.cli.parsing import (
    OptionsAnywhere,
    add_actions,
    add_files,
    add_json,
    add_operator_log,
    add_server,
    whole_number,
)

_DESCRIPTION: Final = """\
Inspect recorded calls, and act on the calls that a server stores. The command loads the server for its ledger, keys
and on_pending, and does not serve requests. Each action is recorded in the operator log. If the log cannot be written,
the action is not performed."""

_EPILOG: Final = """\
exit codes:
  0  done
  1  some of the calls could not be found, changed or read
  2  not done, or nothing to show; standard error has the reason"""

_ACTIONS: Final = {
    "ls": "list recorded calls, like `roundtrip trace ls`",
    "stored": "list stored calls: tasks, and calls that wait for a page, a model or an approval",
    "show": "show one call, like `roundtrip trace show`, and what its server has stored",
    "cancel": "cancel calls, as their clients could",
    "retry": "let workers continue lost calls after their last stored steps",
    "expire": "expire calls now, including their pending approvals",
    "remind": "notify the groups of pending approvals again, by calling the server's on_pending in this process",
    "rekey": "encrypt all stored calls, and the results of intents, with the newest key",
    "answer": "answer a call's question on a development server, as a test user",
}
TEST_USER: Final = "--test-user"
STATES: Final = ("due", "running", "asking", "waiting", "completed", "failed", "lost", "cancelled")
"""The states of stored calls. This is a copy, because importing the original is slow. A test compares the copy with the
original.
"""
_LIMIT: Final = 50
_MAX_LISTED: Final = 1_000_000


def _configure(parser: OptionsAnywhere) -> None:
    for name, action in add_actions(parser, _ACTIONS):
        _configure_action(action, name)


def _configure_action(action: OptionsAnywhere, name: str) -> None:
    if name in ("ls", "show"):
        view(name).configure(action)
        if name == "show":
            add_server(action, "also show what this server stores; ", required=False)
            action.add_switch("--reveal", "also print arguments, questions, answers, messages and results")
        return
    add_server(action)
    if name == "stored":
        action.add_option("--state", "STATE", ", ".join(STATES), repeats=True, choices=STATES)
        help = "list at most this many calls, most recently changed first; default: %(default)s"
        action.add_option("--limit", "N", help, type=whole_number(1, _MAX_LISTED), default=_LIMIT)
        add_json(action)
    if name in ("stored", "rekey"):
        return
    call: dict[str, Any] = {"metavar": "ID", "help": "the id of a call or its task, a prefix of it, or `last`"}
    if name == "answer":
        action.add_argument("call", **call)
        action.add_argument("name", metavar="NAME", help="the name of the question")
        help = "the value of its only field, all fields as JSON, `:decline` or `:cancel`"
        action.add_argument("value", metavar="VALUE", help=help)
        add_files(action)
        action.add_switch(TEST_USER, "required: confirm that this server has only test users")
    else:
        action.add_argument("calls", nargs="+", metavar="ID", help=f"{call['help']}; then transcript files, if any")
    if name == "retry":
        action.add_switch("--even-once", "also retry tasks whose body must not start twice (exactly_once=True)")
    add_operator_log(action)


def view(name: str) -> Command:
    """Return the `roundtrip trace` view with this name."""
    # Imported on use, because only some actions need these modules.
    from roundtrip.cli.trace import listing, showing

    return {**listing.COMMANDS, **showing.COMMANDS}[name]


COMMAND = Command(_DESCRIPTION, _configure, _EPILOG)
