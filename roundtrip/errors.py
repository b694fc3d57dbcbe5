"""Every error that roundtrip raises, in one tree.

    RoundtripError
    ├── InvalidSignature     the author's mistake, raised at registration
    │   ├── CircularDependencyError   functions that need each other
    │   └── SchemaNotRenderable   a form that the protocol cannot show
    ├── KeysMissing          the server has no key for what it must sign, seal or store
    ├── IllegalTransition    an event that the current state does not allow
    ├── TokenRejected        a token that is foreign, expired or for another request
    ├── TicketRejected       an invalid ticket, brought by a browser to the page of a URL question
    ├── AnswerRejected       the user's answer was invalid too often
    │   └── GuessesSpent          the call sent more different answers than allowed
    ├── QuestionVolatile     a question that changes each time it is asked
    ├── QuestionDeclined     the user declined or cancelled, and the body needs the value
    ├── NotApproved          an approval was not given
    │   ├── ApprovalRejected      the group rejected the approval
    │   └── ApprovalExpired       the group did not decide in time
    ├── BodyMistake          a body asks in a way that cannot work
    │   ├── KeyUsedTwice          two questions or steps of one body share a name
    │   ├── QuestionsUnkeyed      two unnamed questions are pending at once
    │   ├── AskedTooLate          an asyncio task asks after its leg has ended
    │   ├── NeedsTask             a wait that needs a task, in a call that is not a task
    │   ├── AskNotAwaited         a question was created and never awaited
    │   ├── UsedUnawaited         a question was used as if it were its answer
    │   ├── OutcomeUsedAsValue    an outcome was used as if it were its value
    │   ├── ContextOfHost         a method of roundtrip's Context was used on the host's context
    │   └── SuspensionSwallowed   a body caught the exception that ends its leg
    ├── CallOutlived         a live call still asks, or waits, after its maximum age
    ├── DependencyEndedCall  a dependency's cancel scope cancelled the call
    ├── ToolTimedOut         the work of one leg exceeded its timeout
    ├── ThreadsExhausted     functions of timed-out calls still occupy every thread
    ├── BodyNotRun           a body that must run once was not run for this request
    │   ├── OutcomeUnknown        the body began before, and its outcome was never recorded
    │   ├── CallHasEnded          the call ended before, with other answers
    │   ├── AnsweredOtherwise     another request has answered a question otherwise
    │   ├── OtherArguments        another call has the same intent, with other arguments
    │   ├── CallerMissing         an intent belongs to its caller, and the caller is unknown
    │   ├── CallUncovered         nothing identifies the call, so it could run twice
    │   ├── StillRunning          another request is running the body
    │   │   └── CallTakenOver         another request has taken this request's claim
    │   └── LedgerUnavailable     the ledger cannot say whether the body has run
    │       ├── GuessUncounted        the ledger cannot count the answers that the call has sent
    │       └── IntentUnreadable      no key of the server opens what the ledger has of the intent
    ├── CannotAsk            the client cannot be asked this way
    │   ├── CapabilityMissing     the client did not declare the capability
    │   ├── ChannelMissing        the client's connection cannot carry a question
    │   ├── ConnectionLost        the client disconnected before it answered, or the process is stopping
    │   ├── CallerUnknown         an approval in a call whose caller is unknown
    │   └── UrlRequired           the client can only open the page, and must call again
    ├── TokenTooLarge        the call remembers more than a token may hold
    ├── ValueNotStorable     a value that must travel in the token is not JSON
    └── NotSendable          a tool's return value does not fit a result

Each error has its details in attributes, and a message that says what to do next. If a user declines or cancels, that
is an outcome and not an error.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

from mcp.server.mcpserver.exceptions import InvalidSignature as SdkInvalidSignature
from mcp.server.request_state import InvalidRequestState
from mcp_types import ClientCapabilities, ElicitRequestURLParams

from roundtrip.revisions import FIRST_OF_RETRY_ERA

__all__ = [
    "AnswerRejected",
    "AnsweredOtherwise",
    "ApprovalExpired",
    "ApprovalRejected",
    "AskNotAwaited",
    "AskedTooLate",
    "BodyMistake",
    "BodyNotRun",
    "CallHasEnded",
    "CallOutlived",
    "CallTakenOver",
    "CallUncovered",
    "CallerMissing",
    "CallerUnknown",
    "CannotAsk",
    "CapabilityMissing",
    "ChannelMissing",
    "CircularDependencyError",
    "ConnectionLost",
    "ContextOfHost",
    "Decision",
    "DependencyEndedCall",
    "GuessUncounted",
    "GuessesSpent",
    "IllegalTransition",
    "IntentUnreadable",
    "InvalidSignature",
    "KeyUsedTwice",
    "KeysMissing",
    "LedgerUnavailable",
    "NeedsTask",
    "NotApproved",
    "NotSendable",
    "OtherArguments",
    "OutcomeUnknown",
    "QuestionDeclined",
    "QuestionVolatile",
    "QuestionsUnkeyed",
    "RejectionReason",
    "RoundtripError",
    "SchemaNotRenderable",
    "StillRunning",
    "SuspensionSwallowed",
    "ThreadsExhausted",
    "TicketReason",
    "TicketRejected",
    "TokenRejected",
    "TokenTooLarge",
    "ToolTimedOut",
    "UrlRequired",
    "ValueNotStorable",
]


class RoundtripError(Exception):
    """Base of every error that roundtrip itself raises."""

    words: Mapping[str, str] = MappingProxyType({})
    """Texts of unnamed questions, keyed by their generated names. Clients see these texts, but logs do not contain
    them.
    """


class InvalidSignature(RoundtripError, SdkInvalidSignature):
    """A tool, resolver or question that can never work; raised when it is registered.

    This class is also the SDK's `InvalidSignature`, so code that catches the SDK's error keeps working.
    """


class CircularDependencyError(InvalidSignature):
    """Functions that need each other's values, directly or through other functions. The message shows the cycle."""


