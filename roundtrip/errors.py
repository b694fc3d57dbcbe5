"""Every error roundtrip raises, in one tree.

    RoundtripError
    ├── InvalidSignature     the author's mistake, raised at registration
    │   └── SchemaNotRenderable   a form the protocol cannot show
    ├── IllegalTransition    a caller moved a call where the table has no arrow
    ├── TokenRejected        the peer's token: not ours, not now, not for this request
    ├── TicketRejected       the ticket that a browser brought to the page behind a URL question
    ├── AnswerRejected       the user's answer: invalid, and asked often enough
    │   └── GuessesSpent          more different answers than a call may be sent
    ├── QuestionVolatile     a question that changes whenever it is asked
    ├── QuestionRefused      the user's outcome, where a body wanted the bare value
    ├── BodyMistake          a body asks in a way that cannot work
    │   ├── KeyUsedTwice          two questions or steps of one body share a name
    │   ├── QuestionsUnkeyed      two unnamed questions are out at once
    │   ├── AskedTooLate          a task asks after its leg has ended
    │   ├── AskNotAwaited         a question was made and never put
    │   └── SuspensionSwallowed   a body caught what should have ended its leg
    ├── CallOutlived         a live call that still asks, or waits, after its whole age
    ├── DependencyEndedCall  a cancel scope of a dependency cancelled what it was entered for
    ├── ToolTimedOut         the work of one leg took longer than it may
    ├── ThreadsExhausted     every thread was left behind by a call that timed out, and still runs
    ├── OnceRefused          a body that must run once, and is not run
    │   ├── OutcomeUnknown        it was begun before, and nobody will ever know how far it got
    │   ├── CallHasEnded          the call ended before, with other answers
    │   ├── StillRunning          another instance is at it
    │   │   └── CallTakenOver         and has taken over what this one was at
    │   └── LedgerUnavailable     nobody can tell whether it has run
    │       └── GuessUncounted        or how many answers a call has been sent
    ├── CannotAsk            the client cannot be asked this way
    │   ├── CapabilityMissing     it did not declare the capability
    │   ├── ChannelMissing        its connection cannot carry a question
    │   ├── ConnectionLost        it left before it answered, or the process ends
    │   └── UrlRequired           it can only be told of the page, and has to call again
    ├── TokenTooLarge        the call remembers more than a token may hold
    ├── ValueNotStorable     a value that should ride in the token is not JSON
    └── NotSendable          what a tool returned has no place in a result

Each carries its evidence as attributes and a message that says what to do next.
A user who declines or cancels has given an outcome, which is no error.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType

from mcp.server.mcpserver.exceptions import InvalidSignature as SdkInvalidSignature
from mcp.server.request_state import InvalidRequestState
from mcp_types import ClientCapabilities, ElicitRequestURLParams

__all__ = [
    "AnswerRejected",
    "AskNotAwaited",
    "AskedTooLate",
    "BodyMistake",
    "CallHasEnded",
    "CallOutlived",
    "CallTakenOver",
    "CannotAsk",
    "CapabilityMissing",
    "ChannelMissing",
    "ConnectionLost",
    "DependencyEndedCall",
    "GuessUncounted",
    "GuessesSpent",
    "IllegalTransition",
    "InvalidSignature",
    "KeyUsedTwice",
    "LedgerUnavailable",
    "NotSendable",
    "OnceRefused",
    "OutcomeUnknown",
    "QuestionRefused",
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
    """The words of questions that have no name of their own, by their made-up names: for the client, not for a log."""


class InvalidSignature(RoundtripError, SdkInvalidSignature):
    """A tool, resolver or question that can never work; raised when it is registered.

    It is also the SDK's `InvalidSignature`, so code that catches that one keeps working.
    """


class SchemaNotRenderable(InvalidSignature, TypeError):
    """A question's schema that the protocol's form language cannot express (F1-F4)."""

    def __init__(self, message: str, *, field: str | None) -> None:
        super().__init__(message)
        self.field = field


class IllegalTransition(RoundtripError):
    """An event was applied in a state from which the table has no such arrow."""

    def __init__(self, state: str, event: str, allowed: Sequence[str]) -> None:
        options = ", ".join(allowed) if allowed else "nothing: the state is final"
        super().__init__(f"cannot {event!r} a call that is {state!r}; allowed here: {options}")
        self.state = state
        self.event = event
        self.allowed = tuple(allowed)


class RejectionReason(StrEnum):
    """Why a token was refused. For the log and the trace, never for the wire (S4)."""

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
    UNKNOWN = "unknown"


class TokenRejected(RoundtripError, InvalidRequestState):
    """A `request_state` that this server will not resume from.

    It is also the SDK's `InvalidRequestState`, which is what its boundary expects of a codec.
    """

    def __init__(self, reason: RejectionReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class TicketReason(StrEnum):
    """Why a ticket was refused. For the log; the page need not tell."""

    MALFORMED = "malformed"
    SIGNATURE = "signature"
    EXPIRED = "expired"
    PRINCIPAL = "another principal"
    PURPOSE = "another purpose"


class TicketRejected(RoundtripError):
    """A ticket that does not open the page it was brought to."""

    def __init__(self, reason: TicketReason) -> None:
        super().__init__(f"the ticket is not valid: {reason.value}")
        self.reason = reason


class AnswerRejected(RoundtripError):
    """The user's answer to one question was not valid, as often as it may be asked."""

    def __init__(self, key: str, *, attempts: int, reason: str) -> None:
        super().__init__(f"question {key!r} was answered invalidly {attempts} times; the last answer: {reason}")
        self.key = key
        self.attempts = attempts
        self.reason = reason


