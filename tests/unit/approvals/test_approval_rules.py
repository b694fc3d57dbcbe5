"""The rules of approvals, without stores and servers."""

import json
import logging
from typing import Any

import pytest

from roundtrip.approvals.inbox_calls import Reader
from roundtrip.approvals.rules import decide, look_at, may_decide, open_groups, park_approvals
from roundtrip.ledger.tasks import TaskEntry
from roundtrip.machine.tasks import TaskEvent, TaskState
from roundtrip.stored.content import TaskContent
from tests.kit.tables import check_each

NOW = 1_000.0


def oauth(client: str, issuer: str | None, subject: str | None) -> str:
    return json.dumps([client, issuer, subject])


def content_of(user: str | None = "ann") -> TaskContent:
    return TaskContent({}, {}, "2026-07-28", user, "s", None, "", user=user, is_fresh=False)


def entry_of(state: TaskState = TaskState.RUNNING, *, expires: float = NOW + 10_000) -> TaskEntry:
    return TaskEntry("c", "pay", NOW, expires, state=state, due=NOW, updated=NOW)


def asked(name: str = "ok", pin: str = "p", **more: Any) -> dict[str, dict[str, Any]]:
    record = {"id": f"c.{name}{pin}", "name": name, "by": "finance", "message": "Pay?", "pin": pin, "within": 100.0}
    return {name: {**record, "remind": None, "notifies": False, "label": "approvals-f", **more}}


def parked(content: TaskContent, entry: TaskEntry, wanted: dict[str, dict[str, Any]], now: float = NOW) -> bool:
    look, is_decided = park_approvals(content, entry, wanted, now, read=(), asks_client=False)
    entry.park(TaskEvent.WAIT, now, due=look)
    return is_decided


FAY = Reader("fay", "fay", frozenset({"finance"}))


CALLERS: list[tuple[str, str | None, bool]] = [
    ("fay", "ann", True),
    ("ann", "ann", False),
    ("Ann@Example.com", "ann@example.com", False),
    (" \uff21nn", "ann", False),
    (oauth("web", "https://i/", "ann"), oauth("chat", "https://i", "Ann"), False),
    ("fay", None, False),
    (oauth("web", "i", "fay"), oauth("chat", "i", "ann"), True),
    (oauth("web", "i", "ann"), oauth("chat", "i", "ann"), False),
    (oauth("web", "i", "ann"), oauth("chat", "j", "ann"), True),
    (oauth("web", None, "ann"), oauth("chat", "j", "ann"), False),
    (oauth("web", "i", "ann"), oauth("chat", None, "ann"), False),
    (oauth("web", None, "fay"), oauth("chat", None, "ann"), True),
    ("ann", oauth("chat", "i", "ann"), False),
    ("fay", oauth("chat", "i", "ann"), False),
    (oauth("web", "i", "fay"), "ann", False),
    (oauth("web", "i", None), oauth("chat", "i", "ann"), False),
    ("[not json", "ann", True),
    ('["a", 1, "b"]', "ann", True),
]


def test_caller_never_decides(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "roundtrip")

    def check(reader: str, caller: str | None, may: bool) -> None:
        content = content_of(caller)
        parked(content, entry_of(), asked())
        person = Reader(reader, "name", frozenset({"finance"}))
        assert may_decide(person, content, content.approvals[0]) is may
        assert not may_decide(person._replace(groups=frozenset({"safety"})), content, content.approvals[0])

    check_each(CALLERS, check)


def test_one_decision_counts_and_wakes_the_call() -> None:
    content, entry = content_of(), entry_of()
    parked(content, entry, asked())
    assert (entry.state, entry.labels, entry.due) == (TaskState.WAITING, ("approvals-f",), NOW + 100)
    (record,) = content.approvals
    made: dict[str, Any] = {"reader": FAY, "reason": ""}
    assert decide(record, entry, content, NOW + 1, choice="approved", **made)
    assert (entry.state, entry.labels) == (TaskState.DUE, ())
    assert not decide(record, entry, content, NOW + 2, choice="rejected", **made)
    assert record["decision"]["outcome"] == "approved"


