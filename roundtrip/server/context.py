"""`Context`: the SDK's context plus questions and steps that work on every protocol revision."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast, overload

import anyio
import anyio.from_thread
from mcp.server.auth.middleware import auth_context
from mcp.server.auth.provider import AccessToken
from mcp.server.connection import allowed_log_levels
from mcp.server.context import LifespanContextT, RequestT
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp_types import LoggingLevel, LoggingMessageNotification, LoggingMessageNotificationParams
from pydantic import AnyUrl
from starlette.requests import Request
from typing_extensions import TypedDict, Unpack

from roundtrip.engine.body import BegunStep
from roundtrip.errors import AskedTooLate, BodyMistake, NeedsTask
from roundtrip.legs.asking import Asking, AskingContext
from roundtrip.legs.requests import OFFERED, require_request
from roundtrip.on_demand import load_on_use
from roundtrip.resolvers.signatures import is_async
from roundtrip.sdk import session_id_of
from roundtrip.threads.loops import is_on_event_loop
from roundtrip.visibility.notifications import LIST_REQUEST
from roundtrip.visibility.rules import Listing

if TYPE_CHECKING:
    from roundtrip.approvals import markers
    from roundtrip.approvals.markers import Approval
    from roundtrip.engine.body import Body
    from roundtrip.stored.legs import TaskInfo, WorkerLeg
    from roundtrip.threads import workers

load_on_use(globals(), "roundtrip.approvals.markers", "roundtrip.threads.workers")

T = TypeVar("T")
P = ParamSpec("P")


class ApproveOptions(TypedDict, total=False):
    """Options of `ctx.approve`, except `by` and `fallback`."""

    within: float | timedelta | None
    remind: float | timedelta | None


class Context(AskingContext[LifespanContextT, RequestT]):
    """Context that a tool's function receives as a parameter.

    It extends the SDK's context with named questions. In revision 2026-07-28, a question ends the leg. On the next leg
    the function runs again from its top, and each answered question returns at once. On older revisions the function
    waits in place. On both, the code reads from top to bottom:

    ```python
    @server.tool()
    async def order(title: str, ctx: Context) -> str:
        copies = await ctx.ask("copies", "How many?", int)
        price = await ctx.step("price", quote, title, copies)
        ...
    ```

    Code before a question runs on every leg. Use `step` for work that must run once, and for values that vary.
    """

    if TYPE_CHECKING:
        # Without this declaration, type checkers derive a constructor from the fields of the SDK's Pydantic model.
        def __init__(self, **options: Any) -> None: ...

    @overload
    def approve(
        self, name: str, message: str, /, *, by: str, fallback: T, **options: Unpack[ApproveOptions]
    ) -> "Asking[Approval | T]": ...
    @overload
    def approve(
        self, name: str, message: str, /, *, by: str, **options: Unpack[ApproveOptions]
    ) -> "Asking[Approval]": ...
    def approve(self, name: str, message: str, /, **options: Any) -> Asking[Any]:
        """Ask a group's members for approval, and return an `Approval`. The call waits without occupying a worker.

        Args:
            name: The approval's name, like a question's name.
            message: The text that the group approves.
            **options: Options of `Approve`: `by`, `within`, `remind` and `fallback`.

        Raises:
            ApprovalRejected: The group rejected the request.
            ApprovalExpired: The group did not decide in time, and the author gave no `fallback`.
            BodyMistake: The server has no inbox, or `within` is longer than the call can live.
        """
        return self.ask(name, markers.Approve(message, **options))

    async def read_resource(self, uri: str | AnyUrl) -> list[ReadResourceContents]:
        """Read a resource of this server. A resource that asks questions can be read only in the live era.

        Returns:
            The resource's contents, each with `.content` (text or bytes) and `.mime_type`.

        Raises:
            ResourceNotFoundError: The client can see no resource with that URI.
            BodyMistake: The resource asks questions, and the call is not in the live era.
        """
        try:
            return list(await super().read_resource(uri))
        except RuntimeError as error:
            # The SDK raises RuntimeError only if the resource asks. Any other failure raises a resource error.
            raise BodyMistake(
                f"ctx.read_resource() must read a resource that does not ask questions, got {str(uri)!r}; ask in this "
                "function instead, and put code that the resource shares into a plain function"
            ) from error

    async def log(
        self, level: LoggingLevel, data: Any, *, logger_name: str | None = None, extra: Mapping[str, Any] | None = None
    ) -> None:
        """Send a message for the client's log. A 2026-07-28 client receives only the levels that its request asks for.

        Code before a question runs again on every leg, and sends its messages again.

        Args:
            level: The severity.
            data: The message, or any other JSON value.
            logger_name: The logger's name.
            extra: More data. The client then receives an object with the fields `msg` and `extra`.
        """
        request = self.request_context
        # The session's own method does the same, but warns that the protocol's logging is deprecated.
        if level in allowed_log_levels(request.protocol_version, request.meta):
            params = LoggingMessageNotificationParams(
                level=level, data=data if extra is None else {"msg": data, "extra": dict(extra)}, logger=logger_name
            )
            await request.session.send_notification(LoggingMessageNotification(params=params), request.request_id)

    async def debug(self, data: Any, *, logger_name: str | None = None, extra: Mapping[str, Any] | None = None) -> None:
        """Send a message for the client's log at level `debug`."""
        await self.log("debug", data, logger_name=logger_name, extra=extra)

    async def info(self, data: Any, *, logger_name: str | None = None, extra: Mapping[str, Any] | None = None) -> None:
        """Send a message for the client's log at level `info`."""
        await self.log("info", data, logger_name=logger_name, extra=extra)

    async def warning(
        self, data: Any, *, logger_name: str | None = None, extra: Mapping[str, Any] | None = None
    ) -> None:
        """Send a message for the client's log at level `warning`."""
        await self.log("warning", data, logger_name=logger_name, extra=extra)

    async def error(self, data: Any, *, logger_name: str | None = None, extra: Mapping[str, Any] | None = None) -> None:
        """Send a message for the client's log at level `error`."""
        await self.log("error", data, logger_name=logger_name, extra=extra)

    @property
    def client_id(self) -> str | None:
        """Return the client id from the request's access token, or None on a server without authentication."""
        require_request(self.request_context)
        token = auth_context.get_access_token()
        return token.client_id if token is not None else None

    @property
    def headers(self) -> Mapping[str, str] | None:
        """Return the HTTP request's headers, or None if the request did not come over HTTP. Clients can send any
        headers.
        """
        require_request(self.request_context)
        return super().headers

    async def notify_tools_changed(self) -> None:
        """Tell clients that the tools have changed. The server then skips its own announcement for this request."""
        with self._announced_by_author("tools"):
            await super().notify_tools_changed()

    async def notify_prompts_changed(self) -> None:
        """Tell clients that the prompts have changed. The server then skips its own announcement for this request."""
        with self._announced_by_author("prompts"):
            await super().notify_prompts_changed()

    async def notify_resources_changed(self) -> None:
        """Tell clients that the resources have changed. The server then skips its own announcement for this request."""
        with self._announced_by_author("resources"):
            await super().notify_resources_changed()

    def _announced_by_author(self, listing: Listing) -> AbstractContextManager[None]:
        request = LIST_REQUEST.get()
        return request.announced_by_author(listing, self._publishes_on) if request is not None else nullcontext()

    @property
    def session_id(self) -> str | None:
        """Return the request's streamable HTTP session id, or None if the request has no session.

        Revision 2026-07-28, other transports, and servers with `stateless_http` have no sessions.
        """
        return session_id_of(self.request_context.session)

    @property
    def task(self) -> "TaskInfo":
        """Return the task that runs this body.

        Raises:
            NeedsTask: The call does not run as a task.
        """
        if self._call is None or self._call.stored is None:
            raise NeedsTask("ctx.task")
        return cast("WorkerLeg", self._call.stored).info

    @property
    def blocking(self) -> "BlockingContext":
        """Return this context's methods in blocking form, for a plain `def` tool that waits in its worker thread."""
        return BlockingContext(self)


