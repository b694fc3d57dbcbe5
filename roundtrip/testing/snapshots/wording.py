"""Text for snapshots, which describes a story in a form that is easy to compare."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final, cast

from roundtrip.questions.fields import FieldChoice, FieldKind, FormField, fields_of
from roundtrip.testing.snapshots.redaction import REDACTED
from roundtrip.testing.snapshots.story import Story
from roundtrip.text import printable
from roundtrip.untrusted import list_of, mapping_of

_MAX_LIST_CHARS: Final = 88
"""The maximum width of a list, or of a field's choices, on one line."""
_PLAIN_NAME: Final = re.compile(r"[^\s\"](?:[^\n\"]*[^\s\":])?")
FieldText = tuple[str, list[str], str | None]
"""A form field's rules, its choices (if they need separate lines), and its description."""
_KNOWN_KEYWORDS: Final = frozenset({
    "type", "title", "description", "default", "enum", "enumNames", "oneOf", "anyOf", "items", "minimum", "maximum",
    "minLength", "maxLength", "minItems", "maxItems", "format",
})  # fmt: skip
_KINDS: Final = {
    FieldKind.TEXT: "text",
    FieldKind.WHOLE: "integer",
    FieldKind.NUMBER: "number",
    FieldKind.YES_NO: "yes or no",
    FieldKind.ONE: "one of",
    FieldKind.SEVERAL: "any of",
    FieldKind.JSON: "JSON",
}


