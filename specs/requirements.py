"""Server requirements in protocol revision 2026-07-28, in our words, and the modules that meet them."""

from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["REQUIREMENTS", "Requirement"]


@dataclass(frozen=True, slots=True)
class Requirement:
    """One clause. If it does not apply to roundtrip yet, `later` names what it waits for."""

    id: str
    level: Literal["MUST", "SHOULD", "MAY"]
    demand: str
    modules: tuple[str, ...] = ()
    later: str | None = None


REQUIREMENTS: Final = (
    Requirement(
        "S1",
        "MUST",
        "Only `tools/call`, `prompts/get` and `resources/read` may answer that they need input.",
        ("legs/boundary.py", "server/server.py"),
    ),
    Requirement(
        "S2",
        "MUST",
        'Such an answer has `resultType: "input_required"` and carries questions, a request state, or both.',
        ("engine/leg.py", "server/server.py"),
    ),
    Requirement(
        "S3",
        "MUST",
        "Questions have unique keys, and each is a form, a sampling request or a request for roots.",
        ("resolvers/planner.py", "questions/wire.py"),
    ),
    Requirement(
        "S4",
        "MUST",
        "A returned request state may come from an attacker: verify it, and reject it if it is invalid.",
        ("tokens/token.py", "legs/boundary.py", "legs/requests.py"),
    ),
    Requirement(
        "S5",
        "SHOULD",
        "A request state is bound to the caller, to a short time and to its request. It can still be used "
        "more than once.",
        ("tokens/binding.py", "legs/boundary.py", "machine/journal_bytes.py"),
    ),
    Requirement(
        "S6",
        "MUST",
        "Ask only questions whose capability the client declared; otherwise name the missing one, with `-32021`.",
        ("questions/wire.py", "engine/leg.py", "tools/registered.py"),
    ),
    Requirement("S7", "SHOULD", "A missing answer is requested again.", ("engine/answers.py",)),
    Requirement("S8", "SHOULD", "An answer without a question is ignored.", ("engine/answers.py",)),
    Requirement(
        "S9",
        "SHOULD",
        "Malformed answers get a JSON-RPC error, and the server keeps running.",
        ("engine/answers.py", "server/server.py"),
    ),
    Requirement("S10", "MUST", "Do not rely on the client to come back.", ("engine/leg.py", "machine/journal.py")),
    Requirement(
        "S11", "MUST", "Forms never ask for secrets; pages do.", ("questions/forms.py", "questions/markers.py")
    ),
    Requirement(
        "S12",
        "MUST",
        "The page behind a question checks that its visitor is the user who was asked.",
        ("tokens/tickets.py", "legs/asking.py", "server/server.py"),
    ),
    Requirement(
        "F1",
        "MUST",
        "A form is a flat object of strings (length, `email`, `uri`, `date`, `date-time`), numbers (bounds), booleans "
        "and enums.",
        ("questions/forms.py",),
    ),
    Requirement(
        "F2",
        "MUST",
        "Enums come in four shapes: one or several choices, each with or without titles.",
        ("questions/forms.py",),
    ),
    Requirement("F3", "MAY", "Every field may have a default.", ("questions/forms.py",)),
    Requirement("F4", "MUST", "A form has no nesting, no `$ref` and no null.", ("questions/forms.py",)),
)
