"""Lines of many instances become calls: in order, each answer with the round that asked for it."""

import random
from typing import Any

import pytest

from roundtrip.machine.facts import Reason
from roundtrip.machine.table import State
from roundtrip.trace.reading.calls import Mark
from roundtrip.trace.reading.joining import join
from roundtrip.trace.writing.lines import Line
from tests.kit.transcripts import AT, answer, answered, asked, began, call_of, ended, handed, question, rejected


def hopping() -> list[Line]:
    """Return a call of three legs on three instances; the second leg asks a second question."""
    return [
        began(instance="a"),
        asked(1, question("size"), instance="a"),
        began(10, leg=2, round=1, instance="b"),
        asked(11, question("gift"), leg=2, round=2, instance="b", answers=[answer("size")]),
        began(20, leg=3, round=2, instance="c"),
        ended(21, leg=3, round=2, instance="c", reused=["size"], answers=[answer("gift")], bodies=1),
    ]


def test_legs_join_in_any_file_order() -> None:
    by_instance = {name: [line for line in hopping() if line.instance == name] for name in "abc"}
    for order in ("abc", "cba", "bca"):
        call = call_of(*(line for name in order for line in by_instance[name]))
        assert call.instances == ["a", "b", "c"]
        assert call.state is State.COMPLETED
        assert (call.legs, call.round_count, call.bodies) == (3, 2, 1)
        assert [[found.key for found in round_.answers] for round_ in call.rounds] == [["size"], ["gift"]]
        assert call.waited_ms == 18_000
        assert call.marks() == {"size": [Mark.ASKED, None, Mark.REUSED], "gift": [None, Mark.ASKED, None]}


def test_question_is_pending_until_another_leg_begins() -> None:
    lines = hopping()[:4]
    assert [found.key for found in call_of(*lines).pending] == ["gift"]
    assert call_of(*lines).marks()["gift"] == [None, Mark.PENDING, None]
    begun = call_of(*lines, hopping()[4])
    assert begun.pending == ()
    assert begun.state is State.RESUMED
    # A process that was restarted and serves the same leg again is a replay.
    restarted = call_of(
        *lines[:3], began(12, leg=2, round=1, instance="b"), lines[3].model_copy(update={"at": AT + 13})
    )
    assert [len(serving.lines) for serving in restarted.servings] == [2, 1, 2]
    assert len(restarted.replays) == 1
    assert restarted.pending


def test_replayed_leg_answers_the_round_that_asked() -> None:
    lines = hopping()
    again = [
        began(12, leg=2, round=1, instance="d"),
        asked(13, question("gift"), leg=2, round=2, instance="d", answers=[answer("size", "decline")]),
    ]
    call = call_of(*lines, *again)
    assert [(serving.instance, first.instance) for serving, first in call.replays] == [("d", "b")]
    assert (call.round_count, len(call.rounds)) == (2, 3)
    assert [[found.action for found in round_.answers] for round_ in call.rounds] == [["accept"], [], ["accept"]]


@pytest.mark.parametrize("at", [20, 9])
def test_leg_answers_the_round_whose_token_it_brings(at: float) -> None:
    """One token was sent twice with different answers, and the client continued with the first response.

    The clock of the instance that served the last leg may be behind.
    """
    call = call_of(
        began(),
        asked(1, question("size"), token={"bytes": 300}),
        began(10, leg=2, round=1, token_bytes=300, instance="b"),
        asked(11, question("gift"), leg=2, round=2, instance="b", answers=[answer("size")], token={"bytes": 340}),
        began(12, leg=2, round=1, token_bytes=300, instance="d"),
        asked(13, question("card"), leg=2, round=2, instance="d", answers=[answer("size")], token={"bytes": 341}),
        began(at, leg=3, round=2, token_bytes=340),
        ended(at + 1, leg=3, round=2, answers=[answer("gift")], bodies=1),
    )
    assert [serving.instance for serving in call.chain] == ["a", "b", "a"]
    assert [[found.key for found in round_.answers] for round_ in call.rounds] == [["size"], ["gift"], []]
    assert [round_.answered_at is None for round_ in call.rounds] == [False, False, True]


