"""`roundtrip inbox`: list, show, approve and reject approvals, by the API of a server's inbox."""

from typing import Final

from roundtrip.cli.command import Command
from roundtrip.cli.parsing import OptionsAnywhere, add_actions, add_json

TOKEN_VARIABLE: Final = "ROUNDTRIP_INBOX_TOKEN"  # noqa: S105 - its name

_DESCRIPTION: Final = f"""\
Decide what waits for your approval on a server. SERVER is the address of its pages, such as https://shop.example.
The server gets a token as `Authorization: Bearer`, from ${TOKEN_VARIABLE} or --token."""

_EPILOG: Final = """\
exit codes:
  0  done
  1  unknown, decided, or not yours to decide
  2  not done; standard error has the reason"""

_ACTIONS: Final = {
    "list": "list what waits for you, the oldest first",
    "show": "show one approval",
    "approve": "approve",
    "reject": "reject, with a reason",
}


def _configure(parser: OptionsAnywhere) -> None:
    for name, action in add_actions(parser, _ACTIONS):
        action.add_argument("server", metavar="SERVER", help="the address of the server's pages")
        if name != "list":
            action.add_argument(
                "approval", metavar="ID", help="the id of an approval, as `list` shows it, or its start"
            )
        if name in ("approve", "reject"):
            what = (
                "the reason, which is kept with the call, and shown to the person who asked if they have a page of it"
            )
            what += "" if name == "reject" else "; may be left out"
            action.add_option("--reason", "TEXT", what, required=name == "reject", default="")
        token = f"your token; other users of this machine may see it, so prefer ${TOKEN_VARIABLE}"
        action.add_option("--token", "TOKEN", token)
        add_json(action)


COMMAND = Command(_DESCRIPTION, _configure, _EPILOG)
