"""Read transcripts of real servers, and validate each line against the schema of the specification."""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from roundtrip.machine.table import CALL_MACHINE, State
from roundtrip.trace.reading.calls import TracedCall
from roundtrip.trace.reading.joining import join
from roundtrip.trace.reading.transcripts import files_of, read_files
from roundtrip.trace.writing.lines import Line
from roundtrip.trace.writing.unwritten import flush_all
from tests.kit.hosts import ROOT


@lru_cache(maxsize=1)
def _schemas() -> dict[str, Draft202012Validator]:
    """Return the schema of each event: to try those of all events takes four times as long."""
    schema = json.loads((ROOT / "specs" / "transcript.schema.json").read_text())
    places: dict[str, str] = schema["discriminator"]["mapping"]
    assert sorted(places.values()) == sorted(kind["$ref"] for kind in schema["oneOf"])
    return {event: Draft202012Validator({"$ref": at, "$defs": schema["$defs"]}) for event, at in places.items()}


def raw_lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file and of its rotated files, each validated against the schema."""
    flush_all()
    lines = [json.loads(line) for file in files_of([path]) for line in file.read_text("ascii").splitlines()]
    for line in lines:
        _schemas()[line["event"]].validate(line)  # pyright: ignore[reportUnknownMemberType]
    return lines


def lines_of(path: Path) -> list[Line]:
    raw_lines(path)
    reading = read_files(files_of([path]))
    assert (reading.unreadable, reading.newer) == (0, 0)
    return reading.lines


def calls_of(path: Path) -> list[TracedCall]:
    """Return the calls in the order in which they began."""
    return list(join(lines_of(path)).calls.values())


def assert_path_is_in_the_table(call: TracedCall) -> None:
    """Assert that every transition follows an arrow, and that each serving continues where the one before ended."""
    for serving in call.servings:
        state = State.RECEIVED if serving.leg == 1 else State.AWAITING_INPUT
        for line in serving.happened:
            for event, target, _ in line.moves:
                assert CALL_MACHINE.targets[state, event] == target
                state = target


def events(path: Path) -> list[str]:
    """Return what is in the file, without having recorders write."""
    return [json.loads(line)["event"] for line in path.read_text().splitlines()] if path.exists() else []
