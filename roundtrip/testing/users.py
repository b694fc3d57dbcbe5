"""`User`, a scripted person who uses a real client."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, TypeVar, get_args

import anyio
from mcp.server.auth.provider import AccessToken
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolResult,
    ElicitResult,
    InputRequest,
    InputRequiredResult,
    InputResponse,
    ListRootsResult,
    Root,
)
from typing_extensions import TypedDict, Unpack

from roundtrip.adapters.finding import attached
from roundtrip.client.legs import ERAS, LIVES, Era, LegRequest, LegResult, TaskRound, asking, callbacks, drive, within
from roundtrip.client.tasks import question_name
from roundtrip.machine.call import Transition
from roundtrip.machine.table import Event, State
from roundtrip.once.intents import RECALLED_META
from roundtrip.questions.wire import TICKET
from roundtrip.revisions import CLIENTS_STOP_AFTER_ROUNDS, FIRST_OF_RETRY_ERA
from roundtrip.stored.content import split_id
from roundtrip.testing.approvers import Approver
from roundtrip.testing.apps import AppView, app_in, require_app
from roundtrip.testing.conversations import AskedQuestion, Conversation, LinkResult
from roundtrip.testing.networks.fleet import (
    ELSEWHERE_FACTOR,
    Instances,
    NetworkFleet,
    PlayedClient,
    Target,
    acting_as,
)
from roundtrip.testing.networks.network import Carry, Network, stacked
from roundtrip.testing.question_pages import (
    WaitingCall,
    open_approvals,
    page_at,
    questions_for_model,
    waiting_call,
)
from roundtrip.testing.scripts import (
    IGNORE,
    LEAVE,
    Answers,
    AnswersBy,
    Matcher,
    MatcherT,
    PreparedValues,
    Script,
    Silence,
    describe_unused,
    prepare_values,
)
from roundtrip.testing.user_defaults import CURRENT, stack_of
from roundtrip.testing.visits import PageUnfinished, VisitFn, VisitsBy, pay_visit
from roundtrip.tracing import Tracer

# Hide this module's frames in the tracebacks of failing tests.
__tracebackhide__ = True

_LOOK_SECONDS: Final = 0.1
"""The interval, in seconds, at which a call's approvals are polled."""
_APPROVAL_SECONDS: Final = 300.0
"""Time limit for a waiting call. If no approver decides, `watch_approvals` usually ends the call earlier."""
_APPROVAL_PREFIX: Final = "This waits for an approval by "

_MAX_TASK_ROUNDS: Final = 100
"""After this number of rounds, the user assumes that a task will ask forever. Real clients do not limit a task's
rounds.
"""

PageT = TypeVar("PageT", str, Matcher)


class Unanswered(AssertionError):
    """The script has no answer to a question."""

    def __init__(self, question: AskedQuestion, asked: Sequence[AskedQuestion]) -> None:
        page = "; to visit its page, pass visits=, or answer ACCEPT" if question.url is not None else ""
        before = "".join(f"\n  {one}" for one in asked)
        super().__init__(
            f"answers= has no answer to the question {question}\nasked so far:{before}\n"
            "a key in answers= must be the question's name, a pattern for its message, or a function of the question"
            + ("" if question.name is not None else "; this question has no name on the wire, so use a pattern")
            + page
        )
        self.question = question
        self.asked = tuple(asked)


class Unused(AssertionError):
    """Some prepared answers were never used."""

    def __init__(self, unused: Sequence[str], asked: Sequence[AskedQuestion], *, ended: str) -> None:
        questions = "".join(f"\n  {one}" for one in asked) or " none"
        super().__init__(
            f"no question used {', '.join(unused)}\nquestions:{questions}\nthe call ended with {ended}\n"
            "to allow this, pass allow_unused=True"
        )
        self.unused = tuple(unused)


