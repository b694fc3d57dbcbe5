"""Server requirements in protocol revision 2026-07-28, in our words, and the modules that meet them."""

from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["REQUIREMENTS", "Requirement"]


@dataclass(frozen=True, slots=True)
class Requirement:
    """One clause. If the clause does not apply to roundtrip yet, `later` names the feature that it waits for."""

    id: str
    level: Literal["MUST", "SHOULD", "MAY"]
    demand: str
    modules: tuple[str, ...] = ()
    later: str | None = None


REQUIREMENTS: Final = (
    Requirement(
        "S1",
        "MUST",
        "Only responses to `tools/call`, `prompts/get` and `resources/read` may ask for input.",
        ("legs/boundary.py", "server/server.py"),
    ),
    Requirement(
        "S2",
        "MUST",
        'Such a response has `resultType: "input_required"`, and contains questions, a request state, or both.',
        ("engine/leg.py", "server/server.py"),
    ),
    Requirement(
        "S3",
        "MUST",
        "Each question has a unique key, and is a form, a sampling request or a request for roots.",
        ("resolvers/planner.py", "questions/wire.py"),
    ),
    Requirement(
        "S4",
        "MUST",
        "A request state may come from an attacker. The server must verify each one, and reject invalid ones.",
        ("tokens/token.py", "legs/boundary.py", "legs/requests.py"),
    ),
    Requirement(
        "S5",
        "SHOULD",
        "A request state is valid only for its caller, for its request and for a short time. It can still be "
        "used more than once.",
        ("tokens/binding.py", "legs/boundary.py", "machine/journal_bytes.py"),
    ),
    Requirement(
        "S6",
        "MUST",
        "Ask only questions whose capability the client declared. Name a missing capability with `-32021`.",
        ("questions/wire.py", "engine/leg.py", "tools/registered.py"),
    ),
    Requirement("S7", "SHOULD", "The server asks again if an answer is missing.", ("engine/answers.py",)),
    Requirement("S8", "SHOULD", "The server ignores an answer without a question.", ("engine/answers.py",)),
    Requirement(
        "S9",
        "SHOULD",
        "Malformed answers get a JSON-RPC error, and the server keeps running.",
        ("engine/answers.py", "server/server.py"),
    ),
    Requirement("S10", "MUST", "Do not rely on the client to come back.", ("engine/leg.py", "machine/journal.py")),
    Requirement(
        "S11", "MUST", "Only pages may ask for secrets, not forms.", ("questions/forms.py", "questions/markers.py")
    ),
    Requirement(
        "S12",
        "MUST",
        "A question's page checks that its visitor is the user who was asked.",
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
    Requirement("F4", "MUST", "A form must not contain nested objects, `$ref` or null.", ("questions/forms.py",)),
)
