"""The gate of a dangerous tool: a question that shows its validated arguments and comes before anything runs."""

import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from roundtrip.asks.markers import Elicit
from roundtrip.errors import InvalidSignature

__all__ = ["ConfirmationGate"]

_SHOWN = 200


class Confirmation(BaseModel):
    """A form without fields: accepting it is the answer."""


@dataclass(frozen=True, slots=True)
class ConfirmationGate:
    """Asks for a tool's call to be confirmed. `key` is the question's name."""

    key: str
    template: str

    @classmethod
    def of(cls, template: str, *, tool: str, arguments: Mapping[str, str]) -> "ConfirmationGate":
        """The gate of `@server.tool(confirm=template)`.

        Raises:
            InvalidSignature: The template mentions what is not an argument of the tool.
        """
        try:
            fields = [field for _, field, _, _ in string.Formatter().parse(template) if field is not None]
        except ValueError as error:
            raise InvalidSignature(f"tool {tool!r}: confirm={template!r} is no format string ({error})") from error
        for field in fields:
            if field not in arguments:
                known = ", ".join(arguments) or "none"
                raise InvalidSignature(
                    f"tool {tool!r}: confirm={template!r} mentions {field!r}, which is no argument of the tool "
                    f"(it has: {known})"
                )
        return cls(f"confirm:{tool}", template)

    def question(self, arguments: Mapping[str, Any]) -> Elicit[Confirmation]:
        """The question for one call: the template filled in, and every argument below it."""
        shown = [f"{name}: {_short(value)}" for name, value in arguments.items()]
        return Elicit("\n".join([self.template.format(**arguments), "", *shown]).rstrip(), Confirmation)


def _short(value: Any) -> str:
    text = str(value) if isinstance(value, str) else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
