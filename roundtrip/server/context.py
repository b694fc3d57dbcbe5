"""`Context`: the SDK's, with questions and steps that work on every protocol revision."""

from collections.abc import Mapping
from typing import Any

from mcp.server import MCPServer
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.connection import allowed_log_levels
from mcp.server.context import LifespanContextT, RequestT, ServerRequestContext
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.subscriptions import SubscriptionBus
from mcp_types import (
    InputResponseRequestParams,
    LoggingLevel,
    LoggingMessageNotification,
    LoggingMessageNotificationParams,
)
from pydantic import AnyUrl

from roundtrip.engine.body import Body
from roundtrip.errors import BodyMistake
from roundtrip.server.asking import AskingContext
from roundtrip.server.blocking import BlockingContext
from roundtrip.server.calls import CallInfo
from roundtrip.server.notifications import announced_by_author
from roundtrip.server.sdk_private import session_id_of

__all__ = ["Context"]


class Context(AskingContext[LifespanContextT, RequestT]):
    """What a tool's function may ask for by annotating a parameter with it.

    Everything the SDK's context has, and questions by name. On 2026-07-28 a question ends the leg; on the next one
    the function runs again from its top, and each question already answered returns at once. On older revisions the
    function waits in place. Either way it reads as straight-line code:

    ```python
    @server.tool()
    async def order(title: str, ctx: Context) -> str:
        copies = await ctx.ask("copies", "How many?", int)
        price = await ctx.step("price", quote, title, copies)
        ...
    ```

    Code before a question runs on every leg: keep what must not, or what varies, in `step`.
    """

    _call: CallInfo | None
    _publishes_on: SubscriptionBus | None

    def __init__(
        self,
        *,
        request_context: ServerRequestContext[LifespanContextT, RequestT] | None = None,
        mcp_server: MCPServer | None = None,
        input_params: InputResponseRequestParams | None = None,
        subscriptions: SubscriptionBus | None = None,
        body: Body | None = None,
        call: CallInfo | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            request_context=request_context,
            mcp_server=mcp_server,
            input_params=input_params,
            subscriptions=subscriptions,
            body=body,
            **kwargs,
        )
        self._call = call
        self._publishes_on = subscriptions

    @property
    def call(self) -> CallInfo:
        """The call that this request is a leg of."""
        if self._call is None:
            raise ValueError("Context is not available outside of a call")
        return self._call

    async def read_resource(self, uri: str | AnyUrl) -> list[ReadResourceContents]:
        """Read a resource of this server; one that asks can be read only where its client is asked live.

        Returns:
            Its contents, each with `.content` (text or bytes) and `.mime_type`.

        Raises:
            ResourceNotFoundError: There is none of that URI that clients may see.
            BodyMistake: It asks, and the answer would come with another request, which is not this one's.
        """
        try:
            return list(await super().read_resource(uri))
        except RuntimeError as error:
            # The resource's own errors are resource errors: this is the SDK's, for one that asks.
            raise BodyMistake(
                f"ctx.read_resource({str(uri)!r}) reads a resource that asks the client, and the answers to its "
                "questions could not come back to it from here; ask them in this function, and share what the two do"
            ) from error

    async def log(
        self,
        level: LoggingLevel,
        data: Any,
        *,
        logger_name: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Send the client a message for its log; a client of 2026-07-28 gets only what its request asked for.

        Code before a question runs on every leg, and its messages are sent by every leg.

        Args:
            level: How grave it is.
            data: The message, or any other JSON.
            logger_name: Who says it.
            extra: More about it. The client then gets an object with both, as `msg` and `extra`.
        """
        request = self.request_context
        # The session's own method does the same, and warns that the protocol's logging is deprecated.
        if level in allowed_log_levels(request.protocol_version, request.meta):
            params = LoggingMessageNotificationParams(
                level=level,
                data=data if extra is None else {"msg": data, "extra": dict(extra)},
                logger=logger_name,
            )
            await request.session.send_notification(LoggingMessageNotification(params=params), request.request_id)

    async def debug(self, data: Any, *, logger_name: str | None = None, extra: Mapping[str, Any] | None = None) -> None:
        """As `log`, for whoever looks for a fault."""
        await self.log("debug", data, logger_name=logger_name, extra=extra)

    async def info(self, data: Any, *, logger_name: str | None = None, extra: Mapping[str, Any] | None = None) -> None:
        """As `log`, for what goes as it should."""
        await self.log("info", data, logger_name=logger_name, extra=extra)

    async def warning(
        self, data: Any, *, logger_name: str | None = None, extra: Mapping[str, Any] | None = None
    ) -> None:
        """As `log`, for what may be wrong."""
        await self.log("warning", data, logger_name=logger_name, extra=extra)

    async def error(self, data: Any, *, logger_name: str | None = None, extra: Mapping[str, Any] | None = None) -> None:
        """As `log`, for what went wrong."""
        await self.log("error", data, logger_name=logger_name, extra=extra)

    @property
    def client_id(self) -> str | None:
        """The client that the request's access token was issued to; None on a server without authentication."""
        token = get_access_token()
        return token.client_id if token is not None else None

    async def notify_tools_changed(self) -> None:
        """Tell clients that the tools have changed; a change that this request made is not announced again."""
        with announced_by_author("tools", self._publishes_on):
            await super().notify_tools_changed()

    async def notify_prompts_changed(self) -> None:
        """Tell clients that the prompts have changed; a change that this request made is not announced again."""
        with announced_by_author("prompts", self._publishes_on):
            await super().notify_prompts_changed()

    async def notify_resources_changed(self) -> None:
        """Tell clients that the resources have changed; a change that this request made is not announced again."""
        with announced_by_author("resources", self._publishes_on):
            await super().notify_resources_changed()

    @property
    def session_id(self) -> str | None:
        """The id of the streamable HTTP session that the request belongs to, if it belongs to one.

        2026-07-28 has no sessions, nor have other transports or a server with `stateless_http`.
        """
        return session_id_of(self.request_context.session)

    @property
    def blocking(self) -> BlockingContext:
        """The same methods for a plain `def` tool, which waits in its worker thread."""
        from roundtrip.server.blocking import BlockingContext

        return BlockingContext(self)
