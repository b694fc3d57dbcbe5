"""Tokens, also hostile ones, to show."""

from roundtrip.machine.journal import Action, Entry, Journal
from tests.kit.secrets import BORN, codec, journal, payload, pin_of

SECRET = "the quoted price is 9.50"


TOKEN = codec().seal(payload(journal(computed=SECRET), audience="shop"))


HOSTILE = "\x1b[31m\x07\u202e"


def hostile_token() -> str:
    entries = {HOSTILE: Entry(Action.ACCEPT, pin_of("m"), {HOSTILE: HOSTILE})}
    return codec().seal(
        payload(Journal(HOSTILE, BORN, BORN, BORN, 1, 1, build=HOSTILE, entries=entries), deflate=False)
    )
