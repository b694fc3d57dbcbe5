"""`roundtrip inbox`: list, show, approve and reject approvals, through a server's inbox API."""

from typing import Final

from roundtrip.cli.command import Command
from roundtrip.cli.parsing import OptionsAnywhere, add_actions, add_json

TOKEN_VARIABLE: Final = "ROUNDTRIP_INBOX_TOKEN"  # noqa: S105 - its name

_DESCRIPTION: Final = f"""\
Decide the approvals that wait for you on a server. SERVER is the address of its pages, such as https://shop.example.
Your token comes from ${TOKEN_VARIABLE} or --token, and is sent as `Authorization: Bearer`."""

_EPILOG: Final = """\
exit codes:
  0  done
  1  the approval is unknown, already decided, or not yours to decide
  2  not done; standard error has the reason"""

_ACTIONS: Final = {
    "list": "list the approvals that wait for you, oldest first",
    "ls": "the same as `list`",
    "show": "show one approval",
    "approve": "approve, with an optional reason",
    "reject": "reject, with a reason",
}


def _configure(parser: OptionsAnywhere) -> None:
    for name, action in add_actions(parser, _ACTIONS):
        action.add_argument("server", metavar="SERVER", help="the address of the server's pages")
        if name not in ("list", "ls"):
            action.add_argument(
                "approval", metavar="ID", help="an approval's id, as `list` shows it, or a prefix of it"
            )
        if name in ("approve", "reject"):
            reason_help = "the reason, which is stored with the call, and shown to the caller if the call has a page"
            reason_help += "" if name == "reject" else "; optional"
            action.add_option("--reason", "TEXT", reason_help, required=name == "reject", default="")
        token_help = f"your token; other users of this machine may see it, so prefer ${TOKEN_VARIABLE}"
        action.add_option("--token", "TOKEN", token_help)
        add_json(action)


COMMAND = Command(_DESCRIPTION, _configure, _EPILOG)
