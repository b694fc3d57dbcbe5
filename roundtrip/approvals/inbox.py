"""Approval inbox: it opens approvals for legs, shows them to the people who decide, and calls the author's functions.

Every change is a compare-and-set of the stored call. It follows the rules in `rules.py`, and uses the store's clock.
Calls have a label for each group that they wait for, so the store finds these calls quickly among all others.
"""

from __future__ import annotations

import asyncio
import hmac
import inspect
import json
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import nullcontext
from contextvars import Context
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

import anyio
import anyio.to_thread
from mcp.server.auth.provider import AccessToken, principal_components
from mcp.server.request_state import compact_json
from starlette.responses import Response
from typing_extensions import override

from roundtrip.approvals import rules
from roundtrip.approvals.markers import ApprovalQuestion, Approvals, ApprovalSettler, ApprovalState, PendingApproval
from roundtrip.approvals.persons import name_of
from roundtrip.approvals.rules import Choice, Reader, Record
from roundtrip.engine.leg import Authored, Leg, Suspended
from roundtrip.errors import InvalidSignature
from roundtrip.ledger.tasks import CallEntry, EntrySummary
from roundtrip.legs.extensions import LegExtension, LegPart, OpenLeg
from roundtrip.limited_logs import LOG
from roundtrip.machine.journal import from_text, to_text
from roundtrip.questions.markers import ExternalMarker
from roundtrip.stored.book import CallBook, reaching_store
from roundtrip.stored.content import CallNotChanged, already_ended, is_call_id, split_id
from roundtrip.threads.slots import Pool
from roundtrip.tools.promises import TaskMode

if TYPE_CHECKING:
    from starlette.requests import Request

    from roundtrip.approvals.markers import Approve
    from roundtrip.legs.functions import AskingFunction
    from roundtrip.legs.parts import Parts
    from roundtrip.questions.wire import PendingQuestion
    from roundtrip.stored.content import CallContent, ChangeCall, Parking
    from roundtrip.stored.legs import WorkerLeg

_ID_BYTES: Final = 16
_PAGE_SIZE: Final = 20
_NOTIFY_SECONDS: Final = 30.0
_THREADS: Final = Pool(4)
"""A few threads for plain functions that notify people. Mail servers may be slow, and must not tie up the threads that
tools need.
"""
_STOP_SECONDS: Final = 2.0
_MAX_MARK_CHARS: Final = 800


class ShownApproval(NamedTuple):
    """Approval as the deciding group sees it."""

    id: str
    message: str
    by: str
    tool: str
    caller: str
    opened: float
    until: float
    pin: str
    """The digest of the wording. If the wording has changed since a form was shown, that form is rejected."""
    state: Literal["pending", "approved", "rejected", "expired", "closed"] = "pending"
    who: str | None = None
    when: float | None = None
    reason: str | None = None
    tells_caller: bool = False
    """True if the caller has a page that shows the decision and its reason."""


# Registration


def check_approval(function: AskingFunction, inbox: Inbox | None) -> None:
    """Check that a function's approvals can be decided.

    Raises:
        InvalidSignature: The server has no inbox, or its calls expire before the approval does.
    """
    owner = function.owner
    if inbox is None:
        raise InvalidSignature(
            f"{owner}: Approve(...) needs a server with approvals=Approvals(groups=...), Pages(authenticate=...), and "
            "principal= or auth=, which tell apart callers and approvers"
        )
    task, limits = function.policy(TaskMode), function.limits
    approve = cast("Approve | None", function.policy(ExternalMarker))
    if approve is not None and not inbox.knows(approve.by):
        # Only warn, because a group may be empty on purpose.
        logging.getLogger("roundtrip").warning(
            "%s: no person can decide Approve(by=%r), because Approvals(groups=...) has only %s; correct by=, or "
            "add the group",
            owner,
            approve.by,
            inbox.known,
        )
    if approve is None or approve.within is None:
        return
    longest, option, cure = (
        limits.max_age,
        "max_age",
        ", or give the tool task='required', so that its calls may take days",
    )
    if task is not None and task.is_required:
        longest, option, cure = task.ttl, "task_ttl", ""
    if approve.within > longest:
        raise InvalidSignature(
            f"{owner}: within= must not exceed {option}= ({longest:g} seconds), got {approve.within:g}; "
            f"shorten within=, raise {option}={cure}"
        )


