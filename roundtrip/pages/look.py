"""Look of question pages: a name, a logo and a color, which must be legible in light and in dark."""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final

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
