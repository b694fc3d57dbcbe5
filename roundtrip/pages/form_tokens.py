"""Sign the form of a page, so that only the page that was shown for a round can answer it.

The token of a form ties the address of the page, its reader, the round and the wording of its questions. Another site
cannot make one, one reader's form is worth nothing to another, and the form in an old tab no longer fits.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Sequence
from typing import Final

from roundtrip.pages.forms import OpenQuestions

_MIN_KEY_BYTES: Final = 16
_PURPOSE: Final = "roundtrip/page-form/1"


class FormTokens:
    """Issues the tokens of forms and verifies them.

    Args:
        keys: Secrets; the first one signs, and all of them verify, so that keys can be rotated.

    Raises:
        ValueError: There is no key, or one is too short.
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys or any(len(key) < _MIN_KEY_BYTES for key in keys):
            raise ValueError(f"keys must have at least one key, and each at least {_MIN_KEY_BYTES} bytes")
        self._keys = tuple(keys)

    def issue(self, ticket: str, subject: str | None, round_id: str, questions: OpenQuestions) -> str:
        """Return the token of the form for a round."""
        return _sign(self._keys[0], _claims(ticket, subject, round_id, questions))

    def is_valid(self, token: str, ticket: str, subject: str | None, round_id: str, questions: OpenQuestions) -> bool:
        """Return True if a token was issued for this page, reader, round and wording."""
        claims = _claims(ticket, subject, round_id, questions)
        signatures = [_sign(key, claims) for key in self._keys]
        given = token.encode("utf-8", "replace")
        return any(hmac.compare_digest(given, signature.encode()) for signature in signatures)


def _claims(ticket: str, subject: str | None, round_id: str, questions: OpenQuestions) -> bytes:
    # As a list: the page shows the questions in their order.
    wording = [[key, questions[key]] for key in questions]
    return json.dumps([_PURPOSE, ticket, subject, round_id, wording], sort_keys=True, separators=(",", ":")).encode()


def _sign(key: bytes, claims: bytes) -> str:
    return base64.urlsafe_b64encode(hmac.digest(key, claims, hashlib.sha256)).rstrip(b"=").decode()
