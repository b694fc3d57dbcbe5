"""The rules of approvals, without stores and servers."""

import json
import logging
from functools import partial
from types import MappingProxyType
from typing import Any

import pytest

from roundtrip.approvals.rules import (
    Reader,
    decide,
    look_at,
    may_decide,
    open_groups,
    park_approvals,
    records_of,
    withdraw,
)
from roundtrip.ledger.machines import StoredEvent, StoredState
from roundtrip.ledger.tasks import CallEntry
from roundtrip.stored.content import CallContent, CallOrigin, CallSeal, Pause
from tests.kit.tables import check_each

NOW = 1_000.0
NO_QUESTIONS = MappingProxyType[str, Any]({})


def oauth(client: str, issuer: str | None, subject: str | None) -> str:
    return json.dumps([client, issuer, subject])


def content_of(user: str | None = "ann") -> CallContent:
    return CallContent(CallOrigin({}, {}, "2026-07-28", user, "s", None, user), "", is_fresh=False)


def entry_of(state: StoredState = StoredState.RUNNING, *, expires: float = NOW + 10_000) -> CallEntry:
    return CallEntry("c", "pay", NOW, expires, state=state, due=NOW, updated=NOW)


def asked(name: str = "ok", pin: str = "p", **more: Any) -> dict[str, dict[str, Any]]:
    record = {"id": f"c.{name}{pin}", "name": name, "by": "finance", "message": "Pay?", "pin": pin, "within": 100.0}
    return {name: {**record, "remind": None, "notifies": False, "label": "approvals-f", **more}}


def park(
    content: CallContent,
    entry: CallEntry,
    wanted: dict[str, Any],
    now: float = NOW,
    *,
    questions: Any = MappingProxyType({}),
) -> None:
    pause = Pause("", questions, None, (), parkings=[partial(park_approvals, wanted, ())])
    content.pause(pause, entry, now, delivered=())


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
        park(content, entry_of(), asked())
        person = Reader(reader, "name", frozenset({"finance"}))
        assert may_decide(person, content, records_of(content)[0]) is may
        assert not may_decide(person._replace(groups=frozenset({"safety"})), content, records_of(content)[0])

    check_each(CALLERS, check)


def test_one_decision_counts_and_wakes_the_call() -> None:
    content, entry = content_of(), entry_of()
    park(content, entry, asked())
    assert (entry.state, entry.labels, entry.due) == (StoredState.WAITING, ("approvals-f",), NOW + 100)
    (record,) = records_of(content)
    made: dict[str, Any] = {"reader": FAY, "reason": ""}
    assert decide(record, entry, content, NOW + 1, choice="approved", **made)
    assert (entry.state, entry.labels) == (StoredState.DUE, ())
    assert not decide(record, entry, content, NOW + 2, choice="rejected", **made)
    assert record["decision"]["outcome"] == "approved"


def test_decision_after_the_time_does_not_count() -> None:
    content, entry = content_of(), entry_of()
    park(content, entry, asked())
    (record,) = records_of(content)
    assert not decide(record, entry, content, NOW + 100, reader=FAY, choice="approved", reason="")
    entry.advance(NOW + 100)
    _, expired = look_at(content, entry, NOW + 100, holder="w")
    assert [one["id"] for one in expired] == [record["id"]]
    assert entry.state is StoredState.DUE
    assert not decide(record, entry, content, NOW + 50, reader=FAY, choice="approved", reason="")


def test_decision_while_a_leg_runs_is_found_when_it_ends() -> None:
    content, entry = content_of(), entry_of()
    park(content, entry, asked())
    entry.apply(StoredEvent.WAKE, NOW)
    entry.claim("w", NOW, lease=30)
    (record,) = records_of(content)
    assert decide(record, entry, content, NOW + 1, reader=FAY, choice="approved", reason="")
    assert entry.state is StoredState.RUNNING
    park(content, entry, asked(), NOW + 2)
    assert entry.state is StoredState.DUE
    assert len(records_of(content)) == 1


def test_reminder_runs_no_body() -> None:
    content, entry = content_of(), entry_of()
    park(content, entry, asked(notifies=True, remind=30.0))
    for number, at in enumerate((NOW, NOW + 30, NOW + 60), start=1):
        assert entry.advance(at)
        notified, _ = look_at(content, entry, at, holder="w")
        assert [one["notified"] for one in notified] == [number]
        assert (entry.state, entry.due) == (StoredState.WAITING, min(at + 30, NOW + 100))
    entry.advance(NOW + 90)
    content.signals, content.waits = {"paid": 1}, ["paid"]
    notified, _ = look_at(content, entry, NOW + 90, holder="w")
    assert entry.state is StoredState.DUE
    assert [one["notified"] for one in notified] == [4]


def test_missed_reminders_are_made_up_for_once() -> None:
    content, entry = content_of(), entry_of()
    park(content, entry, asked(notifies=True, remind=10.0))
    entry.advance(NOW + 55)
    notified, _ = look_at(content, entry, NOW + 55, holder="w")
    assert len(notified) == 1
    assert entry.due == NOW + 65
    entry.advance(NOW + 65)
    assert withdraw(content, entry, NOW + 65)
    assert entry.state is StoredState.CANCELLED


def test_other_wording_withdraws_an_open_approval() -> None:
    content, entry = content_of(), entry_of()
    park(content, entry, asked())
    entry.apply(StoredEvent.WAKE, NOW)
    entry.claim("w", NOW, lease=30)
    park(content, entry, asked(pin="q", label="approvals-g"))
    old, new = records_of(content)
    assert old["withdrawn"] == NOW
    assert not decide(old, entry, content, NOW, reader=FAY, choice="approved", reason="")
    assert decide(new, entry, content, NOW, reader=FAY, choice="approved", reason="")


def test_approval_expires_before_its_call() -> None:
    content, entry = content_of(), entry_of(expires=NOW + 10)
    park(content, entry, asked(within=None))
    assert NOW + 8 < records_of(content)[0]["until"] < entry.expires
    assert open_groups(content) == ["finance"]


def test_questions_to_the_client_come_first() -> None:
    content, entry = content_of(), entry_of()
    pause = Pause(
        "", {"size": ({"method": "roots/list"}, "p")}, None, (), parkings=[partial(park_approvals, asked(), ())]
    )
    content.pause(pause, entry, NOW, delivered=())
    assert (entry.state, entry.due, records_of(content), entry.labels) == (StoredState.ASKING, entry.expires, [], ())


def test_labels_of_others_are_kept() -> None:
    content, entry = content_of(), entry_of()
    entry.labels = ("other",)
    park(content, entry, asked())
    assert entry.labels == ("other", "approvals-f")
    decide(records_of(content)[0], entry, content, NOW, reader=FAY, choice="rejected", reason="no")
    assert entry.labels == ("other",)


def test_approvals_are_stored_under_their_own_keys() -> None:
    seal = CallSeal(None, (), "shop")
    content, entry = content_of(), entry_of()
    assert not {"approvals", "wakes"} & json.loads(seal.write(content, "c"))[1].keys()
    park(content, entry, asked())
    stored = seal.write(content, "c")
    keys = list(json.loads(stored)[1])
    assert keys[keys.index("pin_keys") :] == ["pin_keys", "approvals", "refusal", "wakes"]
    # A server that does not read them writes them as they were.
    assert seal.write(seal.read(stored, "c"), "c") == stored
    assert records_of(seal.read(stored, "c")) == records_of(content)
