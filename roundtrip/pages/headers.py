"""Question page headers: the headers of responses, and the checks of a submitted form's headers."""

import base64
import hashlib
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

FORM_TYPE: Final = "application/x-www-form-urlencoded"
_NO_ORIGIN: Final = "null"


def policy_for(style: str, image_source: str) -> str:
    """Return a page's content security policy. It allows one style sheet, the logo, and forms that are sent to the
    page's own site.
    """
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src {image_source}; form-action 'self'; "
        "frame-ancestors 'none'; base-uri 'none'"
    )


def page_headers(policy: str) -> dict[str, str]:
    """Return the headers that every page has."""
    return {
        "Content-Security-Policy": policy,
        # The page address is a secret.
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
        "X-Robots-Tag": "noindex, nofollow",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
    }


def origin_of(url: str) -> str:
    """Return a web address's origin in the form that browsers use.

    Raises:
        ValueError: The text is not a web address, or has a user, a query or a fragment.
    """
    parts = urlsplit(url)
    default_port = {"http": 80, "https": 443}.get(parts.scheme)
    extra = parts.username is not None or parts.query or parts.fragment or not url.isprintable() or " " in url
    if default_port is None or not parts.hostname or extra:
        raise ValueError(f"base_url must be a web address such as https://shop.example, got {url!r}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}" + (f":{parts.port}" if parts.port not in (None, default_port) else "")


def is_own_form(headers: Mapping[str, str], origin: str) -> bool:
    """Return False if the POST headers show that the form was sent from another site.

    A page without a referrer sends `Origin: null`, and browsers send `Sec-Fetch-Site` only over HTTPS or to the local
    machine. So a valid POST may lack both headers, and then only its token is checked.
    """
    site = headers.get("sec-fetch-site")
    sent = headers.get("origin", _NO_ORIGIN)
    return site in (None, "same-origin") and sent in (_NO_ORIGIN, origin)


def is_form(headers: Mapping[str, str]) -> bool:
    """Return True if the POST headers declare a form in UTF-8."""
    kind, _, rest = headers.get("content-type", "").partition(";")
    name, _, charset = rest.strip().partition("=")
    is_utf8 = not rest.strip() or (name.strip().lower(), charset.strip().strip('"').lower()) == ("charset", "utf-8")
    return kind.strip().lower() == FORM_TYPE and is_utf8 and "content-encoding" not in headers
