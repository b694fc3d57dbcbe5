"""The drawings of the machine say what its table says, in each language, and its page allows its own style only."""

import base64
import hashlib
import re

from roundtrip.machine.table import CALL_MACHINE, State
from roundtrip.trace.drawings.machine import Format, draw_machine
from roundtrip.trace.drawings.page import page
from tests.kit.tables import check_each

Arrows = set[tuple[str, str, str]]

TABLE: Arrows = {(arrow.source.value, arrow.event.value, arrow.target.value) for arrow in CALL_MACHINE.arrows}


def in_mermaid(drawing: str) -> Arrows:
    found = re.findall(r"^  (\w+) --> (\w+): ([\w |]+)$", drawing, re.MULTILINE)
    return {(source, event, target) for source, target, events in found for event in events.split(" | ")}


def in_dot(drawing: str) -> Arrows:
    found = re.findall(r'^    (\w+) -> (\w+) \[label="(\w+)"\];$', drawing, re.MULTILINE)
    return {(source, event, target) for source, target, event in found}


def in_text(drawing: str) -> Arrows:
    arrows: Arrows = set()
    source = ""
    for line in drawing.splitlines():
        row = re.fullmatch(r"(\w*) +(?:(\w+) +-> (\w+)|\(final\))", line)
        assert row is not None, line
        state, event, target = row.groups()
        source = state or source
        if event:
            arrows.add((source, event, target))
    return arrows


def in_svg(drawing: str) -> Arrows:
    found = re.findall(r'data-source="(\w+)" data-event="(\w+)" data-target="(\w+)"', drawing)
    return set(found)


READERS = {
    Format.MERMAID: in_mermaid,
    Format.DOT: in_dot,
    Format.TEXT: in_text,
    Format.SVG: in_svg,
    Format.HTML: in_svg,
}


def test_every_arrow_of_the_table_is_drawn_and_no_other() -> None:
    def check(format: Format) -> None:
        assert READERS[format](draw_machine(format)) == TABLE

    check_each(Format, check)


def test_drawings_say_where_calls_start_and_end() -> None:
    drawing = draw_machine(Format.MERMAID).splitlines()
    assert drawing[0] == "stateDiagram-v2"
    assert [line for line in drawing if "[*] -->" in line] == [f"  [*] --> {State.RECEIVED}"]
    assert {line.split()[0] for line in drawing if line.endswith("--> [*]")} == {*CALL_MACHINE.final}
    text = draw_machine(Format.TEXT)
    assert {*re.findall(r"^(\w+) +\(final\)", text, re.MULTILINE)} == {*CALL_MACHINE.final}


def test_page_allows_one_style_sheet_and_loads_nothing() -> None:
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
    assert not re.search(r"<script|<link|<img|<iframe|\ssrc=|href=|@import|url\(|\sstyle=|\son\w+=", html)
    assert html.count("prefers-color-scheme: dark") == 2
    hostile = page("</title><script>\x1b", "<svg/>")
    assert hostile.count("&lt;/title&gt;&lt;script&gt;�") == 2
    assert "<script" not in hostile
