"""The lines of a transcript: one JSON object per thing that happened, as readers parse it.

A request that reaches a function is a *serving*: it begins, may ask and be answered (in the live era, several times),
and ends or leaves its questions out. What happened since the line before is told with the next one, so that a leg
costs two lines. A token that was rejected never reached a function, and is a line of its own.

The recorder writes these by hand, for speed; tests hold every line it writes against the schema of these models.
"""

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter

from roundtrip.errors import RejectionReason
from roundtrip.machine.facts import Reason
from roundtrip.machine.table import Event, State

__all__ = [
    "FORMAT",
    "LINE",
    "AnsweredLine",
    "AskedLine",
    "BeganLine",
    "Digested",
    "EndedLine",
    "FixedValue",
    "Kept",
    "Line",
    "Move",
    "NodeRun",
    "RaisedError",
    "ReadAnswer",
    "RejectedLine",
    "Revealed",
    "ServingLine",
    "ShownQuestion",
    "StepRun",
    "TokenWritten",
]

FORMAT: Final = 1
"""Version of the lines."""

Milliseconds = Annotated[float, Field(ge=0)]


class _LinePart(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Digested(_LinePart):
    """A value that may be confidential, and is not told."""

    digest: str = Field(description="Keyed, so that it can be compared and not guessed at.")
    bytes: int = Field(ge=0, description="The size of the value as JSON, rounded up to a multiple of 64.")


class Revealed(_LinePart):
    """A value that the recorder was told to keep."""

    value: JsonValue


Kept = Digested | Revealed


Move = tuple[Event, State, Milliseconds]
"""An event of the machine, the state it led to, and when, counted from the start of the serving."""


class NodeRun(_LinePart):
    """One run of a resolver or another dependency."""

    key: str
    how: Literal["computed", "asked", "answered", "recalled", "entered", "failed"]
    """`answered` asked, and its answer was known; `recalled` was not run, as its first outcome is final."""
    start: Milliseconds
    ms: Milliseconds


class StepRun(_LinePart):
    """One `ctx.step` of a body."""

    key: str
    how: Literal["ran", "recalled", "failed"]
    start: Milliseconds
    ms: Milliseconds
    value: Kept | None = None


class ReadAnswer(_LinePart):
    """An answer of the client's that was read."""

    key: str
    action: Literal["accept", "decline", "cancel"] | None = Field(
        description="None where it was malformed, or the answer to another kind of question."
    )
    how: Literal["taken", "invalid", "lost"]
    """`lost` was given to another wording than the question has now."""
    data: Kept | None = None


class FixedValue(_LinePart):
    """A value that the server fixed for the rest of the call."""

    key: str
    value: Kept


class ShownQuestion(_LinePart):
    """A question that went out."""

    key: str
    kind: Literal["form", "page", "sample", "roots"]
    reason: Reason
    changed: tuple[Literal["message", "schema", "key"], ...] = Field(
        default=(), description="What differs from when the client was shown it before."
    )
    former: str | None = Field(default=None, description="The name under which an answer to this question is known.")
    attempt: int = Field(default=1, ge=1, description="How often it has been put, counting answers that were invalid.")
    message: Kept | None = None
    form: Kept | None = Field(default=None, description="The schema of the form that is shown.")
    filled: Kept | None = Field(default=None, description="The valid fields of an earlier answer, shown as defaults.")
    url: Kept | None = None
    complaint: Kept | None = Field(default=None, description="What was wrong with the answer before.")


class TokenWritten(_LinePart):
    """The state that the client was handed, and how what it holds differs from what the client brought."""

    bytes: int = Field(ge=0)
    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    """Parts are named `answer:KEY`, `asked:KEY`, `computed:KEY` and `authored`."""
    computed: dict[str, Kept] = Field(
        default={}, description="What the server has fixed for the call, where that was added or changed."
    )


class _Head(_LinePart):
    v: Literal[1] = FORMAT
    at: float = Field(description="Seconds since the epoch.")
    instance: str
    serving: int = Field(ge=1, description="Which request of the instance it is; the same on all lines of a serving.")


class ServingLine(_Head):
    """What every line of a serving says."""

    call: str
    leg: int = Field(ge=1)
    round: int = Field(ge=0, description="Rounds of questions so far, the one that this line begins included.")


class _Happened(ServingLine):
    """What happened since the line before."""

    ms: Milliseconds = Field(description="Since the start of the serving.")
    moves: tuple[Move, ...] = ()
    nodes: tuple[NodeRun, ...] = ()
    steps: tuple[StepRun, ...] = ()
    answers: tuple[ReadAnswer, ...] = ()
    fixed: tuple[FixedValue, ...] = Field(
        default=(), description="What the server fixed for the call, in the live era; in the other the token has it."
    )
    reused: tuple[str, ...] = Field(default=(), description="Questions whose answers came out of the token.")
    ignored: int = Field(default=0, ge=0, description="Answers to what was not asked.")
    bodies: int = Field(default=0, ge=0, description="How often the body was begun.")
    uncovered: bool = Field(
        default=False, description="Whether the body should run once for a call, and was begun without a token to tell."
    )


class BeganLine(ServingLine):
    """A request reached its function."""

    event: Literal["began"] = "began"
    method: str
    tool: str = Field(description="The name of the tool or prompt; of a resource, its template.")
    version: str | None = None
    era: Literal["retry", "live", "direct"]
    """`direct` is a function that was called without a request."""
    protocol: str | None = None
    principal: str | None = Field(default=None, description="A fingerprint of whom the request comes from.")
    build: str
    plan: str = Field(description="A fingerprint of what fills the parameters.")
    previous_build: str | None = Field(default=None, description="Of the leg before, where it was another.")
    token_bytes: int | None = Field(default=None, description="The size of the state that the client brought.")
    arguments: Kept | None = None
    within: str | None = Field(default=None, description="The call whose function called this one.")
    replaces: str | None = Field(default=None, description="The expired call that this one was begun in the place of.")


class AskedLine(_Happened):
    """Questions went out. In the retry era that ends the serving."""

    event: Literal["asked"] = "asked"
    by: Literal["resolvers", "body", "author"]
    """`author` returned an `InputRequiredResult` made by hand."""
    questions: tuple[ShownQuestion, ...]
    until: float | None = Field(default=None, description="When the answers come too late, in seconds of the epoch.")
    token: TokenWritten | None = None


class AnsweredLine(_Happened):
    """The client answered over the open connection, and the serving goes on."""

    event: Literal["answered"] = "answered"
    keys: tuple[str, ...]
    waited: Milliseconds


class RaisedError(_LinePart):
    """What ended a call that did not complete."""

    type: str
    text: Kept


class EndedLine(_Happened):
    """The call ended."""

    event: Literal["ended"] = "ended"
    state: Literal["completed", "failed", "declined", "rejected"]
    result: Kept | None = None
    is_error: bool = False
    decline: str | None = Field(default=None, description="What the user would not answer.")
    error: RaisedError | None = None


class RejectedLine(_Head):
    """A token was rejected before any function was reached."""

    event: Literal["rejected"] = "rejected"
    call: str | None = Field(default=None, description="Whose call it was, where the token is authentic.")
    leg: int | None = None
    round: int | None = None
    reason: RejectionReason
    method: str
    tool: str | None = None
    protocol: str | None = None
    principal: str | None = None
    token_bytes: int | None = None


Line = Annotated[
    BeganLine | AskedLine | AnsweredLine | EndedLine | RejectedLine,
    Field(discriminator="event"),
]

LINE: Final[TypeAdapter[Line]] = TypeAdapter(Line)
"""Reads a line, and has the schema that `specs/transcript.schema.json` shows."""