class _InboxPart(LegPart):
    """Approvals of one leg."""

    may_store = True

    def __init__(self, served: OpenLeg) -> None:
        self._served = served

    @override
    def complete(self, leg: Leg) -> None:
        settler = _settler_for(self._served)
        leg.ports.settlers = {settler.kind: settler}


def _settler_for(served: OpenLeg) -> ApprovalSettler:
    """Return the approval settler for a leg."""
    if (dry_run := served.parts.effects.dry_run) is not None:
        # A dry run has no caller, and has less time left than the recorded call had.
        return ApprovalSettler(dry_run.decided, math.inf)
    task = cast("WorkerLeg | None", served.stored)
    states: dict[str, ApprovalState] = {}
    approved: dict[str, tuple[tuple[str, str], ...]] = {}
    for record in rules.records_of(task.content) if task is not None else ():
        if record["withdrawn"] is None:
            id, name, pin, decision = record["id"], record["name"], record["pin"], rules.decision_of(record)
            if decision is not None and decision.outcome == "approved":
                approved[name] = (*approved.get(name, ()), (id, pin))
            states[name] = ApprovalState(id, pin, decision, frozenset(record["after"]), approved.get(name, ()))
    caller = served.parts.protection.user(served.request) if task is None else task.content.origin.user
    return ApprovalSettler(states, served.end - served.born, knows_caller=caller is not None)