class SchemaNotRenderable(InvalidSignature, TypeError):
    """A question schema that the protocol's forms cannot express (F1-F4)."""

    def __init__(self, message: str, *, field: str | None) -> None:
        super().__init__(message)
        self.field = field


class KeysMissing(RoundtripError, ValueError):
    """A server that must sign, seal or store data, but has no key for it. The message names the option to set."""


class IllegalTransition(RoundtripError):
    """An event that the table does not allow in the current state."""

    def __init__(self, state: str, event: str, allowed: Sequence[str], *, subject: str = "a call") -> None:
        options = ", ".join(allowed) if allowed else "nothing: the state is final"
        super().__init__(f"cannot {event!r} {subject} that is {state!r}; allowed here: {options}")
        self.state = state
        self.event = event
        self.allowed = tuple(allowed)


class RejectionReason(StrEnum):
    """Reasons to reject a token. They appear in the log and the trace, but never on the wire (S4)."""

    MALFORMED = "malformed"
    OVERSIZED = "oversized"
    UNKNOWN_KEY = "unknown key"
    TAMPERED = "tampered"
    SEAL = "seal"
    FORMAT = "unknown format"
    EXPIRED = "expired"
    FUTURE = "minted in the future"
    OTHER_METHOD = "another method"
    OTHER_TARGET = "another tool"
    OTHER_ARGUMENTS = "other arguments"
    OTHER_VERSION = "another version of the tool"
    OTHER_PRINCIPAL = "another principal"
    OTHER_AUDIENCE = "another audience"


