"""Tools at a terminal: a parser for the arguments that a person types, and readable text for tools and results."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    Tool,
)

from roundtrip.client.failures import CallFailed
from roundtrip.text import printable, suggestion
from roundtrip.untrusted import list_of, mapping_of, strict_json

WAITING: Final = re.compile(r"call (\w+) with handle='([A-Za-z0-9._~-]{16,2048})'", re.ASCII)
"""A sentence in a waiting call's result. It names the tool that continues the call, and the handle to pass to this
tool.
"""

_MAX_DEPTH: Final = 6
"""Maximum depth of nested references and alternatives in a schema. A schema at a greater depth is treated as empty."""

_MAX_OPTIONS: Final = 20
"""Maximum number of alternatives to read per schema. Alternatives can be nested, so their number could grow
exponentially.
"""

_MAX_SHOWN_CHARS: Final = 60
_KINDS: Final = {"integer": "an integer", "number": "a number", "boolean": "true or false", "null": "null"}
"""Descriptions of types, for error messages. All other types are described as JSON."""


def find_tool(tools: Sequence[Tool], name: str) -> Tool:
    """Return the tool with this name.

    Raises:
        CallFailed: The server has no such tool. The message lists the server's tools.
    """
    for tool in tools:
        if tool.name == name:
            return tool
    names = [tool.name for tool in tools]
    known = f"its tools: {_names(names)}" if names else "it has no tools"
    raise CallFailed(f"the server has no tool {name!r}{suggestion(name, names) or f'; {known}'}")


def arguments_of(tool: Tool, written: Sequence[str]) -> dict[str, Any]:
    """Parse arguments that are written as `key=value`, `key:=JSON` or `key@=FILE`. The schema gives the type of a
    `value`.

    Raises:
        CallFailed: An argument cannot be read or is not a parameter, or a required argument is missing.
    """
    arguments: dict[str, Any] = {}
    for word in written:
        name, value = _parse_argument(tool, word)
        if name in arguments:
            raise CallFailed(f"the argument {name!r} must be given only once")
        arguments[name] = value
    _check_names(tool, arguments)
    return arguments


def _parameters_of(tool: Tool) -> Mapping[str, Any]:
    return mapping_of(tool.input_schema.get("properties"))


def required_by(tool: Tool) -> list[str]:
    """Return the names of a tool's required parameters."""
    return [name for name in list_of(tool.input_schema.get("required")) if isinstance(name, str)]


def kind_of(tool: Tool, name: str) -> str:
    """Describe, in a few words, which values a parameter accepts."""
    return _describe(_parameters_of(tool).get(name), tool.input_schema)


def _parse_argument(tool: Tool, word: str) -> tuple[str, Any]:
    name, equals, value = word.partition("=")
    if not equals or not name.rstrip(":@"):
        raise CallFailed(f"{word!r} is not an argument; write key=value, key:=JSON or key@=FILE")
    as_json = name.endswith(":")
    if name.endswith("@"):
        value = _read_file(value)
    name = name.removesuffix(":") if as_json else name.removesuffix("@")
    if as_json or not _allows_text(_parameters_of(tool).get(name), tool.input_schema):
        return name, _parse_json(tool, name, value)
    return name, value


