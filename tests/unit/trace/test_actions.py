"""Actions of operators are joined into their calls, and every view shows them."""

from pathlib import Path

from roundtrip.machine.table import State
from roundtrip.trace.explaining.comparing import compare
from roundtrip.trace.explaining.explanations import explain
from roundtrip.trace.explaining.sequence import mermaid
from roundtrip.trace.explaining.stories import story
from roundtrip.trace.explaining.wording import action_text
from roundtrip.trace.index.filters import CallFilter
from roundtrip.trace.index.index import CallIndex
from roundtrip.trace.page.data import data_of
from roundtrip.trace.page.document import html
from roundtrip.trace.reading.joining import join
from roundtrip.trace.writing.lines import Line
from tests.kit.tables import check_each
from tests.kit.transcripts import AT, acted, asked, began, call_of, ended, handed, rejected, show_call, write
from tests.unit.trace.tales import HOSTILE


def waiting() -> list[Line]:
    return [began(), asked(1)]


def test_actions_are_joined_in_order_of_time() -> None:
    other = acted(1, call="unknown")
    traced = join([acted(9, "retry", outcome="rejected", why="no"), other, *waiting(), acted(5, "remind")])
    assert list(traced.calls) == ["call-1"]
    assert [line.action for line in traced.calls["call-1"].actions] == ["remind", "retry"]
    assert [line.call for line in traced.actions] == ["unknown", "call-1", "call-1"]
    assert traced.calls["call-1"].last_at == AT + 9


def test_only_done_cancels_and_expiries_end_a_call() -> None:
    def check(line: Line, state: State) -> None:
        call = call_of(*waiting(), line)
        assert (call.state, call.ended_by is not None) == (state, state is State.FAILED)
        assert len(call.pending) == (state is State.AWAITING_INPUT)
        assert ("waiting for" in show_call(*waiting(), line)) == (state is State.AWAITING_INPUT)

    ending = [(acted(5, action), State.FAILED) for action in ("cancel", "expire")]
    others = [acted(5, outcome="rejected", why="no"), acted(5, "remind"), acted(5, "answer")]
    check_each([*ending, *((line, State.AWAITING_INPUT) for line in others)], check)
    # A recorded end counts before an action.
    assert call_of(*waiting(), began(2, leg=2, round=1), ended(3, leg=2, round=1), acted(5)).state is State.COMPLETED


def test_action_of_an_operator_explains_the_end() -> None:
    call = call_of(*waiting(), acted(5))
    (question, action) = explain(call, now=AT + 1e6)
    assert question.is_plain
    assert action.text == (
        "The call ended because 'ana' cancelled it with a command; the client must begin it again if it should run."
    )
    assert not action.is_plain


def test_leg_that_an_action_stopped_is_not_explained_twice() -> None:
    stopped = ended(6, state="failed", bodies=1, error={"type": "CancelledError", "text": {"value": ""}})
    call = call_of(began(era="task"), acted(5), stopped)
    (action,) = explain(call)
    assert action.subject == "action"
    assert data_of(call)["failure"]["why"] == action.text


def test_rejected_action_is_plain_and_keeps_the_failure() -> None:
    failed = ended(3, state="failed", error={"type": "ValueError", "text": {"value": "x"}})
    call = call_of(began(), failed, acted(5, outcome="rejected", why="it has ended already"))
    assert [one.is_plain for one in explain(call)] == [False, True]
    assert "ValueError" in data_of(call)["failure"]["why"]


def test_actions_are_written_in_words() -> None:
    assert action_text(acted()) == "cancelled by ana"
    assert action_text(acted(action="answer", why="seat")) == "answered 'seat' by ana"
    assert action_text(acted(outcome="rejected", why="it has ended")) == "cancel by ana rejected: it has ended"
    text = show_call(*waiting(), acted(5), acted(6, "remind", outcome="rejected", why="nothing is pending"))
    assert " cancelled by ana\n" in text
    assert " remind by ana rejected: nothing is pending\n" in text


def test_page_has_actions_beside_its_steps() -> None:
    data = data_of(call_of(*waiting(), rejected(3, call="call-1", leg=2), acted(5, "remind"), acted(6)))
    assert [(one["action"], one["by"], one["outcome"]) for one in data["actions"]] == [
        ("remind", "ana", "done"),
        ("cancel", "ana", "done"),
    ]
    *_, last = data["steps"]
    assert last["name"] == "End: failed"
    assert [line["title"].partition(" on ")[0] for line in last["lines"]] == ["rejected", "acted", "acted"]
    assert data["failure"]["step"] == len(data["steps"]) - 1


def test_hostile_names_do_not_leave_their_place() -> None:
    actions = [acted(5, by=HOSTILE, tool=HOSTILE, why=HOSTILE, outcome="rejected"), acted(6, by=HOSTILE)]
    call = call_of(*waiting(), *actions)
    text = show_call(*waiting(), *actions)
    assert not any(char in text for char in "\x1b\x00\u202e\u2028")
    assert "<script>alert" not in html(call)
    assert not any(char in mermaid(call) for char in "\x1b\x00\u202e<")
    assert all(char not in one.text for one in explain(call) for char in "\x1b\x00\u202e\u2028")
    assert len(story(call)["actions"]) == 2


def test_calls_with_and_without_actions_can_be_compared() -> None:
    found = compare(call_of(*waiting()), call_of(*waiting(), acted(5)))
    assert [one.what for one in found] == ["state"]


def test_action_on_an_unknown_call_is_no_call_of_an_index(tmp_path: Path) -> None:
    path = write(tmp_path / "calls.jsonl", [acted(call="unknown").model_dump_json(exclude_unset=True)])
    index = CallIndex([path])
    index.refresh()
    assert index.find("unknown") is None
    assert list(index.rows(CallFilter())) == []
    write(path, [line.model_dump_json(exclude_unset=True) for line in [*waiting(), handed(2), acted(5)]])
    index.refresh()
    assert [row["call"] for row in index.rows(CallFilter())] == ["call-1"]
    index.close()