class User:
    """A scripted person who calls tools through a real `mcp` client.

    Args:
        server: A server object, a server factory, a URL, the command of a stdio server, or a transport. A list of
            servers is a fleet, and each item is one instance. A factory may accept `keys=`.
        answers: The answers, in a mapping. A key is a question's name, a compiled pattern that matches the message, or
            a function that takes the `AskedQuestion`. An answer is form content (a mapping or a model), the value of a
            form with one field, `ACCEPT`, `DECLINE`, `CANCEL`, `IGNORE` or `LEAVE`. An answer can also be a list, whose
            items are used in order, each for one question. To give different answers in each round, pass a list of
            mappings.
        visits: The page visits, in a mapping with the same keys as `answers`. A visit is a function, plain or
            asynchronous, that takes a `Visit` and acts as the browser. A visit can also be a list of functions, which
            are used once each, in order. The user accepts the question, and continues when the function returns.
        approver: One or more `Approver`s, who decide approvals while the call waits for them. The user accepts the page
            that shows who must decide, and then calls `continue_call` to get the result, as a model would. The
            decisions are in `Conversation.approvals`.
        patience: After the user has agreed to visit a page, `done=` must report the page as finished within this number
            of seconds. The limit is five times as long for a server in another process, for a change in a task's
            status, and for an approver's decision. A server in another process also waits as long as its own `wait=`
            says.
        era: The era to speak, or `Era.TASK` for a client that supports tasks. The default is the test's era
            (`@pytest.mark.roundtrip(eras=...)`), or else the retry era.
        network: The networks that requests pass through in the retry era, or their names, outermost first. The default
            is the networks in the test's mark.
        over: The transport to server objects: "memory", or "http" on a local port. The default is the transport in the
            test's mark, or else "memory".
        principal: The logged-in principal, as a subject or an access token. Only servers in memory receive it.
        roots: The client's roots. By default, the client does not declare roots.
        max_rounds: In the retry era, the number of rounds after which the client gives up. All tested clients give up
            after 10 rounds.
        missing_capabilities: Capabilities that the client does not declare: "elicitation" (forms and pages),
            "sampling".
        client: "no-elicitation" for a client that shows neither forms nor links, or "links" for a client that shows
            links but no forms. By default, the client shows both. If the server is in this process and has question
            pages (`Server(pages=...)`), the user gives the same answers there, and calls `continue_call` if a result
            says so. If the server has the channel "model", the user also calls `continue_call` to answer the questions
            that a model may answer. "apps" is a client that shows MCP Apps, and neither forms nor links: the user
            gives the same answers in the app, also if the server is in another process. "app-forms" is a client that
            shows only forms, and lets apps render them. It checks that each form names an app that it can read.
        page_headers: Headers that the user's browser sends to question pages, such as a login cookie.
        record_messages: Keep every JSON-RPC message in `Conversation.messages`. This needs HTTP.
        allow_error: Allow calls of unknown tools, and calls that end with a protocol error (`Conversation.error`).
        allow_unused: Allow answers that no question used.

    Example:
        ```python
        call = await User(server, answers={"choose_seat": {"row": "middle"}}).call("book", film="Solaris")
        assert call.value == "Booked Solaris, middle row."
        ```
    """

    def __init__(
        self,
        server: Target,
        answers: AnswersBy[MatcherT] | Sequence[AnswersBy[MatcherT]] | None = None,
        *,
        visits: VisitsBy[PageT] | None = None,
        approver: Approver | Sequence[Approver] | None = None,
        patience: float = 2.0,
        era: Era | None = None,
        network: Network | str | Sequence[Network | str] | None = None,
        over: Literal["memory", "http"] | None = None,
        principal: AccessToken | str | None = None,
        roots: Sequence[Root] | None = None,
        max_rounds: int = CLIENTS_STOP_AFTER_ROUNDS,
        missing_capabilities: Collection[Literal["elicitation", "sampling"]] = (),
        client: PlayedClient | None = None,
        page_headers: Mapping[str, str] | None = None,
        record_messages: bool | None = None,
        allow_error: bool = False,
        allow_unused: bool = False,
    ) -> None:
        if not isinstance(era, Era | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"era= must be Era.RETRY, Era.LIVE, Era.AUTO or Era.TASK, got {era!r}")
        if over not in (None, "memory", "http"):
            raise ValueError(f"over= must be 'memory' or 'http', got {over!r}")
        if isinstance(missing_capabilities, str) or not frozenset(missing_capabilities) <= {"elicitation", "sampling"}:
            raise ValueError(f"missing_capabilities= allows 'elicitation' and 'sampling', got {missing_capabilities!r}")
        if client is not None and client not in get_args(PlayedClient):
            raise ValueError(f"client= must be one of {', '.join(map(repr, get_args(PlayedClient)))}, got {client!r}")
        if isinstance(answers, str):
            raise TypeError(f"answers= must map question names to answers, got {answers!r}")
        if patience <= 0:
            raise ValueError(f"patience= must be a number of seconds greater than 0, got {patience!r}")
        if max_rounds < 1:
            raise ValueError(f"max_rounds= must be at least 1, got {max_rounds}")
        self._instances = Instances(server)
        self._answers: Answers | Sequence[Answers] = answers or {}
        self._visits: Mapping[Any, Any] = visits or {}
        self._approvers = (approver,) if isinstance(approver, Approver) else tuple(approver or ())
        self._patience = patience
        self._era = era
        self._network = None if network is None else stack_of(network)
        self._over: Literal["memory", "http"] | None = over
        self._principal = principal
        self._roots = roots
        self._max_rounds = max_rounds
        self._missing = frozenset[str](missing_capabilities)
        self._client: PlayedClient | None = client
        self._page_headers = dict(page_headers or {})
        self._record_messages = record_messages
        self._allow_error = allow_error
        self._allow_unused = allow_unused

    @property
    def era(self) -> Era:
        """Return the user's era."""
        return self._era or CURRENT.now.era

    async def call(self, tool: str, arguments: Mapping[str, Any] | None = None, /, **more: Any) -> Conversation:
        """Call a tool, answer its questions, and return the conversation.

        Raises:
            Unanswered: The script has no answer to a question.
            Unused: Some of the script's answers were never used.
            MCPError: The call ended with a protocol error, and `allow_error` is not set.
            LookupError: The server has no such tool, or hides it, and `allow_error` is not set.
            Breach: The server broke a rule on a hostile network.
        """
        if arguments is not None and not isinstance(arguments, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"User.call({tool!r}, ...) must be given its arguments by name or in a mapping, got {arguments!r}; "
                f"write call({tool!r}, argument={arguments!r}), with the argument's name"
            )
        return await self.begin(LegRequest(tool, {**(arguments or {}), **more}))

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None, /, **more: str) -> Conversation:
        """Get a prompt, answer its questions, and return the conversation. See `call`."""
        return await self.begin(LegRequest(name, {**(arguments or {}), **more}, method="prompts/get"))

    async def read_resource(self, uri: str) -> Conversation:
        """Read a resource, answer its questions, and return the conversation. See `call`."""
        return await self.begin(LegRequest(uri, method="resources/read"))

    async def begin(self, leg: LegRequest) -> Conversation:
        """Send a call's first request, answer its questions, and return the conversation. See `call`."""
        return await self.play(leg, Script(self._answers))

    async def play(self, leg: LegRequest, script: Script, *, tracers: Sequence[Tracer] = ()) -> Conversation:
        """Make a call with a script instead of the user's own answers. Add the tracers to roundtrip servers."""
        run = _UserCall(
            Conversation(leg, self.era),
            script,
            visits=prepare_values(self._visits),
            roots=self._roots or (),
            patience=self._patience,
            max_rounds=self._max_rounds if self.era is not Era.TASK else _MAX_TASK_ROUNDS,
            page_headers=self._page_headers,
            has_approver=bool(self._approvers),
            client=self._client,
        )

        async def work(stack: AsyncExitStack) -> None:
            carry = await self._connect(run, stack, tracers)
            async with anyio.create_task_group() as group:
                for approver in self._approvers:
                    group.start_soon(run.run_approver, approver)
                group.start_soon(run.watch_approvals)
                await run.send_legs(carry)
                group.cancel_scope.cancel()

        failed: Exception | None = None
        try:
            with acting_as(self._principal):
                await within(AsyncExitStack(), work)
        except Exception as raised:  # noqa: BLE001  # a mistake in the script may have caused it
            failed = raised
        if (failure := run.failure or failed) is not None:
            raise failure
        error = run.conversation.error
        if error is not None and not self._allow_error:
            raise error
        unknown = (f"Unknown tool: {leg.name}", f"Unknown tool: {leg.name!r}")
        if not self._allow_error and run.conversation.failure in unknown:
            raise LookupError(f"the server has no tool {leg.name!r}; if the test expects this, pass allow_error=True")
        unused = [*script.unused, *(f"the page {visit}" for visit in describe_unused(run.visits, " visits"))]
        if unused and not self._allow_unused:
            ended = run.conversation.told
            if RECALLED_META in (run.conversation.result.meta or {}):
                ended += ", which is the recalled end of an earlier call; each test needs its own ledger"
            raise Unused(unused, run.conversation.questions, ended=ended) from error
        return run.conversation

    async def _connect(self, run: "_UserCall", stack: AsyncExitStack, tracers: Sequence[Tracer]) -> Carry:
        defaults, conversation = CURRENT.now, run.conversation
        fleet = run.fleet = NetworkFleet(
            self._instances,
            callbacks(
                run.answer_live,
                elicit="elicitation" not in self._missing and self._client not in ("no-elicitation", "apps"),
                sample="sampling" not in self._missing,
                list_roots=self._roots is not None,
            ),
            era=conversation.era,
            stack=stack,
            record_messages=defaults.record_messages if self._record_messages is None else self._record_messages,
            over=self._over or defaults.over,
            listen=run.listen,
            principal=self._principal,
            tracers=tracers if defaults.recorder is None else (*tracers, defaults.recorder),
            patience=self._patience,
            client=self._client,
        )
        conversation.messages = fleet.messages
        await fleet.start()
        if attached(fleet.at) is not None:
            conversation.states = [State.RECEIVED]
        if conversation.era is Era.LIVE:
            return fleet.send
        if self._network is not None:
            return stacked(self._network, fleet)
        defaults.called_tools.append(conversation.first.name)
        return stacked(defaults.network, fleet)


