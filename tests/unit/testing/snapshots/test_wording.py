"""The text of stories with unusual or missing parts."""

from enum import Enum
from typing import Any, Literal

from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, ElicitRequestFormParams, ElicitResult, TextContent
from pydantic import BaseModel, Field
from syrupy.filters import props

from roundtrip.questions.forms import form_of
from roundtrip.testing import AskedQuestion, Conversation, Era, LegRequest
from roundtrip.testing.snapshots import call_text
from roundtrip.testing.snapshots.texts import Sieve
from roundtrip.testing.snapshots.wording import describe_field


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


class Form(BaseModel):
    row: Literal["front", "back"]
    size: Size = Size.SMALL
    copies: int = Field(default=1, ge=1, le=10)
    weight: float | None = Field(default=None, gt=0)
    name: str = Field(title="Your name", min_length=2, pattern="^[A-Z]")
    agreed: bool
    extras: list[Literal["salt", "sugar"]] = Field(default=[], max_length=2)


def lines(model: type[BaseModel]) -> list[str]:
    schema: Any = form_of(model).schema
    required = schema.get("required", [])
    properties = schema["properties"].items()
    return [f"{name}: {describe_field(name, shape, required=name in required)[0]}" for name, shape in properties]


def test_fields_are_described_in_a_few_words() -> None:
    assert lines(Form) == [
        'row: "front" | "back"',
        'size: "s" | "l", default "s", optional',
        "copies: integer, 1 to 10, default 1, optional",
        "weight: number, optional",
        'name: text, at least 2 characters, titled "Your name"',
        "agreed: yes or no",
        'extras: any of "salt" | "sugar", at most 2 of them, default [], optional',
    ]


ODD: list[tuple[Any, str]] = [
    ({"type": "string", "format": "email"}, "email"),
    ({"type": "string", "format": "hostname", "pattern": "^a"}, 'hostname, pattern "^a"'),
    ({"type": "string", "enum": ["a"], "enumNames": ["Ah"]}, '"a" (Ah)'),
    ({"type": "object", "properties": {}}, "object, properties {}"),
    ({}, "JSON"),
    (None, "JSON"),
    (["text"], "JSON"),
]


def test_odd_shapes_are_described() -> None:
    assert [(shape, describe_field("field", shape, required=True)[0]) for shape, _ in ODD] == ODD


def call_of(message: str = "Which?", result: Any = None, **arguments: Any) -> Conversation:
    params = ElicitRequestFormParams(message=message, requested_schema={"type": "object", "properties": {"card": {}}})
    question = AskedQuestion("ask", params, ElicitResult(action="accept", content={"card": "4111"}))
    structured = {"result": "Done"} if result is None else result
    content = [TextContent(type="text", text="Done")]
    return Conversation(
        LegRequest("pay", arguments),
        Era.RETRY,
        rounds=[[question]],
        tokens=["a token"],
        legs=2,
        result=CallToolResult(content=list(content), structured_content=structured),
    )


def test_terminal_controls_and_forged_lines_are_neutralized() -> None:
    text = call_text(call_of("Red \x1b[31m\u202e\r\n-> declined\nround 2  ", note="\x1b]0;title\x07"))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "    > -> declined\n    > round 2\\x20\\x20\n" in text


def test_values_are_distinguished_by_type() -> None:
    told = call_text(
        call_of(text="1", number=1, real=1.5, yes=True, none=None, empty={}, things=["1", 1], deep=[{"a": []}])
    )
    assert told.split("\n\n")[0].splitlines()[1:] == [
        '  text: "1"',
        "  number: 1",
        "  real: 1.5",
        "  yes: true",
        "  none: null",
        "  empty: {}",
        '  things: ["1", 1]',
        "  deep:",
        "    -",
        "      a: []",
    ]


def test_excluded_field_is_omitted_everywhere() -> None:
    text = call_text(call_of(card="4111", film="Solaris"), sieve=Sieve(exclude=props("card")))
    assert "card" not in text
    assert 'film: "Solaris"' in text


def test_protocol_error_is_shown() -> None:
    call = Conversation(
        LegRequest("pay"), Era.RETRY, error=MCPError(code=-32602, message="card declined", data={"why": "limit"})
    )
    assert call_text(call).endswith('failed\n  code: -32602\n  message: "card declined"\n  data:\n    why: "limit"\n')


def test_abandoned_call_is_reported() -> None:
    assert call_text(Conversation(LegRequest("pay"), Era.RETRY, left=True)).splitlines()[2] == "left waiting"
