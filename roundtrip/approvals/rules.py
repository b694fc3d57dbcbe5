"""Provide the rules of approvals: who decides them, when they expire, and when their groups are notified.

An approval is a record in the content of a stored call. Callers of these functions read the call, change it by them,
and write it back if no other process was faster. So of several decisions, and of a decision and the end of its time,
one counts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mcp_types import INTERNAL_ERROR

from roundtrip.approvals.persons import is_another
from roundtrip.errors import Decision
from roundtrip.ledger.tasks import TaskEntry
from roundtrip.machine.tasks import TaskEvent, TaskState
from roundtrip.text import quoted

if TYPE_CHECKING:
    from roundtrip.approvals.inbox_calls import Choice, Reader
    from roundtrip.stored.content import TaskContent

LABEL_PREFIX: Final = "approvals-"
"""The beginning of a label that names a group."""
GRACE_SECONDS: Final = 60.0
"""Time that a call has left when its approval expires at the latest, so that a value can replace it."""
_DECLINED: Final = "The user declined while this call waited for an approval, so it has ended."
_MAX_GRACE_SHARE: Final = 0.1
_PLAIN_NAME: Final = re.compile(r"[\w.@-]{1,60}")

Record = dict[str, Any]
"""Approval in the content of a stored call, in JSON."""


# Records.


def is_open(record: Mapping[str, Any]) -> bool:
    """Return True if an approval waits for a decision."""
    return record["decision"] is None and record["withdrawn"] is None


def _open_records(content: TaskContent) -> list[Record]:
    return [record for record in content.approvals if is_open(record)]


def state_of(record: Mapping[str, Any], *, is_over: bool) -> str:
    """Return the state of an approval in a word; one that was open when its call ended cannot be decided."""
    made: Mapping[str, Any] = record["decision"] or {}
    return made.get("outcome") or ("withdrawn" if record["withdrawn"] is not None or is_over else "pending")


def decision_of(record: Mapping[str, Any]) -> Decision | None:
    """Return the decision about an approval; None if there is none."""
    made = record["decision"]
    if made is None:
        return None
    return Decision(made["outcome"], datetime.fromtimestamp(made["when"], UTC), made["who"], made["reason"])


def relabel(entry: TaskEntry, content: TaskContent) -> None:
    """Let the store find the call by the groups for which it waits, and by what equal calls share meanwhile."""
    equal = {record.get("equal") for record in content.approvals}
    others = [label for label in entry.labels if not label.startswith(LABEL_PREFIX) and label not in equal]
    labels = (label for record in _open_records(content) for label in (record["label"], record.get("equal")))
    own = {label for label in labels if label is not None}
    entry.labels = (*others, *sorted(own))


def next_look(content: TaskContent) -> float | None:
    """Return the time at which the next approval expires, or its group is notified."""
    times = (at for record in _open_records(content) for at in (record["until"], record["notify"]))
    return min((at for at in times if at is not None), default=None)


def open_groups(content: TaskContent) -> list[str]:
    """Return the groups for whose decisions a call waits."""
    return sorted({record["by"] for record in _open_records(content)})


def listed_groups(groups: Iterable[str]) -> str:
    """Return the names of groups for a model or a client. Authors may make them of values that a client sent."""
    return ", ".join(group if _PLAIN_NAME.fullmatch(group) else quoted(group) for group in groups)


def read_approvals(content: TaskContent) -> list[str]:
    """Return the ids of the decided approvals, which a leg has read."""
    return [record["id"] for record in content.approvals if record["decision"] is not None]


def park_approvals(
    content: TaskContent,
    entry: TaskEntry,
    asked: Mapping[str, Record],
    now: float,
    *,
    read: Collection[str],
    asks_client: bool,
) -> tuple[float | None, bool]:
    """Open the approvals for which a leg has ended, in the content of its call.

    Args:
        content: The content.
        entry: The call.
        asked: The approvals that the leg needs, by their names.
        now: The time.
        read: The ids of the decisions that the leg has read.
        asks_client: True if questions to the client are open, which come first.

    Returns:
        The time at which a worker has to look at the call, and True if a decision came while the leg ran.
    """
    is_decided = False
    latest: dict[str, Record] = {}
    for record in content.approvals:
        latest[record["name"]] = record
        record["read"] = record["read"] or record["id"] in read
        is_decided |= record["decision"] is not None and not record["read"]
    for name, wanted in asked.items():
        known = latest.get(name)
        is_same = known is not None and known["pin"] == wanted["pin"]
        if known is not None and is_same and (is_open(known) or not known["read"]):
            continue
        if asks_client:
            continue
        if known is not None and is_open(known):
            known["withdrawn"] = now
        content.approvals.append(_opened(wanted, entry, now))
    relabel(entry, content)
    return next_look(content), is_decided


def _opened(wanted: Record, entry: TaskEntry, now: float) -> Record:
    record = dict(wanted)
    within, notifies = record.pop("within"), record.pop("notifies")
    left = entry.expires - now
    latest = entry.expires - min(GRACE_SECONDS, _MAX_GRACE_SHARE * left)
    until = latest if within is None else min(now + within, latest)
    fresh: Record = {"opened": now, "until": until, "notify": now if notifies else None, "notified": 0}
    return {**record, **fresh, "decision": None, "withdrawn": None, "read": False}


def withdraw(content: TaskContent, entry: TaskEntry, now: float) -> bool:
    """Withdraw the open approvals of a call that its user declines, and end it. Return False if there are none."""
    pending = _open_records(content)
    if not pending:
        return False
    for record in pending:
        record["withdrawn"] = now
    content.error = {"code": INTERNAL_ERROR, "message": _DECLINED}
    return entry.apply(TaskEvent.CANCEL, now)


class ApprovalLook(NamedTuple):
    """Result of a worker's look at the approvals of a call that is due."""

    notify: list[Record]
    """The approvals of which their groups have to be notified."""
    expired: list[Record]
    is_idle: bool
    """True if there is nothing to do but that; then the call waits again."""


