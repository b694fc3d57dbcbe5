"""Question page settings for `Server(pages=Pages(base_url=...))`, and checks that page colors are legible in light and
dark mode.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from roundtrip.resolvers.signatures import is_async
from roundtrip.revisions import CLIENTS_STOP_AFTER_ROUNDS

if TYPE_CHECKING:
    from mcp.server.auth.provider import AccessToken
    from starlette.requests import Request
    from starlette.responses import Response

DEFAULT_WAIT_SECONDS = 20.0
"""How many seconds a request waits for the answers to a stored call."""
_MAX_WAIT_SECONDS = 300.0
_LIGHT_PAPERS: Final = ("#ffffff", "#f5f6f8")
_DARK_PAPERS: Final = ("#1b2129", "#12161b")
"""The style sheet's background colors in dark mode: the card, and the page around it."""
_MIN_CONTRAST: Final = 4.5
"""The contrast that WCAG 2.2 level AA requires for text."""
_MIN_DARK_CONTRAST: Final = 6.0
"""The contrast in dark mode. It is higher, because colors look duller on a dark background."""
_COLOR_PATTERN: Final = re.compile(r"#[0-9a-fA-F]{6}", re.ASCII)
_LANGUAGE_PATTERN: Final = re.compile(r"[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*", re.ASCII)
_PATH_PATTERN: Final = re.compile(r"/(?![/\\])[!#-\[\]-~]*", re.ASCII)
"""A path on the page's own server. Such a path cannot name another server, and cannot end the HTML attribute."""
_DATA_PATTERN: Final = re.compile(r"data:image/(png|jpeg|gif|webp|svg\+xml);base64,[A-Za-z0-9+/]+={0,2}", re.ASCII)
_MIX_STEPS: Final = 50


@dataclass(frozen=True)
class PageLook:
    """Name, logo and color of a server's question pages.

    Args:
        name: The service name, shown at the top of each page.
        logo: A path on the same server, such as `/static/logo.svg`, or a `data:` address with an image.
        accent: The color of buttons and links, as `#rrggbb`. Dark mode uses a lighter tone.
        language: The questions' language tag, such as `en` or `pt-BR`.

    Raises:
        ValueError: The color is not legible on a white page, or another argument is invalid.
    """

    name: str
    logo: str | None = None
    accent: str = "#0b5cad"
    language: str = "en"

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise ValueError("name must not be empty")
        if self.logo is not None and not (_PATH_PATTERN.fullmatch(self.logo) or _DATA_PATTERN.fullmatch(self.logo)):
            raise ValueError(
                f"logo must be a path on the pages' server, such as /static/logo.svg, or a data: address with a "
                f"base64 image, got {self.logo[:80]!r}"
            )
        if _COLOR_PATTERN.fullmatch(self.accent) is None:
            raise ValueError(f"accent must be a color as #rrggbb, got {self.accent[:80]!r}")
        lowest = min(contrast_of(self.accent, paper) for paper in _LIGHT_PAPERS)
        if lowest < _MIN_CONTRAST:
            raise ValueError(
                f"accent must have a contrast of at least {_MIN_CONTRAST} with a white page, got {lowest:.1f} for "
                f"{self.accent}; choose a darker color"
            )
        if _LANGUAGE_PATTERN.fullmatch(self.language) is None:
            raise ValueError(f"language must be a tag such as 'en' or 'pt-BR', got {self.language[:80]!r}")

    @property
    def image_source(self) -> str:
        """Return the logo's source, in the form that a content security policy uses."""
        if self.logo is None:
            return "'none'"
        return "data:" if self.logo.startswith("data:") else "'self'"

    @cached_property
    def dark_accent(self) -> str:
        """Return the accent for dark mode, lightened just enough to be legible."""
        tones = (_mix(self.accent, "#ffffff", step / _MIX_STEPS) for step in range(_MIX_STEPS + 1))
        return next(
            tone for tone in tones if all(contrast_of(tone, paper) >= _MIN_DARK_CONTRAST for paper in _DARK_PAPERS)
        )


