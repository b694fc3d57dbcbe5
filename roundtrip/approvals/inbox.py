"""Provide the approvals of a server: to legs, to the people who decide, and to the author's functions.

Each change is a compare-and-set of the stored call, by the rules of `rules.py` and the store's clock. The store
finds the calls that wait for a group by a label, whatever the number of other calls.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import inspect
import json
import logging
import math
import re
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
"""Plain functions that notify people share few threads, and take none from tools: mail servers may be slow."""
_STOP_SECONDS: Final = 2.0
_MARK: Final = re.compile(r"[A-Za-z0-9_-]{1,800}", re.ASCII)


class ShownApproval(NamedTuple):
    """Approval as its group sees it."""

    id: str
    message: str
    by: str
    tool: str
    caller: str
    opened: float
    until: float
    pin: str
    """The digest of its wording, which a form must have been shown for."""
    state: Literal["pending", "approved", "rejected", "expired", "closed"] = "pending"
    who: str | None = None
    when: float | None = None
    reason: str | None = None
    tells_caller: bool = False
    """True if the caller has a page that shows the decision and its reason."""


# Registration.


def check_approval(function: AskingFunction, inbox: Inbox | None) -> None:
    """Check that a function that needs an approval can get one.

    Raises:
        InvalidSignature: The server has no inbox, or its calls cannot wait for so long.
    """
    owner = function.owner
    if inbox is None:
        raise InvalidSignature(
            f"{owner}: Approve(...) needs approvals=Approvals(groups=...) of its server, with principal= or auth=, and "
            "Pages(authenticate=...), because callers must not decide their own calls"
        )
    task, limits = function.policy(TaskMode), function.limits
    approve = cast("Approve | None", function.policy(ExternalMarker))
    if approve is not None and not inbox.knows(approve.by):
        # Not an error: a group may be empty on purpose.
        logging.getLogger("roundtrip").warning(
            "%s: no person can decide Approve(by=%r), as Approvals(groups=...) has only %s; correct by=, or add the "
            "group",
            owner,
            approve.by,
            inbox.known,
        )
    if approve is None or approve.within is None:
        return
    longest, option, cure = limits.max_age, "max_age", ", or give the tool task='required', whose calls may take days"
    if task is not None and task.is_required:
        longest, option, cure = task.ttl, "task_ttl", ""
    if approve.within > longest:
        raise InvalidSignature(
            f"{owner}: within= must be at most {longest:g} seconds, the {option} of its calls, got {approve.within:g}; "
            f"make it shorter, raise {option}={cure}"
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
    """Return the settler of approvals for a leg of a call."""
    if (dry_run := served.parts.effects.dry_run) is not None:
        # It has no caller, and less time than the recorded call had.
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
    """Approvals of one server.

    Args:
        settings: The author's settings.
        parts: Its keys and clocks.
        book: The stored calls.
        authenticate: Names the person of a request.
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
        self._listed = None if callable(groups) else _listed(groups)
        self._authenticate = authenticate
        self._parts = parts
        self._book = book
        self._base = base_url.rstrip("/")
        self._sending: set[asyncio.Task[bool]] = set()

    def knows(self, group: str) -> bool:
        """Return False if the author listed all groups, and this one is not among them."""
        return self._listed is None or group in self._listed

    @property
    def known(self) -> str:
        """Return the groups that the author listed."""
        return ", ".join(map(repr, sorted(self._listed or ()))) or "no groups"

    # Legs.

    @override
    def join(self, leg: OpenLeg) -> LegPart | None:
        return _InboxPart(leg) if leg.record is not None and leg.function.kind == "tool" else None

    def prepare(self, end: Suspended | Authored, content: CallContent, call_id: str) -> Parking:
        """Implement `CallFeature.prepare`."""
        asked = self._asked(end.external, call_id) if isinstance(end, Suspended) else {}
        read = [record["id"] for record in rules.records_of(content) if record["decision"] is not None]
        return partial(rules.park_approvals, asked, read)

    def _asked(self, approvals: Mapping[str, PendingQuestion], call_id: str) -> dict[str, Record]:
        """Return the approvals that a leg needs, as `park_approvals` takes them."""
        found: dict[str, Record] = {}
        for name, waiting in approvals.items():
            question = cast("ApprovalQuestion", waiting.question)
            if not self.knows(question.by):
                # Its group is not named, as it may have come from a client.
                LOG.warning(
                    "no person can decide approval %r, as Approvals(groups=...) has not its group, but %s; correct "
                    "by=, or add the group",
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
        """Make the labels of groups with the newest key."""
        records = rules.records_of(content)
        for record in records:
            record["label"] = _label(record["by"], self._book.page_keys[0])
        if records and not entry.has_ended:
            rules.relabel(entry, content)

    # Readers. Each method hides what its reader must not decide, and raises `CallsUnavailable` without the store.

    async def reader(self, request: Request) -> Reader | Response | None:
        """Return the person of a request; or the response of a login; or None."""
        person = await self._authenticate(request)
        if person is None or isinstance(person, Response):
            return person
        if isinstance(person, AccessToken):
            if not person.subject:
                # It names a client, and no person.
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
            found = await _called(groups, person)
        return frozenset([found] if isinstance(found, str) else cast("Iterable[str]", found))

    async def page(self, reader: Reader, after: str | None) -> tuple[list[ShownApproval], str | None]:
        """Return a page of pending approvals, the oldest first: the first page, or the one behind a mark.

        Return the mark of the next page, too; None for the last one.

        Raises:
            ValueError: The mark is not one of this inbox.
        """
        place = None if after is None else _place_of(after)
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
                    shown += [one for record in own if (one := self._shown(*view, record)).state == "pending"]
            last = ordered[_PAGE_SIZE - 1] if len(ordered) > _PAGE_SIZE else None
            return shown, None if last is None else _mark_of(last)

    async def waiting(self, *, limit: int) -> list[EntrySummary]:
        """Return calls that wait for groups which the author listed, those that have waited longest first."""
        return (await self._oldest(self._listed or (), limit=limit))[:limit]

    async def _oldest(
        self, groups: Iterable[str], *, limit: int, after: tuple[float, str] | None = None
    ) -> list[EntrySummary]:
        """Return calls that wait for groups, `limit` of each at most, those that have waited longest first."""
        calls: dict[str, EntrySummary] = {}
        for label in {_label(group, key) for group in groups for key in self._book.page_keys}:
            calls |= {one.call_id: one for one in await self._book.store.labelled(label, limit=limit, after=after)}
        return sorted(calls.values(), key=lambda one: (one.created, one.call_id))

    async def find(self, reader: Reader, approval_id: str) -> ShownApproval | None:
        """Return an approval of the reader's groups; None if it is unknown, another group's, or of their own call."""
        call_id, _ = split_id(approval_id)
        with reaching_store():
            view = await self._book.find(call_id)
        record = _record_of(view.content, approval_id) if view is not None else None
        if view is None or record is None or not rules.may_decide(reader, view.content, record):
            return None
        return self._shown(*view, record)

    async def decide(
        self, reader: Reader, approval_id: str, pin: str | None, choice: Choice, reason: str
    ) -> ShownApproval | bool | None:
        """Decide a pending approval, once; return it, or None as `find` does, and False if it no longer waits.

        Args:
            reader: The person.
            approval_id: Its id.
            pin: The digest of the wording that the person saw; None if they name the id alone.
            choice: The decision.
            reason: The reason; may be empty.
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
        return self._shown(entry, content, record)

    def _facts_of(self, entry: CallEntry, content: CallContent, record: Mapping[str, Any]) -> dict[str, Any]:
        caller = name_of(content.origin.user or "", by_token=self._book.knows_users_by_token)
        return {name: record[name] for name in ("id", "message", "by")} | {"tool": entry.tool, "caller": caller}

    def _shown(self, entry: CallEntry, content: CallContent, record: Mapping[str, Any]) -> ShownApproval:
        shown = ShownApproval(
            **self._facts_of(entry, content, record),
            opened=record["opened"],
            until=record["until"],
            pin=record["pin"],
            # A page of the caller's machine does not know its reader.
            tells_caller=bool(content.channel.page_secret) and not content.channel.is_local,
        )
        made = record["decision"]
        if made is not None:
            return shown._replace(state=made["outcome"], who=made["who"], when=made["when"], reason=made["reason"])
        if record["withdrawn"] is not None or entry.has_ended:
            return shown._replace(state="closed", when=entry.updated)
        if self._book.clock() >= shown.until:
            return shown._replace(state="expired", when=shown.until)
        return shown

    # Notifications.

    def tell(
        self, entry: CallEntry, content: CallContent, *, pending: Iterable[Record] = (), decided: Iterable[Record] = ()
    ) -> None:
        """Notify the groups of pending approvals, and tell the author of decisions."""
        if self._settings.on_pending is not None:
            for record in pending:
                self._send(self._settings.on_pending, self._pending(entry, content, record))
        for record in decided:
            decision = rules.decision_of(record)
            if self._settings.on_decided is not None and decision is not None:
                self._send(self._settings.on_decided, self._pending(entry, content, record), decision)

    def can_remind(self, content: CallContent, now: float) -> bool:
        """Return True if the author has a function that notifies groups, and a call waits for some."""
        return self._settings.on_pending is not None and bool(rules.pending_approvals(content, now))

    async def remind(self, change: ChangeCall) -> None:
        """Notify the groups of a call's pending approvals again, by the author's `on_pending`, in this process.

        Raises:
            CallNotChanged: The call waits for no approval, the server has no `on_pending`, or that failed.
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
                raise CallNotChanged("it waits for no approval, so there is no group to remind")
            entry.content = self._book.seal.write(content, entry.call_id)
            return [self._pending(entry, content, record) for record in pending]

        pending: list[PendingApproval] = await change(remind)
        if failed := [await _sent(function, approval) for approval in pending].count(False):
            raise CallNotChanged(
                f"on_pending failed for {failed} of {len(pending)} approvals; the log of this process says why"
            )

    async def finish_telling(self) -> None:
        """Wait until everything that was sent on this event loop has ended. Each function has a time limit."""
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
        sent, name = _sent(function, *arguments), "roundtrip: tell of an approval"
        task = asyncio.create_task(sent, name=name, context=Context())
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def stop(self) -> None:
        """Wait for the notifications of this event loop for a moment, and cancel the others."""
        if own := self._own_sending():
            _, late = await asyncio.wait(own, timeout=_STOP_SECONDS)
            for task in late:
                task.cancel()

    def _own_sending(self) -> list[asyncio.Task[bool]]:
        loop = asyncio.get_running_loop()
        return [task for task in self._sending if task.get_loop() is loop]


async def _sent(function: Callable[..., object], *arguments: object) -> bool:
    """Call an author's function, and log its error. Return True if it had none."""
    # The time of a plain one begins when it gets a thread.
    turn = nullcontext() if inspect.iscoroutinefunction(function) else _THREADS.slots().limiter
    try:
        async with turn:
            with anyio.fail_after(_NOTIFY_SECONDS):
                await _called(function, *arguments, is_limited=True)
    except Exception:
        logging.getLogger("roundtrip").exception("a function of Approvals(...) failed")
        return False
    return True


async def _called(function: Callable[..., object], *arguments: object, is_limited: bool = False) -> Any:
    """Return what an author's function returns: a coroutine function here, a plain one in a thread.

    Args:
        function: The function.
        *arguments: Its arguments.
        is_limited: True if the caller limits threads and their time, so that a late one is left behind.
    """
    if inspect.iscoroutinefunction(function):
        return await function(*arguments)
    limiter = anyio.CapacityLimiter(1) if is_limited else None
    call = partial(function, *arguments)
    done = await anyio.to_thread.run_sync(call, abandon_on_cancel=is_limited, limiter=limiter)
    return await done if inspect.isawaitable(done) else done


def _listed(groups: Mapping[str, Collection[str]]) -> frozenset[str]:
    """Return all groups of a mapping."""
    return frozenset(one for own in groups.values() for one in ([own] if isinstance(own, str) else own))


def _label(group: str, key: bytes) -> str:
    named = hmac.digest(key, f"approvals/{group}".encode("utf-8", "surrogatepass"), "sha256")
    return rules.LABEL_PREFIX + named.hex()


def _record_of(content: CallContent, approval_id: str) -> Record | None:
    given = approval_id.encode("utf-8", "replace")
    return next(
        (record for record in rules.records_of(content) if hmac.compare_digest(record["id"].encode(), given)), None
    )


def _mark_of(summary: EntrySummary) -> str:
    text = json.dumps([summary.created, summary.call_id])
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def _place_of(mark: str) -> tuple[float, str]:
    """Return the place that a mark names.

    Raises:
        ValueError: It is not a mark.
    """
    if _MARK.fullmatch(mark) is None:
        raise ValueError("not a mark of the inbox")
    place: Any = json.loads(base64.urlsafe_b64decode(mark + "=" * (-len(mark) % 4)))
    match place:
        case [float(created), str(call_id)] if math.isfinite(created) and is_call_id(call_id):
            return created, call_id
        case _:
            raise ValueError("not a mark of the inbox")