@dataclass(slots=True)
class _AgreedPage:
    """A page that the user has agreed to visit."""

    question: AskedQuestion
    """The question, as it was asked most recently."""
    since: float
    visits: int = 0


@dataclass(slots=True, eq=False)
class _UserCall:
    """One running call."""

    conversation: Conversation
    script: Script
    visits: list[PreparedValues[VisitFn]]
    roots: Sequence[Root]
    patience: float
    max_rounds: int
    page_headers: Mapping[str, str]
    has_approver: bool = False
    client: PlayedClient | None = None
    failure: Exception | None = None
    fleet: NetworkFleet = field(init=False)
    live_keys: list[str] = field(default_factory=list[str])
    """Names of the questions in the live round that have not been asked yet."""
    pages: dict[tuple[str | None, str, str], _AgreedPage] = field(default_factory=dict[Any, _AgreedPage])
    waiting: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    call_id: str = ""
    stored_call: str | None = None
    """The id of the stored call that waits for an approval; None if the server is in another process."""
    app: AppView | None = None
    """The app that shows the call's questions."""
    is_continuing: bool = False
    """True once the user has called `continue_call`, which starts a second call."""

    def listen(self, step: Transition, by_worker: bool) -> None:
        """In the live era, record states and question names."""
        if self.conversation.era is not Era.LIVE or self.conversation.left or (self.is_continuing and not by_worker):
            return
        if self.conversation.states is not None:
            self.conversation.states.append(step.target)
        # Skip rounds on question pages, because `_answer_page` records them. Skip approvals, because they are not
        # questions.
        if step.event is Event.ASK and not {"channel", "external"} & step.detail.keys():
            self.live_keys = list(step.detail.get("keys", ()))
            self.conversation.rounds.append([])

    async def send_legs(self, carry: Carry) -> None:
        """Send legs until the final result arrives or the user leaves."""
        with self.waiting:
            await self._send_legs(carry)
        if self.waiting.cancelled_caught and not self.conversation.left:
            patience = self.patience * ELSEWHERE_FACTOR
            where = "" if self.conversation.era is Era.TASK else ", in another process,"
            waited = f"the server{where} has not answered for {patience:g} s since the user agreed"
            self.failure = self.failure or self._unfinished_error(waited)

    async def _send_legs(self, carry: Carry) -> None:
        conversation = self.conversation

        async def send_leg(leg: LegRequest) -> LegResult:
            conversation.legs += 1
            return await deliver(leg)

        async def deliver(leg: LegRequest) -> LegResult:
            delivery = await carry(leg)
            if not self.is_continuing:
                self.call_id = delivery.call_id or self.call_id
                self._note_states(delivery.transitions or ())
            self._note_states(self.fleet.take_worker_transitions(self.call_id))
            if delivery.error is not None:
                conversation.error = delivery.error
                raise delivery.error
            if delivery.result is None:
                raise delivery.crash or AssertionError("the server sent no response")
            return delivery.result

        try:
            result = await drive(
                conversation.first, send=send_leg, answer=self._answer_round, max_rounds=self.max_rounds
            )
            decided_by = anyio.current_time() + _APPROVAL_SECONDS
            self.app = app_in(result, server=lambda: self.fleet.at, send=deliver)
            while (waiting := self._find_waiting_call(result)) is not None:
                if self.has_approver and anyio.current_time() > decided_by:
                    raise AssertionError(f"the call is still waiting after {_APPROVAL_SECONDS:g} s")
                if self.app is not None:
                    if not await self._use_app(self.app):
                        return
                elif waiting.link is not None and not await self._read_page(waiting.link):
                    return
                questions = await questions_for_model(self.fleet.at, split_id(waiting.handle)[0])
                answers = await self._answer_page(questions) if questions else []
                if answers is None:
                    return
                self.is_continuing = True
                leg = LegRequest(waiting.tool, {"handle": waiting.handle, **_model_arguments(questions, answers)})
                result = await drive(leg, send=send_leg, answer=self._answer_round, max_rounds=self.max_rounds)
        except MCPError as error:
            if error is not conversation.error:
                raise
            return
        if not isinstance(result, InputRequiredResult):
            conversation.result = result
        elif not conversation.left and self.failure is None:
            raise self._endless_error()

    def _find_waiting_call(self, result: object) -> WaitingCall | None:
        """Record a result that describes a waiting call, and return this call. Return None for any other result."""
        waiting = waiting_call(result) if self.app is not None or attached(self.fleet.at) is not None else None
        if waiting is None or not isinstance(result, CallToolResult):
            return None
        results = self.conversation.link_results
        if len(results) >= self.max_rounds and not self.has_approver:
            raise AssertionError(f"{waiting.tool} was called {len(results)} times, and the call is still waiting")
        results.append(LinkResult(result, len(self.conversation.rounds)))
        self.stored_call = split_id(waiting.handle)[0]
        return waiting

    async def run_approver(self, approver: Approver) -> None:
        """Run an approver, and end the call if the approver fails."""
        try:
            await approver.watch(lambda: self.fleet.at, self.conversation.approvals.append)
        except AssertionError as error:
            self.failure = self.failure or error
            self.waiting.cancel()

    async def watch_approvals(self) -> None:
        """End the call if an approval waits too long.

        Without an approver, only the test itself can decide, by another client. Approvers do not see the approvals for
        their own calls or for other groups, so an approval may never be decided.
        """
        patience = self.patience * (ELSEWHERE_FACTOR if self.has_approver else 1)
        advice = "pass User(approver=Approver({group: 'approve'}, headers=...)), a person who decides"
        if self.has_approver:
            advice = (
                "no approver= can both see the approval and decide it; an Approver must have a matching verdict, log "
                "in as a member of that group, and not be the caller"
            )
        approvals, since = "", anyio.current_time()
        while True:
            await anyio.sleep(_LOOK_SECONDS)
            before, call_id = approvals, self.stored_call
            approvals = await open_approvals(self.fleet.at, call_id) if call_id is not None else ""
            if not approvals or approvals != before:
                since = anyio.current_time()
            elif anyio.current_time() - since >= patience:
                self.failure = self.failure or AssertionError(
                    f"after {patience:g} s, the call still waits for {approvals}: {advice}. Raise patience= if the "
                    "decision takes longer"
                )
                self.waiting.cancel()
                return

    async def _read_page(self, link: str) -> bool:
        """If a link leads to a question page, answer the page. Return False if the user leaves or the page fails."""
        page = page_at(link, self.fleet.at)
        if page is None:
            return True
        self.stored_call = page.call_id
        try:
            return await page.play(self._answer_page, headers=self.page_headers)
        except Exception as error:  # noqa: BLE001  # raised here, it would look like the client's error
            self.failure = self.failure or error
            return False
        finally:
            self._note_states(self.fleet.take_worker_transitions(page.call_id))

    async def _use_app(self, app: AppView) -> bool:
        """Answer a call in an app. Return False if the user leaves or the app fails."""
        self.is_continuing = True
        self.stored_call = app.call_id
        try:
            seconds = _APPROVAL_SECONDS if self.has_approver else self.patience * ELSEWHERE_FACTOR
            return await app.play(self._answer_page, seconds=seconds)
        except AssertionError as error:
            self.failure = self.failure or error
            return False
        finally:
            self._note_states(self.fleet.take_worker_transitions(app.call_id))

    def _note_states(self, transitions: Iterable[Transition]) -> None:
        """Record the target states of transitions. In the live era, `listen` records the states instead."""
        if self.conversation.states is not None and self.conversation.era is not Era.LIVE:
            self.conversation.states.extend(step.target for step in transitions)

    async def _answer_page(self, questions: Sequence[AskedQuestion]) -> list[InputResponse | None] | None:
        """Answer a round on a question page or in an app. Return None if the user leaves or an answer fails."""
        self.conversation.rounds.append([])
        self.conversation.tokens.append(None)
        answers = [await self._answer(question) for question in questions]
        return None if self.conversation.left or self.failure is not None else answers

    def _endless_error(self) -> AssertionError:
        waited = f"done= has not reported it as finished in {self.max_rounds} rounds"
        if self.conversation.era is Era.TASK:
            advice = ". End its loop, or ask in fewer rounds (ctx.ask_all, or a form with more fields)"
        else:
            advice = (
                f"; on {FIRST_OF_RETRY_ERA}, clients stop after {CLIENTS_STOP_AFTER_ROUNDS} rounds. Ask in fewer "
                "rounds (ctx.ask_all, or a form with more fields), or pass User a higher max_rounds="
            )
        return self._unfinished_error(waited) or AssertionError(
            f"the call still asks after {self.max_rounds} rounds: {self.conversation.names[-3:]}{advice}"
        )

    def _unfinished_error(self, waited: str) -> PageUnfinished | None:
        """Return an error if the call is waiting for a page that the user agreed to visit; otherwise None."""
        for agreed in self.pages.values():
            if agreed.question in self.conversation.rounds[-1]:
                return PageUnfinished(agreed.question, visits=agreed.visits, waited=waited)
        return None

    async def _answer_round(self, round_: InputRequiredResult) -> dict[str, InputResponse] | None:
        """Answer a round of questions. Return None if the user leaves or an answer fails."""
        self.conversation.rounds.append([])
        self.conversation.tokens.append(round_.request_state)
        answers: dict[str, InputResponse] = {}
        for key, request in (round_.input_requests or {}).items():
            name = question_name(key, self.conversation.names) if isinstance(round_, TaskRound) else key
            answer = await self._answer(AskedQuestion(name, asking(request)))
            if answer is not None:
                answers[key] = answer
            elif self.failure is not None:
                return None
        if not self.conversation.rounds[-1] and self.has_approver:
            self.conversation.rounds.pop()
        return None if self.conversation.left else answers

    async def answer_live(self, request: InputRequest) -> InputResponse | None:
        """Answer a question that arrived over the open connection."""
        if not self.live_keys:
            self.conversation.rounds.append([])
        key = self.live_keys.pop(0) if self.live_keys else None
        answer = await self._answer(AskedQuestion(key, asking(request)))
        if not self.conversation.rounds[-1] and self.has_approver:
            self.conversation.rounds.pop()
        if self.conversation.left:
            self.waiting.cancel()
            await anyio.sleep_forever()
        return answer

    async def _answer(self, question: AskedQuestion) -> InputResponse | None:
        self.waiting.deadline = math.inf
        if self.has_approver and question.url is not None and question.message.startswith(_APPROVAL_PREFIX):
            # The page does not ask anything, because the call waits for an approver.
            page = page_at(question.url, self.fleet.at)
            self.stored_call = page.call_id if page is not None else None
            return ElicitResult(action="accept")
        question.round = len(self.conversation.rounds)
        self.conversation.rounds[-1].append(question)
        try:
            if self.client == "app-forms" and question.schema is not None and question.page is None:
                await require_app(question, self.fleet.session)
                question.in_app = True
            reply = self.script.reply(question)
            if question.url is not None and (reply is None or _is_accepted(reply)):
                reply = await self._go_to_page(question, reply)
        except Exception as error:  # noqa: BLE001  # raised here, it would look like the client's error
            self.failure = self.failure or error
            return None
        if reply is None and question.params is None:
            reply = ListRootsResult(roots=list(self.roots))
        if reply is None and self.failure is None:
            self.failure = Unanswered(question, self.conversation.questions)
        if reply is LEAVE:
            self.conversation.left = True
        question.answer = None if isinstance(reply, Silence) else reply
        return question.answer

    async def _go_to_page(self, question: AskedQuestion, reply: InputResponse | Silence | None) -> Any:
        """Visit a question's page, and accept the question. Return None if the script has neither a visit nor an
        answer.
        """
        if question.page is None and not question.in_app and page_at(question.url or "", self.fleet.at) is not None:
            has_answered = await self._read_page(question.url or "")
            return ElicitResult(action="accept") if has_answered else LEAVE if self.conversation.left else IGNORE
        name = (question.name, question.message, TICKET.sub("", question.url or ""))
        is_single_use = reply is not None and self.script.is_single_use
        agreed = self.pages.get(name)
        if agreed is not None and agreed.question.round < question.round - 1:
            agreed = None
        visited = agreed is not None and agreed.visits > 0
        due = next((one for one in self.visits if one.fits(question)), None)
        visit = due.take() if due is not None and (due.in_order or not visited) else None
        if visit is None and reply is None and not visited:
            return None
        now = anyio.current_time()
        if agreed is None:
            agreed = self.pages[name] = _AgreedPage(question, now)
        elif visit is None and not is_single_use and now - agreed.since >= self.patience:
            waited = f"done= has not reported it as finished within {self.patience:g} s"
            raise PageUnfinished(question, visits=agreed.visits, waited=waited)
        agreed.question = question
        if visit is not None:
            await pay_visit(visit, question, server=self.fleet.at)
            agreed.visits, agreed.since = agreed.visits + 1, anyio.current_time()
        if not is_single_use and (self.conversation.era is Era.TASK or attached(self.fleet.at) is None):
            self.waiting.deadline = anyio.current_time() + self.patience * ELSEWHERE_FACTOR
        return ElicitResult(action="accept") if reply is None else reply