class TokenRejected(RoundtripError, InvalidRequestState):
    """A `request_state` that this server rejects.

    This class is also the SDK's `InvalidRequestState`, because the SDK's boundary expects a codec to raise that error.
    """

    def __init__(self, reason: RejectionReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class TicketReason(StrEnum):
    """Reasons to reject a ticket, for the log."""

    MALFORMED = "malformed"
    SIGNATURE = "signature"
    EXPIRED = "expired"
    PRINCIPAL = "another principal"
    PURPOSE = "another purpose"


class TicketRejected(RoundtripError):
    """A ticket that is not valid for the page."""

    def __init__(self, reason: TicketReason) -> None:
        super().__init__(f"the ticket is not valid: {reason.value}")
        self.reason = reason


class AnswerRejected(RoundtripError):
    """The user's last allowed attempt to answer a question was invalid."""

    def __init__(self, name: str, *, attempts: int, reason: str) -> None:
        super().__init__(f"question {name!r} was answered invalidly {attempts} times; the last answer: {reason}")
        self.name = name
        self.attempts = attempts
        self.reason = reason


class GuessesSpent(AnswerRejected):
    """A call sent more distinct answers to a question than its `guesses=` allows."""

    def __init__(self, name: str, *, guesses: int) -> None:
        RoundtripError.__init__(
            self, f"question {name!r} takes no other answer in this call after {guesses} different ones; call again"
        )
        self.name = name
        self.attempts = guesses
        self.reason = "too many different answers"


class QuestionVolatile(RoundtripError):
    """A question that changes on every leg, so that no answer ever matches it."""

    def __init__(self, name: str, *, changed: Sequence[str]) -> None:
        what = " and ".join(changed)
        super().__init__(
            f"question {name!r} has a different {what} each time it is asked, so its answers never match. Keep values "
            "that vary (a time, a random value) out of the question, fix them for the call with Resolve(fn, "
            "remember=True) or ctx.step(), or pass volatile_ok=True to Elicit if the question will stop changing"
        )
        self.name = name
        self.changed = tuple(changed)


class QuestionDeclined(RoundtripError):
    """The user declined or cancelled a question whose value the body needs. Let this error end the call."""

    def __init__(self, name: str, action: str) -> None:
        super().__init__(f"The user {'declined' if action == 'decline' else 'cancelled'} the question {name!r}")
        self.name = name
        self.action = action


class Decision(NamedTuple):
    """Decision about an approval."""

    outcome: Literal["approved", "rejected", "expired"]
    when: datetime
    who: str | None = None
    """The person who decided; None if the time ran out."""
    reason: str | None = None


class NotApproved(RoundtripError):
    """An approval that was not given. The message omits the person and the reason, because models read it."""

    ending: ClassVar[str]
    """How the approval ended, in words."""

    def __init__(self, name: str, decision: Decision) -> None:
        super().__init__(f"approval {name!r} was {self.ending}")
        self.name = name
        self.decision = decision


class ApprovalRejected(NotApproved):
    """The group rejected an approval; `decision.reason` says why."""

    ending = "rejected"


class ApprovalExpired(NotApproved):
    """The group did not decide in time."""

    ending = "not decided in time"


class BodyMistake(RoundtripError):
    """An author's mistake in a body that asks questions. It can be detected only when the body runs."""


class KeyUsedTwice(BodyMistake):
    """Two questions or steps of one call share a name, so neither can find its answer."""

    def __init__(self, name: str, *, formerly_of: str | None = None) -> None:
        if formerly_of is None:
            advice = "give each question and each step a unique name (in a loop, number them: f'item-{i}')"
        else:
            advice = (
                f"question {formerly_of!r} also has it in former_names=, so it is unclear which of the two an answer "
                "belongs to; remove it there, or rename the other question or step"
            )
        super().__init__(f"the name {name!r} is used twice in one call; {advice}")
        self.name = name


class QuestionsUnkeyed(BodyMistake):
    """Two unnamed questions are pending at once, and could swap their answers on the next leg."""

    def __init__(self) -> None:
        super().__init__(
            "two questions without a name= are pending at the same time; name them: ctx.elicit(..., name='...'), or "
            "ask them in one round with ctx.ask_all({'...': ...})"
        )


class AskedTooLate(BodyMistake):
    """A question or step from an asyncio task or thread whose leg has already ended."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name!r} was asked after its leg had ended, by a task or a thread that outlived the body. asyncio.gather "
            "leaves such tasks: run concurrent questions in a task group, or ask them in one round with ctx.ask_all. A "
            "tool that times out leaves its thread running"
        )
        self.name = name


class NeedsTask(BodyMistake):
    """The body used something that only a task has, but the call does not run as a task."""

    def __init__(self, caller: str) -> None:
        super().__init__(
            f"{caller} must be used in a call that runs as a task; declare "
            'the tool with task="required", or let its client declare the extension io.modelcontextprotocol/tasks'
        )


class ContextOfHost(BodyMistake):
    """A method of roundtrip's Context was called on the SDK's or FastMCP's context."""

    def __init__(self, name: str, *, kind: type[Any]) -> None:
        super().__init__(
            f"ctx.{name} must be used on roundtrip's Context, got {kind.__module__}.{kind.__qualname__}; annotate the "
            "parameter with the Context of `from roundtrip import Context`, or add a second parameter for it"
        )
        self.name = name


class AskNotAwaited(BodyMistake):
    """A question that was created and never awaited."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the body ended without awaiting {name!r}; write `await ctx.ask(...)` or `await ctx.step(...)`, and in a "
            "plain `def` tool `ctx.blocking.ask(...)` or `ctx.blocking.step(...)`"
        )
        self.name = name


class UsedUnawaited(BodyMistake, AttributeError):
    """A question, or its coroutine, was used as if it were the answer."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} must be awaited before its result is used; write `await`, and in a plain `def` function use "
            "ctx.blocking, which waits for it"
        )
        self.what = what


