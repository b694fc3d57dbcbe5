"""Snapshot stories. A story describes a call with plain values, in the order in which the snapshot shows them."""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestURLParams,
    ElicitResult,
    EmbeddedResource,
    GetPromptResult,
    ImageContent,
    InputResponse,
    ListRootsResult,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from roundtrip.errors import TokenRejected
from roundtrip.machine.journal import OUTCOMES, Action, Asked, Journal
from roundtrip.testing.conversations import AskedQuestion, Conversation
from roundtrip.testing.snapshots.redaction import SnapshotRedaction
from roundtrip.trace.explaining.wording import count_text
from roundtrip.trace.reading.tokens import Sealed, view_token
from roundtrip.untrusted import mapping_of

Story = dict[str, Any]

_UNREDACTED_PARTS: Final = frozenset({"method", "era", "states", "end"})


def story_of(call: Conversation, redaction: SnapshotRedaction) -> Story:
    """Return a call's story. Its parts have the names that `exclude=` and `matcher=` use."""
    first = call.first
    story: Story = {"method": first.method, "name": first.name, "era": call.era.name.lower()}
    story["arguments"] = redaction.data(_plain(first.arguments))
    tokens = [*call.tokens, *[None] * len(call.rounds)]
    order = {key: index for index, key in reversed([*enumerate(call.names)])}
    story["rounds"] = [
        {
            "questions": [_question(question, redaction) for question in round_],
            "token": _token(token, order),
            **({"page": round_[0].page} if round_ and round_[0].page is not None else {}),
            **({"app": True} if round_ and round_[0].in_app else {}),
        }
        for round_, token in zip(call.rounds, tokens, strict=False)
    ]
    if call.approvals:
        # Leave out ids and times, because they differ in each call.
        parts = ("message", "by", "state", "who", "reason")
        story["approvals"] = [{part: one[part] for part in parts if part in one} for one in call.approvals]
    if call.link_results:
        story["link_results"] = [
            {"round": one.round, "content": _blocks(one.result.content)} for one in call.link_results
        ]
    # If a call cannot ask questions, it reports only its first state.
    story["states"] = [state.value for state in call.states] if call.states and len(call.states) > 1 else None
    story["end"] = _end(call)
    story.update(_result(call, redaction))
    return {part: item if part in _UNREDACTED_PARTS else redaction.texts(item) for part, item in story.items()}


def _plain(value: Any) -> Any:
    return to_jsonable_python(value, by_alias=True, fallback=repr)


def _question(question: AskedQuestion, redaction: SnapshotRedaction) -> Story:
    params = question.params
    hidden = redaction.hides(question.name)
    story: Story = {"name": question.name}
    if isinstance(params, CreateMessageRequestParams):
        story["kind"] = "sample"
        story["messages"] = [{"role": message.role, "content": _blocks(message.content)} for message in params.messages]
        options = params.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"messages", "meta", "task"})
        story["options"] = options
    elif params is None:
        story["kind"] = "roots"
    elif isinstance(params, ElicitRequestURLParams):
        story |= {"kind": "page", "message": params.message, "url": params.url}
    else:
        schema = cast("Mapping[str, Any]", params.requested_schema)
        form = redaction.form(mapping_of(schema.get("properties")), hides_all=hidden)
        story |= {"kind": "form", "message": params.message, "form": form, "required": schema.get("required")}
    story["answer"] = _answer(question.answer, redaction, hidden=hidden)
    return story


def _answer(answer: InputResponse | None, redaction: SnapshotRedaction, *, hidden: bool) -> Story | None:
    if isinstance(answer, ElicitResult):
        content = _plain(answer.content or {})
        shown = {name: redaction.redact(content[name]) for name in content} if hidden else redaction.data(content)
        return {"action": OUTCOMES[answer.action], "content": shown}
    if isinstance(answer, ListRootsResult):
        return {"action": "roots", "roots": [_plain(root)["uri"] for root in answer.roots]}
    if isinstance(answer, CreateMessageResult):
        blocks = _blocks(answer.content)
        shown = [redaction.redact(block.get("text")) for block in blocks] if hidden else blocks
        return {"action": "said", "content": shown}
    return {"action": "answered", "content": _plain(answer)} if answer is not None else None


def _token(token: str | None, order: Mapping[str | None, int]) -> Story | None:
    """Describe a token. A token from another server is opaque."""
    if token is None:
        return None
    try:
        view = view_token(token)
    except (TokenRejected, ValueError, RecursionError):
        return {"token": token}
    if view.claims is None or view.journal is None:
        return {"token": token, "encrypted": view.kind == "encrypted"}
    return {"token": token, **_journal(view.journal, order), "sealed": view.sealed is not Sealed.NONE}


