"""What a replayed server says and asks of its own accord while it serves a request."""

from collections.abc import Collection
from copy import deepcopy
from typing import Any, Final, cast

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import LOG_LEVEL_META_KEY, ServerNotification, ServerRequest
from pydantic import BaseModel, RootModel, ValidationError

from roundtrip.revisions import is_live_era
from roundtrip.testing.recordings.differences import differences, without_meta
from roundtrip.testing.recordings.document import Json, RecordedMessage, RecordedQuestion, fields

__all__ = ["Context", "Unlike", "ask", "check_capability", "say", "with_own_subscription"]

Context = ServerRequestContext[Any, Any]

_CAPABILITIES: Final = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}


class Unlike(Exception):
    """A client does otherwise than was recorded."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__(*lines)
        self.lines = lines


class _Raw(BaseModel):
    """A message that is sent exactly as it was recorded."""

    method: str
    params: Json | None = None


class _AnyResult(RootModel[Json]):
    """A result of which nothing is known."""


async def ask(one: RecordedQuestion, ctx: Context, redacted: Collection[str]) -> None:
    """Ask over the open connection, as was asked.

    Raises:
        Unlike: The answer is not the recorded one.
    """
    method, params = one.question.method, one.question.params
    check_capability(method, ctx)
    request = cast("ServerRequest", _Raw(method=method, params=params or None))
    related = ServerMessageMetadata(related_request_id=ctx.request_id)
    try:
        answer = await ctx.session.send_request(request, _AnyResult, metadata=related)
        got: Json = {"result": without_meta(answer.root)}
    except MCPError as error:
        got = {"error": {"code": error.error.code, "message": error.error.message}}
    except ValidationError as error:
        raise Unlike([f"the answer to {method} is not valid: {error.errors(include_url=False)[0]['msg']}"]) from None
    if one.answer is None:
        return
    if one.answer.error is None:
        expected = {"result": without_meta(one.answer.result)}
    else:
        # Clients word their errors as they like.
        expected = {"error": {"code": one.answer.error.code, "message": fields(got.get("error")).get("message", "")}}
    lines = differences(expected, got, ("answer",), redacted)
    if lines:
        raise Unlike([f"asked {method} {params.get('message', '')!r}, {line}" for line in lines])


def check_capability(method: str, ctx: Context) -> None:
    """A server does not ask a client that has not declared that it can answer.

    Raises:
        Unlike: This one has not.
    """
    capability = _CAPABILITIES.get(method)
    if capability is not None and getattr(ctx.session.client_capabilities, capability, None) is None:
        raise Unlike([f"the server asks {method}, and the client has not declared the capability {capability}"])


async def say(notification: RecordedMessage, ctx: Context) -> None:
    """Send a notification as it was recorded, if this client wants it."""
    params = notification.params
    if notification.method == "notifications/progress":
        await ctx.session.report_progress(params.get("progress", 0), params.get("total"), params.get("message"))
        return
    wants_logs = is_live_era(ctx.protocol_version) or LOG_LEVEL_META_KEY in (ctx.meta or {})
    if notification.method == "notifications/message" and not wants_logs:
        return
    raw = _Raw(method=notification.method, params=with_own_subscription(deepcopy(params), ctx) or None)
    await ctx.session.send_notification(cast("ServerNotification", raw), related_request_id=ctx.request_id)


def with_own_subscription(said: Json, ctx: Context) -> Json:
    """What is said to a subscription bears the id of the request that opened it."""
    meta = fields(said.get("_meta"))
    if SUBSCRIPTION_ID_META_KEY in meta:
        return {**said, "_meta": {**meta, SUBSCRIPTION_ID_META_KEY: ctx.request_id}}
    return said
