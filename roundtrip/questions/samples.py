"""Answers from a client's model: their text, and the structured value that a server asks for."""

import json
import re
from dataclasses import dataclass
from typing import Any, Final, Generic

from mcp_types import CreateMessageResult, CreateMessageResultWithTools, TextContent
from pydantic import ValidationError
from typing_extensions import TypeVar

from roundtrip.questions.forms import AnswerInvalid, adapter_for, explain

T = TypeVar("T", default=str)

_FENCED: Final = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Sampled(Generic[T]):
    """Result of `ctx.sample`.

    `text` is the answer's text, or "" if the answer has no text. `result` is the value of type `result_type`, or the
    text if no type was given. `message` is the whole answer.
    """

    text: str
    result: T
    message: CreateMessageResult | CreateMessageResultWithTools


def text_of(message: CreateMessageResult | CreateMessageResultWithTools) -> str:
    """Return an answer's text, with its blocks joined."""
    content = message.content if isinstance(message.content, list) else [message.content]
    return "".join(block.text for block in content if isinstance(block, TextContent))


def instruction_for(result_type: Any) -> str:
    """Return an instruction that asks the model for a value of this type."""
    schema = json.dumps(adapter_for(result_type).json_schema(), separators=(",", ":"))
    return f"Answer with JSON that fits this schema, and with nothing else: {schema}"


def read_structured(result_type: Any, text: str) -> Any:
    """Parse an answer's text as a value of this type.

    Raises:
        AnswerInvalid: The text is not JSON, or does not fit the type.
    """
    fenced = _FENCED.fullmatch(text)
    try:
        return adapter_for(result_type).validate_json(fenced[1] if fenced is not None else text)
    except ValidationError as error:
        raise AnswerInvalid(explain(error)) from error
