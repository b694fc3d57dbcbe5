"""`roundtrip trace export ID --otlp`: one recorded call as spans, for a collector."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from roundtrip import Recorder
from roundtrip.cli import main
from roundtrip.testing import LegByLeg
from tests.kit.bookshop import bookshop


@pytest.fixture
def transcript(tmp_path: Path) -> Path:
    """Write one call that waits, with everything revealed."""
    path = tmp_path / "calls.jsonl"
    hopper = LegByLeg([bookshop(trace=Recorder(path, reveal="all"))])
    anyio.run(hopper.leg, "order", {"title": "Neuromancer"})
    return path


def call_of(transcript: Path) -> str:
    return json.loads(transcript.read_text().splitlines()[0])["call"]


def names_of(document: dict[str, Any]) -> list[str]:
    return [
        span["name"]
        for resource in document["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


def test_a_call_is_printed_as_spans_without_what_was_said(transcript: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "export", call_of(transcript), "--otlp", str(transcript)]) == 0
    printed = capsys.readouterr().out
    assert names_of(json.loads(printed)) == ["roundtrip.leg order"]
    assert "Neuromancer" not in printed
    assert "Neuromancer" in transcript.read_text()


def test_terminal_controls_are_escaped(transcript: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b]0;evil\x07\x7f\x9b31m"
    lines = [json.loads(line) for line in transcript.read_text().splitlines()]
    lines[0]["tool"] = evil
    transcript.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["trace", "export", call_of(transcript), "--otlp", str(transcript)]) == 0
    printed = capsys.readouterr().out
    assert names_of(json.loads(printed)) == [f"roundtrip.leg {evil}"]
    assert all(character == "\n" or character.isprintable() for character in printed)
