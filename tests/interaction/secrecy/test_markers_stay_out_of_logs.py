"""Values of clients, and what servers keep from them, are found in no log, span, transcript or warning."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, cast

import pytest

from roundtrip import Recorder
from roundtrip.testing import Era
from roundtrip.trace.writing.redaction import REVEALABLE
from tests.interaction.secrecy.markers import Markers, Spans, everything_logged, text_of_files
from tests.interaction.secrecy.vault import (
    CALLS,
    Playing,
    answers_do_not_fit,
    everything_is_answered,
    make_vault,
    tools_fail,
)

pytestmark = pytest.mark.anyio


def playing(over: str, plant: Markers, era: Era, **options: Any) -> Playing:
    return Playing(make_vault(plant, **options), plant, era, over=over)


@pytest.mark.parametrize(
    ("over", "options"),
    [
        pytest.param("http", {}, id="http"),
        pytest.param("memory", {"mask_error_details": True, "strict_input_validation": True}, id="strict"),
    ],
)
async def test_planted_values_are_never_logged_or_reported(
    over: str, options: dict[str, Any], era: Era, capfd: pytest.CaptureFixture[str]
) -> None:
    leaks = {play.__name__: await _leaks(play, over, options, era, capfd) for play in CALLS}
    assert leaks == {play.__name__: [] for play in CALLS}


async def _leaks(
    play: Callable[[Playing], Awaitable[None]],
    over: str,
    options: dict[str, Any],
    era: Era,
    capfd: pytest.CaptureFixture[str],
) -> list[str]:
    """Return the lines that show a planted value, after calls to a vault of their own."""
    plant, spans = Markers(), Spans()
    with everything_logged() as lines:
        client = playing(over, plant, era, trace=spans.telemetry, **options)
        await play(client)
    printed = capfd.readouterr()
    kept = frozenset({"argument", "answer", "sample"})
    return [
        *plant.lines_with("\n".join([*lines, printed.out, printed.err])),
        *plant.lines_with(spans.text()),
        *plant.lines_with("\n".join(client.told), but=kept),
    ]


REVEALED: Final[dict[str, frozenset[str]]] = {
    "arguments": frozenset({"argument"}),
    "answers": frozenset({"answer", "sample"}),
    "questions": frozenset({"argument", "question", "answer"}),
    "results": frozenset({"argument", "step", "answer"}),
    "steps": frozenset({"step", "once", "done"}),
    "errors": frozenset({"argument", "answer"}),
}
"""Which values a transcript may hold by what it reveals; questions, results and errors quote others."""


@pytest.mark.parametrize(
    "play", [everything_is_answered, answers_do_not_fit, tools_fail], ids=lambda play: play.__name__
)
async def test_a_transcript_holds_only_the_values_it_reveals(
    play: Callable[[Playing], Awaitable[None]], era: Era, tmp_path: Path
) -> None:
    everything = frozenset({kind for kinds in REVEALED.values() for kind in kinds})
    kept = {"none": frozenset[str](), "all": everything} | {
        name: REVEALED.get(name, frozenset()) for name in REVEALABLE
    }
    recorders = [
        Recorder(tmp_path / name / "calls.jsonl", reveal=cast("Any", () if name == "none" else name)) for name in kept
    ]
    plant = Markers()
    await play(playing("memory", plant, era, trace=recorders))
    shown = {name: plant.lines_with(text_of_files(tmp_path / name), but=kinds) for name, kinds in kept.items()}
    assert shown == {name: [] for name in kept}
    if play is everything_is_answered:
        assert "https://vault.example/?t=<ticket>" in text_of_files(tmp_path / "all")
