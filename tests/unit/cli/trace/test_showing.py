"""`roundtrip trace show`: everything recorded of one call, round by round."""

import json
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from roundtrip.cli import main
from roundtrip.machine.facts import Reason
from tests.kit.transcripts import AT, answer, asked, began, ended, question, show_call, stopped, write
from tests.unit.cli.trace.shelf import RETRY, live_call, pending_call, retry_call, shelf


def test_a_call_over_three_instances(snapshot: SnapshotAssertion) -> None:
    assert show_call(*retry_call()) == snapshot


def test_a_live_call_that_fails_and_reveals_nothing(snapshot: SnapshotAssertion) -> None:
    assert show_call(*live_call()) == snapshot


def test_a_call_that_waits(snapshot: SnapshotAssertion) -> None:
    assert show_call(*pending_call()) == snapshot


def test_a_call_that_waited_too_long_says_since_when() -> None:
    text = show_call(*pending_call(), now=AT + 1000)
    assert "waiting for 'pay', 11 min 39 s so far; the deadline was 2026-11-18 11:21:41, 1 min 39 s ago" in text


def test_each_question_is_marked_by_a_symbol_and_in_words() -> None:
    first = [began(), asked(1, question("size"), question("gift"))]
    second = [
        began(10, leg=2, round=1),
        asked(11, question("gift", Reason.MISSING), leg=2, round=2, reused=["size"], answers=[answer("size")]),
    ]
    text = show_call(*first, *second)
    assert "● size  asked\n" in text
    assert "○ gift  pending, asked again: missing\n" in text
    assert "✓ size  reused\n" in text
    third = [began(20, leg=3, round=2), ended(21, leg=3, round=2)]
    assert "↻ gift  asked again: missing\n" in show_call(*first, *second, *third)


APPROVAL = {"key": "confirm:order", "by": "finance", "message": {"value": "Order?"}}


@pytest.mark.parametrize("end", [{"approvals": [APPROVAL]}, {"rung": "link"}])
def test_live_call_whose_request_ended_has_not_run_its_body(end: dict[str, Any]) -> None:
    out = asked(1, question(), **end, token={"bytes": 0})
    text = show_call(began(era="live"), out.model_copy(update={"questions": ()}) if "approvals" in end else out)
    assert "the body has not run" in text
    assert "no end of the body is recorded" in show_call(began(era="live"), asked(1))


def test_approval_of_a_cancelled_call_does_not_wait() -> None:
    waits = asked(1, approvals=[APPROVAL]).model_copy(update={"questions": ()})
    assert "'finance', and is still waiting\n" in show_call(began(), waits)
    text = show_call(began(), waits, stopped())
    assert "waited for the approval 'confirm:order' by 'finance', but the call ended first\n" in text
    assert "still waiting" not in text
    assert "waiting 0 ms" not in text


def test_head_says_how_long_the_call_waits_so_far() -> None:
    assert "server 2.0 ms, waiting 30.0 s so far · " in show_call(began(), asked(1), now=AT + 31)
    later = [began(11, leg=2, round=1), asked(12, leg=2, round=2)]
    assert ", waiting 40.0 s so far · " in show_call(began(), asked(1), *later, now=AT + 42)


def test_round_without_questions_is_attributed_to_no_asker() -> None:
    empty = asked(1).model_copy(update={"questions": ()})
    text = show_call(began(), empty, began(10, leg=2, round=1), ended(11, leg=2, round=1))
    assert "  a round without questions, because the tool runs exactly once, answered after 9.0 s\n" in text
    assert "asked by" not in text
    for by, cause in {"resolvers": "", "body": " or its next try"}.items():
        worker = [began(9, leg=2, round=1, era="task"), asked(10, leg=2, round=2, by=by, questions=())]
        text = show_call(began(), asked(1), *worker, began(11, leg=3, round=2, era="task"))
        assert f"  waited for a request from its client{cause}, continued after 1.0 s\n" in text


def test_call_without_its_beginning_or_end_is_shown_as_known() -> None:
    text = show_call(ended(leg=2, round=1))
    assert text.startswith("call-1  ?  completed\n")
    assert "its first line is missing" in text
    text = show_call(began(), asked(), began(10, leg=2, round=1, instance="b"))
    assert "\nafter round 1 · leg 2 on b · " in text
    assert "nothing more is recorded: it is still running, or its instance ended" in text
    assert "waiting for" not in text


def test_json_has_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = shelf(tmp_path)
    assert main(["trace", "show", "--json", "retry", str(path)]) == 0
    call = json.loads(capsys.readouterr().out)
    assert call["call"] == RETRY
    assert call["arguments"] == {"value": {"title": "Dune"}}
    assert [(round_["round"], round_["leg"], round_["instance"]) for round_ in call["asked"]] == [
        (1, 1, "a"),
        (1, 1, "b"),
        (2, 2, "b"),
    ]
    assert call["asked"][2]["questions"][0]["reason"] == "reworded"
    assert [found["action"] for found in call["asked"][2]["answers"]] == ["accept", "decline"]
    assert [serving["ends"] for serving in call["servings"]] == ["asked", "asked", "asked", "completed"]
    assert call["rejected"][0]["reason"] == "expired"
    assert call["ended"]["result"] == {"value": "ordered"}
    assert call["marks"]["format"][2] == "asked again"


def test_ambiguous_or_unknown_call_id_lists_candidates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "calls.jsonl", [began(call=f"call-{number}", serving=number + 1) for number in range(12)])
    for name, message in (
        ("call-1", "call-1  order"),
        ("call", "'call' matches several calls: 'call-11' ('order'), 'call-10' ('order')"),
        ("none", "there is no call 'none'; the newest calls: 'call-11' ('order')"),
    ):
        assert main(["trace", "show", name, str(path)]) == (0 if name == "call-1" else 2)
        printed = capsys.readouterr()
        assert message in printed.out + printed.err
    assert main(["trace", "show", "x", str(write(tmp_path / "empty.jsonl", []))]) == 2
    assert "contain no calls" in capsys.readouterr().err


def test_hostile_text_is_spelled_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b]0;t\x07\x9b\u202e\r\nx[bold]"
    value = {"value": {evil: evil}}
    lines = [
        began(call=evil, tool=evil, instance=evil, arguments=value, build=evil, principal=evil, previous_build=evil),
        asked(
            1,
            question(evil, Reason.RENAMED, former=evil, message=evil, url=evil, complaint=evil),
            call=evil,
            instance=evil,
            reused=[evil],
            answers=[answer(evil, data=evil)],
            nodes=[{"key": evil, "how": "failed", "start": 0, "ms": 1}],
            steps=[{"key": evil, "how": "ran", "start": 0, "ms": 1, "value": value}],
            token={"bytes": 1, "added": [evil]},
        ),
        began(10, call=evil, leg=2, round=1),
        ended(11, call=evil, leg=2, result=value, decline=evil, error={"type": evil, "text": {"value": evil}}),
    ]
    path = write(tmp_path / "calls.jsonl", lines)
    for view in (["show"], ["show", "--json"], ["explain"], ["explain", "--all"], ["explain", "--json"]):
        assert main(["trace", *view, evil, str(path)]) in (0, 1)
        assert capsys.readouterr().out.replace("\n", "").isprintable()
    assert main(["trace", "diff", evil, evil, str(path)]) == 0
    assert capsys.readouterr().out.replace("\n", "").isprintable()
