"""`roundtrip check` replays the decisions about approvals, and generated tests have an approver."""

from typing import Any

import anyio
import pytest

from roundtrip.cli import main
from roundtrip.testing import DECLINE, Era, User
from tests.interaction.trace.deploys import Change, Recording, check, checked
from tests.interaction.trace.desks import ADA, ANSWERS, DESK, cut_at_the_approval, record


@pytest.mark.parametrize(
    ("tool", "era", "decision"),
    [
        ("refund", Era.RETRY, "approve"),
        ("refund", Era.LIVE, "approve"),
        ("refund", Era.RETRY, ("reject", "no receipt")),
        ("ship", Era.RETRY, "approve"),
        ("deliver", Era.RETRY, "approve"),
        ("close", Era.TASK, "approve"),
    ],
)
def test_unchanged_code_with_approvals_is_compatible_and_its_calls_untouched(
    recording: Recording, capsys: pytest.CaptureFixture[str], tool: str, era: Era, decision: Any
) -> None:
    record(recording, tool, era=era, decision=decision)
    assert '"approvals":[{' in recording.file.read_text()
    stored = (recording.folder / "desk.db").read_bytes()
    assert f"{tool}: compatible" in checked(recording, capsys, source=DESK)
    assert (recording.folder / "desk.db").read_bytes() == stored


def test_changed_approval_is_decided_again_or_diverges(
    recording: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    reworded, gone = ("Refund {amount} for", "Pay {amount} for"), ("amount > 100", "amount > 1000")

    def check(change: Change, *parts: str) -> None:
        report = checked(recording, capsys, change, source=DESK)
        assert [part for part in parts if part not in report] == []

    record(recording)
    check(reworded, "refund: asks 1 again", "'large': reworded", "now:      'Pay 500 for A1? (decided by 'finance')'")
    check(('for {order}?", by="finance"', 'for {order}?", by="safety"'), "'large': reworded", "(decided by 'safety')'")
    check(gone, "now:      runs the body")
    cut_at_the_approval(recording)
    assert "refund: compatible" in checked(recording, capsys, source=DESK)
    check(reworded, "'large': reworded")
    check(gone, "recorded: waits for the approval 'large'\n    now:      runs the body")
    recording.file.unlink()
    server = recording.load(DESK)
    anyio.run(lambda: User(server, {"why": {"kind": "late"}}).call("refund", order="A1", amount=5))
    check(("amount > 100", "amount > 1"), "recorded: runs the body\n    now:      waits for the approval 'large'")


def test_approval_recorded_without_its_person_is_not_replayed(
    recording: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    record(recording, reveal="arguments,questions")
    code, out = check(capsys, f"{recording.folder / 'recorded.py'}:server", str(recording.file))
    assert code == 2
    assert "refund: not checked: its values are not revealed" in out


def test_no_test_is_written_without_a_repeatable_decision(
    recording: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    for tool, reason in {
        "deliver": "a page asked a question after an approval",
        "refund": "it waits for an approval",
    }.items():
        recording.file.unlink(missing_ok=True)
        record(recording, tool)
        if tool == "refund":
            cut_at_the_approval(recording)
        assert main(["trace", "to-test", "last", "--server", "desk:server", str(recording.file)]) == 2
        assert reason in capsys.readouterr().err


def test_call_whose_link_was_declined_waits_for_no_approval(
    recording: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    server = recording.load(DESK, reveal="all")
    answers = {**ANSWERS, "page": DECLINE}
    user = User(server, answers, era=Era.RETRY, principal="ada", page_headers=ADA, allow_unused=True, allow_error=True)
    anyio.run(lambda: user.call("refund", order="A1", amount=500))
    assert main(["trace", "show", "last", str(recording.file)]) == 0
    shown = capsys.readouterr().out
    assert "waited for the approval 'large' by 'finance', but the call ended first\n" in shown
    assert "the call was cancelled" in shown
    assert main(["trace", "to-test", "last", "--server", "desk:server", str(recording.file)]) == 2
    assert "it ended before its approval was decided" in capsys.readouterr().err
