"""Advice tables for questions, rejected tokens and failures. Each entry consists of a cause and a cure."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from roundtrip.errors import RejectionReason
from roundtrip.machine.facts import Reason


class Advice(NamedTuple):
    """Cause and cure of an event."""

    cause: str
    cure: str


QUESTIONS: Final[Mapping[Reason, Advice]] = {
    Reason.NEW: Advice("the call had not asked it before", "nothing needs to be fixed"),
    Reason.MISSING: Advice(
        "the client came back without an answer to it",
        "a client must answer every question of a round, each under its name",
    ),
    Reason.INVALID: Advice(
        "the answer did not fit its form",
        "describe the expected answer in the message, or in the descriptions of the fields",
    ),
    Reason.REWORDED: Advice(
        "its message differs from the one that was answered",
        "a user must see the message that they answer, so keep a message unchanged while calls that ask it may be in "
        "flight",
    ),
    Reason.SCHEMA_CHANGED: Advice(
        "its form differs from the one that was answered",
        "keep a form's fields unchanged while calls that ask it may be in flight",
    ),
    Reason.KEY_GONE: Advice(
        "no key of the server can verify that its answer was given to this wording",
        "keep a key in keys= until every call that began with it has reached its max_age",
    ),
    Reason.RENAMED: Advice(
        "its answer is known under a name that no question has now",
        "declare its former name with former_names=",
    ),
    Reason.VOLATILE: Advice(
        "its wording changed between two legs of the same build, so the answer was lost",
        "keep times and random values out of the question, or fix them with Resolve(fn, remember=True) or ctx.step()",
    ),
    Reason.OTHER_BUILD: Advice(
        "another build of the application began the call, and asked or accepted something else",
        "nothing needs to be fixed if the deploy was meant to ask this; else give the new question a default",
    ),
    Reason.UNFINISHED: Advice(
        "the user agreed to open the page, but has not finished there",
        "nothing needs to be fixed, unless the user did finish: then check the data that done= reads",
    ),
    Reason.REVISED: Advice(
        "it may depend on an earlier answer that the user changed",
        "nothing needs to be fixed; questions that do not depend on that answer are not asked again",
    ),
}
"""The advice for each reason to ask a question."""

REJECTIONS: Final[Mapping[RejectionReason, Advice]] = {
    RejectionReason.MALFORMED: Advice(
        "it does not have the form of a token",
        "a client must send requestState back unchanged, byte for byte; look for code that shortens or re-encodes it",
    ),
    RejectionReason.OVERSIZED: Advice(
        "it is larger than a token may be",
        "give all instances the same max_token_bytes, and keep large values on the server",
    ),
    RejectionReason.UNKNOWN_KEY: Advice(
        "it is signed with a key that this instance does not have",
        "give all instances the same keys=, and replace a key in three rollouts: [old, new], then [new, old], and "
        "[new] when the old key's tokens have expired",
    ),
    RejectionReason.TAMPERED: Advice(
        "it was changed after it was signed",
        "a client or a proxy changes tokens, which neither needs to do; find out which one does",
    ),
    RejectionReason.SEAL: Advice(
        "its sealed part cannot be opened",
        "give all instances the same keys= (or seal_keys=), and keep a replaced key listed until its tokens have "
        "expired",
    ),
    RejectionReason.FORMAT: Advice(
        "it is authentic, but has a format that this version cannot read",
        "finish rolling out one version of roundtrip; the client must begin the call again",
    ),
    RejectionReason.EXPIRED: Advice(
        "it had expired",
        "raise ttl= (for the answers to one leg) or max_age= (for the whole call) if people need longer",
    ),
    RejectionReason.FUTURE: Advice(
        "its time is ahead of this instance's clock",
        "synchronize the instances' clocks, for example with NTP; they may differ by a minute",
    ),
    RejectionReason.OTHER_METHOD: Advice(
        "it belongs to a request with another method",
        "a client must send a token back in a request with the original method",
    ),
    RejectionReason.OTHER_TARGET: Advice(
        "it belongs to a call of another tool, prompt or resource",
        "a client must send a token back to the tool, prompt or resource that issued it",
    ),
    RejectionReason.OTHER_ARGUMENTS: Advice(
        "it belongs to a call with other arguments",
        "a client must repeat a call's arguments with every leg",
    ),
    RejectionReason.OTHER_VERSION: Advice(
        "it belongs to another version of the tool",
        "a client must name the version with which it began the call, and a deploy must keep that version for max_age",
    ),
    RejectionReason.OTHER_PRINCIPAL: Advice(
        "it belongs to a call of another caller",
        "the caller that begins a call must continue it; if this is the same person, principal= must return a value "
        "that stays the same after a new login",
    ),
    RejectionReason.OTHER_AUDIENCE: Advice(
        "it is meant for another service",
        "give all instances of a service the same name (or audience=), and give each service its own keys=",
    ),
}
"""The advice for each reason to reject a token."""

_ASK_LIVE: Final = (
    "serve clients of 2025-11-25 with sessions (`roundtrip serve` without --no-sessions, or stateless_http=False and "
    "json_response=False), or have the client speak 2026-07-28"
)

FAILURES: Final[Mapping[str, Advice]] = {
    "AnswerRejected": Advice(
        "a question got as many invalid answers as attempts= allows",
        "describe the expected answer in the message, or in the descriptions of the fields, or raise attempts=",
    ),
    "QuestionVolatile": Advice(
        "a question has a different wording each time it is asked, so no answer to it can be accepted",
        "keep varying values out of the question, or fix them with Resolve(fn, remember=True) or ctx.step()",
    ),
    "QuestionDeclined": Advice(
        "the user declined or cancelled a question whose answer it needs",
        "nothing needs to be fixed; to continue without the answer, use ctx.ask_outcome",
    ),
    "ApprovalRejected": Advice(
        "the approvers rejected it",
        "nothing needs to be fixed; to continue without the approval, await ctx.approve in the body and catch "
        "ApprovalRejected there; in a resolver or confirm=, a rejection ends the call",
    ),
    "ApprovalExpired": Advice(
        "the approvers did not decide in time",
        "give them longer with within=, remind them with remind=, or continue with fallback=",
    ),
    "CallerUnknown": Advice(
        "it needs an approval that its caller must not decide, but the server does not know who the caller is",
        "authenticate the clients' users",
    ),
    "KeyUsedTwice": Advice(
        "two questions or steps in its body have the same name",
        "give each a different name; in a loop, number them",
    ),
    "QuestionsUnkeyed": Advice(
        "two questions without names were open at the same time",
        "name them with name=, or ask them with one ctx.ask_all",
    ),
    "AskedTooLate": Advice(
        "the body did not wait for an asyncio task or thread, which then asked a question after the leg had ended",
        "ask in a task group, or ask all questions with one ctx.ask_all",
    ),
    "NeedsTask": Advice(
        "its body used a wait that only tasks support, and its client does not support tasks",
        'declare the tool with task="required", or do not wait',
    ),
    "ContextOfHost": Advice(
        "it used a method of roundtrip's Context on the SDK's or FastMCP's context",
        "annotate the parameter with the Context of `from roundtrip import Context`",
    ),
    "AskNotAwaited": Advice(
        "its body created a question or a step and never awaited it",
        "write `await ctx.ask(...)`, or ctx.blocking.ask(...) in a plain def",
    ),
    "SuspensionSwallowed": Advice(
        "its body caught the exception that ends a leg with questions",
        "catch Exception, not BaseException, around questions",
    ),
    "CallOutlived": Advice(
        "the call reached its max_age while it was still waiting for an answer",
        "raise max_age= if people need longer; the client must begin the call again",
    ),
    "ToolTimedOut": Advice(
        "its own work took longer than its timeout=",
        "make that work faster, or raise timeout=; `roundtrip trace show` has the times of resolvers and steps",
    ),
    "ThreadsExhausted": Advice(
        "every thread for plain functions still runs a function whose call has timed out",
        "limit how long those functions wait, or write them as async def",
    ),
    "OutcomeUnknown": Advice(
        "the body had already begun, and the process that ran it never recorded its end",
        "check its effects before calling it again, or set on_unknown='rerun' if it may run twice",
    ),
    "CallHasEnded": Advice(
        "the call had already ended, with other answers",
        "a client must begin a new call to give other answers",
    ),
    "AnsweredOtherwise": Advice(
        "another request with the same intent (once_per=) had answered first, or had answered a question otherwise, so "
        "these answers were not used",
        "a client that calls again continues with the answers that were used",
    ),
    "OtherArguments": Advice(
        "another call has the same intent (once_per=), with other arguments",
        "have the client repeat all arguments; others are accepted only after the other call came to nothing. An "
        "argument that is added to once_per= makes two intents of two values, and the body runs for each",
    ),
    "CallerMissing": Advice(
        "each caller has intents of their own (once_per=), and the server does not know who called",
        "authenticate the clients' users, set principal=, or write scope='service' if all callers may share results",
    ),
    "CallUncovered": Advice(
        "nothing identifies the call, so it could run twice, and uncovered='reject' forbids that",
        "the client must send what once_per= reads; or set uncovered='run' if such a call may run twice",
    ),
    "IntentUnreadable": Advice(
        "no key of the server opens what the ledger has of its intent",
        "give all instances the same keys=, and run `roundtrip calls rekey` before you remove a replaced key",
    ),
    "StillRunning": Advice(
        "another request was running its body at that time",
        "a client must send the same request again later",
    ),
    "LedgerUnavailable": Advice(
        "the ledger could not report whether its body has run",
        "check the ledger and the server's log at that time; the client may send the same request again",
    ),
    "CapabilityMissing": Advice(
        "the client did not declare support for this kind of question",
        "use a client that supports it, or set fallback= for other clients",
    ),
    "ChannelMissing": Advice(
        "its client can be asked only over the open connection, and this connection cannot carry questions", _ASK_LIVE
    ),
    "ConnectionLost": Advice(
        "the client left, or the server was stopped, while a question was open",
        "nothing needs to be fixed if that was intended; calls from clients on 2026-07-28 outlive a connection",
    ),
    "UrlRequired": Advice(
        "its client must send the user to a page first, and then call again",
        "nothing needs to be fixed; with sessions, the server asks such clients within the call",
    ),
    "TokenTooLarge": Advice(
        "the call remembers more than a token may hold",
        "keep large values on the server, and let the call remember a reference to them",
    ),
    "KeysMissing": Advice(
        "the server needs a key to hide a value from its client or to sign a ticket, but has none",
        "pass keys=, or pass seal_keys= together with request_state_security=",
    ),
    "ValueNotStorable": Advice(
        "a value for the token has no JSON form",
        "annotate it with a type that has a JSON form, or do not store it with remember=True, ctx.step or done=",
    ),
    "NotSendable": Advice(
        "a result cannot hold the value that it returned",
        "return a value that fits its annotation and output schema, and has a JSON form",
    ),
    "SchemaNotRenderable": Advice(
        "a form has a field that the protocol cannot show",
        "ask for flat fields: text, numbers, booleans, dates and choices",
    ),
    "DependencyEndedCall": Advice(
        "a cancel scope that a dependency entered, such as a timeout, cancelled the call",
        "give the dependency more time, or have it raise an error that names the cause",
    ),
    "DeclinedByUser": Advice(
        "the user declined or cancelled a question whose answer it needs",
        "nothing needs to be fixed; to continue without the answer, take ElicitationResult[T]",
    ),
    "ToolError": Advice(
        "its code raised ToolError, and the client received the text",
        "nothing needs to be fixed if the caller should see it",
    ),
    "CancelledError": Advice(
        "it was cancelled: the client cancelled the request or left, or the server was stopped",
        "nothing needs to be fixed if that was intended",
    ),
}
"""The advice for each roundtrip error that ends a leg, by the error's name."""
