"""Tool confirmation: a question that shows the arguments before anything runs."""

from __future__ import annotations

import json
import string
from collections.abc import Callable, Iterable, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from types import NoneType
from typing import Any, Final, NamedTuple, cast
from uuid import UUID

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_jsonable_python

from roundtrip.errors import InvalidSignature
from roundtrip.questions.markers import NOTHING, Elicit, ExternalMarker, Marker
from roundtrip.text import printable, quoted
from roundtrip.untrusted import mapping_of

_MAX_VALUE_CHARS: Final = 2000
"""Maximum number of characters shown for one value."""
_MAX_NAME_CHARS: Final = 100
_MAX_QUESTION_CHARS: Final = 20_000
"""Maximum number of characters in a question that the author did not write."""

_PLAIN: Final = (int, float, Decimal, date, time, timedelta, UUID, NoneType)
"""Types that are shown without quotes: their text cannot contain words that a client chose."""


class _Quoting(string.Formatter):
    """Formatter that quotes values, so that a client's text cannot be mistaken for the template's text."""

    def convert_field(self, value: Any, conversion: Any) -> Any:
        # Ignore `!r` for text: all text is quoted later, and would otherwise be quoted twice.
        return value if isinstance(value, str) else super().convert_field(value, conversion)

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, _PLAIN) and not isinstance(value, str):
            return printable(format(value, format_spec))
        if isinstance(value, str):
            return quoted(format(value, format_spec))
        return _as_json(value) if not format_spec else quoted(format(value, format_spec))


_FORMATTER = _Quoting()


class Confirmation(BaseModel):
    """Form without fields: the user answers by accepting it."""


class ToolConfirmation(NamedTuple):
    """Confirmation of tool calls. `key` is the question's name."""

    key: str
    template: str
    approve: ExternalMarker[Any] | None = None
    """Approval that replaces the user's confirmation; None if the user confirms."""
    is_consent: bool = False
    """True if the author wrote no question."""

    @classmethod
    def for_consent(cls, tool: str, *, version: str | None = None, server: str | None = None) -> ToolConfirmation:
        """Return the confirmation of a tool whose author wrote no question.

        Args:
            tool: The tool's name.
            version: The tool's version, if it has one.
            server: The name of the mounted server that asks; None if it is the server that clients connect to.
        """
        parts = [quoted(tool)]
        if version is not None:
            parts.append(f"version {quoted(version)}")
        if server is not None:
            parts.append(f"on server {quoted(server)}")
        named = ", ".join(parts) + ("," if len(parts) > 1 else "")
        return cls(consent_key(tool), f"Allow {named.replace('{', '{{').replace('}', '}}')} to run?", is_consent=True)

    @classmethod
    def of(cls, given: str | ExternalMarker[Any], *, tool: str, arguments: Mapping[str, str]) -> ToolConfirmation:
        """Return the confirmation for `@server.tool(confirm=given)`.

        Raises:
            InvalidSignature: The template is empty, or names something that is not an argument of the tool.
        """
        approve = given if isinstance(given, ExternalMarker) else None
        if approve is not None and approve.fallback is not NOTHING:
            raise InvalidSignature(
                f"tool {tool!r}: confirm=Approve(...) must have no fallback=, because a tool must not run without its "
                "confirmation; remove fallback="
            )
        template = cast("str", given if approve is None else approve.message)
        if not isinstance(template, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidSignature(
                f"tool {tool!r}: confirm must be the text of a question, got {template!r}; write "
                "confirm='Run this tool?', and name arguments in braces"
            )
        if not template.strip():
            # If an empty template were ignored, a dangerous tool would run without its confirmation.
            raise InvalidSignature(
                f"tool {tool!r}: confirm={template!r} must be a question; write one, or leave confirm= out"
            )
        try:
            fields = [field for _, field, _, _ in string.Formatter().parse(template) if field is not None]
        except ValueError as error:
            raise InvalidSignature(f"tool {tool!r}: confirm={template!r} is not a format string ({error})") from error
        for field in fields:
            if field not in arguments:
                known = ", ".join(arguments) or "none"
                raise InvalidSignature(
                    f"tool {tool!r}: confirm={template!r} mentions {field!r}, which is not an argument of the tool "
                    f"(its arguments: {known})"
                )
        return cls(consent_key(tool), template, approve)

    def with_defaults_of(self, schema: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], tuple[str, Marker]]:
        """Return the function that makes the named question for one call, from arguments as the client sent them."""
        return lambda arguments: self.named_question(_with_defaults(arguments, schema))

    def named_question(self, arguments: Mapping[str, Any]) -> tuple[str, Elicit[Confirmation] | ExternalMarker[Any]]:
        """Return the question for one call, with its name."""
        return self.key, self.question(arguments)

    def question(self, arguments: Mapping[str, Any]) -> Elicit[Confirmation] | ExternalMarker[Any]:
        """Return the question for one call: the template with its values, and below it a list of all arguments.

        Values stay in quotes and on one line, so that the writer of the arguments cannot rewrite the question.
        """
        shown = _shortened if self.approve is None else _whole
        listed = [f"{_label(name)}: {shown(value)}" for name, value in arguments.items()]
        question_text = _FORMATTER.vformat(self.template, (), arguments)
        text = "\n".join([question_text, "", *listed]).rstrip()
        if self.is_consent and len(text) > _MAX_QUESTION_CHARS:
            raise ToolError(
                f"arguments must have at most {_MAX_QUESTION_CHARS} characters in the question, so that the user can "
                f"read them, got {len(text)}; send less in one call"
            )
        if self.approve is None:
            return Elicit(text, Confirmation)
        if len(text) > self.approve.max_chars:
            raise ToolError(
                f"arguments must have at most {self.approve.max_chars} characters, so that approvers can read "
                f"them, got {len(text)}; send less in one call"
            )
        return self.approve.worded(text)