def test_decision_after_the_time_does_not_count() -> None:
    content, entry = content_of(), entry_of()
    parked(content, entry, asked())
    (record,) = content.approvals
    assert not decide(record, entry, content, NOW + 100, reader=FAY, choice="approved", reason="")
    entry.advance(NOW + 100)
    look = look_at(content, entry, NOW + 100, holder="w")
    assert [one["id"] for one in look.expired] == [record["id"]]
    assert not look.is_idle
    assert not decide(record, entry, content, NOW + 50, reader=FAY, choice="approved", reason="")


def test_decision_while_a_leg_runs_is_found_when_it_ends() -> None:
    content, entry = content_of(), entry_of()
    parked(content, entry, asked())
    entry.apply(TaskEvent.WAKE, NOW)
    entry.claim("w", NOW, lease=30)
    (record,) = content.approvals
    assert decide(record, entry, content, NOW + 1, reader=FAY, choice="approved", reason="")
    assert entry.state is TaskState.RUNNING
    assert parked(content, entry, asked(), NOW + 2)
    assert len(content.approvals) == 1


def test_reminder_runs_no_body() -> None:
    content, entry = content_of(), entry_of()
    parked(content, entry, asked(notifies=True, remind=30.0))
    for number, at in enumerate((NOW, NOW + 30, NOW + 60), start=1):
        assert entry.advance(at)
        look = look_at(content, entry, at, holder="w")
        assert look.is_idle
        assert [one["notified"] for one in look.notify] == [number]
        assert (entry.state, entry.due) == (TaskState.WAITING, min(at + 30, NOW + 100))
    entry.advance(NOW + 90)
    content.signals, content.waits = {"paid": 1}, ["paid"]
    look = look_at(content, entry, NOW + 90, holder="w")
    assert not look.is_idle
    assert entry.state is TaskState.DUE
    assert [one["notified"] for one in look.notify] == [4]


def test_missed_reminders_are_made_up_for_once() -> None:
    content, entry = content_of(), entry_of()
    parked(content, entry, asked(notifies=True, remind=10.0))
    entry.advance(NOW + 55)
    assert len(look_at(content, entry, NOW + 55, holder="w").notify) == 1
    assert entry.due == NOW + 65
    entry.advance(NOW + 65)
    content.refuse("decline", entry, NOW + 65)
    assert entry.state is TaskState.CANCELLED


def test_other_wording_withdraws_an_open_approval() -> None:
    content, entry = content_of(), entry_of()
    parked(content, entry, asked())
    entry.apply(TaskEvent.WAKE, NOW)
    entry.claim("w", NOW, lease=30)
    parked(content, entry, asked(pin="q", label="approvals-g"))
    old, new = content.approvals
    assert old["withdrawn"] == NOW
    assert not decide(old, entry, content, NOW, reader=FAY, choice="approved", reason="")
    assert decide(new, entry, content, NOW, reader=FAY, choice="approved", reason="")


def test_approval_expires_before_its_call() -> None:
    content, entry = content_of(), entry_of(expires=NOW + 10)
    parked(content, entry, asked(within=None))
    assert NOW + 8 < content.approvals[0]["until"] < entry.expires
    assert open_groups(content) == ["finance"]


def test_questions_to_the_client_come_first() -> None:
    content, entry = content_of(), entry_of()
    look, _ = park_approvals(content, entry, asked(), NOW, read=(), asks_client=True)
    assert (look, content.approvals, entry.labels) == (None, [], ())


def test_labels_of_others_are_kept() -> None:
    content, entry = content_of(), entry_of()
    entry.labels = ("other",)
    parked(content, entry, asked())
    assert entry.labels == ("other", "approvals-f")
    decide(content.approvals[0], entry, content, NOW, reader=FAY, choice="rejected", reason="no")
    assert entry.labels == ("other",)
