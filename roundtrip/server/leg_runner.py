"""Serving one leg of a request: from the journal that came with it to the result, or to the state of the next leg."""

# The functions that `run` makes on each leg would evaluate their annotations each time.
from __future__ import annotations

import hashlib
import hmac
import json
import logging
import math
import os
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import anyio.to_thread
from mcp.server import MCPServer
from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import Context as SdkContext
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, InputResponseRequestParams, InputResponses

from roundtrip.engine.body import Body
from roundtrip.engine.leg import Authored, Declined, Finished, Leg, LegEnd, Suspended, open_call
from roundtrip.engine.leg_run import serve
from roundtrip.errors import ChannelMissing, GuessUncounted, RoundtripError, ToolTimedOut
from roundtrip.ledger.contract import LedgerDown, Reach
from roundtrip.machine.call import Call
from roundtrip.machine.facts import Watch
from roundtrip.machine.journal import Journal, to_text
from roundtrip.questions.markers import Marker
from roundtrip.revisions import CLIENTS_STOP_AFTER_ROUNDS, FIRST_OF_RETRY_ERA, is_retry_era
from roundtrip.server.calls import CallInfo
from roundtrip.server.context import Context
from roundtrip.server.exactly_once import LedgerClaim, OncePolicy
from roundtrip.server.functions import AskingFunction
from roundtrip.server.limited_logs import LimitedLog
from roundtrip.server.parts import Parts
from roundtrip.server.requests import (
    NO_EMPTY_ROUNDS,
    SKEW,
    RequestClient,
    RequestRecord,
    announced_name,
    asking_request,
    client_name,
    offer,
    take_back,
)
from roundtrip.server.threads import LeavingThreads, StayingThreads
from roundtrip.tracing import Beginning, Closed, DeclinedFact, LinkedWatch, Raised, Returned, Wrote

if TYPE_CHECKING:
    from roundtrip.server.visibility_gates import OpenGates

__all__ = ["NO_REQUEST", "Incoming", "LegRunner", "RefusedByUser", "log_teardown", "result_of"]

logger = logging.getLogger("roundtrip")
_cannot_ask_log = LimitedLog(logger)

_ROUNDS_LOG: Final = LimitedLog(logger)
"""As a client can go on for as many rounds as it likes."""
_WARNED_FROM_ROUND: Final = CLIENTS_STOP_AFTER_ROUNDS - 2
_MANY_ROUNDS: Final = (
    "%s asks in round %d of one call, and clients on %s stop after round %d; ask in fewer rounds: several "
    "questions at once with ctx.ask_all or resolvers that do not need each other, or one form with more fields"
)

_ID_BYTES = 9


class Incoming(NamedTuple):
    """The request that a leg serves, if there is one, with what came with it: answers, and an author's own state."""

    request: ServerRequestContext[Any, Any] | None
    responses: InputResponses | None
    state: str | None

    @classmethod
    def of(cls, request: ServerRequestContext[Any, Any]) -> Incoming:
        """Read a request whose parameters are valid for its revision."""
        params = request.params or {}
        responses = None
        if params.get("inputResponses") is not None:
            responses = InputResponseRequestParams.model_validate(params, by_name=False).input_responses
        return cls(request, responses, params.get("requestState"))

    @classmethod
    def by(cls, context: SdkContext[Any, Any]) -> Incoming:
        """Return the request of a context."""
        request = context.request_context if context.protocol_version is not None else None
        return cls(request, context.input_responses, context.request_state)

    def params(self) -> InputResponseRequestParams | None:
        """What came with it, for a context made anew."""
        if self.responses is None and self.state is None:
            return None
        # Both have been validated, which takes its time where a client has sent very many.
        return InputResponseRequestParams.model_construct(input_responses=self.responses, request_state=self.state)


NO_REQUEST: Final = Incoming(None, None, None)
"""For what is called outside of any request."""


def result_of(end: Finished | Suspended | Authored) -> Any:
    """What the SDK's handlers return for a leg: the function's result, or the questions in its place."""
    if isinstance(end, Finished):
        return end.value
    return end.result() if isinstance(end, Suspended) else end.result


class RefusedByUser(RoundtripError):
    """The user declined or cancelled what a call could not do without."""