def _model_arguments(questions: Sequence[AskedQuestion], answers: Sequence[InputResponse | None]) -> dict[str, Any]:
    """Return the `continue_call` arguments that answer these questions. The value null declines a question."""
    answers_by_name = {
        question.name: (answer.content or {}) if answer.action == "accept" else None
        for question, answer in zip(questions, answers, strict=True)
        if isinstance(answer, ElicitResult)
    }
    return {"answers": answers_by_name} if answers_by_name else {}


def _is_accepted(reply: InputResponse | Silence) -> bool:
    return isinstance(reply, ElicitResult) and reply.action == "accept"


class SameOptions(TypedDict, Generic[MatcherT, PageT], total=False):
    """`User` options that the compared calls share."""

    answers: AnswersBy[MatcherT] | None
    visits: VisitsBy[PageT] | None
    approver: Approver | Sequence[Approver] | None
    principal: AccessToken | str | None
    roots: Sequence[Root] | None


async def assert_same_on_both_eras(
    server: Target,
    tool: str,
    arguments: Mapping[str, Any] | None = None,
    **options: Unpack[SameOptions[MatcherT, PageT]],
) -> Conversation:
    """Make a call in each era, and require that the results, questions and states are equal.

    If `server` is a factory, each call gets a new server.

    Raises:
        AssertionError: The calls differ.
    """
    return await _require_same([User(server, era=era, **options) for era in ERAS], tool, arguments)


async def assert_same_in_all_lives(
    server: Target,
    tool: str,
    arguments: Mapping[str, Any] | None = None,
    **options: Unpack[SameOptions[MatcherT, PageT]],
) -> Conversation:
    """Make a call in each era and as a task, and compare the calls as `assert_same_on_both_eras` does.

    Raises:
        AssertionError: The calls differ.
    """
    return await _require_same([User(server, era=life, **options) for life in LIVES], tool, arguments)


async def _require_same(users: Sequence[User], tool: str, arguments: Mapping[str, Any] | None) -> Conversation:
    first, *others = [await user.call(tool, arguments) for user in users]
    for other in others:
        for name, one in _comparable_parts(first).items():
            another = _comparable_parts(other)[name]
            if one != another:
                lives = f"{first.era.name.lower()}: {one}\n  {other.era.name.lower()}: {another}"
                raise AssertionError(f"the {name} differ\n  {lives}")
    return first


def _comparable_parts(call: Conversation) -> dict[str, Any]:
    shown = [question.shown for question in call.questions]
    return {"results": call.returned, "questions": call.asked, "contents of questions": shown, "states": call.states}