class Inbox(rules.ApprovalFeature, LegExtension):
    """Approval inbox of one server.

    Args:
        settings: The author's settings.
        parts: The server's keys and clocks.
        book: The stored calls.
        authenticate: Returns the person who sent a request.
        base_url: The address at which browsers reach the server.
    """

    def __init__(
        self,
        settings: Approvals,
        parts: Parts,
        book: CallBook,
        *,
        authenticate: Callable[[Request], Awaitable[AccessToken | str | Response | None]],
        base_url: str,
    ) -> None:
        self._settings = settings
        groups: Any = settings.groups
        self._listed_groups = None if callable(groups) else _all_groups(groups)
        self._authenticate = authenticate
        self._parts = parts
        self._book = book
        self._base = base_url.rstrip("/")
        self._sending: set[asyncio.Task[bool]] = set()

    def knows(self, group: str) -> bool:
        """Return False if the author listed the groups, and this group is not among them."""
        return self._listed_groups is None or group in self._listed_groups

    @property
    def known(self) -> str:
        """Return the groups that the author listed, as text for a message."""
        return ", ".join(map(repr, sorted(self._listed_groups or ()))) or "no groups"

    # Legs

    @override
    def join(self, leg: OpenLeg) -> LegPart | None:
        return _InboxPart(leg) if leg.record is not None and leg.function.kind == "tool" else None

    def prepare(self, end: Suspended | Authored, content: CallContent, call_id: str) -> Parking:
        """Implement `CallFeature.prepare`."""
        asked = self._asked(end.external, call_id) if isinstance(end, Suspended) else {}
        read = [record["id"] for record in rules.records_of(content) if record["decision"] is not None]
        return partial(rules.park_approvals, asked, read)

    def _asked(self, approvals: Mapping[str, PendingQuestion], call_id: str) -> dict[str, Record]:
        """Return the approvals that a leg needs, as the records that `park_approvals` expects."""
        found: dict[str, Record] = {}
        for name, waiting in approvals.items():
            question = cast("ApprovalQuestion", waiting.question)
            if not self.knows(question.by):
                # Do not log the group name, because it may come from a client.
                LOG.warning(
                    "no person can decide approval %r, because its group is unknown: Approvals(groups=...) has only "
                    "%s; correct by=, or add the group",
                    name,
                    self.known,
                )
            found[name] = {
                "id": f"{call_id}.{self._parts.system.new_id(_ID_BYTES)}",
                "name": name,
                "by": question.by,
                "message": question.text,
                "pin": question.pin,
                "after": waiting.after,
                "within": question.within,
                "remind": question.remind,
                "notifies": self._settings.on_pending is not None,
                "label": _label(question.by, self._book.page_keys[0]),
            }
        return found

    def reseal(self, content: CallContent, entry: CallEntry) -> None:
        """Recompute a call's group labels with the newest key."""
        records = rules.records_of(content)
        for record in records:
            record["label"] = _label(record["by"], self._book.page_keys[0])
        if records and not entry.has_ended:
            rules.relabel(entry, content)

    # Methods for readers. Each reader sees only approvals that this reader may decide. If the store is down, these
    # methods raise `CallsUnavailable`.

    async def reader(self, request: Request) -> Reader | Response | None:
        """Return the person who sent a request, a login response, or None if the person is unknown."""
        person = await self._authenticate(request)
        if person is None or isinstance(person, Response):
            return person
        if isinstance(person, AccessToken):
            if not person.subject:
                # A token without a subject identifies a client, not a person.
                return None
            principal = compact_json(principal_components(person))
        else:
            principal = person
        name = name_of(principal, by_token=isinstance(person, AccessToken))
        return Reader(principal, name, await self._groups_of(person))

    async def _groups_of(self, person: str | AccessToken) -> frozenset[str]:
        groups = self._settings.groups
        found: Any
        if isinstance(groups, Mapping):
            known = cast("Mapping[str, Collection[str]]", groups)
            found = known.get(person if isinstance(person, str) else person.subject or "", ())
        else:
            found = await _call_author(groups, person)
        return frozenset([found] if isinstance(found, str) else cast("Iterable[str]", found))

    async def page(self, reader: Reader, after: str | None) -> tuple[list[ShownApproval], str | None]:
        """Return a page of pending approvals, oldest first, and the mark at which the next page starts.

        `after` is the mark that came with the previous page, or None for the first page. On the last page, the returned
        mark is None.

        Raises:
            ValueError: The mark does not come from this inbox.
        """
        place = None if after is None else _position_of(after)
        with reaching_store():
            ordered = await self._oldest(reader.groups, limit=_PAGE_SIZE + 1, after=place)
            shown: list[ShownApproval] = []
            for summary in ordered[:_PAGE_SIZE]:
                view = await self._book.find(summary.call_id)
                if view is not None and not view.entry.has_ended:
                    own = [
                        record
                        for record in rules.records_of(view.content)
                        if rules.may_decide(reader, view.content, record)
                    ]
                    shown += [one for record in own if (one := self._view_of(*view, record)).state == "pending"]
            last = ordered[_PAGE_SIZE - 1] if len(ordered) > _PAGE_SIZE else None
            return shown, None if last is None else _mark_of(last)

    async def waiting(self, *, limit: int) -> list[EntrySummary]:
        """Return the calls that wait for any of the groups that the author listed, longest wait first."""
        return (await self._oldest(self._listed_groups or (), limit=limit))[:limit]

    async def _oldest(
        self, groups: Iterable[str], *, limit: int, after: tuple[float, str] | None = None
    ) -> list[EntrySummary]:
        """Return the calls that wait for any of these groups, longest wait first. For each group label, return at most
        `limit` calls.
        """
        calls: dict[str, EntrySummary] = {}
        for label in {_label(group, key) for group in groups for key in self._book.page_keys}:
            calls |= {one.call_id: one for one in await self._book.store.labelled(label, limit=limit, after=after)}
        return sorted(calls.values(), key=lambda one: (one.created, one.call_id))

    async def find(self, reader: Reader, approval_id: str) -> ShownApproval | None:
        """Return an approval if the reader may decide it.

        Return None if the approval is unknown, belongs to another group, or is for the reader's own call.
        """
        call_id, _ = split_id(approval_id)
        with reaching_store():
            view = await self._book.find(call_id)
        record = _record_of(view.content, approval_id) if view is not None else None
        if view is None or record is None or not rules.may_decide(reader, view.content, record):
            return None
        return self._view_of(*view, record)

    async def decide(
        self, reader: Reader, approval_id: str, pin: str | None, choice: Choice, reason: str
    ) -> ShownApproval | bool | None:
        """Decide a pending approval once, and return it.

        Return None if the reader may not see the approval (see `find`), or False if the approval is no longer pending.

        Args:
            reader: The person who decides.
            approval_id: The approval's id.
            pin: The digest of the wording that the person saw; None if the request has only the id.
            choice: The decision.
            reason: The reason, which may be empty.
        """
        seen = await self.find(reader, approval_id)
        if seen is None:
            return None
        call_id, _ = split_id(approval_id)

        def change(entry: CallEntry, now: float) -> tuple[CallEntry, CallContent, Record] | bool:
            content = self._book.seal.read(entry.content, call_id)
            record = _record_of(content, approval_id)
            if record is None or (pin is not None and pin != record["pin"]):
                return False
            if not rules.decide(record, entry, content, now, reader=reader, choice=choice, reason=reason):
                return False
            entry.content = self._book.seal.write(content, call_id)
            return entry, content, record

        with reaching_store():
            decided = await self._book.change(call_id, change)
        if not isinstance(decided, tuple):
            return False
        entry, content, record = decided
        self.tell(entry, content, decided=[record])
        return self._view_of(entry, content, record)

    def _facts_of(self, entry: CallEntry, content: CallContent, record: Mapping[str, Any]) -> dict[str, Any]:
        caller = name_of(content.origin.user or "", by_token=self._book.knows_users_by_token)
        return {name: record[name] for name in ("id", "message", "by")} | {"tool": entry.tool, "caller": caller}

    def _view_of(self, entry: CallEntry, content: CallContent, record: Mapping[str, Any]) -> ShownApproval:
        shown = ShownApproval(
            **self._facts_of(entry, content, record),
            opened=record["opened"],
            until=record["until"],
            pin=record["pin"],
            # A local page does not know who reads it, so it does not show decisions.
            tells_caller=bool(content.channel.page_secret) and not content.channel.is_local,
        )
        decision = record["decision"]
        if decision is not None:
            when, reason = decision["when"], decision["reason"]
            return shown._replace(state=decision["outcome"], who=decision["who"], when=when, reason=reason)
        if record["withdrawn"] is not None or entry.has_ended:
            return shown._replace(state="closed", when=entry.updated)
        if self._book.clock() >= shown.until:
            return shown._replace(state="expired", when=shown.until)
        return shown

    # Notifications

    def tell(
        self, entry: CallEntry, content: CallContent, *, pending: Iterable[Record] = (), decided: Iterable[Record] = ()
    ) -> None:
        """Call the author's functions: `on_pending` for each pending approval, and `on_decided` for each decision."""
        if self._settings.on_pending is not None:
            for record in pending:
                self._send(self._settings.on_pending, self._pending(entry, content, record))
        for record in decided:
            decision = rules.decision_of(record)
            if self._settings.on_decided is not None and decision is not None:
                self._send(self._settings.on_decided, self._pending(entry, content, record), decision)

    def can_remind(self, content: CallContent, now: float) -> bool:
        """Return True if the author has a function that notifies groups, and the call waits for a group."""
        return self._settings.on_pending is not None and bool(rules.pending_approvals(content, now))

    async def remind(self, change: ChangeCall) -> None:
        """Call the author's `on_pending` again, in this process, for each pending approval of a call.

        Raises:
            CallNotChanged: The call is not waiting for an approval, the server has no `on_pending`, or `on_pending`
                failed.
            LedgerDown: The store cannot be used.
        """
        function = self._settings.on_pending
        if function is None:
            return await super().remind(change)

        def remind(entry: CallEntry, content: CallContent, now: float) -> list[PendingApproval]:
            if entry.has_ended:
                raise already_ended(entry)
            pending = rules.remind_now(content, entry, now)
            if not pending:
                raise CallNotChanged("it is not waiting for an approval, so there is no group to remind")
            entry.content = self._book.seal.write(content, entry.call_id)
            return [self._pending(entry, content, record) for record in pending]

        pending: list[PendingApproval] = await change(remind)
        if failed := [await _try_notify(function, approval) for approval in pending].count(False):
            raise CallNotChanged(
                f"on_pending failed for {failed} of {len(pending)} approvals; the log of this process says why"
            )

    async def finish_telling(self) -> None:
        """Wait until all notifications on this event loop have finished. Each of them has a time limit."""
        if own := self._own_sending():
            await asyncio.wait(own)

    def _pending(self, entry: CallEntry, content: CallContent, record: Record) -> PendingApproval:
        return PendingApproval(
            **self._facts_of(entry, content, record),
            opened=datetime.fromtimestamp(record["opened"], UTC),
            until=datetime.fromtimestamp(record["until"], UTC),
            url=f"{self._base}/approvals/{record['id']}",
            number=max(1, record["notified"]),
        )

    def _send(self, function: Callable[..., object], *arguments: object) -> None:
        sent, name = _try_notify(function, *arguments), "roundtrip: tell of an approval"
        task = asyncio.create_task(sent, name=name, context=Context())
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def stop(self) -> None:
        """Wait briefly for the notifications on this event loop, then cancel those that are still running."""
        if own := self._own_sending():
            _, late = await asyncio.wait(own, timeout=_STOP_SECONDS)
            for task in late:
                task.cancel()

    def _own_sending(self) -> list[asyncio.Task[bool]]:
        loop = asyncio.get_running_loop()
        return [task for task in self._sending if task.get_loop() is loop]


