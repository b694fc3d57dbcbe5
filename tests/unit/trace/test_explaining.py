"""Every reason has an explanation: one sentence that names the question, the cause and the cure."""

import re
from collections.abc import Sequence
from typing import Any

from roundtrip.errors import RejectionReason
from roundtrip.machine.facts import Reason
from roundtrip.trace.explaining.advice import QUESTIONS, REJECTIONS
from roundtrip.trace.explaining.explanations import ExplainedSubject, explain, explain_rejection
from roundtrip.trace.reading.calls import TracedCall
from roundtrip.trace.writing.lines import Line
from tests.kit.tables import check_each
from tests.kit.transcripts import answer, asked, began, call_of, ended, question, rejected

DIGEST = {"digest": "abcdefghijkl", "bytes": 12}


def again(reason: Reason, *, before: dict[str, Any] | None = None, build: str = "1", **fields: Any) -> list[Line]:
    """Return a call whose question is asked in round 1, and again in round 2."""
    previous = {"previous_build": "1"} if build != "1" else {}
    line_fields = {name: fields.pop(name) for name in ("by", "ignored", "token") if name in fields}
    return [
        began(),
        asked(1, question(**(before or {}))),
        began(10, leg=2, round=1, build=build, **previous),
        asked(11, question(reason=reason, **fields), leg=2, round=2, **line_fields),
    ]


def told(lines: Sequence[Line]) -> str:
    """Return the only sentence that is not plain."""
    (explanation,) = [explanation for explanation in explain(call_of(*lines)) if not explanation.is_plain]
    return explanation.text


def test_asking_reason_names_the_question_and_the_cure() -> None:
    def check(reason: Reason) -> None:
        text = told(again(reason, build="2"))
        assert text.startswith("Question 'format' was asked again in round 2, because ")
        assert text.endswith(f"; {QUESTIONS[reason].cure}.")
        assert not re.search(r"\. [A-Z]", text)

    check_each([reason for reason in Reason if reason is not Reason.NEW], check)


def test_rejection_sentence_names_the_instance_and_the_cure() -> None:
    def check(reason: RejectionReason) -> None:
        text = told([began(), asked(), rejected(reason=reason, call="call-1", leg=2)])
        assert text.startswith("Instance 'a' rejected the token of a 'tools/call' for 'order' in leg 2, because ")
        assert text.endswith(f"; {REJECTIONS[reason].cure}.")
        assert explain_rejection(rejected(reason=reason)).endswith(f"; {REJECTIONS[reason].cure}.")

    check_each(list(RejectionReason), check)


def test_rejection_sentence_states_its_cause() -> None:
    def check(reason: RejectionReason, words: str, fields: dict[str, Any]) -> None:
        assert words in told([began(), asked(), rejected(reason=reason, call="call-1", leg=2, **fields)])

    check_each(
        [
            (RejectionReason.UNKNOWN_KEY, "[old, new], then [new, old], and [new]", {}),
            (RejectionReason.TAMPERED, "changed after it was signed", {}),
            (RejectionReason.MALFORMED, "send requestState back unchanged", {}),
            (RejectionReason.OVERSIZED, "it has 68.4 KiB", {"token_bytes": 70_000}),
            (RejectionReason.OTHER_TARGET, "because it belongs to a call of 'order'", {"tool": "sell"}),
            (RejectionReason.OTHER_TARGET, "it belongs to a call of 'order', under another address;", {}),
            (RejectionReason.OTHER_ARGUMENTS, "repeat a call's arguments", {}),
            (RejectionReason.OTHER_AUDIENCE, "the same name (or audience=)", {}),
            (RejectionReason.OTHER_PRINCIPAL, "belongs to a call of another caller", {}),
        ],
        check,
    )


def test_a_new_question_is_plain() -> None:
    (explanation,) = explain(call_of(began(), asked()))
    assert explanation.is_plain
    assert explanation.text == "Question 'format' was asked in round 1, because the call had not asked it before."


def test_first_question_and_one_build_are_told_from_deploys() -> None:
    volatile = [
        reason
        for reason in (Reason.REWORDED, Reason.SCHEMA_CHANGED)
        if told(again(reason)).endswith(f"; {QUESTIONS[Reason.VOLATILE].cure}.")
    ]
    assert volatile == [Reason.REWORDED, Reason.SCHEMA_CHANGED]

    def check(reason: Reason) -> None:
        lines = again(reason, before={"key": "size"}, build="2")
        assert told(lines).startswith("Question 'format' was asked in round 2, because ")

    check_each([Reason.OTHER_BUILD, Reason.REVISED], check)