class LegRunner:
    """Serves the legs of one server's functions."""

    def __init__(
        self,
        server: MCPServer[Any] | None,
        parts: Parts,
    ) -> None:
        self._server = server
        self._system = parts.system
        self._protection = parts.protection
        self._effects = parts.effects
        self._limits = parts.limits
        self.no_empty_rounds = NO_EMPTY_ROUNDS
        """Names of clients that are sent no round without questions."""
        self.warns_of_guesses = False
        """Whether to tell that other processes may count guesses for themselves."""
        self._page_waits: list[float] = []
        self._page_wait = math.inf

    def context_of(self, request: ServerRequestContext[Any, Any]) -> Context[Any, Any]:
        """Return a context that cannot ask, for code outside of legs."""
        return Context(request_context=request, mcp_server=self._server, subscriptions=self._effects.bus)

    @contextmanager
    def hurried(self, page_wait: float) -> Generator[None]:
        """Have legs inside a `with` block wait no longer than some seconds for a page."""
        # Blocks of users that run side by side may end in any order.
        self._page_waits.append(page_wait)
        self._page_wait = min(self._page_waits)
        try:
            yield
        finally:
            self._page_waits.remove(page_wait)
            self._page_wait = min(self._page_waits, default=math.inf)

    async def run(
        self,
        function: AskingFunction,
        arguments: Mapping[str, Any],
        incoming: Incoming,
        *,
        confirmation: tuple[str, Marker] | None = None,
        convert: Callable[[Any], Any] | None = None,
        opened: OpenGates | None = None,
        once: OncePolicy | None = None,
        traced: bool = True,
    ) -> Finished | Suspended | Authored:
        """Serve one leg, to the function's (converted) result or to questions.

        Args:
            function: The function.
            arguments: The client's arguments, as it receives them.
            incoming: The request that the leg serves, with what came with it.
            confirmation: The question, with its name, that must be accepted before anything runs.
            convert: Makes the result of what the function returns.
            opened: Its visibility gate, with the values that it found, if it has one.
            once: If its body must run once, what its author says of that.
            traced: Whether tracers are told of it.

        Raises:
            RefusedByUser: The user would not answer.
            ToolTimedOut: The function's own work took too long.
            RoundtripError: The call cannot go on.
            Exception: What the author's code raised.
        """
        build, plan = function.source.text, function.planned.plan
        if build is None:
            # Registered on the event loop.
            build = await anyio.to_thread.run_sync(function.source.read)
        request = asking_request()
        # What a middleware or a gate calls comes first: without the context of the request, or as another tool.
        outermost = request is not None and not request.claimed and incoming.request is not None
        if outermost and request is not None and request.context.method == "tools/call":
            outermost = _target(request.context) == function.name
        journal = None
        if request is not None and outermost:
            # A function called from within another has a call of its own, and no answers yet.
            request.claimed = True
            # On the older revisions there are no tokens, and so no books that a leg which brings one could be held to.
            journal = request.journal if _is_retry(request.context) else None
        wire = request.context if request is not None else incoming.request

        call = open_call(journal, fresh_id=_fresh_id)
        # In milliseconds, as the journal keeps them: every leg must reckon with the same birth and the same end.
        seeds = origin = None
        if journal is not None:
            born, end, origin = journal.born, journal.end, journal.origin
        else:
            born = int(time.time() * 1000) / 1000
            end = round((born + function.limits.max_age) * 1000) / 1000
            # Another version may serve the new call than the one that was begun, and its author has a say too.
            if request is not None and outermost and function.limits.recover:
                seeds, origin = request.seeds, request.origin
        watch: Watch | None = None
        effects = self._effects
        if traced and effects.tracers:
            watch = call.watch = effects.tracers.begin(
                self._beginning(function, call, journal, arguments, request, wire, outermost=outermost)
            )
        if request is not None and outermost:
            request.call_id = call.id

        def write(journal: Journal) -> str:
            if isinstance(watch, LinkedWatch):
                journal = replace(journal, traceparent=watch.traceparent)
            packed = self._protection.write(journal)
            if watch is not None:
                watch(Wrote(journal))
            if request is not None and outermost:
                request.packed = packed
            # The boundary puts the token in the place of these words.
            return f"{journal.call_id}/{journal.leg}"

        threads = LeavingThreads(function.owner) if function.timeout is not None else None
        in_thread = threads.run if threads is not None else StayingThreads(function.owner).run

        async def guess(key: str, answer: Any, guesses: int) -> bool:
            return await self._guess(function, call, journal, wire, key, answer, guesses)

        leg = Leg(
            call=call,
            plan=plan,
            client=RequestClient(wire),
            born=born,
            end=end,
            clock=time.time,
            limits=function.limits,
            write=write,
            plan_for=function.plan_for,
            confirmation=confirmation,
            build=build,
            version=function.version,
            journal=journal,
            responses=incoming.responses if journal is not None else None,
            seeds=seeds,
            origin=origin,
            pinner=self._protection.journals.pinner,
            claim=self._books(function, call, journal, once, wire) if outermost and _is_retry(wire) else None,
            begin_unclaimed=self._uncovered(function, call, once, wire) if once is not None else None,
            count_guess=guess,
            timeout=function.timeout,
            outlive=threads.outlive if threads is not None else None,
            page_wait=self._page_wait,
            run_in_thread=in_thread,
            report=log_teardown,
            offer=offer,
            known=opened.known if opened is not None else None,
            entered=opened.managers if opened is not None else None,
        )

        async def execute(filled: dict[str, Any], made: Any) -> Any:
            if effects.rehearsal is not None:
                effects.rehearsal.stop(function.owner, outermost=outermost)
            return await function.run(arguments, filled, made, in_thread, convert)

        def make_context(body: Body | None) -> Context[Any, Any]:
            return Context(
                request_context=wire,
                mcp_server=self._server,
                input_params=incoming.params(),
                subscriptions=effects.bus,
                body=body,
                call=CallInfo(leg.call, issue),
            )

        def issue(purpose: str, unbound: bool) -> str | None:
            principal = None if unbound else self._protection.user(wire)
            # In a rehearsal nobody is authenticated, and nobody gets the ticket.
            if principal is None and not unbound and effects.rehearsal is None:
                return None
            return self._protection.ticket_office().issue(leg.call.id, purpose, expires=leg.end, principal=principal)

        # A leg that runs nothing that could ask makes no context of its own.
        offered = offer(lambda: make_context(None))
        try:
            end = await serve(
                leg,
                arguments=arguments,
                make_context=make_context,
                body_cannot_ask=not function.contexts,
                execute=execute,
            )
        except BaseException as error:
            if watch is not None:
                watch(Raised(error))
                watch(Closed(None))
            if isinstance(error, ToolTimedOut):
                _log_timeout(function, error, left=threads.left if threads is not None else 0)
            if isinstance(error, ChannelMissing) and wire is not None:
                _cannot_ask_log.warning(
                    "%s could not ask %s, which speaks %s: this transport has no way back to it; serve older clients "
                    "over stdio, or streamable HTTP with stateless_http=False and json_response=False (roundtrip serve "
                    "with one worker)",
                    function.owner,
                    client_name(wire),
                    error.protocol_version,
                )
            raise
        finally:
            take_back(offered)
        if call.round >= _WARNED_FROM_ROUND and not isinstance(end, Finished | Declined) and _is_retry(wire):
            _ROUNDS_LOG.warning(_MANY_ROUNDS, function.owner, call.round, FIRST_OF_RETRY_ERA, CLIENTS_STOP_AFTER_ROUNDS)
        if watch is not None:
            _conclude(end, watch, request if outermost else None)
        if isinstance(end, Declined):
            raise RefusedByUser(end.reason)
        if request is not None and outermost and not isinstance(end, Finished):
            request.minted = end.state
        if isinstance(end, Authored) and end.state is not None and outermost:
            return Authored(end.result.model_copy(update={"request_state": end.state}), end.state)
        return end

    def _uncovered(
        self, function: AskingFunction, call: Call, once: OncePolicy, wire: ServerRequestContext[Any, Any] | None
    ) -> Callable[[], None] | None:
        """What is told of a body that begins without a token; None where a round without questions gets it one."""
        if not once.when_possible and (not self.no_empty_rounds or announced_name(wire) not in self.no_empty_rounds):
            return None
        why = (
            "exactly_once='when_possible', and nobody was asked"
            if once.when_possible
            else "its client takes no round without questions"
        )

        def tell() -> None:
            logger.info("%s runs in call %s without running exactly once: %s", function.owner, call.id, why)

        return tell

    def _books(
        self,
        function: AskingFunction,
        call: Call,
        journal: Journal | None,
        once: OncePolicy | None,
        wire: ServerRequestContext[Any, Any] | None,
    ) -> LedgerClaim | None:
        if once is None:
            return None
        ledger = self._effects.ledger
        claim = LedgerClaim(
            ledger, call.id, function.name, _keep(function, journal), once.on_unknown, system=self._system
        )
        if ledger.reach > Reach.PROCESS:
            # What never leaves this process need not be sealed, and only there is room scarce.
            claim.sealer = self._protection.ledger_sealer
        else:
            claim.account = self._account(function, wire)
        return claim

    def _account(self, function: AskingFunction, wire: ServerRequestContext[Any, Any] | None) -> str:
        principal = self._protection.principal(wire)
        return f"tool {function.name}" if principal is None else f"caller {principal}"

    async def _guess(
        self,
        function: AskingFunction,
        call: Call,
        journal: Journal | None,
        wire: ServerRequestContext[Any, Any] | None,
        key: str,
        answer: Any,
        guesses: int,
    ) -> bool:
        """Count an answer to a question of a call; return False if it is one more than the call may have.

        A rotation of keys may count an answer again that is sent again, and never forgets one.

        Raises:
            GuessUncounted: The ledger cannot.
        """
        counted = json.dumps([call.id, key, answer], sort_keys=True).encode()
        item = hmac.digest(self._protection.guess_key or b"", counted, "sha256").hex()
        question = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=_ID_BYTES).hexdigest()
        ledger = self._effects.ledger
        if ledger.reach is Reach.PROCESS and self.warns_of_guesses:
            self.warns_of_guesses = False
            logger.warning(
                "%s has a question with guesses=, and other processes may have the keys of its calls and count for "
                "themselves; give all of them one ledger= (a SqliteLedger or a RedisLedger), or say "
                "ledger=MemoryLedger() if this process is alone",
                function.owner,
            )
        try:
            return await ledger.count(
                f"{call.id}/guesses/{question}",
                item,
                most=guesses,
                keep=_keep(function, journal) + SKEW,
                account=self._account(function, wire),
            )
        except LedgerDown as error:
            logger.error("%s", error)
            raise GuessUncounted(function.owner) from error

    def wrap_authored(self, ctx: ServerRequestContext[Any, Any], request: RequestRecord, state: str) -> bytes:
        """Put a state that a function outside roundtrip returned by hand into a journal, under the seal.

        Raises:
            MCPError: It cannot be carried; the log says why.
        """
        journal = request.journal
        call = open_call(journal, fresh_id=_fresh_id)
        now = time.time()
        born = journal.born if journal is not None else now
        end = journal.end if journal is not None else born + self._limits.max_age
        note = Journal(
            call_id=call.id,
            born=born,
            deadline=min(now + self._limits.ttl, end),
            end=end,
            leg=call.leg,
            round=call.round,
            authored=state,
            written=now,
        )
        try:
            return self._protection.write(note)
        except RoundtripError as error:
            logger.error("cannot carry the request state of %s: %s", ctx.method, error)
            raise MCPError(code=INTERNAL_ERROR, message="Internal error") from error

    def _beginning(
        self,
        function: AskingFunction,
        call: Call,
        journal: Journal | None,
        arguments: Mapping[str, Any],
        request: RequestRecord | None,
        wire: ServerRequestContext[Any, Any] | None,
        *,
        outermost: bool,
    ) -> Beginning:
        """What there is to tell of a leg when it begins."""
        sent = (wire.params or {}).get("arguments") if wire is not None and outermost else None
        brought = request if outermost else None
        return Beginning(
            call_id=call.id,
            leg=call.leg,
            round=call.round,
            subject=function.subject,
            era="direct" if wire is None else "retry" if is_retry_era(wire.protocol_version) else "live",
            protocol=wire.protocol_version if wire is not None else None,
            principal=self._protection.principal(wire),
            journal=journal,
            token_bytes=brought.token_in if brought is not None else None,
            arguments=cast("Mapping[str, Any]", sent) if isinstance(sent, Mapping) else arguments,
            within=request.call_id if request is not None and not outermost else None,
            replaces=brought.replaces if brought is not None else None,
        )