def _journal(journal: Journal, order: Mapping[str | None, int]) -> Story:
    # Sort the entries, because concurrent resolvers write to the journal in any order.
    def asked_at(item: tuple[str, Any]) -> tuple[int, str]:
        return order.get(item[0], len(order)), item[0]

    def entry_text(key: str, action: Action) -> str:
        return key if action is Action.ACCEPT else f"{key} ({OUTCOMES[action.word]})"

    return {
        "version": journal.version,
        "asks": [f"{key}{_attempts(asked)}" for key, asked in sorted(journal.asked.items(), key=asked_at)],
        "holds": [entry_text(key, entry.action) for key, entry in sorted(journal.entries.items(), key=asked_at)],
    }


def _attempts(asked: Asked) -> str:
    counts = ((asked.attempts, "invalid answer"), (asked.discards, "lost answer"))
    text = ", ".join(count_text(number, what) for number, what in counts if number)
    return f" ({text})" if text else ""


def _end(call: Conversation) -> str:
    if call.left:
        return "left waiting"
    if not call.states or len(call.states) == 1:
        return "failed" if call.is_error else "completed"
    state = call.states[-1].value
    return f"{state} with an error" if call.is_error and state == "completed" else state


def _result(call: Conversation, redaction: SnapshotRedaction) -> Story:
    if call.error is not None:
        return {"error": call.error.error.model_dump(mode="json", by_alias=True, exclude_none=True)}
    result = call.result
    if isinstance(result, GetPromptResult):
        messages = [{"role": message.role, "content": _blocks(message.content)} for message in result.messages]
        return {"description": result.description or None, "messages": messages}
    if not isinstance(result, CallToolResult):
        return {"content": [_contents(contents) for contents in result.contents]}
    blocks = [_block(block) for block in result.content]
    if result.structured_content is None:
        return {"content": blocks}
    value = _plain(call.value)
    repeats = _repeats(result.content, value)
    if repeats and any(block["kind"] != "text" for block in blocks):
        return {"content": blocks}
    story: Story = {"result": redaction.data(value)}
    return story if repeats else {**story, "content": blocks}


def _repeats(blocks: Sequence[Any], value: Any) -> bool:
    """Return True if the content only repeats the structured content."""
    if len(blocks) == 1 and _repeats_one(blocks[0], value):
        return True
    if value is not None and not isinstance(value, list):
        return False
    values = cast("list[Any]", value or [])
    return len(blocks) == len(values) and all(map(_repeats_one, blocks, values))


def _repeats_one(block: Any, value: Any) -> bool:
    if not isinstance(block, TextContent):
        plain = _plain(block)
        expected = mapping_of(value)
        return bool(expected) and all(plain.get(name) == item for name, item in expected.items())
    if block.text == value:
        return True
    try:
        # Compare the values as JSON text, because 1 == True in Python.
        normalized = json.dumps(json.loads(block.text), sort_keys=True)
        return normalized in (json.dumps(value, sort_keys=True), json.dumps({"result": value}, sort_keys=True))
    except (ValueError, TypeError, RecursionError):
        return False


def _blocks(content: Any) -> list[Story]:
    return [_block(block) for block in (cast("list[Any]", content) if isinstance(content, list) else [content])]


def _block(block: Any) -> Story:
    if isinstance(block, TextContent):
        return {"kind": "text", "text": block.text}
    if isinstance(block, ImageContent | AudioContent):
        return {"kind": block.type, "type": block.mime_type, "bytes": bytes_in(block.data)}
    if isinstance(block, ResourceLink):
        return {"kind": "link", "uri": str(block.uri), "name": block.name}
    if isinstance(block, EmbeddedResource):
        return _contents(block.resource)
    plain = _plain(block) if isinstance(block, BaseModel) else {"value": block}
    return {"kind": "other", **{name: item for name, item in plain.items() if item is not None}}


def _contents(contents: TextResourceContents | BlobResourceContents) -> Story:
    story: Story = {"kind": "resource", "uri": str(contents.uri), "type": contents.mime_type}
    if isinstance(contents, TextResourceContents):
        return {**story, "text": contents.text}
    return {**story, "bytes": bytes_in(contents.blob)}


def bytes_in(data: str) -> int | None:
    """Return the decoded size of base64 data; None if the text is not base64."""
    try:
        return len(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return None