class OutcomeUsedAsValue(BodyMistake):
    """An outcome was used as if it were the answered value."""

    def __init__(self, name: str, *, kind: str) -> None:
        super().__init__(
            f"the outcome of a question has no {name!r}, got {kind}; use ctx.ask, which returns the answer itself, or "
            "read .action and, if it is accepted, .data"
        )
        self.name = name
        self.kind = kind


class SuspensionSwallowed(BodyMistake):
    """A body caught the exception that ends its leg, and continued without an answer."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(
            f"the body caught the exception with which {', '.join(map(repr, names))} ended the leg. Catch Exception "
            "instead of BaseException around questions, or raise the exception again"
        )
        self.names = tuple(names)


class CallOutlived(RoundtripError):
    """A live call still asks, or waits, after its maximum age. In the retry era, its token would have expired."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(
            f"the call has exceeded its max_age and still has questions: {', '.join(map(repr, names))}; call again"
        )
        self.names = tuple(names)


class ToolTimedOut(RoundtripError):
    """The work of one leg exceeded its tool's timeout. The time that users take does not count."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"timed out after {seconds:g}s")
        self.seconds = seconds


class ThreadsExhausted(RoundtripError):
    """A plain function found no free thread, because functions of ended calls still occupy all threads."""

    def __init__(self, threads: int) -> None:
        super().__init__(
            f"no thread is free: functions whose calls timed out still run in all {threads} threads; try again later"
        )
        self.threads = threads


class BodyNotRun(RoundtripError):
    """A tool that runs once per call was not run for this request."""

    template: ClassVar[str]
    """The error's text, in which `{owner}` stands for the tool."""

    def __init__(self, owner: str) -> None:
        super().__init__(self.template.format(owner=owner))
        self.owner = owner


class OutcomeUnknown(BodyNotRun):
    """The body began, and its outcome was never recorded. The body may or may not have had its effect."""

    template = (
        "the outcome of this call is unknown: {owner} began, but did not report its end. It is not run again; "
        "check its effects before you call it again"
    )


class CallHasEnded(BodyNotRun):
    """The call has already ended with other answers, so its result does not belong to these answers."""

    template = "this call of {owner} has ended already, with other answers; check what it did"


class AnsweredOtherwise(BodyNotRun):
    """Another request has answered first, or answered one of the questions otherwise, so these answers do not count."""

    template = (
        "these answers were not used: another request for the same call of {owner} has answered first, or answered "
        "otherwise; call it again to continue with the answers that were used"
    )


class OtherArguments(BodyNotRun):
    """Another call has the same intent, with other arguments. Nothing ran."""

    template = (
        "{owner} was not run: another call with the same intent has other arguments; repeat the arguments of that "
        "call, or change the arguments that identify the intent. Waiting helps only if that call ends without doing "
        "anything, for example because its user declines"
    )


class CallerMissing(BodyNotRun):
    """The intent belongs to its caller, and the server does not know the caller. Nothing ran."""

    template = (
        "{owner} was not run: the server must know who calls it, because callers do not share intents; send an access "
        "token that names the user. The server's author can name callers with principal= on the server, or let all "
        "callers share intents with scope='service' on the tool"
    )


class CallUncovered(BodyNotRun):
    """Nothing identifies the call, so it could run twice, and its tool does not allow this. Nothing ran."""

    template = (
        "{owner} was not run: nothing in the request identifies this call, so that it could run twice; if the tool "
        "takes a key, send it"
    )


class StillRunning(BodyNotRun):
    """Another request is running the body."""

    template = "this call of {owner} is still running; send the same request again later"


class CallTakenOver(StillRunning):
    """This process was silent for too long, so another request took its claim. The body was stopped."""

    template = (
        "{owner} was stopped, because its process was silent for too long and another request took over this call; "
        "send the same request again for its result"
    )


class LedgerUnavailable(BodyNotRun):
    """The ledger did not answer, so the body was not run. The client's token and answers stay valid."""

    template = (
        "{owner} was not run: the server's ledger does not answer, so the server cannot know if this call has "
        "already run; send the same request again later"
    )


class GuessUncounted(LedgerUnavailable):
    """The ledger could not count an answer to a question with `guesses=`, so the answer was not read."""

    template = (
        "{owner} cannot take this answer now, because the ledger cannot count it; send the same request again later"
    )


