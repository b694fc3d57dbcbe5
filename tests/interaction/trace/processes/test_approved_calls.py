"""Tests that are made of calls with approvals."""

import re
from typing import Any

from roundtrip.testing import Era
from tests.interaction.trace.deploys import Recording
from tests.interaction.trace.desks import DESK, record
from tests.interaction.trace.projects import Project


def filled_in(generated: str) -> str:
    """Fill in the logins of a generated test, by its comments."""
    for name in ("fay", "sam"):
        generated = re.sub(
            rf'(# Fill in the login of "{name}" .*\n\w+: .*= ){{}}',
            lambda found, name=name: f'{found[1]}{{"authorization": "Bearer {name}"}}',
            generated,
        )
    return generated.replace('CALLER = "caller"', 'CALLER = "ada"')


def test_generated_tests_pass_with_the_logins_filled_in(recording: Recording, project: Project) -> None:
    project.serve(DESK, "desk")
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
    ended, out = project.run()
    assert ended == {name: {"passed"} for name in decisions}, out
    # Each has this approval. Now the person who decides reads other words.
    project.serve(DESK.replace("Refund {amount} for", "Give {amount} away for"), "desk")
    ended, out = project.run()
    assert ended == {name: {"failed"} for name in decisions}, out
    assert "away for" in out


def test_generated_test_without_logins_says_so(recording: Recording, project: Project) -> None:
    project.serve(DESK, "desk")
    record(recording)
    project.generate(recording, name="call", server="desk")
    ended, out = project.run()
    assert ended == {"call": {"failed"}}
    assert "give Approver headers=" in out
