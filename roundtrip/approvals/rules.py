"""Approval rules: who decides, when approvals expire, and when groups are notified.

An approval is a record in a stored call. The functions in this file change a stored call that their caller has read.
Their caller then writes the call back, but only if no other process wrote it first. So only the first decision or
expiry takes effect.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from mcp_types import INTERNAL_ERROR

from roundtrip.approvals.persons import is_another
from roundtrip.errors import Decision
from roundtrip.ledger.machines import StoredEvent, StoredState
from roundtrip.ledger.tasks import CallEntry
from roundtrip.stored.content import CallFeature, CallNotChanged, CallSection
from roundtrip.text import quoted

if TYPE_CHECKING:
    from roundtrip.engine.leg import Authored, Suspended
    from roundtrip.stored.content import CallContent, ChangeCall, Parking, Pause, Tell

LABEL_PREFIX: Final = "approvals-"
"""The prefix of all labels for groups."""
GRACE_SECONDS: Final = 60.0
"""Approvals expire at least this many seconds before their call ends, which leaves time for a fallback."""
_DECLINED: Final = "The user declined while this call waited for an approval, so the call has ended."
_MAX_GRACE_SHARE: Final = 0.1
_PLAIN_NAME: Final = re.compile(r"[\w.@-]{1,60}")

Record = dict[str, Any]
"""Approval record in a stored call, as JSON data."""
Choice = Literal["approved", "rejected"]


class Reader(NamedTuple):
    """Person who reads the inbox."""

    principal: str
    """The person, in the form of a principal."""
    name: str
    groups: frozenset[str]


@dataclass(slots=True)
class ApprovalSection(CallSection):
    """Approvals of a stored call."""

    approvals: list[Record] = field(default_factory=list[Record])
    """All approvals that the call has requested, in order."""
    wakes: float | None = None
    """The time at which the call continues. A worker may look at the call earlier in order to notify groups."""

    @property
    def is_empty(self) -> bool:
        """Return True if the call has no approvals."""
        return not self.approvals


# Records


def records_of(content: CallContent) -> list[Record]:
    """Return all approvals that a call has requested, in order."""
    return content.section(ApprovalSection).approvals


def is_open(record: Mapping[str, Any]) -> bool:
    """Return True if an approval is waiting for a decision."""
    return record["decision"] is None and record["withdrawn"] is None


def _open_records(content: CallContent) -> list[Record]:
    return [record for record in records_of(content) if is_open(record)]


def state_of(record: Mapping[str, Any], *, is_over: bool) -> str:
    """Return an approval's state as one word. If the call ended before a decision, the approval counts as withdrawn."""
    decision: Mapping[str, Any] = record["decision"] or {}
    return decision.get("outcome") or ("withdrawn" if record["withdrawn"] is not None or is_over else "pending")


def decision_of(record: Mapping[str, Any]) -> Decision | None:
    """Return the decision about an approval, or None while it is undecided."""
    decision = record["decision"]
    if decision is None:
        return None
    when = datetime.fromtimestamp(decision["when"], UTC)
    return Decision(decision["outcome"], when, decision["who"], decision["reason"])


def relabel(entry: CallEntry, content: CallContent) -> None:
    """Update the call's labels. There is one label for each group that the call waits for, and one for each approval
    that equal calls share.
    """
    equal = {record.get("equal") for record in records_of(content)}
    others = [label for label in entry.labels if not label.startswith(LABEL_PREFIX) and label not in equal]
    labels = (label for record in _open_records(content) for label in (record["label"], record.get("equal")))
    own = {label for label in labels if label is not None}
    entry.labels = (*others, *sorted(own))


def next_look(content: CallContent) -> float | None:
    """Return the next time at which an approval expires or a group must be notified."""
    times = (at for record in _open_records(content) for at in (record["until"], record["notify"]))
    return min((at for at in times if at is not None), default=None)


def open_groups(content: CallContent) -> list[str]:
    """Return the groups that the call waits for."""
    return sorted({record["by"] for record in _open_records(content)})


def listed_groups(groups: Iterable[str]) -> str:
    """Return group names as text for a model or a client. Names with unusual characters are quoted."""
    return ", ".join(group if _PLAIN_NAME.fullmatch(group) else quoted(group) for group in groups)