class IntentUnreadable(LedgerUnavailable):
    """The ledger has a record of the intent, and no key of this server opens it. Nothing ran."""

    template = (
        "{owner} was not run: the server has no key that opens the record of an earlier call with the same intent; "
        "its operator must add that key again"
    )


class CannotAsk(RoundtripError):
    """A call must ask a question, but its client cannot be asked."""


class CapabilityMissing(CannotAsk):
    """A question needs a capability that the client did not declare (S6)."""

    def __init__(self, name: str, *, capability: str, required: ClientCapabilities) -> None:
        super().__init__(f"Client did not declare the {capability} capability required by question {name!r}")
        self.name = name
        self.capability = capability
        self.required = required


class ChannelMissing(CannotAsk):
    """A live-era client whose connection cannot carry questions."""

    def __init__(self, names: Sequence[str], *, protocol_version: str | None, in_session: bool = False) -> None:
        asked = ", ".join(repr(name) for name in names)
        if protocol_version is None:
            why = "there is no client request to answer it; call the tool through a client"
        else:
            # With a session, only JSON responses can prevent questions.
            settings = (
                "json_response=False"
                if in_session
                else "stateless_http=False, json_response=False (roundtrip serve without --no-sessions)"
            )
            # A call whose user answers on pages has the newest revision, even if its client speaks an older one.
            client = "an older client" if protocol_version >= FIRST_OF_RETRY_ERA else f"a {protocol_version} client"
            why = (
                f"{client} is asked over its open connection, and this transport has no way back to it. Serve such "
                f"clients over stdio or streamable HTTP with {settings}, or use a client that speaks "
                f"{FIRST_OF_RETRY_ERA}, which can be asked over any transport"
            )
        super().__init__(f"cannot ask {asked}: {why}")
        self.names = tuple(names)
        self.protocol_version = protocol_version


class ConnectionLost(CannotAsk):
    """A live question lost its connection: the client left, or the process is stopping (`ending`)."""

    def __init__(self, *, ending: bool = False) -> None:
        self.ending = ending
        super().__init__(
            "the server is stopping, and can no longer receive answers; call again"
            if ending
            else "the client's connection was lost while it was asked, and the call was ended; a call can outlive its "
            f"connection if the client speaks {FIRST_OF_RETRY_ERA}, or reconnects to a server with event_store="
        )


class CallerUnknown(CannotAsk):
    """An approval in a call whose caller is unknown. The server cannot keep the caller from deciding it."""

    def __init__(self, name: str) -> None:
        super().__init__(f"approval {name!r} needs a caller whom the server knows; authenticate the client's user")
        self.name = name


class UrlRequired(CannotAsk):
    """The client must send its user to a page first, and then call again."""

    def __init__(self, name: str, *, request: ElicitRequestURLParams) -> None:
        super().__init__(f"question {name!r} must be answered on a page; then call again")
        self.name = name
        self.request = request


class TokenTooLarge(RoundtripError):
    """A call remembers more than its token may hold."""

    def __init__(self, what: str, *, size: int, limit: int, largest: Sequence[tuple[str, int]]) -> None:
        entries = ", ".join(f"{name!r} ({bytes_} bytes)" for name, bytes_ in largest) or "none"
        super().__init__(
            f"the {what} of this call has {size} bytes, over its limit of {limit}. Largest entries: {entries}. "
            "Keep large values on the server and let the call remember a reference to them"
        )
        self.size = size
        self.limit = limit
        self.largest = tuple(largest)


class ValueNotStorable(RoundtripError):
    """A value that must travel in the token has no JSON form. The message does not contain the value."""

    def __init__(self, name: str, *, reason: str, cure: str | None = None) -> None:
        default = "Return a value that its annotation can convert to JSON, or use neither remember=True nor ctx.step"
        super().__init__(f"the value of {name!r} cannot be remembered: {reason}. {cure or default}")
        self.name = name
        self.reason = reason


class NotSendable(RoundtripError):
    """A tool's return value that cannot be sent, because it has no JSON form or violates the tool's output schema."""


class DependencyEndedCall(RoundtripError):
    """A dependency's cancel scope, such as `move_on_after`, cancelled the call."""

    def __init__(self, dependency: str) -> None:
        super().__init__(f"dependency {dependency!r} cancelled the call")
        self.dependency = dependency
