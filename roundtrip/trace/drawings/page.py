"""Write a drawing as an HTML page: one file that loads nothing and runs no script."""

import base64
import hashlib
import re
from html import escape
from typing import Final

from roundtrip.trace.drawings.svg import STYLE, clean

__all__ = ["page", "source_hash"]

_STYLE: Final = (
    STYLE
    + """\
:root { color-scheme: light dark; }
body { margin: 2rem; background: #ffffff; color: #1f2933; font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.3rem; font-weight: 600; }
main { width: fit-content; max-width: 100%; }
main svg { display: block; width: 100%; height: auto; }
.wider { display: none; position: sticky; left: 2rem; width: fit-content; }
@media print { body { margin: 0; } }
@media (prefers-color-scheme: dark) { body { background: #14181d; color: #e4e7eb; } }
"""
)

_WIDTH: Final = re.compile(r'<svg [^>]*\bwidth="([0-9.]+)"')
_MARGINS: Final = 64
_LEGIBLE: Final = 0.7
"""The smallest scale at which the text of a drawing is legible."""


def source_hash(text: str) -> str:
    """Return the source of a content security policy that allows one script or style sheet."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def page(title: str, svg: str) -> str:
    """Return an HTML page of a drawing that was made without styles. Its policy allows its own style sheet alone."""
    # The drawing shrinks with the window while it is legible; below that, the window scrolls, and a notice says so.
    width = _WIDTH.search(svg)
    least = float(width[1]) * _LEGIBLE if width is not None else 0.0
    too_wide = f"@media screen and (max-width: {least + _MARGINS:g}px) {{ .wider {{ display: block; }} }}\n"
    sheet = f"\n{_STYLE}main {{ min-width: {least:g}px; }}\n@media print {{ main {{ min-width: 0; }} }}\n{too_wide}"
    shown = escape(clean(title))
    return f"""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src {source_hash(sheet)}; \
base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{shown}</title>
<style>{sheet}</style>
</head>
<body>
<h1>{shown}</h1>
<p class="wider">The drawing is wider than this window: scroll sideways to see all of it.</p>
<main>
{svg}
</main>
</body>
</html>"""