def park_approvals(
    asked: Mapping[str, Record], read: Collection[str], content: CallContent, entry: CallEntry, pause: Pause, now: float
) -> None:
    """Open the approvals that a leg requested. The leg's call has just been parked.

    Args:
        asked: The requested approvals, by name.
        read: The ids of the decisions that the leg has read.
        content: The call's content.
        entry: The call.
        pause: What the call waits for. Questions to the client come before approvals.
        now: The time.
    """
    section = content.section(ApprovalSection)
    if not asked and section.is_empty:
        return
    section.wakes = pause.until
    is_decided = False
    latest: dict[str, Record] = {}
    for record in section.approvals:
        latest[record["name"]] = record
        record["read"] = record["read"] or record["id"] in read
        is_decided |= record["decision"] is not None and not record["read"]
    for name, wanted in asked.items():
        known = latest.get(name)
        is_same = known is not None and known["pin"] == wanted["pin"]
        if known is not None and is_same and (is_open(known) or not known["read"]):
            continue
        if pause.questions:
            continue
        if known is not None and is_open(known):
            known["withdrawn"] = now
        shared = {} if pause.shared_label is None else {"equal": pause.shared_label}
        section.approvals.append(_new_record({**wanted, **shared}, entry, now))
    relabel(entry, content)
    bring_forward(content, entry)
    if is_decided and _is_parked(entry):
        entry.apply(StoredEvent.WAKE, now)
    if content.channel.refusal == "decline":
        withdraw(content, entry, now)


def bring_forward(content: CallContent, entry: CallEntry) -> None:
    """Make a parked call due in time for the next expiry or notification of its approvals."""
    look = next_look(content)
    if look is not None and _is_parked(entry):
        entry.due = min(look, entry.due)


def _is_parked(entry: CallEntry) -> bool:
    return entry.state in (StoredState.ASKING, StoredState.WAITING)


def _new_record(wanted: Record, entry: CallEntry, now: float) -> Record:
    record = dict(wanted)
    within, notifies = record.pop("within"), record.pop("notifies")
    left = entry.expires - now
    latest = entry.expires - min(GRACE_SECONDS, _MAX_GRACE_SHARE * left)
    until = latest if within is None else min(now + within, latest)
    fresh: Record = {"opened": now, "until": until, "notify": now if notifies else None, "notified": 0}
    return {**record, **fresh, "decision": None, "withdrawn": None, "read": False}


def withdraw(content: CallContent, entry: CallEntry, now: float) -> bool:
    """End a call whose user declines, and withdraw its pending approvals.

    Return False if the call waits for something else.
    """
    pending = _open_records(content)
    if not pending or not is_waiting(content, entry):
        return False
    for record in pending:
        record["withdrawn"] = now
    content.error = {"code": INTERNAL_ERROR, "message": _DECLINED}
    return entry.apply(StoredEvent.CANCEL, now)


def look_at(content: CallContent, entry: CallEntry, now: float, *, holder: str) -> tuple[list[Record], list[Record]]:
    """Expire approvals in a due call, and record which groups are notified now.

    If nothing else is due, park the call again. Return the approvals whose groups are notified, and the expired
    approvals.
    """
    expired = _expire([record for record in _open_records(content) if now >= record["until"]], now)
    due = [record for record in _open_records(content) if record["notify"] is not None and now >= record["notify"]]
    notified = _note_notified(due, now)
    if expired:
        relabel(entry, content)
    if notified and not _must_run(content, entry, now) and entry.claim(holder, now, lease=0.0):
        entry.park(StoredEvent.ASK if content.asked.questions else StoredEvent.WAIT, now, due=_next_due(content))
    return notified, expired


def pending_approvals(content: CallContent, now: float) -> list[Record]:
    """Return the approvals that can still be decided."""
    return [record for record in _open_records(content) if now < record["until"]]


def remind_now(content: CallContent, entry: CallEntry, now: float) -> list[Record]:
    """Record that the groups of all pending approvals are notified now, and return these approvals."""
    pending = _note_notified(pending_approvals(content, now), now)
    if pending and _is_parked(entry):
        # Recompute the due time, so that a worker does not wake for the notification that was just replaced.
        due = _next_due(content)
        entry.due = entry.expires if due is None else min(due, entry.expires)
    return pending


