"""A drawing as a page: one file whose policy allows its own styles only."""

import base64
import hashlib
import re

from roundtrip.trace.drawings.machine import Format, draw_machine
from roundtrip.trace.drawings.page import page


def test_policy_allows_one_style_sheet_and_nothing_else() -> None:
    html = draw_machine(Format.HTML)
    (sheet,) = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    hashed = base64.b64encode(hashlib.sha256(sheet.encode()).digest()).decode()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    assert policy.split("; ") == [
        "default-src 'none'",
        f"style-src 'sha256-{hashed}'",
        "base-uri 'none'",
        "form-action 'none'",
    ]


def test_page_loads_and_runs_nothing() -> None:
    html = draw_machine(Format.HTML)
    assert not re.search(r"<script|<link|<img|<iframe|\ssrc=|href=|@import|url\(|\sstyle=|\son\w+=", html)
    assert "color-scheme: light dark" in html
    assert html.count("prefers-color-scheme: dark") == 2


def test_the_title_of_a_page_is_text() -> None:
    html = page("</title><script>\x1b", "<svg/>")
    assert html.count("&lt;/title&gt;&lt;script&gt;�") == 2
    assert "<script" not in html