class StoryText:
    """A writer that turns a story into text. Any part of the story may be missing."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._lines: list[str] = []

    def text(self) -> str:
        """Return the story's text."""
        story = self._story
        head = [str(story[part]) for part in ("method", "name") if part in story]
        era = f" ({story['era']} era)" if "era" in story else ""
        self._line(printable(" ".join(head)) + era)
        self._values(story.get("arguments"), 1)
        rounds = list_of(story.get("rounds"))
        for number, round_ in enumerate(rounds, start=1):
            self._link_results(number - 1)
            self._lines.append("")
            self._line(f"round {number}")
            if "page" in round_:
                self._line(f"on the page {printable(str(round_['page']))}", 1)
            if "app" in round_:
                self._line("in an app in the conversation", 1)
            for question in list_of(round_.get("questions")):
                self._question(question)
            self._token(round_.get("token"))
        self._link_results(len(rounds))
        for approval in list_of(story.get("approvals")):
            self._approval(approval)
        self._states(list_of(story.get("states")))
        self._end()
        return "\n".join(self._lines) + "\n"

    def _link_results(self, rounds: int) -> None:
        """Write the results with links that arrived after this many rounds."""
        for result in list_of(self._story.get("link_results")):
            if result.get("round") == rounds:
                self._lines.append("")
                self._line("result with a link")
                self._blocks(result.get("content"), 1)

    def _approval(self, approval: Story) -> None:
        self._lines.append("")
        self._line(f"approval by {printable(str(approval.get('by')))}")
        self._quoted(str(approval.get("message")), 1)
        who = f" by {printable(str(approval['who']))}" if "who" in approval else ""
        self._line(f"-> {approval.get('state')}{who}", 1)
        if approval.get("reason"):
            self._quoted(str(approval["reason"]), 2)

    def _line(self, text: str, depth: int = 0) -> None:
        spaces = len(text) - len(text.rstrip(" "))
        # Escape trailing spaces, because editors remove them and readers do not see them.
        text = text[: len(text) - spaces] + r"\x20" * spaces
        self._lines.append("  " * depth + text)

    def _quoted(self, text: str, depth: int) -> None:
        for line in printable(text, keep_newlines=True).split("\n"):
            self._line(f"> {line}" if line else ">", depth)

    def _question(self, question: Story) -> None:
        name = question.get("name")
        kind = f"({question['kind']})" if "kind" in question else ""
        self._line(" ".join(part for part in (_name(name) if name is not None else "", kind) if part), 1)
        if "message" in question:
            self._quoted(str(question["message"]), 2)
        if "url" in question:
            self._line(printable(str(question["url"])), 2)
        self._messages(question, 2)
        self._values(question.get("options"), 2)
        required = list_of(question.get("required"))
        for field, shape in mapping_of(question.get("form")).items():
            self._field(field, shape, required=field in required)
        if "answer" in question:
            self._answer(question["answer"])

    def _field(self, name: str, shape: Any, *, required: bool) -> None:
        rules, choices, description = describe_field(name, shape, required=required)
        self._line(f"{_name(name)}: {printable(rules)}", 2)
        for choice in choices:
            self._line(f"| {printable(choice)}", 3)
        if description is not None:
            self._quoted(description, 3)

    def _answer(self, answer: Any) -> None:
        if not isinstance(answer, Mapping):
            self._line("-> not answered" if answer is None else f"-> {_inline(answer)}", 2)
            return
        parts = cast("Mapping[str, Any]", answer)
        self._line(f"-> {parts.get('action', 'answered')}", 2)
        content = parts.get("content")
        if parts.get("action") == "said":
            self._blocks(content, 3)
        else:
            self._values(content, 3)
        for root in list_of(parts.get("roots")):
            self._line(printable(str(root)), 3)

    def _token(self, token: Any) -> None:
        parts = mapping_of(token)
        if not parts:
            return
        encrypted = " (encrypted)" if parts.get("encrypted") else ""
        self._line(printable(str(parts.get("token", "token"))) + encrypted, 1)
        if parts.get("version") is not None:
            self._line(f"is of version {printable(str(parts['version']))}", 2)
        for name in ("asks", "holds"):
            for key in list_of(parts.get(name)):
                self._line(f"{name} {printable(str(key))}", 2)
        if parts.get("sealed"):
            self._line("seals something", 2)

    def _states(self, states: list[Any]) -> None:
        if not states:
            return
        self._lines.append("")
        self._line("states")
        # Write one line per leg. Every line except the last ends with `awaiting_input`.
        legs = " > ".join(map(str, states)).replace("awaiting_input > ", "awaiting_input\n")
        for leg in legs.split("\n"):
            self._line(leg, 1)

    def _end(self) -> None:
        story = self._story
        self._lines.append("")
        if "end" in story:
            self._line(str(story["end"]))
        if "error" in story:
            self._values(mapping_of(story["error"]), 1)
        if story.get("description") is not None:
            self._quoted(str(story["description"]), 1)
        if "result" in story:
            self._value_block(story["result"], 1)
        self._blocks(story.get("content"), 1)
        self._messages(story, 1)

    def _messages(self, story: Story, depth: int) -> None:
        for message in list_of(story.get("messages")):
            self._line(f"{printable(str(message.get('role', 'message')))}:", depth)
            self._blocks(message.get("content"), depth + 1)

    def _blocks(self, blocks: Any, depth: int) -> None:
        for block in list_of(blocks):
            if not isinstance(block, Mapping):
                self._line(_inline(block), depth)
                continue
            fields = cast("Mapping[str, Any]", block)
            if fields.get("kind") == "other":
                self._values({name: item for name, item in fields.items() if name != "kind"}, depth)
                continue
            parts = [] if fields.get("kind") == "text" else [str(fields.get("kind", ""))]
            parts += [str(fields[part]) for part in ("uri", "name") if fields.get(part) is not None]
            parts += [f"({fields['type']})"] if fields.get("type") is not None else []
            parts += [f"{fields['bytes']} bytes"] if fields.get("bytes") is not None else []
            if parts:
                self._line(printable(" ".join(parts)), depth)
            if "text" in fields:
                self._quoted(str(fields["text"]), depth if fields.get("kind") == "text" else depth + 1)

    def _value_block(self, value: Any, depth: int) -> None:
        if isinstance(value, str):
            self._quoted(value, depth)
        elif _needs_lines(value):
            self._values(value, depth)
        else:
            self._line(_inline(value), depth)

    def _values(self, values: Any, depth: int) -> None:
        """Write a mapping's names and values, or a list's items, one per line."""
        if isinstance(values, Mapping):
            for name, value in cast("Mapping[Any, Any]", values).items():
                self._value(f"{_name(name)}:", value, depth)
        elif isinstance(values, list):
            for value in cast("list[Any]", values):
                self._value("-", value, depth)
        elif values is not None:
            self._line(_inline(values), depth)

    def _value(self, label: str, value: Any, depth: int) -> None:
        if (isinstance(value, str) and "\n" in value) or _needs_lines(value):
            self._line(label, depth)
            self._value_block(value, depth + 1)
        else:
            self._line(f"{label} {_inline(value)}", depth)


