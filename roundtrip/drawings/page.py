"""A drawing as a page of its own: one file that loads nothing and runs nothing."""

import base64
import hashlib
from html import escape
from typing import Final

from roundtrip.drawings.svg import STYLE, clean

__all__ = ["page"]

_STYLE: Final = (
    STYLE
    + """\
:root { color-scheme: light dark; }
body { margin: 2rem; background: #ffffff; color: #1f2933; font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.3rem; font-weight: 600; }
main { overflow-x: auto; }
@media (prefers-color-scheme: dark) { body { background: #14181d; color: #e4e7eb; } }
"""
)


def page(title: str, svg: str) -> str:
    """A drawing, made without its styles, in an HTML page whose policy allows this one style sheet and nothing else."""
    sheet = f"\n{_STYLE}"
    allowed = base64.b64encode(hashlib.sha256(sheet.encode()).digest()).decode()
    shown = escape(clean(title))
    return f"""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'sha256-{allowed}'; \
base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{shown}</title>
<style>{sheet}</style>
</head>
<body>
<h1>{shown}</h1>
<main>
{svg}
</main>
</body>
</html>"""