class GuessesSpent(AnswerRejected):
    """A question with `guesses=` was answered in more different ways than it allows, on whatever legs of the call."""

    def __init__(self, key: str, *, guesses: int) -> None:
        RoundtripError.__init__(
            self, f"question {key!r} takes no other answer in this call, which has sent {guesses} already; call again"
        )
        self.key = key
        self.attempts = guesses
        self.reason = "too many different answers"


class QuestionVolatile(RoundtripError):
    """A question changed on every leg, so no answer to it can ever count."""

    def __init__(self, key: str, *, changed: Sequence[str]) -> None:
        what = " and ".join(changed)
        super().__init__(
            f"question {key!r} has another {what} each time it is asked, so its answers never fit. Keep what varies "
            "(a time, a random value) out of the question, fix it for the call with Resolve(fn, once=True) or "
            "ctx.step(), or say Elicit(..., volatile_ok=True) if it will settle"
        )
        self.key = key
        self.changed = tuple(changed)


class QuestionRefused(RoundtripError):
    """The user declined or cancelled a question whose bare value a body wanted; let it pass to end the call."""

    def __init__(self, key: str, action: str) -> None:
        super().__init__(f"Question {key!r} was not answered: elicitation was {action}")
        self.key = key
        self.action = action


class BodyMistake(RoundtripError):
    """A tool's body asks in a way that cannot work: its author's mistake, seen only when it runs."""


class KeyUsedTwice(BodyMistake):
    """Two questions or steps of one call share a name, so neither could find its answer again."""

    def __init__(self, key: str, *, formerly_of: str | None = None) -> None:
        if formerly_of is None:
            told = "give each question and each step a name of its own (in a loop, number them: f'item-{i}')"
        else:
            told = (
                f"question {formerly_of!r} says that it was its own (was=), and an answer in flight could not tell "
                "whose it is; leave it out of was=, or rename the other"
            )
        super().__init__(f"the name {key!r} is used twice in one call; {told}")
        self.key = key


class QuestionsUnkeyed(BodyMistake):
    """Two questions without names are out at the same time; on the next leg they could swap their answers."""

    def __init__(self) -> None:
        super().__init__(
            "two questions without a key= are out at the same time; name them: ctx.elicit(..., key='...'), or put them "
            "in one round with ctx.ask_all({'...': ...})"
        )


