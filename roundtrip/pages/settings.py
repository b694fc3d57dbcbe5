"""Provide `Pages`, the settings of question pages: `Server(pages=Pages(base_url="https://shop.example"))`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from roundtrip.pages.look import PageLook
from roundtrip.revisions import CLIENTS_STOP_AFTER_ROUNDS

if TYPE_CHECKING:
    from mcp.server.auth.provider import AccessToken
    from starlette.requests import Request
    from starlette.responses import Response

DEFAULT_WAIT_SECONDS = 20.0
"""Seconds for which a request waits for the answers of a stored call."""
_MAX_WAIT_SECONDS = 300.0


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