async def _try_notify(function: Callable[..., object], *arguments: object) -> bool:
    """Call an author's function, and log its exception, if any. Return True if the function returned."""
    # The time limit of a plain function starts only once the function has a thread.
    turn = nullcontext() if inspect.iscoroutinefunction(function) else _THREADS.slots().limiter
    try:
        async with turn:
            with anyio.fail_after(_NOTIFY_SECONDS):
                await _call_author(function, *arguments, is_limited=True)
    except Exception:
        logging.getLogger("roundtrip").exception("a function of Approvals(...) failed")
        return False
    return True


async def _call_author(function: Callable[..., object], *arguments: object, is_limited: bool = False) -> Any:
    """Return the result of an author's function. Run a coroutine function on the event loop, and a plain function in a
    thread.

    Args:
        function: The function.
        *arguments: Its arguments.
        is_limited: True if the caller limits the threads and the running time. A function that runs too long is
            abandoned.
    """
    if inspect.iscoroutinefunction(function):
        return await function(*arguments)
    limiter = anyio.CapacityLimiter(1) if is_limited else None
    call = partial(function, *arguments)
    done = await anyio.to_thread.run_sync(call, abandon_on_cancel=is_limited, limiter=limiter)
    return await done if inspect.isawaitable(done) else done


def _all_groups(groups: Mapping[str, Collection[str]]) -> frozenset[str]:
    """Return all groups in a mapping."""
    return frozenset(one for own in groups.values() for one in ([own] if isinstance(own, str) else own))


def _label(group: str, key: bytes) -> str:
    named = hmac.digest(key, f"approvals/{group}".encode("utf-8", "surrogatepass"), "sha256")
    return rules.LABEL_PREFIX + named.hex()


def _record_of(content: CallContent, approval_id: str) -> Record | None:
    encoded = approval_id.encode("utf-8", "replace")
    return next(
        (record for record in rules.records_of(content) if hmac.compare_digest(record["id"].encode(), encoded)), None
    )


def _mark_of(summary: EntrySummary) -> str:
    return to_text(json.dumps([summary.created, summary.call_id]).encode())


def _position_of(mark: str) -> tuple[float, str]:
    """Return the list position that a mark encodes.

    Raises:
        ValueError: The text is not a mark.
    """
    place: Any = json.loads(from_text(mark)) if len(mark) <= _MAX_MARK_CHARS else None
    match place:
        case [float(created), str(call_id)] if math.isfinite(created) and is_call_id(call_id):
            return created, call_id
        case _:
            raise ValueError("not a mark from this inbox")