def consent_key(tool: str) -> str:
    """Return the name of a tool's confirmation."""
    return f"confirm:{tool}"


def _with_defaults(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments in the order of their schema, with the defaults of arguments that the client left out."""
    shown: dict[str, Any] = {}
    for name, part in mapping_of(schema.get("properties")).items():
        if name in arguments:
            shown[name] = arguments[name]
        elif "default" in mapping_of(part):
            shown[name] = part["default"]
    return {**shown, **arguments}


def _label(name: str) -> str:
    """Return an argument's name. A client may choose the names, and must not write lines of the question."""
    return name if name.isidentifier() else quoted(name[:_MAX_NAME_CHARS]) + _omission_note(len(name), _MAX_NAME_CHARS)


def _whole(value: Any) -> str:
    """Return a value's complete text, which approvers must see because they did not write the value."""
    if isinstance(value, str):
        return quoted(value)
    return printable(str(value)) if isinstance(value, _PLAIN) else _as_json(_with_all_fields(value))


def _with_all_fields(value: Any) -> Any:
    """Convert models to dicts with all their fields. A pydantic dump would leave out fields that the model excludes."""
    if isinstance(value, BaseModel):
        fields: dict[str, Any] = {**vars(value), **(value.model_extra or {})}
        return {name: _with_all_fields(field) for name, field in fields.items()}
    if isinstance(value, Mapping):
        return {key: _with_all_fields(one) for key, one in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_with_all_fields(one) for one in cast("Iterable[Any]", value)]
    return value


def _shortened(value: Any) -> str:
    """Return a value's text, truncated if it is long."""
    if isinstance(value, str):
        # Truncate before quoting, so that no escape sequence is cut.
        return quoted(value[:_MAX_VALUE_CHARS]) + _omission_note(len(value), _MAX_VALUE_CHARS)
    text = _whole(value)
    return text[:_MAX_VALUE_CHARS] + _omission_note(len(text), _MAX_VALUE_CHARS)


def _omission_note(length: int, limit: int) -> str:
    return f"... (and {length - limit} more characters)" if length > limit else ""


def _as_json(value: Any) -> str:
    try:
        text = json.dumps(to_jsonable_python(value, fallback=repr), ensure_ascii=False)
    except (PydanticSerializationError, ValueError, RecursionError):
        # The value has no JSON form: for example, it contains bytes that are not UTF-8.
        return quoted(repr(value))
    return printable(text)