class AskedTooLate(BodyMistake):
    """A question or step came after its leg had ended, from a task or thread that nobody waited for."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"{key!r} was asked after its leg had ended. A task outlived the body, as those of asyncio.gather do (run "
            "concurrent questions in a task group, or put them in one round with ctx.ask_all), or a thread did, whose "
            "tool has timed out"
        )
        self.key = key


class AskNotAwaited(BodyMistake):
    """A question was made and never put."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"the body ended without awaiting {key!r}; write `await ctx.ask(...)` or `await ctx.step(...)`, and in a "
            "plain `def` tool `ctx.blocking.ask(...)` or `ctx.blocking.step(...)`"
        )
        self.key = key


class UsedUnawaited(BodyMistake, AttributeError):
    """A question, or the coroutine that would put it, was used as if it were the answer."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} must be awaited before its result is used; write `await`, and in a plain `def` function use "
            "ctx.blocking, which waits for it"
        )
        self.what = what


class OutcomeNotUnwrapped(BodyMistake):
    """The outcome of a question was used as if it were the value that was answered."""

    def __init__(self, name: str, *, kind: str) -> None:
        super().__init__(
            f"the outcome of a question has no {name!r}, got {kind}; ask with unwrap=True for the bare value, or look "
            "at .action, and of an accepted one at .data"
        )
        self.name = name
        self.kind = kind


class SuspensionSwallowed(BodyMistake):
    """A body caught the exception that ends its leg and went on as if it had an answer."""

    def __init__(self, keys: Sequence[str]) -> None:
        super().__init__(
            f"the body swallowed the suspension that {', '.join(map(repr, keys))} ended its leg with. Catch Exception "
            "instead of BaseException around questions, or raise it on"
        )
        self.keys = tuple(keys)


class CallOutlived(RoundtripError):
    """A live call still asks, or waits, after its whole age; a resumed one would have been refused with its token."""

    def __init__(self, keys: Sequence[str]) -> None:
        super().__init__(
            f"the call is over its max_age and still has to ask {', '.join(map(repr, keys))}; make it again"
        )
        self.keys = tuple(keys)


class ToolTimedOut(RoundtripError):
    """The work of one leg took longer than its tool's timeout; waiting for a person is no work."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"timed out after {seconds:g}s")
        self.seconds = seconds


class ThreadsExhausted(RoundtripError):
    """A plain function found no thread to run in: all are held by functions whose calls were over before them."""

    def __init__(self, threads: int) -> None:
        super().__init__(
            f"no thread is free for it: all {threads} are held by functions that still run although their calls timed "
            "out; try again later"
        )
        self.threads = threads


class OnceRefused(RoundtripError):
    """The body of a tool that must run once for a call is not run now. `owner` is the tool."""

    def __init__(self, message: str, *, owner: str) -> None:
        super().__init__(message)
        self.owner = owner


class OutcomeUnknown(OnceRefused):
    """The body was begun, and whoever ran it is gone: it may or may not have had its effect."""

    def __init__(self, owner: str) -> None:
        super().__init__(
            f"the outcome of this call is unknown: {owner} was begun and never reported how it ended. It is not run "
            "again; find out what it did before you call it anew",
            owner=owner,
        )


class CallHasEnded(OnceRefused):
    """The call ended before with other answers, and its result is not for these."""

    def __init__(self, owner: str) -> None:
        super().__init__(f"this call of {owner} has ended already, with other answers; call it anew", owner=owner)


class StillRunning(OnceRefused):
    """Another request has begun the body, and it has not ended yet."""

    def __init__(self, owner: str) -> None:
        super().__init__(f"this call of {owner} is still running; send the same request again later", owner=owner)


class CallTakenOver(StillRunning):
    """This process was silent for so long that another request has taken the call over: the body was stopped."""

    def __init__(self, owner: str) -> None:
        OnceRefused.__init__(
            self,
            f"{owner} was stopped: its process was silent for so long that another request has taken this call over; "
            "send the same request again for its result",
            owner=owner,
        )


class LedgerUnavailable(OnceRefused):
    """The ledger could not be asked, so the body was not run. What the client sent is still good."""

    def __init__(self, owner: str) -> None:
        super().__init__(
            f"{owner} cannot be run now, as nothing can tell whether it has run before; send the same request again "
            "later",
            owner=owner,
        )