@dataclass(frozen=True, kw_only=True)
class Pages:
    """Settings for the pages on which users answer questions that their clients cannot show.

    Args:
        base_url: The address at which browsers reach the server, such as `https://shop.example`. Page addresses begin
            with it, whatever the request's `Host` header says. None for a server that is used only over stdio.
        local: True to open a page in the user's browser on this machine if a stdio client cannot ask. You can also pass
            a function that opens the address itself, and returns False if that failed. The environment variable
            ROUNDTRIP_LOCAL_PAGES overrides roundtrip's choice: 1 opens local pages even if roundtrip detects no
            browser, and 0 opens none.
        authenticate: Returns the browser's user: an access token, or the text that `Server(principal=...)` returns for
            that user. It can also return a login response, such as a redirect, or None, which becomes a 401. If it is
            set, only the user whose client made the call can open the call's page. If it is not set, anyone with the
            address can open a page, and roundtrip gives addresses only to clients that show links to their users.
        app: True to ask inside the conversation if the client shows MCP Apps, and no forms. "always" lists the app to
            every client, because the capabilities of clients on 2025-11-25 are unknown if the server keeps no
            sessions. "handle" also lets an app that got no ticket open its call with the handle, which the model knows.
            False turns apps off.
        from_round: The first round that uses a page if the client can show links. Clients stop a call after ten rounds.
        wait: How many seconds a request waits for the user before the server replies to it.
        message: The text that clients show with the link.
        name: The service name on the pages. The default is the server's name.
        logo: A path on the same server, such as `/static/logo.svg`, or a `data:` address with an image.
        accent: The color of buttons and links, as `#rrggbb`.
        language: The questions' language tag, such as `en` or `pt-BR`.
        templates: A folder with templates that replace the package templates.

    Raises:
        TypeError: `templates` is not a path, or `authenticate` is not asynchronous.
        ValueError: A value is out of range.
    """

    base_url: str | None = None
    local: bool | Callable[[str], object] = False
    authenticate: Callable[[Request], Awaitable[AccessToken | str | Response | None]] | None = None
    app: bool | Literal["always", "handle"] = True
    from_round: int = 6
    wait: float = DEFAULT_WAIT_SECONDS
    message: str = "Please answer on this page."
    name: str | None = None
    logo: str | None = None
    accent: str = "#0b5cad"
    language: str = "en"
    templates: Path | str | None = None

    def __post_init__(self) -> None:
        if self.templates is not None and not isinstance(self.templates, Path | str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"templates must be the path of a folder, got {type(self.templates).__name__}")
        if self.authenticate is not None and not is_async(self.authenticate):
            raise TypeError(
                f"authenticate must be an async function, got {self.authenticate!r}; define it with async def"
            )
        if self.base_url is None and not self.local:
            raise ValueError("Pages(...) must have base_url=, or local=True for a server that is used over stdio")
        if self.app not in (True, False, "always", "handle"):
            raise ValueError(f"app must be True, False, 'always' or 'handle', got {self.app!r}")
        if not 1 <= self.from_round < CLIENTS_STOP_AFTER_ROUNDS:
            raise ValueError(f"from_round must be between 1 and {CLIENTS_STOP_AFTER_ROUNDS - 1}, got {self.from_round}")
        if not 0 <= self.wait <= _MAX_WAIT_SECONDS:
            raise ValueError(f"wait must be between 0 and {_MAX_WAIT_SECONDS:g} seconds, got {self.wait!r}")

    @property
    def folder(self) -> Path | None:
        """Return the folder with the author's templates."""
        return None if self.templates is None else Path(self.templates)

    def look(self, server: str) -> PageLook:
        """Return the look for a server's pages."""
        return PageLook(self.name or server, logo=self.logo, accent=self.accent, language=self.language)


def contrast_of(one: str, other: str) -> float:
    """Return the WCAG contrast ratio between two `#rrggbb` colors."""
    lights = sorted((_luminance(one), _luminance(other)))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def _channels(color: str) -> list[int]:
    return [int(color[place : place + 2], 16) for place in (1, 3, 5)]


def _luminance(color: str) -> float:
    parts = [channel / 255 for channel in _channels(color)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _mix(color: str, other: str, share: float) -> str:
    mixed = [round(a + (b - a) * share) for a, b in zip(_channels(color), _channels(other), strict=True)]
    return "#" + "".join(f"{channel:02x}" for channel in mixed)