def _blocking_variant(
    method: Callable[Concatenate[Context[Any, Any], P], Awaitable[T]],
) -> "Callable[Concatenate[BlockingContext, P], T]":
    """Derive the blocking variant of an awaitable method, with the same parameters and overloads."""
    name = method.__name__

    def wait(self: "BlockingContext", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._wait(lambda: getattr(self._context, name)(*args, **kwargs))  # pyright: ignore[reportPrivateUsage]

    wait.__name__, wait.__qualname__ = name, f"BlockingContext.{name}"
    wait.__doc__ = f"Run `Context.{name}` and block until it returns."
    return wait


class BlockingContext:
    """Blocking variants of a `Context`'s awaitable methods, for plain functions in worker threads."""

    __slots__ = ("_context",)

    def __init__(self, context: Context[Any, Any]) -> None:
        self._context = context

    ask = _blocking_variant(Context.ask)
    ask_outcome = _blocking_variant(Context.ask_outcome)
    approve = _blocking_variant(Context.approve)
    ask_all = _blocking_variant(Context.ask_all)
    ask_all_outcomes = _blocking_variant(Context.ask_all_outcomes)
    review = _blocking_variant(Context.review)
    review_outcome = _blocking_variant(Context.review_outcome)
    elicit = _blocking_variant(Context.elicit)
    elicit_url = _blocking_variant(Context.elicit_url)
    sample = _blocking_variant(Context.sample)
    list_roots = _blocking_variant(Context.list_roots)
    report_progress = _blocking_variant(Context.report_progress)
    sleep = _blocking_variant(Context.sleep)
    wait_for = _blocking_variant(Context.wait_for)

    read_resource = _blocking_variant(Context.read_resource)
    log = _blocking_variant(Context.log)
    debug = _blocking_variant(Context.debug)
    info = _blocking_variant(Context.info)
    warning = _blocking_variant(Context.warning)
    error = _blocking_variant(Context.error)

    # `_blocking_variant` would lose the parameters of the function that `step` runs.
    @overload
    def step(self, name: str, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def step(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run a step like `Context.step`, and block until it ends."""
        if not callable(fn) or is_async(fn):
            return self._wait(lambda: self._context.step(name, fn, *args, **kwargs))
        context = self._context
        begun: Any = self._wait(lambda: context._running_body(name).begin_step(name, fn))  # pyright: ignore[reportPrivateUsage]
        if not isinstance(begun, BegunStep):
            return begun
        # Run the function in this thread, because some arguments, such as SQLite connections, are bound to their
        # thread.
        try:
            value = copy_context().run(fn, *args, **kwargs)
        except BaseException:
            begun.fail()
            raise
        return self._wait(lambda: begun.end(value))

    def _wait(self, make: Callable[[], Awaitable[T]]) -> T:
        # An abandoned thread cannot ask, because its leg has ended. If the thread entered the event loop anyway, anyio
        # would cancel it repeatedly.
        if self._context.is_over:
            raise AskedTooLate("ctx.blocking")
        if is_on_event_loop():
            raise BodyMistake(
                "ctx.blocking must be used in a plain `def` function, got an `async def` function; "
                "write `await ctx.ask(...)` there, without blocking"
            )

        async def run() -> T:
            # This task runs in the leg's scope, which may be cancelled already. anyio delivers that cancellation only
            # when the task leaves a scope of its own. Otherwise, the task would spin forever at its first await.
            with anyio.CancelScope():  # noqa: ASYNC100 - leaving it is the purpose
                pass
            with workers.unless_left():
                return await make()
            raise AskedTooLate("ctx.blocking")

        return anyio.from_thread.run(run)


class GateContext(Context[Any, Any]):
    """Context for visibility gates. It cannot ask questions, because a client that requests a list expects the list at
    once.
    """

    if TYPE_CHECKING:
        # As in `Context`: without this declaration, type checkers derive a constructor from the model's fields.
        def __init__(self, **options: Any) -> None: ...

    def _running_body(self, name: str) -> "Body":
        raise BodyMistake(f"a visibility gate must not ask questions, got {name!r}; ask in the function itself")

    def _require_live_resolver(self, method: str) -> None:
        raise BodyMistake(f"a visibility gate must not ask questions, got ctx.{method}(); ask in the function itself")


def get_context() -> Context[Any, Any]:
    """Return the context for the current request.

    Raises:
        RuntimeError: The caller is not serving a request.
    """
    return _context_for("get_context")


def get_request() -> Request[Any]:
    """Return the HTTP request that carries the current MCP request.

    Raises:
        RuntimeError: The caller is not serving a request, or the request did not come over HTTP.
    """
    request: object = require_request(_context_for("get_request").request_context)
    if not isinstance(request, Request):
        raise RuntimeError("get_request() needs an HTTP request, but this request came over another transport")
    return cast("Request[Any]", request)


def get_access_token() -> AccessToken | None:
    """Return the caller's verified access token, or None if the server has no authentication.

    Raises:
        RuntimeError: The caller is not serving a request.
    """
    require_request(_context_for("get_access_token").request_context)
    return auth_context.get_access_token()


def get_http_headers() -> dict[str, str]:
    """Return the request's HTTP headers by lower-case name. The result is empty if the request did not come over HTTP.

    Do not use the headers to authenticate clients: a client can send any headers.

    Raises:
        RuntimeError: The caller is not serving a request.
    """
    return {name.lower(): value for name, value in (_context_for("get_http_headers").headers or {}).items()}


def _context_for(caller: str) -> Context[Any, Any]:
    make = OFFERED.get()
    if make is None:
        raise RuntimeError(
            f"{caller}() was called outside a request; call it from code that serves a request, or from a thread or "
            "asyncio task that this code started"
        )
    return make()
