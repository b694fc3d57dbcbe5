"""Tests that are made of recorded calls pass, whatever features, approvals or repeated requests a call has."""

import re
from pathlib import Path
from typing import Any

import anyio
import pytest

from roundtrip.checking.playable import ServerName, write_test
from roundtrip.checking.recorded import NotReplayable, recorded_call
from roundtrip.client.legs import ERAS
from roundtrip.testing import Era
from roundtrip.trace.reading.calls import TracedCall
from tests.interaction.trace import features
from tests.interaction.trace.deploys import Recording
from tests.interaction.trace.desks import DESK_IN_MEMORY, record
from tests.interaction.trace.features import FEATURES
from tests.interaction.trace.projects import Project
from tests.interaction.trace.sites import Site
from tests.interaction.trace.stories import STORIES, recorded
from tests.interaction.trace.transcribed import calls_of


def to_test(call: TracedCall, era: Era, module: str) -> str:
    spoken = "retry" if era is Era.RETRY else "live"
    return write_test(recorded_call(call, whole=True), ServerName(f"{module}:server"), eras=(spoken,), with_result=True)


SHOP = """\
from features import Effect, serve
from roundtrip.ledger import MemoryLedger

server = serve(MemoryLedger(), Effect(), principal=lambda ctx: "ada")
"""


def test_a_test_of_each_feature_and_repeated_request_passes(tmp_path: Path) -> None:
    project = Project(tmp_path / "project")
    project.serve(Path(features.__file__).read_text(encoding="utf-8"), "features")
    expected: dict[str, set[str]] = {}
    for era in ERAS:
        short = era.name.lower()
        (folder := tmp_path / short).mkdir()
        site = Site(folder)
        anyio.run(site.record, era)
        for (name, feature), call in zip(FEATURES.items(), calls_of(site.calls), strict=True):
            module = f"{name if name.startswith('once') else 'shop'}_{short}"
            if feature.replayable is not None:
                with pytest.raises(NotReplayable, match=feature.replayable):
                    to_test(call, era, module)
                continue
            project.serve(SHOP, module)
            source = to_test(call, era, module)
            assert ("pass visits= to User" in source) is name.startswith("page")
            (project.folder / f"test_{name}_{short}.py").write_text(source, encoding="utf-8")
            expected[f"{name}_{short}"] = {"passed"}
    for name, story in STORIES.items():
        call = anyio.run(recorded, story, tmp_path / f"{name}.jsonl")
        (project.folder / f"test_{name}.py").write_text(to_test(call, Era.RETRY, "shop_retry"), encoding="utf-8")
        expected[name] = {"passed"}
    ended, out = project.run()
    assert ended == expected, out


def filled_in(generated: str) -> str:
    """Fill in the logins of a generated test, by its comments."""
    for name in ("fay", "sam"):
        generated = re.sub(
            rf'(# Fill in the login of "{name}" .*\n\w+: .*= ){{}}',
            lambda found, name=name: f'{found[1]}{{"authorization": "Bearer {name}"}}',
            generated,
        )
    return generated.replace('CALLER = "caller"', 'CALLER = "ada"')


def test_generated_tests_pass_once_the_logins_are_filled_in(recording: Recording, project: Project) -> None:
    project.serve(DESK_IN_MEMORY, "desk")
    decisions: dict[str, tuple[str, Era, Any]] = {
        "approved": ("refund", Era.RETRY, "approve"),
        "live": ("refund", Era.LIVE, "approve"),
        "reason": ("refund", Era.RETRY, ("approve", 'fine "by" me\n')),
        "rejected": ("refund", Era.RETRY, ("reject", "no receipt")),
        "two": ("ship", Era.RETRY, "approve"),
        "task": ("close", Era.TASK, "approve"),
    }
    for name, (tool, era, decision) in decisions.items():
        recording.file.unlink(missing_ok=True)
        record(recording, tool, era=era, decision=decision)
        generated = project.generate(recording, name=name, server="desk")
        assert "    {},\n" not in generated
        assert "principal=CALLER" in generated
        (project.folder / f"test_{name}.py").write_text(filled_in(generated))
    record(recording)
    project.generate(recording, name="without", server="desk")
    ended, out = project.run()
    assert ended == {**{name: {"passed"} for name in decisions}, "without": {"failed"}}, out
    assert "pass Approver the headers=" in out
    # Each has this approval. Now the person who decides reads other words.
    project.serve(DESK_IN_MEMORY.replace("Refund {amount} for", "Give {amount} away for"), "desk")
    ended, out = project.run()
    assert ended == {name: {"failed"} for name in [*decisions, "without"]}, out
    assert "away for" in out
