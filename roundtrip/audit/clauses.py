"""The audit's clauses: their IDs, levels and sources.

The S, F, R and T clauses come from the specification. `specs/protocol.md` lists the S and F clauses. An ID such as
`S4.forged` stands for a part of the clause S4. The A clauses are roundtrip's own advice. The P clauses are promises
that the user makes on the command line.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

_MRTR: Final = "basic/patterns/mrtr"
_BASE: Final = "basic"
_ELICITATION: Final = "client/elicitation"
_TASKS: Final = "extension io.modelcontextprotocol/tasks"
_OURS: Final = "roundtrip"
_USER: Final = "the command line"


class ClauseLevel(Enum):
    """Clause level: a level from RFC 2119, or advice, which is the lowest level."""

    MUST = "MUST"
    SHOULD = "SHOULD"
    MAY = "MAY"
    ADVICE = "ADVICE"


@dataclass(frozen=True, slots=True)
class AuditClause:
    """A clause, or a part of one."""

    id: str
    level: ClauseLevel
    demand: str
    source: str
    """The page in the 2026-07-28 specification that states the clause, or another source."""
    untried: str = "no call reached this point"
    """The reason that is reported if the clause was never tried."""


_MUST, _SHOULD, _MAY, _ADVICE = ClauseLevel
_NO_STATE: Final = "the server sent no request state"
_NO_QUESTION: Final = "no call asked a question"
_NO_FORM: Final = "no call asked with a form"
_NO_TASK: Final = "no call became a task"

_ALL: Final = (
    AuditClause("R1", _MUST, "Every result has a `resultType`.", _BASE),
    AuditClause("R2", _MUST, "Every response is JSON-RPC 2.0 and has its request's id.", _BASE),
    AuditClause("S1", _MUST, "Only tools, prompts and resources ask for input.", _MRTR),
    AuditClause("S1.returned", _MUST, "Questions are returned, and not sent as requests over the connection.", _MRTR),
    AuditClause(
        "S2.type", _MUST, 'A result with questions or a state has the type `"input_required"`.', _MRTR, _NO_QUESTION
    ),
    AuditClause(
        "S2.content",
        _MUST,
        "An input-required result has questions, a state that is a text, or both.",
        _MRTR,
        _NO_QUESTION,
    ),
    AuditClause("S3.keys", _MUST, "Question keys are unique within a request.", _MRTR, _NO_QUESTION),
    AuditClause(
        "S3.kinds",
        _MUST,
        "A question is a form, a page, a request to a model, or a request for roots.",
        _MRTR,
        _NO_QUESTION,
    ),
    AuditClause("S4.tampered", _MUST, "A state with a changed character is rejected.", _MRTR, _NO_STATE),
    AuditClause("S4.truncated", _MUST, "A shortened state is rejected.", _MRTR, _NO_STATE),
    AuditClause("S4.forged", _MUST, "A JSON state with rewritten values is rejected.", _MRTR, _NO_STATE),
    AuditClause("S4.invented", _MUST, "A state that the server never sent is rejected.", _MRTR, _NO_STATE),
    AuditClause("S5.principal", _SHOULD, "A user's state is rejected if another user sends it.", _MRTR, _NO_STATE),
    AuditClause("S5.expiry", _SHOULD, "A state is rejected after a short time.", _MRTR, _NO_STATE),
    AuditClause("S5.tool", _SHOULD, "A tool's state is rejected if it is sent to another tool.", _MRTR, _NO_STATE),
    AuditClause("S5.arguments", _SHOULD, "A state is rejected if it is sent with other arguments.", _MRTR, _NO_STATE),
    AuditClause("S5.replay", _MAY, "A state may be used again.", _MRTR, _NO_STATE),
    AuditClause(
        "S5.once", _MUST, "If a request is repeated, a tool that acts only once does not act again.", _MRTR, _NO_STATE
    ),
    AuditClause("S6.declared", _MUST, "Questions need only capabilities that the request declared.", _MRTR),
    AuditClause("S6.error", _MUST, "The error `-32021` names a missing capability.", _BASE, _NO_QUESTION),
    AuditClause("S7.missing", _SHOULD, "If an answer is missing, its question is asked again.", _MRTR, _NO_QUESTION),
    AuditClause("S7.goes-on", _SHOULD, "A call continues when its missing answer arrives.", _MRTR, _NO_QUESTION),
    AuditClause("S8.unknown", _SHOULD, "An answer to an unknown question is ignored.", _MRTR, _NO_QUESTION),
    AuditClause("S8.early", _SHOULD, "Answers to another round's questions are ignored.", _MRTR, "no call asked twice"),
    AuditClause("S8.stateless", _MAY, "Answers without their questions' state may be ignored.", _MRTR, _NO_STATE),
    AuditClause("S9.malformed", _SHOULD, "Malformed answers get a JSON-RPC error.", _MRTR, _NO_QUESTION),
    AuditClause("S9.content", _SHOULD, "Answers that do not fit their form are not accepted.", _ELICITATION, _NO_FORM),
    AuditClause("S9.alive", _SHOULD, "The server keeps running.", _MRTR),
    AuditClause("S10", _MUST, "The server works even if clients abandon their calls.", _MRTR, _NO_QUESTION),
    AuditClause("S11", _MUST, "Forms do not ask for secrets.", _ELICITATION, _NO_FORM),
    AuditClause(
        "S12", _MUST, "A page checks that its visitor is the user who was asked.", _ELICITATION, "no call used a page"
    ),
    AuditClause(
        "F1", _MUST, "A form is a flat object of strings, numbers, booleans and enums.", _ELICITATION, _NO_FORM
    ),
    AuditClause("F2", _MUST, "Enums have one of the four allowed shapes.", _ELICITATION, "no form has a choice"),
    AuditClause(
        "F3", _MAY, "If a field has a default, it fits the field's schema.", _ELICITATION, "no field has a default"
    ),
    AuditClause("F4", _MUST, "A form has no nesting, no `$ref` and no null.", _ELICITATION, _NO_FORM),
    AuditClause("T1", _MUST, "A task never reuses a question key.", _TASKS, _NO_TASK),
    AuditClause("T2", _MUST, "A call becomes a task only for clients that declared tasks.", _TASKS, _NO_TASK),
    AuditClause("T3", _MUST, "An unknown task gets the error `-32602`.", _TASKS, _NO_TASK),
    AuditClause("T4", _SHOULD, "A user's task is unknown to another user.", _TASKS, _NO_TASK),
    AuditClause("P1", _MUST, "Texts passed with --secret cannot be read in a state.", _USER, "--secret was not given"),
    AuditClause("A1", _ADVICE, "All bad states get the same response.", _OURS, _NO_STATE),
    AuditClause("A2", _ADVICE, "Errors show no traceback, path or exception.", _OURS, "no request got an error"),
    AuditClause("A3", _ADVICE, "Oversized requests are answered in time.", _OURS),
    AuditClause("A4", _ADVICE, "Answers and arguments cannot be read in a state.", _OURS, _NO_STATE),
    AuditClause("A5", _ADVICE, "Bad requests do not end in internal errors.", _OURS),
)

CLAUSES: Final = {clause.id: clause for clause in _ALL}
"""The clauses by ID, in report order."""