def _keep(function: AskingFunction, journal: Journal | None) -> float:
    """Return the seconds after which no leg of a call can arrive any more."""
    if journal is None:
        return function.limits.max_age + function.limits.recover
    # Another build may have begun the call, and its tokens live as long as that one has said.
    return max(0.0, journal.end - time.time()) + journal.recover


def _is_retry(wire: ServerRequestContext[Any, Any] | None) -> bool:
    return wire is not None and is_retry_era(wire.protocol_version)


def _conclude(end: LegEnd, watch: Watch, request: RequestRecord | None) -> None:
    """Tell how a leg ended; how large its token is shows when the request has been served."""
    if isinstance(end, Finished):
        watch(Returned(end.value))
    elif isinstance(end, Declined):
        watch(DeclinedFact(end.reason))
    elif request is not None:
        request.watch = watch
        return
    watch(Closed(None))


def log_teardown(label: str, error: BaseException) -> None:
    """Tell the log of what a dependency raised while it was left."""
    logger.error("dependency %r failed while it was left; its call is not affected", label, exc_info=error)


def _log_timeout(function: AskingFunction, error: ToolTimedOut, *, left: int) -> None:
    still = f"; still running in a thread, whose slot it keeps: {left}" if left else ""
    logger.warning("%s %s%s", function.owner, error, still, exc_info=error.__cause__)


def _target(request: ServerRequestContext[Any, Any] | None) -> str:
    """What a request calls, which the token will name."""
    if request is None:
        return ""
    # Whatever else a client sends along names nothing.
    return str((request.params or {}).get("uri" if request.method == "resources/read" else "name", ""))


def _fresh_id() -> str:
    while (fresh := to_text(os.urandom(_ID_BYTES))).startswith("-"):
        # On a command line it would look like an option.
        pass
    return fresh