def test_a_live_call_waits_within_its_one_leg() -> None:
    asking = [began(era="live"), asked(1, ms=1000.0)]
    waited: dict[str, Any] = {"ms": 4000.0, "waited": 3000.0}
    over = ended(5, ms=5000.0, bodies=1)
    taken = call_of(*asking, answered(4, answers=[answer()], **waited), over)
    abandoned = call_of(*asking, answered(4, keys=(), **waited), over)
    interrupted = call_of(*asking, ended(11, ms=11_000.0, state="rejected"))
    times = [(call.server_ms, call.waited_ms, call.legs) for call in (taken, abandoned, interrupted)]
    assert times == [(2000, 3000, 1), (2000, 3000, 1), (1000, 10_000, 1)]
    assert [found.key for found in taken.rounds[0].answers] == ["format"]
    assert (abandoned.rounds[0].answered_at, abandoned.rounds[0].given_up_at) == (None, AT + 4)


def test_failed_and_retried_leg_did_not_end_the_call() -> None:
    lines = hopping()
    failed = [
        began(10, leg=2, round=1, instance="d"),
        ended(10.5, leg=2, round=1, instance="d", state="failed"),
    ]
    retried = [began(11, leg=2, round=1, instance="b"), lines[3]]
    assert call_of(*lines[:2], *failed).state is State.FAILED
    call = call_of(*lines[:2], *failed, *retried)
    assert (call.state, call.ended) == (State.AWAITING_INPUT, None)
    assert [found.key for found in call.pending] == ["gift"]


def test_late_replay_takes_no_answers_from_its_round() -> None:
    again = [
        began(30, leg=2, round=1, instance="b", serving=9),
        asked(31, question("gift"), leg=2, round=2, instance="b", serving=9, answers=[answer("size")]),
    ]
    call = call_of(*hopping(), *again)
    assert [round_.waited_ms for round_ in call.rounds] == [9_000, 9_000, None]
    assert call.state is State.COMPLETED


def test_first_question_of_another_build_counts_as_asked() -> None:
    lines = [
        began(),
        asked(1, question("size")),
        began(10, leg=2, round=1, build="2"),
        asked(11, question("gift", Reason.OTHER_BUILD), question("size", Reason.MISSING), leg=2, round=2),
        began(20, leg=3, round=2, build="2"),
    ]
    assert call_of(*lines).marks() == {
        "size": [Mark.ASKED, Mark.ASKED_AGAIN, None],
        "gift": [None, Mark.ASKED, None],
    }


def test_answer_that_is_reused_and_then_revised_counts_as_asked_again() -> None:
    lines = [
        began(),
        asked(1, question("size")),
        began(10, leg=2, round=1),
        asked(11, question("size", Reason.REVISED), leg=2, round=2, reused=["size"]),
    ]
    assert call_of(*lines).marks()["size"][0] is Mark.ASKED
    assert call_of(*lines, began(20, leg=3, round=2)).marks()["size"][1] is Mark.ASKED_AGAIN


def test_call_known_by_rejections_only_is_rejected() -> None:
    traced = join([rejected(call="lost"), rejected()])
    assert traced.calls["lost"].state is State.REJECTED
    assert traced.calls["lost"].started_at == AT + 4
    assert len(traced.strays) == 1


def test_reasons_cover_questions_and_rejections() -> None:
    call = call_of(began(), asked(1, question(), question("gift", Reason.MISSING)), rejected(call="call-1"))
    assert call.reasons == {"new", "missing", "expired"}


def test_calls_are_listed_by_the_time_of_their_first_line() -> None:
    lines: list[Line] = [began(float(number), call=f"call-{number}", serving=number + 1) for number in range(20)]
    random.Random(1).shuffle(lines)
    assert list(join(lines).calls) == [f"call-{number}" for number in range(20)]


def test_leg_that_became_a_task_counts_and_not_another_request_with_its_token() -> None:
    """A network, or a user who tries again, may send an answer that is invalid beside the one that is taken."""
    call = call_of(
        began(),
        asked(1, question("size")),
        began(10, leg=2, round=1, serving=2),
        asked(11, question("size"), leg=2, round=2, serving=2, answers=[answer("size", "decline")]),
        began(12, leg=2, round=1, serving=3),
        handed(13, leg=2, round=1, serving=3, answers=[answer("size")]),
        began(14, leg=2, round=1, serving=4, era="task"),
        asked(15, question("gift"), leg=2, round=2, serving=4),
        began(20, leg=3, round=2, serving=5, era="task"),
        ended(21, leg=3, round=2, serving=5, answers=[answer("gift")], bodies=1),
    )
    assert [serving.number for serving in call.chain] == [1, 3, 4, 5]
