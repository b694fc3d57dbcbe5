"""Request states as page data: a roundtrip token's journal, or the kind of another library's state."""

from collections.abc import Sequence
from typing import Any, Final

from roundtrip.errors import TokenRejected
from roundtrip.machine.journal import OUTCOMES, Journal
from roundtrip.text import build_text
from roundtrip.trace.explaining.wording import INTENT_TEXTS, clock_text, size_text
from roundtrip.trace.page.data import Data
from roundtrip.trace.page.forms import json_text
from roundtrip.trace.reading.tokens import Sealed, SignatureCheck, TokenView, foreign_kind, view_token

_SEALED: Final = {
    Sealed.NONE: "nothing",
    Sealed.CLOSED: "a part that only the server's keys open",
    Sealed.OPENED: "a part that the keys opened",
    Sealed.BROKEN: "a part that the keys do not open",
}


def token_page_data(token: str, keys: Sequence[bytes]) -> Data:
    """Return the parts of a request state that can be read.

    Args:
        token: The request state.
        keys: The server's known keys.
    """
    view = _view(token, keys)
    shown: Data = {"text": token, "answers": [], "asked": [], "computed": []}
    if view is None:
        kind = foreign_kind(token) or "a request state from another library"
        return {**shown, "facts": [["Kind", kind], ["Size", size_text(len(token))]]}
    is_valid = view.signature is SignatureCheck.VALID
    signature = "valid" if is_valid else "not checked, because the server uses other keys"
    facts = [["Size", size_text(view.size)], ["Signature", signature], ["Sealed", _SEALED[view.sealed]]]
    if view.reason is not None:
        facts.append(["Rejected", view.reason.value])
    if view.journal is not None:
        facts += _journal_facts(view.journal)
        shown |= _journal_lists(view.journal, view.sealed)
    return {**shown, "facts": facts}


def call_id_in_token(token: str) -> str | None:
    """Return the call id in a roundtrip token; None for any other text."""
    view = _view(token, ())
    return None if view is None or view.journal is None else view.journal.call_id


def _view(token: str, keys: Sequence[bytes]) -> TokenView | None:
    try:
        view = view_token(token, keys)
        # If a server has `keys=`, this process does not know its keys. So a token may be valid even if this check
        # fails.
        return view_token(token) if keys and view.signature is SignatureCheck.INVALID else view
    except TokenRejected:
        return None


def _journal_facts(journal: Journal) -> list[list[str]]:
    return [
        ["Call", journal.call_id],
        ["Leg", f"{journal.leg}, round {journal.round}"],
        ["Began", clock_text(journal.born)],
        ["Expires", clock_text(journal.deadline)],
        ["Build", build_text(journal.build)],
        ["Plan", journal.fingerprint or "none"],
        *([["Chain", INTENT_TEXTS[journal.chain]]] if journal.chain else []),
    ]


def _journal_lists(journal: Journal, sealed: Sealed) -> dict[str, Any]:
    shown = sealed in (Sealed.OPENED, Sealed.NONE)
    return {
        "answers": [
            [key, OUTCOMES[entry.action.word], "" if entry.data is None else json_text(entry.data)]
            for key, entry in journal.entries.items()
        ],
        "asked": [
            [key, f"invalid answers: {asked.attempts}" if asked.attempts else ""]
            for key, asked in journal.asked.items()
        ],
        "computed": [[key, json_text(kept.value)] for key, kept in journal.computed.items()] if shown else [],
    }