class GuessUncounted(LedgerUnavailable):
    """The ledger could not count an answer to a question with `guesses=`, so nobody looked at it."""

    def __init__(self, owner: str) -> None:
        OnceRefused.__init__(
            self,
            f"{owner} cannot take this answer now, as nothing can count it; send the same request again later",
            owner=owner,
        )


class CannotAsk(RoundtripError):
    """The client of this request cannot be asked a question it would have to be asked."""


class CapabilityMissing(CannotAsk):
    """The client did not declare the capability that a question needs (S6)."""

    def __init__(self, key: str, *, capability: str, required: ClientCapabilities) -> None:
        super().__init__(f"Client did not declare the {capability} capability required by question {key!r}")
        self.key = key
        self.capability = capability
        self.required = required


class ChannelMissing(CannotAsk):
    """The client speaks a revision that is asked live, over a connection that cannot carry questions."""

    def __init__(self, keys: Sequence[str], *, protocol_version: str | None, in_session: bool = False) -> None:
        asked = ", ".join(repr(key) for key in keys)
        if protocol_version is None:
            why = "there is no client request to answer it; call the tool through a client"
        else:
            # With a session there can only be JSON in the way.
            settings = (
                "json_response=False"
                if in_session
                else "stateless_http=False, json_response=False (roundtrip serve with one worker)"
            )
            why = (
                f"a {protocol_version} client is asked over its open connection, and this transport has no way back "
                f"to it. Serve such clients over stdio or streamable HTTP with {settings}, or use a client that "
                "speaks 2026-07-28, which can be asked over any transport"
            )
        super().__init__(f"cannot ask {asked}: {why}")
        self.keys = tuple(keys)
        self.protocol_version = protocol_version


class ConnectionLost(CannotAsk):
    """The answer to a live question has no way any more: the client has left, or the process is about to end.

    Attributes:
        ending: Whether it is the process that ends.
    """

    def __init__(self, *, ending: bool = False) -> None:
        self.ending = ending
        super().__init__(
            "the server is about to stop, and can take no answer any more; call again"
            if ending
            else "the client's connection was lost while it was asked, and the call was ended; what has to outlive a "
            "connection needs a client that speaks 2026-07-28, or an event_store= to come back by"
        )


class UrlRequired(CannotAsk):
    """The client has to send its user to a page first, and then call again."""

    def __init__(self, key: str, *, request: ElicitRequestURLParams) -> None:
        super().__init__(f"question {key!r} has to be answered on a page before the call is made again")
        self.key = key
        self.request = request


class TokenTooLarge(RoundtripError):
    """What a call remembers would not fit the token it has to travel in."""

    def __init__(self, what: str, *, size: int, limit: int, largest: Sequence[tuple[str, int]]) -> None:
        entries = ", ".join(f"{key!r} ({bytes_} bytes)" for key, bytes_ in largest) or "none"
        super().__init__(
            f"the {what} of this call has {size} bytes, over its limit of {limit}. Largest entries: {entries}. "
            "Keep large values on the server and let the call remember a reference to them"
        )
        self.size = size
        self.limit = limit
        self.largest = tuple(largest)


class ValueNotStorable(RoundtripError):
    """A value that should ride in the token has no JSON form. The value itself is not told: it is not the client's."""

    def __init__(self, key: str, *, reason: str, cure: str | None = None) -> None:
        default = "Return something its annotation can turn into JSON, or do not keep it (with once=True or ctx.step)"
        super().__init__(f"the value of {key!r} cannot be remembered: {reason}. {cure or default}")
        self.key = key
        self.reason = reason


class NotSendable(RoundtripError):
    """What a tool returned cannot be sent: it has no JSON form, or its output schema does not allow it."""


class DependencyEndedCall(RoundtripError):
    """A dependency's own cancel scope, as of `move_on_after`, cancelled the call and said nothing more."""

    def __init__(self, dependency: str) -> None:
        super().__init__(f"dependency {dependency!r} cancelled the call")
        self.dependency = dependency
