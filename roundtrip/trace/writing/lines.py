"""Transcript lines, in the form that readers parse: one JSON object for each event.

A *serving* is one attempt at a leg: a request that reaches a function, or a worker's run. During a serving, the call
may ask questions and receive answers; in the live era, it may do so several times. At the end, the call has ended or
waits for answers. Each line reports everything since the previous line, so a leg needs only two lines.

A request with a rejected token never reaches a function, and gets a separate line. An operator action on a stored call
also gets a separate line, as does a stored call that ends outside a leg.

For speed, the recorder formats lines by hand. Tests validate every line against the schema of these models.
"""

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter

from roundtrip.errors import RejectionReason
from roundtrip.machine.facts import Reason
from roundtrip.machine.table import Event, State

FORMAT: Final = 1
"""Version of the line format."""

Milliseconds = Annotated[float, Field(ge=0)]


class _LinePart(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Digested(_LinePart):
    """Value that may be confidential. The transcript has only its digest."""

    digest: str = Field(
        description="A keyed digest. It shows whether two values are equal, but cannot be used to guess them."
    )
    bytes: int = Field(ge=0, description="The size of the value as JSON, rounded up to a multiple of 64.")


class Revealed(_LinePart):
    """Value that the recorder was configured to reveal."""

    value: JsonValue


Recorded = Digested | Revealed


Move = tuple[Event, State, Milliseconds]
"""A machine event, the state after it, and its time since the leg's first line."""


class NodeRun(_LinePart):
    """One run of a resolver or another dependency."""

    key: str
    how: Literal["computed", "asked", "answered", "recalled", "entered", "failed"]
    """`answered`: the node asked a question whose answer was already known. `recalled`: the node did not run, because
    its first outcome is final.
    """
    start: Milliseconds
    ms: Milliseconds


class StepRun(_LinePart):
    """One `ctx.step` in a body."""

    key: str
    how: Literal["ran", "recalled", "failed"]
    start: Milliseconds
    ms: Milliseconds
    value: Recorded | None = None


class ReadAnswer(_LinePart):
    """Client answer that the server read."""

    key: str
    action: Literal["accept", "decline", "cancel"] | None = Field(
        description="Null if the answer was malformed or belongs to another kind of question."
    )
    how: Literal["taken", "invalid", "lost"]
    """`lost`: the question's wording has changed since the client answered it."""
    data: Recorded | None = None


class ReadDecision(_LinePart):
    """Approval decision that the server read."""

    key: str
    by: str = Field(description="The group that decided.")
    outcome: Literal["approved", "rejected", "expired"]
    at: float = Field(description="The time of the decision, in seconds since the epoch.")
    data: Recorded = Field(description="The person and the reason; revealed with `answers`.")


class FixedValue(_LinePart):
    """Value that the server fixed for the rest of the call."""

    key: str
    value: Recorded


class ShownQuestion(_LinePart):
    """Question that the server sent."""

    key: str
    kind: Literal["form", "page", "sample", "roots"]
    reason: Reason
    changed: tuple[Literal["message", "schema", "key"], ...] = Field(
        default=(), description="The parts that differ from the question that the client last saw."
    )
    former: str | None = Field(
        default=None, description="The former name, under which the question was already answered."
    )
    attempt: int = Field(default=1, ge=1, description="The attempt number, which only an invalid answer increments.")
    message: Recorded | None = None
    form: Recorded | None = Field(default=None, description="The schema of the form.")
    filled: Recorded | None = Field(
        default=None, description="The valid fields of an earlier answer, shown as defaults."
    )
    url: Recorded | None = None
    complaint: Recorded | None = Field(default=None, description="The error in the previous answer.")


class TokenWritten(_LinePart):
    """Token that the server wrote, and how its content differs from the token that the client sent."""

    bytes: int = Field(ge=0)
    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    """Parts are named `answer:KEY`, `asked:KEY`, `computed:KEY` and `authored`."""
    computed: dict[str, Recorded] = Field(
        default={}, description="Values that the server fixed for the call and that this token adds or changes."
    )


class FoundIntent(_LinePart):
    """What the server found when it looked the call's intent up (`once_per=`)."""

    how: Literal["began", "continued", "joined", "recalled"]
    recalled_from: str | None = Field(
        default=None, description="The call whose end was recalled, or the stored call that the request joined."
    )
    has_begun_again: bool = Field(
        default=False, description="True if the client's first request joined a call that had begun before."
    )
    token_leg: int | None = Field(
        default=None, ge=1, description="The leg that wrote the token, if another request has continued the call since."
    )


class _Head(_LinePart):
    v: Literal[1] = FORMAT
    at: float = Field(description="Seconds since the epoch.")


class _RequestHead(_Head):
    """Members of every line about a request."""

    instance: str
    serving: int = Field(
        ge=1, description="The request's number on its instance, the same on all of the request's lines."
    )


class _ServingLine(_RequestHead):
    """Fields of every line that is written while a leg is served."""

    call: str
    leg: int = Field(ge=1)
    round: int = Field(ge=0, description="Rounds of questions so far, including the one that this line begins.")


class _Happened(_ServingLine):
    """Members of every line about a leg except the first line. They report everything since the previous line."""

    ms: Milliseconds = Field(description="Time since the serving began.")
    intent: FoundIntent | None = Field(default=None, description="Only on a leg's second line, and with `once_per=`.")
    moves: tuple[Move, ...] = ()
    nodes: tuple[NodeRun, ...] = ()
    steps: tuple[StepRun, ...] = ()
    answers: tuple[ReadAnswer, ...] = ()
    decisions: tuple[ReadDecision, ...] = ()
    fixed: tuple[FixedValue, ...] = Field(
        default=(),
        description="Values that the server fixed. Only if the line has no `token`, which lists them.",
    )
    reused: tuple[str, ...] = Field(default=(), description="Questions whose answers came from the token.")
    ignored: int = Field(default=0, ge=0, description="Answers to questions that were not asked.")
    bodies: int = Field(default=0, ge=0, description="How many times the body began.")
    uncovered: bool = Field(
        default=False,
        description="True if the tool is `exactly_once` but its body began without a token, and so without a claim.",
    )


class BeganLine(_ServingLine):
    """A request reached its function."""

    event: Literal["began"] = "began"
    method: str
    tool: str = Field(description="The name of the tool or prompt, or a resource's URI template.")
    version: str | None = None
    era: Literal["retry", "live", "direct", "task"]
    """`direct`: the function was called without a request. `task`: a worker runs the leg."""
    protocol: str | None = None
    principal: str | None = Field(default=None, description="A fingerprint of the caller.")
    build: str
    plan: str = Field(description="A fingerprint of the plan that fills the parameters.")
    previous_build: str | None = Field(default=None, description="The previous leg's build, if it differs.")
    token_bytes: int | None = Field(default=None, description="The size of the token that the client sent.")
    arguments: Recorded | None = None
    within: str | None = Field(default=None, description="The call whose function called this one.")
    replaces: str | None = Field(default=None, description="The expired call that this one replaced, in 0.2.")
    takes_over: bool = Field(default=False, description="True if the previous worker stopped renewing its lease.")


class ShownWait(_LinePart):
    """Time or signal for which a task waits."""

    signal: str | None = Field(default=None, description="The name of the signal.")
    until: float | None = Field(
        default=None, description="The time at which the task continues, in seconds since the epoch."
    )


class AskedApproval(_LinePart):
    """Approval for which the call waits."""

    key: str
    by: str = Field(description="The group that decides.")
    message: Recorded = Field(description="The wording to approve; revealed with `questions`.")


class AskedLine(_Happened):
    """The server sent questions, or a task waits. In the retry era, and with `once_per=`, the leg ends here."""

    event: Literal["asked"] = "asked"
    by: Literal["resolvers", "body", "author"]
    """`author`: the function returned an `InputRequiredResult` that the author built."""
    questions: tuple[ShownQuestion, ...]
    waits: tuple[ShownWait, ...] = Field(default=(), description="What a task waits for besides its user.")
    approvals: tuple[AskedApproval, ...] = Field(default=(), description="The approvals for which the call waits.")
    rung: Literal["url", "local", "app", "link", "page", "model"] | None = Field(
        default=None,
        description="How the questions are asked, unless the client asks them. `url`: the client shows the page's "
        "address. `local`: the page opens in this machine's browser. `app`: an app in the conversation, or the page "
        "whose address the result contains. `link`: a result contains the page's address. "
        "`page`: the user is already on the page. `model`: a result passes the questions to the model.",
    )
    until: float | None = Field(default=None, description="The deadline for the answers, in seconds since the epoch.")
    token: TokenWritten | None = None


class AnsweredLine(_Happened):
    """The client answered over the open connection, and the leg continues."""

    event: Literal["answered"] = "answered"
    keys: tuple[str, ...]
    waited: Milliseconds


class RaisedError(_LinePart):
    """Error that ended a call."""

    type: str
    text: Recorded


class EndedLine(_Happened):
    """The call ended."""

    event: Literal["ended"] = "ended"
    state: Literal["completed", "failed", "declined", "rejected"]
    result: Recorded | None = None
    is_error: bool = False
    decline: str | None = Field(default=None, description="The question that the user declined or cancelled.")
    error: RaisedError | None = None

    @property
    def error_type(self) -> str | None:
        """Return the error's class name."""
        return self.error.type if self.error is not None else None


class HandedLine(_Happened):
    """The call continues as a task. The request ends before the body runs."""

    event: Literal["handed"] = "handed"
    to: Literal["task"] = "task"


class RejectedLine(_RequestHead):
    """The server rejected a token before it reached any function."""

    event: Literal["rejected"] = "rejected"
    call: str | None = Field(default=None, description="The token's call, if the token is authentic.")
    leg: int | None = None
    round: int | None = None
    reason: RejectionReason
    method: str
    tool: str | None = None
    protocol: str | None = None
    principal: str | None = None
    token_bytes: int | None = None


class StoppedLine(_Head):
    """A stored call ended outside a leg. If a leg was still running, it may also write a line when it ends."""

    event: Literal["stopped"] = "stopped"
    instance: str
    call: str
    tool: str
    how: Literal["cancelled", "lost", "expired", "unstored", "joined"]
    """`cancelled`: the client or an operator cancelled the call. `lost`: its worker died. `expired`: its time to live
    passed. `unstored`: the call asked a question while the store was down. `joined`: the call repeated another call.
    That call continues, and its result serves both.
    """
    joined: str | None = Field(default=None, description="The id of the repeated call, which continues.")


OperatorAction = Literal["cancel", "retry", "expire", "remind", "answer"]

ENDING_ACTIONS: Final[frozenset[OperatorAction]] = frozenset(("cancel", "expire"))
"""Operator actions that end a call."""


class ActedLine(_Head):
    """An operator acted on a stored call, or tried to."""

    event: Literal["acted"] = "acted"
    instance: Literal["command", "ui"]
    """The operator's program."""
    call: str
    tool: str | None = Field(default=None, description="The name of the tool, if the call could be loaded.")
    action: OperatorAction
    by: str = Field(description="The operator. For a command, the operating-system user.")
    outcome: Literal["done", "rejected"]
    why: str = Field(default="", description="The reason for a rejection, or the question's name for a stored answer.")


Line = Annotated[
    BeganLine | AskedLine | AnsweredLine | HandedLine | EndedLine | RejectedLine | StoppedLine | ActedLine,
    Field(discriminator="event"),
]

LINE: Final[TypeAdapter[Line]] = TypeAdapter(Line)
"""Parser for one line. `specs/transcript.schema.json` shows its schema."""