def test_sentence_says_why_the_question_was_asked() -> None:
    renamed: dict[str, Any] = {"before": {"key": "size"}, "former": "size", "by": "body"}

    def check(reason: Reason, fields: dict[str, Any], words: str) -> None:
        assert words in told(again(reason, **fields))

    check_each(
        [
            (Reason.NEW, {}, "round 2, because it was asked in round 1, and the call continued without an answer"),
            (Reason.RENAMED, {**renamed, "build": "2"}, "a name that the body had not used before"),
            (
                Reason.RENAMED,
                {**renamed, "build": "2"},
                "ctx.ask('format', ..., former_names=('size',)), unless the body still uses that name",
            ),
            (Reason.RENAMED, {**renamed, "key": "unnamed-x-1"}, "as in name='size'."),
            (
                Reason.REWORDED,
                {"before": {"message": DIGEST}, "message": {**DIGEST, "digest": "other"}},
                "its message changed after it was shown;",
            ),
            (
                Reason.SCHEMA_CHANGED,
                {"changed": ("message", "schema")},
                "its form changed after it was shown, and its message;",
            ),
            (
                Reason.INVALID,
                {"complaint": "amount: too small", "attempt": 2},
                "did not fit its form ('amount: too small'); this is attempt 2;",
            ),
            (
                Reason.REVISED,
                {"token": {"bytes": 300, "changed": ("answer:size", "authored")}},
                "changed their answer to 'size'",
            ),
        ],
        check,
    )


def test_reworded_question_is_compared_with_its_last_wording() -> None:
    lines = again(Reason.REWORDED, before={"message": "One?"}, message="Two?")
    lines += [
        began(20, leg=3, round=2),
        asked(21, question(reason=Reason.REWORDED, message="Three?"), leg=3, round=3),
    ]
    texts = [explanation.text for explanation in explain(call_of(*lines)) if not explanation.is_plain]
    assert "from 'One?' to 'Two?'" in texts[0]
    assert "from 'Two?' to 'Three?'" in texts[1]


def test_a_changed_form_names_the_fields() -> None:
    old = {"properties": {"size": {"type": "integer"}, "gone": {"type": "string"}}}
    new = {"properties": {"size": {"type": "string"}, "added": {"type": "string"}}}
    lines = again(
        Reason.SCHEMA_CHANGED,
        before={"form": old, "message": "Which?"},
        form=new,
        message="What?",
        changed=("message", "schema"),
    )
    assert (
        "its form changed ('added' is new, 'gone' is gone, 'size' changed), and its message from 'Which?' to 'What?'"
        in told(lines)
    )


def test_replayed_leg_asks_no_new_questions() -> None:
    lines = [began(), asked(), began(2.5, instance="b"), asked(3.5, instance="b")]
    replay = next(found for found in explain(call_of(*lines)) if found.subject is ExplainedSubject.REPLAY)
    assert replay.text.startswith(
        "Leg 1 was served again, by 'b', because its request arrived again 2.5 s after 'a' received it;"
    )


def test_replay_reports_a_silent_first_instance_or_other_answers() -> None:
    first = [began(), asked(), began(10, leg=2, round=1)]
    second = [began(20, leg=2, round=1, instance="b"), ended(21, leg=2, instance="b", answers=[answer(data=1)])]
    assert "received it and did not respond, perhaps because that instance crashed" in told([*first, *second])
    over = ended(11, leg=2, answers=[answer(data=2)])
    assert "received it, and with other answers;" in told([*first, over, *second])


def test_leg_without_an_end_may_have_run() -> None:
    lines = [began(), asked(), began(10, leg=2, round=1)]
    assert "has no recorded end: it is still running, or its process died and its body may have run" in told(lines)
    assert "check its effects before you repeat it" in told(lines)
    assert "another worker may continue it; if its body must run only once, the task is lost" in told(
        [began(era="task")]
    )
    for over in (lines[:2], [*lines, ended(11, leg=2)], [began(era="live"), asked(ms=1.0)]):
        assert all(one.is_plain for one in explain(call_of(*over)))


def test_hostile_names_are_quoted_printably_and_short() -> None:
    lines = again(
        Reason.REWORDED,
        before={"key": "\x1b]0;x\x07", "message": "a\u202e\x9b31m"},
        key="\x1b]0;x\x07",
        message="b" * 100_000,
    )
    assert told(lines).isprintable()
    assert len(told(lines)) < 1000


def explained(call: TracedCall) -> list[ExplainedSubject]:
    return [explanation.subject for explanation in explain(call)]


def test_explanations_are_in_the_order_of_time() -> None:
    lines = [began(), asked(), rejected(5, call="call-1"), *again(Reason.MISSING)[2:]]
    assert explained(call_of(*lines)) == [
        ExplainedSubject.QUESTION,
        ExplainedSubject.REJECTION,
        ExplainedSubject.QUESTION,
    ]
