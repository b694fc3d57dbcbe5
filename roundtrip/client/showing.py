"""What a server asks or tells, put on the terminal."""

import json
from collections.abc import Sequence
from typing import Any, Final, cast
from urllib.parse import urlsplit

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    CreateMessageRequestParams,
    ElicitRequestURLParams,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    SamplingMessageContentBlock,
    TextContent,
    TextResourceContents,
    Tool,
)

from roundtrip.client.arguments import kind_of, parameters_of, required_by
from roundtrip.client.terminal import Terminal
from roundtrip.safe_text import printable

__all__ = ["can_be_opened", "show_messages", "show_page", "text_of_result", "text_of_tools"]

_SCHEMES: Final = ("http", "https")


def show_page(terminal: Terminal, page: ElicitRequestURLParams) -> None:
    """Where a page is: the whole address, and whose it is."""
    terminal.quote(page.message)
    terminal.say(f"Address: {printable(page.url)}")
    terminal.say(f"Host:    {_host_of(page.url)}", style="bold")


def can_be_opened(url: str) -> bool:
    """Whether an address may be handed to a browser: http(s), with a host, and nothing in it that cannot be seen."""
    if printable(url) != url or "\\" in url or any(char.isspace() for char in url):
        return False
    try:
        parts = urlsplit(url)
        return parts.scheme.lower() in _SCHEMES and bool(parts.hostname)
    except ValueError:
        return False


def _host_of(url: str) -> str:
    if "\\" in url:
        # A browser takes it for a slash, and the host ends there.
        return "(unclear: there is a backslash in the address)"
    try:
        host = urlsplit(url).hostname
    except ValueError:
        host = None
    if not host:
        return "(none)"
    if host.isascii():
        return printable(host)
    try:
        # Letters of another script can look like these; the spelling on the wire cannot.
        return f"{host.encode('idna').decode('ascii')} (written {printable(host)})"
    except UnicodeError:
        return printable(host)


def show_messages(terminal: Terminal, request: CreateMessageRequestParams) -> None:
    """What the server wants a model to answer."""
    terminal.say(f"The server wants a model's answer, of at most {request.max_tokens} tokens.", style="bold")
    if request.system_prompt:
        terminal.say("system:", style="dim")
        terminal.quote(request.system_prompt)
    for message in request.messages:
        terminal.say(f"{message.role}:", style="dim")
        terminal.quote("\n".join(_sample_text(block) for block in message.content_as_list))


def _sample_text(block: SamplingMessageContentBlock) -> str:
    return block.text if isinstance(block, TextContent) else f"[{block.type}]"


def text_of_result(result: CallToolResult) -> str:
    """A result for people to read: its text, else its structured content, and a line for what is neither."""
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
    """Text for standard output, where a tab is layout or a column."""
    return "\t".join(printable(part, keep_newlines=True) for part in text.split("\t"))


def _size_of(base64: str) -> str:
    return f"{len(base64) * 3 // 4 - base64.count('=', -2)} bytes"


def text_of_tools(tools: Sequence[Tool]) -> str:
    """The tools of a server with their parameters."""
    if not tools:
        return "The server has no tools."
    return "\n\n".join(_tool_text(tool) for tool in tools)


def _tool_text(tool: Tool) -> str:
    lines = [printable(tool.name)]
    if tool.description:
        lines += [f"  {printable(line)}" for line in tool.description.strip().splitlines()]
    for name, shape in parameters_of(tool).items():
        required = name in required_by(tool)
        told = cast("dict[str, Any]", shape).get("description") if isinstance(shape, dict) else None
        lines.append(_parameter_text(name, kind_of(tool, name), required, told))
    return "\n".join(lines)


def _parameter_text(name: str, kind: str, required: bool, told: Any) -> str:
    need = "" if required else ", optional"
    about = f": {printable(told)}" if isinstance(told, str) else ""
    return f"    {printable(name)} ({printable(kind)}{need}){about}"
