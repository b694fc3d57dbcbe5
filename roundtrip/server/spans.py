"""The SDK's span of each request, made where somebody could see it."""

from collections.abc import Mapping
from typing import Any, Final

from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from opentelemetry.trace import ProxyTracerProvider, get_tracer_provider

from roundtrip.server.sdk_private import SdkSpans

__all__ = ["SpansSeen", "install_lazy_spans"]

_PROTOCOL: Final = "io.modelcontextprotocol/"
_PROGRESS: Final = "progressToken"


class SpansSeen(SdkSpans):
    """The SDK's middleware, passed by as long as no tracing is set up and the request brings none.

    Without a provider its spans are recorded nowhere, and cost a call a twentieth. A trace that a client brings is
    passed on to what the call itself calls, with or without one.
    """

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Serve one message, as the SDK's middlewares do."""
        if isinstance(get_tracer_provider(), ProxyTracerProvider) and not _may_carry(ctx.meta):
            return await call_next(ctx)
        return await super().__call__(ctx, call_next)


def install_lazy_spans(middleware: list[ServerMiddleware[Any]]) -> None:
    """Put it in the place of the SDK's, where that has been left in."""
    middleware[:] = [SpansSeen() if type(entry) is SdkSpans else entry for entry in middleware]


def _may_carry(meta: Mapping[str, Any] | None) -> bool:
    """Whether a request's metadata may hold a trace, in whatever words."""
    return meta is not None and any(key != _PROGRESS and not key.startswith(_PROTOCOL) for key in meta)
