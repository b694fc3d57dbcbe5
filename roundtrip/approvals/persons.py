"""Person comparison: it matches callers, page readers and approvers by their principals.

An access token's principal consists of the OAuth client, the issuer and the subject. A web login and the program that
makes the calls are different OAuth clients, so the comparison ignores the client.
"""

import json
import unicodedata
from typing import Any, Final, NamedTuple

from roundtrip.limited_logs import LOG
from roundtrip.text import without_invisible

_TWO_FORMS: Final = (
    "the principals of its reader and its caller have different forms. Pages(authenticate=...) must return what "
    "Server(principal=...) returns for the same person, or an AccessToken if there is no principal=. A stored call "
    "keeps the principal that it began with"
)


class _OAuthPerson(NamedTuple):
    issuer: str | None
    subject: str


def name_of(principal: str, *, by_token: bool) -> str:
    """Return a person's display name. If the author's code returned the principal, the principal itself is the name."""
    person = _person_of(principal) if by_token else principal
    return person.subject if isinstance(person, _OAuthPerson) else person


def is_same(reader: str, caller: str, *, by_token: bool) -> bool:
    """Return True if a reader is certainly the caller.

    Args:
        reader: The reader's principal.
        caller: The caller's principal.
        by_token: True if principals come from access tokens, False if the author's code returns them.
    """
    if reader == caller:
        return True
    one, other = _person_of(reader), _person_of(caller)
    if type(one) is not type(other):
        LOG.warning(f"a page was not shown: {_TWO_FORMS}")
    # Without an issuer, two OAuth clients may use the same subject for different users.
    return by_token and isinstance(one, _OAuthPerson) and one.issuer is not None and one == other


def is_another(reader: str, caller: str | None) -> bool:
    """Return True if a reader is certainly not the caller."""
    if caller is None:
        return False
    one, other = _person_of(reader), _person_of(caller)
    if isinstance(one, _OAuthPerson) and isinstance(other, _OAuthPerson):
        if _normalize(one.subject) != _normalize(other.subject):
            return True
        if one.issuer is None or other.issuer is None:
            return False
        return _normalize(one.issuer.rstrip("/")) != _normalize(other.issuer.rstrip("/"))
    if isinstance(one, str) and isinstance(other, str):
        return _normalize(one) != _normalize(other)
    LOG.warning(f"an approval cannot be decided: {_TWO_FORMS}")
    return False


def _person_of(principal: str) -> _OAuthPerson | str:
    try:
        parts: Any = json.loads(principal) if principal.startswith("[") else None
    except (ValueError, RecursionError):
        return principal
    match parts:
        case [str() | None, (str() | None) as issuer, str(subject)]:
            return _OAuthPerson(issuer, subject)
        case _:
            return principal


def _normalize(name: str) -> str:
    """Return a normalized name. It ignores case, compatibility forms, extra spaces and invisible characters."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return " ".join(unicodedata.normalize("NFKC", without_invisible(folded)).split())
