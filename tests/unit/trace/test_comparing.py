"""Comparing two calls: questions, answers and effects count; times and instances do not."""

from typing import Any

from roundtrip.machine.facts import Reason
from roundtrip.trace.explaining.comparing import Difference, compare
from roundtrip.trace.writing.lines import Line
from tests.kit.tables import check_each
from tests.kit.transcripts import answer, asked, began, call_of, ended, question

PATH = [["begin", "resolving", 0.1], ["ask", "awaiting_input", 0.2]]


def lines(call: str = "call-1", *, at: float = 0.0, instance: str = "a", **changes: Any) -> list[Line]:
    """Return a call of one round; `changes` are fields of its question, its answer or its end."""
    shown: dict[str, Any] = {"message": "Which?", **changes.get("question", {})}
    given: dict[str, Any] = {"data": {"name": "x"}, **changes.get("answer", {})}
    common = {"call": call, "instance": instance}
    return [
        began(at, **common, **changes.get("began", {})),
        asked(at + 1, *changes.get("questions", [question(**shown)]), moves=changes.get("moves", PATH), **common),
        began(at + 2, leg=2, round=1, **common),
        ended(at + 3, leg=2, round=1, answers=[answer(**given)], **common, **changes.get("ended", {})),
    ]


def differences(**changes: Any) -> list[Difference]:
    return compare(call_of(*lines()), call_of(*lines("call-2", **changes)))


def test_times_instances_and_replays_are_no_differences() -> None:
    assert differences(at=1000.0, instance="b") == []
    replayed = call_of(*lines(), *lines(at=0.5, instance="b")[:2])
    assert compare(call_of(*lines()), replayed) == []


def test_each_difference_shows_both_sides() -> None:
    def check(changes: Any, expected: tuple[Any, ...]) -> None:
        assert differences(**changes) == [Difference(*expected)]

    check_each(
        [
            ({"began": {"tool": "sell"}}, (None, None, "tool", "order", "sell")),
            ({"question": {"message": "What?"}}, (1, "format", "message", '"Which?"', '"What?"')),
            ({"question": {"reason": Reason.MISSING}}, (1, "format", "reason", "new", "missing")),
            ({"question": {"kind": "page"}}, (1, "format", "kind", "form", "page")),
            ({"answer": {"data": {"name": "y"}}}, (1, "format", "answer", '{"name": "x"}', '{"name": "y"}')),
            (
                {"answer": {"action": "decline"}},
                (1, "format", "answer", 'accepted {"name": "x"}', 'declined {"name": "x"}'),
            ),
            ({"ended": {"state": "failed"}}, (None, None, "state", "completed", "failed")),
            ({"ended": {"bodies": 2}}, (None, None, "runs of the body", "0", "2")),
            ({"ended": {"result": {"value": 1}}}, (None, None, "result", None, "1")),
            ({"moves": PATH[:1]}, (None, None, "path", "resolving → awaiting_input", "resolving")),
        ],
        check,
    )


def test_one_sided_question_and_changed_order_are_reported_once() -> None:
    changes = [question(message="Which?"), question("gift", message="Gift?")]
    assert differences(questions=changes) == [Difference(1, "gift", "question", None, 'asked (new): "Gift?"')]
    one, other = question("size"), question("gift")
    a, b = call_of(*lines(questions=[one, other])), call_of(*lines("call-2", questions=[other, one]))
    assert compare(a, b) == [Difference(1, None, "order", "size, gift", "gift, size")]


def test_one_sided_round_is_reported_with_its_questions() -> None:
    more = lines("call-2")[:3]
    more += [asked(4, question("gift"), leg=2, round=2, call="call-2", answers=[answer(data={"name": "x"})])]
    found = compare(call_of(*lines()[:2]), call_of(*more))
    assert Difference(2, "gift", "question", None, "asked (new)") in found


def test_digests_compare_with_digests_and_with_nothing_else() -> None:
    one, other = {"digest": "a", "bytes": 3}, {"digest": "b", "bytes": 3}

    def found(a: Any, b: Any) -> int:
        calls = [call_of(*lines(question={"message": message})) for message in (a, b)]
        return len(compare(calls[0], calls[1]))

    assert found(one, one) == 0
    assert found(one, other) == 1
    assert found(one, "Which?") == 0
