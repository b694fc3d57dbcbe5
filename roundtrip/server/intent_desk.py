"""Stored calls with an intent: record which stored call has the intent, and let later calls join it."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult

from roundtrip.channels import stored_replies as replies
from roundtrip.engine.leg import JoinedCall
from roundtrip.errors import OutcomeUnknown, StillRunning
from roundtrip.ledger.contract import LedgerDown
from roundtrip.ledger.machines import StoredState
from roundtrip.ledger.tasks import changes_of
from roundtrip.legs.requests import holding
from roundtrip.machine.journal import Computed
from roundtrip.once import exactly_once
from roundtrip.once.intent_legs import KEPT, Kept
from roundtrip.once.intents import RECALLED_META, IntentClaim
from roundtrip.stored.content import BODY_FAILED, DECLINED, EXPIRED
from roundtrip.tasks.extension import declares_tasks
from roundtrip.text import iso_text
from roundtrip.tools.failures import is_store_down, store_down, tool_failure
from roundtrip.tools.promises import OncePolicy
from roundtrip.tools.replies import text_result, written

if TYPE_CHECKING:
    from collections.abc import Callable

    from roundtrip.channels.stored_calls import StoredCalls
    from roundtrip.legs.runner import ServedEnd
    from roundtrip.stored.book import StoredView
    from roundtrip.stored.desk import ClientCall, Proceed
    from roundtrip.stored.service import CallService

_MAX_TRIES: Final = 2


class IntentDesk:
    """Desk feature around all others, for calls with an intent.

    Args:
        service: Stores calls.
        stored_of: Returns the server's stored calls that ask on a page or a model; None if it has none.
    """

    def __init__(self, service: CallService, stored_of: Callable[[], StoredCalls | None]) -> None:
        self._service = service
        self._stored_of = stored_of

    async def serve(self, call: ClientCall, proceed: Proceed) -> ServedEnd | dict[str, Any]:
        """Serve one request. If its intent has a stored call, return the reply of that call."""
        if not _has_intent(call) or self._service.legs.parts.effects.dry_run is not None:
            return await proceed()
        kept = Kept(stored_nothing=partial(self._came_to_nothing, call))
        for _ in range(_MAX_TRIES):
            with holding(KEPT, kept):
                try:
                    end = await proceed()
                except BaseException as error:
                    if kept.claim is not None:
                        with anyio.CancelScope(shield=True):
                            await _give_up(kept.claim, error)
                    raise
            if kept.claim is not None:
                await self._record(kept.claim, end)
                return end
            if not isinstance(end, JoinedCall):
                return end
            reply = await self._reply(end, call, kept)
            if reply is not None:
                return reply
            # The stored call no longer counts, so this request begins a new call.
            kept.voids, call.record.is_taken = end.epoch, False
        raise _failure(call, StillRunning(call.find().owner))

    async def _reply(self, joined: JoinedCall, call: ClientCall, kept: Kept) -> dict[str, Any] | None:
        """Return the reply of a stored call; None if the call no longer counts.

        Raises:
            MCPError: The call is still running, or the store cannot be used.
        """
        book, ctx = self._service.book, call.record.context
        try:
            view = await self._ended(joined.call_id, call)
        except LedgerDown as error:
            raise store_down("Calls cannot be reached now") from error
        if view is None:
            once = call.find().policy(OncePolicy)
            if once is not None and once.on_unknown == "rerun":
                return None
            # The store has lost the call, so nobody knows what it did.
            unknown = text_result(str(OutcomeUnknown(call.find().owner)), is_error=True)
            return written(unknown, ctx.protocol_version)
        book.name(joined.call_id)
        if view.entry.has_ended:
            if self._is_void(view, call):
                kept.computed = self._computed_by(view)
                return None
            reply = replies.ended(view)
            return {**reply, "_meta": {**reply.get("_meta", {}), RECALLED_META: iso_text(view.entry.updated)}}
        stored = self._stored_of()
        if self._is_own(view, call):
            if view.content.is_continued and stored is not None:
                return await stored.reply_to_repeated(view, call.record)
            if not view.content.is_continued and declares_tasks(ctx):
                return {**book.handle(view), "resultType": "task"}
        raise _failure(call, StillRunning(call.find().owner))

    def _is_void(self, view: StoredView, call: ClientCall) -> bool:
        """Return True if an ended call no longer counts, for example because it was cancelled in time."""
        policy = call.find().policy(OncePolicy)
        if view.entry.state is StoredState.CANCELLED or view.content.error == EXPIRED:
            return not view.entry.has_begun
        if policy is None or policy.intent is None:
            return False
        if view.content.error == DECLINED:
            return self._service.book.clock() >= view.entry.updated + policy.intent.declined_for
        # A rejection by an approver, and a body whose outcome is unknown, are no failures of the body.
        return view.content.error == BODY_FAILED and policy.intent.on_failure == "rerun"

    async def _came_to_nothing(self, call: ClientCall, call_id: str) -> bool:
        """Return True if a stored call has ended without a result, and has computed nothing.

        Raises:
            LedgerDown: The store cannot be used.
        """
        view = await self._service.book.find(call_id)
        if view is None or not view.entry.has_ended or view.content.error == BODY_FAILED:
            return False
        return self._is_void(view, call) and all(name.startswith("~") for name in self._computed_by(view))

    async def _record(self, claim: IntentClaim, end: ServedEnd | dict[str, Any]) -> None:
        """Record what has become of a call that was to be stored."""
        if not isinstance(end, dict):
            await claim.release()
        elif claim.may_end_at_once and end.get("resultType") != "task":
            await claim.record(CallToolResult.model_validate(end))
        else:
            with suppress(LedgerDown):
                entry, now = await self._service.book.store.load(claim.call_id)
                # The call may end in its last moment, and its end counts for as long as any other.
                claim.kept_for += entry.expires - now if entry is not None else 0.0
            await claim.settle_stored(claim.call_id)

    def _computed_by(self, view: StoredView) -> dict[str, Computed]:
        """Return what an ended call had computed."""
        book = self._service.book
        # The end of a leg drops the results of its steps.
        notes = book.seal.notes(view.entry) if view.entry.state is not StoredState.COMPLETED else []
        return {**book.read_journal(view.content).computed, **{name: Computed(value) for _, name, value in notes}}

    async def _ended(self, call_id: str, call: ClientCall) -> StoredView | None:
        """Return a stored call. If this client cannot get a handle to it, wait for its end."""
        book = self._service.book
        view = await book.find(call_id)
        with changes_of(book.store, call_id) as next_change, anyio.move_on_after(exactly_once.PATIENCE_SECONDS):
            while view is not None and not view.entry.has_ended and not self._has_handle(view, call):
                await next_change()
                view = await book.find(call_id)
        return view

    def _has_handle(self, view: StoredView, call: ClientCall) -> bool:
        takes = self._stored_of() is not None if view.content.is_continued else declares_tasks(call.record.context)
        return takes and self._is_own(view, call)

    def _is_own(self, view: StoredView, call: ClientCall) -> bool:
        # With scope="service", the stored call may belong to another caller, who alone may have its handle. Unknown
        # callers may be different ones, but a local page's process has only one client.
        principal = self._service.legs.parts.protection.principal(call.record.context)
        is_known = principal is not None or view.content.channel.is_local
        return is_known and view.content.origin.principal == principal


async def _give_up(claim: IntentClaim, error: BaseException) -> None:
    """End the claim on a call that could not be stored."""
    if not claim.may_end_at_once:
        await claim.release()
        return
    # The body may have run. If the store failed, nobody knows its outcome.
    is_known = isinstance(error, MCPError) and not is_store_down(error)
    await claim.record(error if is_known else None)


def _has_intent(call: ClientCall) -> bool:
    try:
        policy = call.find().policy(OncePolicy)
    except ToolError:
        return False  # an unknown tool
    return policy is not None and policy.intent is not None


def _failure(call: ClientCall, error: StillRunning) -> Exception:
    return tool_failure(call.name, error, mask=False)
