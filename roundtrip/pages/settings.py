"""Settings of question pages, `Server(pages=Pages(base_url=...))`, and their look, legible in light and in dark."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from roundtrip.revisions import CLIENTS_STOP_AFTER_ROUNDS

if TYPE_CHECKING:
    from mcp.server.auth.provider import AccessToken
    from starlette.requests import Request
    from starlette.responses import Response

DEFAULT_WAIT_SECONDS = 20.0
"""Seconds for which a request waits for the answers of a stored call."""
_MAX_WAIT_SECONDS = 300.0
_LIGHT_PAPERS: Final = ("#ffffff", "#f5f6f8")
_DARK_PAPERS: Final = ("#1b2129", "#12161b")
"""Backgrounds of the style sheet: the card, and the page around it."""
_MIN_CONTRAST: Final = 4.5
"""Level AA of WCAG 2.2 for text."""
_MIN_DARK_CONTRAST: Final = 6.0
"""Colors look duller on dark paper."""
_COLOR_PATTERN: Final = re.compile(r"#[0-9a-fA-F]{6}", re.ASCII)
_LANGUAGE_PATTERN: Final = re.compile(r"[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*", re.ASCII)
_PATH_PATTERN: Final = re.compile(r"/(?![/\\])[!#-\[\]-~]*", re.ASCII)
"""A path on the server of the page: it neither names another server nor ends its attribute."""
_DATA_PATTERN: Final = re.compile(r"data:image/(png|jpeg|gif|webp|svg\+xml);base64,[A-Za-z0-9+/]+={0,2}", re.ASCII)
_MIX_STEPS: Final = 50


@dataclass(frozen=True)
class PageLook:
    """Name, logo and color of a server's question pages.

    Args:
        name: The name of the service, shown on top of each page.
        logo: A path on the same server, such as `/static/logo.svg`, or a `data:` address of an image.
        accent: The color of buttons and links, as `#rrggbb`. In dark mode a lighter tone of it is used.
        language: The language of the questions, as a tag such as `en` or `pt-BR`.

    Raises:
        ValueError: The color is not legible on a white page, or another part is not of its form.
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
                f"logo must be a path on the server of the pages, such as /static/logo.svg, or a data: address of an "
                f"image in base64, got {self.logo[:80]!r}"
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
        """Return the source of the logo for a content security policy."""
        if self.logo is None:
            return "'none'"
        return "data:" if self.logo.startswith("data:") else "'self'"

    @cached_property
    def dark_accent(self) -> str:
        """Return the accent for dark mode: with as little white as makes it legible there."""
        tones = (_mix(self.accent, "#ffffff", step / _MIX_STEPS) for step in range(_MIX_STEPS + 1))
        return next(
            tone for tone in tones if all(contrast_of(tone, paper) >= _MIN_DARK_CONTRAST for paper in _DARK_PAPERS)
        )


@dataclass(frozen=True, kw_only=True)
class Pages:
    """Settings of the pages on which users answer questions that their clients cannot show.

    Args:
        base_url: The address at which browsers reach the server, such as `https://shop.example`. Addresses of pages
            begin with it, whatever the `Host` of a request says. None for a server that is used over stdio alone.
        local: True to ask the user of a client on stdio on a page of this machine, which opens in their browser, if
            the client cannot ask. Pass a function to open the address yourself: it returns False if that failed. The
            environment variable ROUNDTRIP_LOCAL_PAGES wins: 1 if a browser opens where none is expected, 0 for no
            pages of this machine.
        authenticate: Returns the user of a browser: their access token, or the text that `Server(principal=...)`
            returns for them; or the response of a login, such as a redirect; or None, which becomes a 401. Only the
            user whose client made the call can open its page then. Without it, the address alone opens a page, and
            addresses are given only to clients that show links to their users.
        from_round: The round from which on a client that can show links is asked on a page, since clients stop a call
            after ten rounds.
        wait: Seconds for which a request waits for the user, before it is answered.
        message: The text with which clients show the link.
        name: The name of the service on the pages; by default the server's.
        logo: A path on the same server, such as `/static/logo.svg`, or a `data:` address of an image.
        accent: The color of buttons and links, as `#rrggbb`.
        language: The language of the questions, as a tag such as `en` or `pt-BR`.
        templates: The path of a folder with templates that replace those of the package.

    Raises:
        TypeError: The folder is not a path.
        ValueError: A value is out of its range.
    """

    base_url: str | None = None
    local: bool | Callable[[str], object] = False
    authenticate: Callable[[Request], Awaitable[AccessToken | str | Response | None]] | None = None
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
        if self.base_url is None and not self.local:
            raise ValueError("Pages(...) must have base_url=, or local=True for a server that is used over stdio")
        if not 1 <= self.from_round < CLIENTS_STOP_AFTER_ROUNDS:
            raise ValueError(f"from_round must be between 1 and {CLIENTS_STOP_AFTER_ROUNDS - 1}, got {self.from_round}")
        if not 0 <= self.wait <= _MAX_WAIT_SECONDS:
            raise ValueError(f"wait must be between 0 and {_MAX_WAIT_SECONDS:g} seconds, got {self.wait!r}")

    @property
    def folder(self) -> Path | None:
        """Return the folder with the author's templates."""
        return None if self.templates is None else Path(self.templates)

    def look(self, server: str) -> PageLook:
        """Return the look of the pages of a server."""
        return PageLook(self.name or server, logo=self.logo, accent=self.accent, language=self.language)


def contrast_of(one: str, other: str) -> float:
    """Return the contrast of two colors, each as `#rrggbb`, by the rule of WCAG."""
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