def _needs_lines(value: Any) -> bool:
    """Return True for a mapping or a long list. Its parts are written on separate lines to keep diffs small."""
    if not isinstance(value, list):
        return bool(mapping_of(value))
    items = cast("list[Any]", value)
    has_parts = any(isinstance(item, Mapping | list) or (isinstance(item, str) and "\n" in item) for item in items)
    return has_parts or len(_inline(items)) > _MAX_LIST_CHARS


def _inline(value: Any) -> str:
    if value == REDACTED:
        return REDACTED
    if isinstance(value, list):
        return f"[{', '.join(_inline(item) for item in cast('list[Any]', value))}]"
    if value is None or isinstance(value, str | int | float) or (isinstance(value, Mapping) and not value):
        return printable(json.dumps(value, ensure_ascii=False))
    # A syrupy matcher may insert any object.
    return printable(repr(cast("object", value)))


def _name(name: Any) -> str:
    text = str(name)
    return printable(text if _PLAIN_NAME.fullmatch(text) is not None else json.dumps(text, ensure_ascii=False))


def describe_field(name: str, shape: Any, *, required: bool) -> FieldText:
    """Describe a form field: `copies: integer, 1 to 10, default 1, optional`."""
    (field,) = fields_of({"properties": {name: shape}, "required": [name] if required else []})
    parts = mapping_of(shape)
    choices = [_choice(choice) for choice in field.choices]
    one_line = " | ".join(choices)
    if len(one_line) > _MAX_LIST_CHARS:
        one_line = ""
    rules = [_kind(field, parts, one_line)]
    if (bounds := field.bounds_in(_json)) is not None:
        rules.append(bounds)
    # Skip a title that Pydantic derived from the name.
    if field.title not in (None, name, name.replace("_", " ").title()):
        rules.append(f"titled {_json(field.title)}")
    if field.has_default:
        rules.append(f"default {_json(field.default)}")
    if not required:
        rules.append("optional")
    rules += [f"{word} {_json(parts[word])}" for word in parts if word not in _KNOWN_KEYWORDS]
    return ", ".join(rules), [] if one_line else choices, field.description


def _kind(field: FormField, parts: Mapping[str, Any], choices: str) -> str:
    if REDACTED in (parts.get("enum"), parts.get("oneOf"), parts.get("anyOf"), parts.get("items")):
        return f"one of {REDACTED}"
    if choices:
        return choices if field.kind is FieldKind.ONE else f"any of {choices}"
    if field.kind is FieldKind.JSON and parts:
        kind = parts.get("type", parts.get("anyOf", "JSON"))
        return kind if isinstance(kind, str) else _json(kind)
    format_name = None if field.choices else parts.get("format")
    return format_name if isinstance(format_name, str) else _KINDS[field.kind]


def _choice(choice: FieldChoice) -> str:
    value = _json(choice.value)
    return value if choice.title == choice.value else f"{value} ({choice.title})"


def _json(value: Any) -> str:
    return REDACTED if value == REDACTED else json.dumps(value, ensure_ascii=False)