def look_at(content: TaskContent, entry: TaskEntry, now: float, *, holder: str) -> ApprovalLook:
    """Expire the approvals of a call that is due, and note that their groups are notified."""
    expired = _expire([record for record in _open_records(content) if now >= record["until"]], now)
    due = [record for record in _open_records(content) if record["notify"] is not None and now >= record["notify"]]
    notified = _note_notified(due, now)
    if expired:
        relabel(entry, content)
    is_idle = bool(notified) and not _must_run(content, entry, now)
    if is_idle and entry.claim(holder, now, lease=0.0):
        entry.park(TaskEvent.ASK if content.questions else TaskEvent.WAIT, now, due=_next_due(content))
    return ApprovalLook(notified, expired, is_idle)


def pending_approvals(content: TaskContent, now: float) -> list[Record]:
    """Return the approvals that can still be decided."""
    return [record for record in _open_records(content) if now < record["until"]]


def remind_now(content: TaskContent, entry: TaskEntry, now: float) -> list[Record]:
    """Note that the groups of all pending approvals are notified now, and return these approvals."""
    pending = _note_notified(pending_approvals(content, now), now)
    if pending and entry.state in (TaskState.ASKING, TaskState.WAITING):
        # Else a worker would look at the time of the notification that this one replaces.
        due = _next_due(content)
        entry.due = entry.expires if due is None else min(due, entry.expires)
    return pending


def expire_open(content: TaskContent, now: float) -> list[Record]:
    """Expire all open approvals of a call whose life ends, and return them."""
    return _expire(_open_records(content), now)


def _expire(records: list[Record], now: float) -> list[Record]:
    """Expire approvals, and return copies of them."""
    for record in records:
        record["decision"] = {"outcome": "expired", "when": now, "who": None, "reason": None}
    return [dict(record) for record in records]


def _note_notified(records: list[Record], now: float) -> list[Record]:
    """Note that the groups of approvals are notified now, and return copies of them."""
    for record in records:
        record["notified"] += 1
        record["notify"] = None if record["remind"] is None else now + record["remind"]
    return [dict(record) for record in records]


def _next_due(content: TaskContent) -> float | None:
    """Return the time at which a worker has to look at a parked call with approvals."""
    return min((at for at in (content.wakes, next_look(content)) if at is not None), default=None)


def _must_run(content: TaskContent, entry: TaskEntry, now: float) -> bool:
    """Return True if a leg of the call has something to do."""
    return (
        content.is_fresh
        or bool(content.answers)
        or bool(entry.notes)
        or (content.wakes is not None and now >= content.wakes)
        or any(name in content.signals for name in content.waits)
        or any(record["decision"] is not None and not record["read"] for record in content.approvals)
    )


def is_waiting(content: TaskContent, entry: TaskEntry) -> bool:
    """Return True if a call waits and asks nothing, also if it is due only because its groups must be notified."""
    if entry.state is not TaskState.DUE:
        return entry.state is TaskState.WAITING
    now = entry.updated
    is_late = any(now >= record["until"] for record in _open_records(content))
    return not (content.questions or is_late or _must_run(content, entry, now))


def may_decide(reader: Reader, content: TaskContent, record: Mapping[str, Any]) -> bool:
    """Return True if a reader is of the group, and not the caller."""
    return record["by"] in reader.groups and is_another(reader.principal, content.user)


def decide(
    record: Record, entry: TaskEntry, content: TaskContent, now: float, *, reader: Reader, choice: Choice, reason: str
) -> bool:
    """Decide an approval, and let its call go on. Return False if it does not wait, or if the reader must not."""
    if entry.has_ended or not is_open(record) or now >= record["until"] or not may_decide(reader, content, record):
        return False
    record["decision"] = {"outcome": choice, "when": now, "who": reader.name, "reason": reason or None}
    relabel(entry, content)
    entry.updated = now
    # A leg that runs finds it when it ends.
    if entry.state in (TaskState.ASKING, TaskState.WAITING):
        entry.apply(TaskEvent.WAKE, now)
    return True
