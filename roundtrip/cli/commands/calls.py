"""`roundtrip calls`: list and show calls, act on those that are stored, and renew their keys."""

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
Look at the calls of transcripts, and act on those that a server stores. The server is loaded for its ledger, its keys
and its on_pending, and serves no requests. Each action on a call is a line of the operator log, and one that cannot be
logged is not done."""

_EPILOG: Final = """\
exit codes:
  0  done
  1  some of the calls could not be found, changed or read
  2  not done, or nothing to show; standard error has the reason"""

_ACTIONS: Final = {
    "ls": "list the calls of transcripts, as `roundtrip trace ls` does",
    "stored": "list what a server stores: tasks, and calls that wait for a page, a model or an approval",
    "show": "show one call, as `roundtrip trace show` does, and what its server stores of it",
    "cancel": "cancel calls, as their clients could",
    "retry": "let workers continue lost calls behind their stored steps",
    "expire": "end the life of calls now, with their pending approvals",
    "remind": "notify the groups of pending approvals again, by the server's on_pending, in this process",
    "rekey": "encrypt all stored calls with the newest key",
    "answer": "answer a question of a call on a development server, as a test user",
}
TEST_USER: Final = "--test-user"
STATES: Final = ("due", "running", "asking", "waiting", "completed", "failed", "lost", "cancelled")
"""The states of stored calls, so that the parser need not import their machine; a test compares them."""
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
        help = "the most calls, the last changed first; default: %(default)s"
        action.add_option("--limit", "N", help, type=whole_number(1, _MAX_LISTED), default=_LIMIT)
        add_json(action)
    if name in ("stored", "rekey"):
        return
    call: dict[str, Any] = {"metavar": "ID", "help": "the id of a call or its task, the start of one, or `last`"}
    if name == "answer":
        action.add_argument("call", **call)
        action.add_argument("name", metavar="NAME", help="the name of the question")
        help = "the value of its only field, or JSON of all fields; `:decline` or `:cancel`"
        action.add_argument("value", metavar="VALUE", help=help)
        add_files(action)
        action.add_switch(TEST_USER, "required: the server has test users only, for whom you may answer")
    else:
        action.add_argument("calls", nargs="+", metavar="ID", help=f"{call['help']}; then transcripts, as FILE")
    if name == "retry":
        action.add_switch("--even-once", "also tasks whose body must not begin twice (exactly_once=True)")
    add_operator_log(action)


def view(name: str) -> Command:
    """Return the view of transcripts that has the name of an action."""
    # Imported here, as actions draw no views.
    from roundtrip.cli.trace import listing, showing

    return {**listing.COMMANDS, **showing.COMMANDS}[name]


COMMAND = Command(_DESCRIPTION, _configure, _EPILOG)