def _expire(records: list[Record], now: float) -> list[Record]:
    """Expire approvals, and return copies of them."""
    for record in records:
        record["decision"] = {"outcome": "expired", "when": now, "who": None, "reason": None}
    return [dict(record) for record in records]


def _note_notified(records: list[Record], now: float) -> list[Record]:
    """Record that the groups of these approvals have just been notified, and return copies of the approvals."""
    for record in records:
        record["notified"] += 1
        record["notify"] = None if record["remind"] is None else now + record["remind"]
    return [dict(record) for record in records]


def _next_due(content: CallContent) -> float | None:
    """Return the time at which a worker must look at a parked call with approvals."""
    times = (content.section(ApprovalSection).wakes, next_look(content))
    return min((at for at in times if at is not None), default=None)


def _must_run(content: CallContent, entry: CallEntry, now: float) -> bool:
    """Return True if a leg of the call must run."""
    section = content.section(ApprovalSection)
    return (
        content.is_fresh
        or bool(content.asked.answers)
        or bool(entry.notes)
        or (section.wakes is not None and now >= section.wakes)
        or any(name in content.signals for name in content.waits)
        or any(record["decision"] is not None and not record["read"] for record in section.approvals)
    )


def is_waiting(content: CallContent, entry: CallEntry) -> bool:
    """Return True if a call waits without an open question. A call that is due only to notify groups also counts as
    waiting.
    """
    if entry.state is not StoredState.DUE:
        return entry.state is StoredState.WAITING
    now = entry.updated
    is_late = any(now >= record["until"] for record in _open_records(content))
    return not (content.asked.questions or is_late or _must_run(content, entry, now))


def may_decide(reader: Reader, content: CallContent, record: Mapping[str, Any]) -> bool:
    """Return True if the reader belongs to the group and is not the caller."""
    return record["by"] in reader.groups and is_another(reader.principal, content.origin.user)


def decide(
    record: Record, entry: CallEntry, content: CallContent, now: float, *, reader: Reader, choice: Choice, reason: str
) -> bool:
    """Decide an approval, and wake its call. Return False if the approval is not pending, or if the reader may not
    decide it.
    """
    if entry.has_ended or not is_open(record) or now >= record["until"] or not may_decide(reader, content, record):
        return False
    record["decision"] = {"outcome": choice, "when": now, "who": reader.name, "reason": reason or None}
    relabel(entry, content)
    entry.updated = now
    # A running leg sees the decision when it ends, so only a parked call must be woken.
    if _is_parked(entry):
        entry.apply(StoredEvent.WAKE, now)
    return True


class ApprovalFeature(CallFeature):
    """Approvals of stored calls on a server that has no inbox. People approve or reject the calls on another server.
    See `Inbox`.
    """

    def prepare(self, end: Suspended | Authored, content: CallContent, call_id: str) -> Parking:
        """Return the function that opens the approvals a leg needs."""
        return partial(park_approvals, {}, ())

    def bring_forward(self, content: CallContent, entry: CallEntry) -> None:
        """Make a call due when its next approval expires, or when a group must be notified."""
        bring_forward(content, entry)

    def look(self, content: CallContent, entry: CallEntry, now: float, *, holder: str) -> Tell | None:
        """Expire approvals, and record which groups are notified."""
        if not records_of(content):
            return None
        notified, expired = look_at(content, entry, now, holder=holder)
        return partial(self.tell, entry, content, pending=notified, decided=expired)

    def expire(self, content: CallContent, entry: CallEntry, now: float) -> Tell:
        """Expire all open approvals."""
        return partial(self.tell, entry, content, decided=_expire(_open_records(content), now))

    def status(self, content: CallContent) -> str | None:
        """Return a text with the groups that a call waits for; None if there are none."""
        groups = open_groups(content)
        return f"Waits for an approval by {listed_groups(groups)}" if groups else None

    async def remind(self, change: ChangeCall) -> None:
        """Raise an error, because only an inbox can notify groups."""
        raise CallNotChanged("the server does not notify groups; give it approvals=Approvals(on_pending=...)")

    def tell(
        self, entry: CallEntry, content: CallContent, *, pending: Iterable[Record] = (), decided: Iterable[Record] = ()
    ) -> None:
        """Notify the groups of pending approvals, and report decisions to the author's function."""