def _read_file(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise CallFailed(f"cannot read {file!r}: {reason}") from error


def _parse_json(tool: Tool, name: str, text: str) -> Any:
    try:
        return strict_json(text)
    except ValueError as error:
        shown = text if len(text) <= _MAX_SHOWN_CHARS else text[:_MAX_SHOWN_CHARS] + "..."
        kinds = kind_of(tool, name).split(" | ")
        if all(kind in _KINDS for kind in kinds):
            expected, reason = " or ".join(_KINDS[kind] for kind in kinds), ""
        else:
            # Show the JSON parser's message only if the text begins like JSON. For other text, the message would not
            # help.
            expected = f"JSON ({' | '.join(kinds)})"
            reason = f": {error}" if text.lstrip().startswith(("{", "[", '"')) else ""
        raise CallFailed(f"the argument {name!r} must be {expected}, got {shown!r}{reason}") from error


def _check_names(tool: Tool, arguments: Mapping[str, Any]) -> None:
    schema = tool.input_schema
    known = _parameters_of(tool)
    missing = [name for name in required_by(tool) if name not in arguments]
    unknown = [name for name in arguments if name not in known]
    # Treat a missing `additionalProperties` as false, because that is what most servers mean.
    if schema.get("additionalProperties") or schema.get("patternProperties"):
        unknown = []
    if not missing and not unknown:
        return
    problems: list[str] = []
    if unknown:
        problems.append(f"has no parameter {_names(unknown)}")
    if missing:
        problems.append(f"needs {_names(missing)}")
    parameters = ", ".join(f"{name} ({kind_of(tool, name)})" for name in known) or "no arguments"
    raise CallFailed(f"the tool {tool.name!r} {' and '.join(problems)}; it takes {parameters}")


def _names(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)


def _allows_text(shape: Any, root: Mapping[str, Any], depth: int = 0) -> bool:
    """Return True if a schema allows text. An empty schema allows text."""
    parts = mapping_of(shape if depth <= _MAX_DEPTH else None)
    if isinstance(parts.get("$ref"), str):
        return _allows_text(schema_at(parts["$ref"], root), root, depth + 1)
    if "type" in parts:
        return "string" in _types_of(parts)
    values: Any = parts.get("enum", [parts["const"]] if "const" in parts else None)
    if isinstance(values, list):
        return any(isinstance(value, str) for value in cast("list[Any]", values))
    for word, several in (("anyOf", any), ("oneOf", any), ("allOf", all)):
        if isinstance(parts.get(word), list):
            return several(_allows_text(option, root, depth + 1) for option in parts[word][:_MAX_OPTIONS])
    return True


def _describe(shape: Any, root: Mapping[str, Any], depth: int = 0) -> str:
    parts = mapping_of(shape if depth <= _MAX_DEPTH else None)
    if isinstance(parts.get("$ref"), str):
        return _describe(schema_at(parts["$ref"], root), root, depth + 1)
    if isinstance(parts.get("enum"), list):
        return " | ".join(json.dumps(value) for value in parts["enum"])
    if "const" in parts:
        return json.dumps(parts["const"])
    if "type" in parts:
        return " | ".join(str(kind) for kind in _types_of(parts))
    for word in ("anyOf", "oneOf"):
        if isinstance(parts.get(word), list):
            return " | ".join(_describe(option, root, depth + 1) for option in parts[word][:_MAX_OPTIONS])
    return "anything"


def _types_of(parts: Mapping[str, Any]) -> list[Any]:
    return list_of(parts["type"]) or [parts["type"]]


def schema_at(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of a schema that a `$ref` points to. If it points outside the schema, return an empty schema."""
    if not reference.startswith("#/"):
        return {}
    node: object = root
    for step in reference[2:].split("/"):
        node = mapping_of(node).get(step.replace("~1", "/").replace("~0", "~"))
    return mapping_of(node)


def text_of_result(result: CallToolResult) -> str:
    """Return a result's content as text. If the content has no text block, add the structured content."""
    shown = "\n".join(_block_text(block) for block in result.content)
    if result.structured_content is not None and not any(isinstance(block, TextContent) for block in result.content):
        structured = printable(json.dumps(result.structured_content, indent=2, ensure_ascii=False), keep_newlines=True)
        shown = f"{shown}\n{structured}" if shown else structured
    return shown


def _block_text(block: ContentBlock) -> str:
    match block:
        case TextContent():
            return _with_tabs(block.text)
        case ResourceLink():
            return f"[link to {printable(str(block.uri))}]"
        case EmbeddedResource():
            return _resource_text(block.resource)
        case ImageContent() | AudioContent():
            return f"[{block.type}, {printable(block.mime_type)}, {_size_of(block.data)}]"


def _resource_text(resource: TextResourceContents | BlobResourceContents) -> str:
    name = f"resource {printable(str(resource.uri))}"
    if isinstance(resource, TextResourceContents):
        return f"[{name}]\n{_with_tabs(resource.text)}"
    return f"[{name}, {_size_of(resource.blob)}]"


def _with_tabs(text: str) -> str:
    """Return text that is safe to print. Keep tab characters, because they align text on standard output."""
    return "\t".join(printable(part, keep_newlines=True) for part in text.split("\t"))


def _size_of(base64: str) -> str:
    return f"{len(base64) * 3 // 4 - base64.count('=', -2)} bytes"


def text_of_tools(tools: Sequence[Tool]) -> str:
    """Describe tools and their parameters."""
    if not tools:
        return "The server has no tools."
    return "\n\n".join(_tool_text(tool) for tool in tools)


def _tool_text(tool: Tool) -> str:
    lines = [printable(tool.name)]
    if tool.description:
        lines += [f"  {printable(line)}" for line in tool.description.strip().splitlines()]
    required = required_by(tool)
    for name, shape in _parameters_of(tool).items():
        about = mapping_of(shape).get("description")
        suffix = "" if name in required else ", optional"
        shown = f": {printable(about)}" if isinstance(about, str) else ""
        lines.append(f"    {printable(name)} ({printable(kind_of(tool, name))}{suffix}){shown}")
    return "\n".join(lines)
