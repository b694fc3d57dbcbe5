"""The drawings of the machine say what its table says, in each language."""

import re

from roundtrip.machine.table import CALL_MACHINE, State
from roundtrip.trace.drawings.machine import Format, draw_machine
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


READERS = {
    Format.MERMAID: in_mermaid,
    Format.DOT: in_dot,
    Format.TEXT: in_text,
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
