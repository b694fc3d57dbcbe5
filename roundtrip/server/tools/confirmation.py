"""The gate of a dangerous tool: a question that shows its validated arguments and comes before anything runs."""

import string
from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel

from roundtrip.asks.markers import Elicit
from roundtrip.errors import InvalidSignature
from roundtrip.safe_text import printable

__all__ = ["ConfirmationGate"]

_SHOWN = 200


class _OnOneLine(string.Formatter):
    """Fills a template in with values that stay where they are put, whatever a client has written into them."""

    def format_field(self, value: Any, format_spec: str) -> str:
        return printable(format(value, format_spec))


_FILLED_IN = _OnOneLine()


class Confirmation(BaseModel):
    """A form without fields: accepting it is the answer."""


class ConfirmationGate(NamedTuple):
    """Asks for a tool's call to be confirmed. `key` is the question's name."""

    key: str
    template: str

    @classmethod
    def of(cls, template: str, *, tool: str, arguments: Mapping[str, str]) -> "ConfirmationGate":
        """The gate of `@server.tool(confirm=template)`.

        Raises:
            InvalidSignature: The template is empty, or mentions what is not an argument of the tool.
        """
        if not template.strip():
            # Taken for none, it would leave a dangerous tool without its gate.
            raise InvalidSignature(f"tool {tool!r}: confirm={template!r} asks nothing; leave it out for a tool without")
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
        """The question for one call: the template filled in, and every argument below it.

        Whoever has written the arguments must not be able to write the question: no value goes on in another line.
        """
        shown = [f"{name}: {_short(value)}" for name, value in arguments.items()]
        filled_in = _FILLED_IN.vformat(self.template, (), arguments)
        return Elicit("\n".join([filled_in, "", *shown]).rstrip(), Confirmation)


def _short(value: Any) -> str:
    text = printable(str(value) if isinstance(value, str) else repr(value))
    left = len(text) - _SHOWN
    return text if left <= 0 else f"{text[:_SHOWN]}... (and {left} more characters)"
