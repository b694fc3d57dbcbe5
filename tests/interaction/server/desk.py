"""A server whose tools use their context, and a client's log."""

from typing import Any, Final

from mcp_types import LoggingLevel, LoggingMessageNotificationParams

from roundtrip import Context, Server
from tests.kit.shops import Choice

__all__ = ["ENTRIES", "Log", "desk"]


def desk(**options: Any) -> Server[Any]:
    server = Server[Any]("desk", **options)

    @server.tool()
    async def talk(ctx: Context) -> str:
        await ctx.debug("looking")
        await ctx.info("found", logger_name="desk")
        await ctx.warning({"left": [1, None, "two"], "none": None})
        await ctx.error("broken", extra={"shelf": 3})
        await ctx.log("notice", 7)
        await ctx.report_progress(1, 2, "half")
        await ctx.report_progress(2, 2)
        return "talked"

    @server.tool()
    def talk_in_a_thread(ctx: Context) -> str:
        ctx.blocking.debug("looking")
        ctx.blocking.info("found", logger_name="desk")
        ctx.blocking.warning({"left": [1, None, "two"], "none": None})
        ctx.blocking.error("broken", extra={"shelf": 3})
        ctx.blocking.log("notice", 7)
        ctx.blocking.report_progress(1, 2, "half")
        ctx.blocking.report_progress(2, 2)
        return "talked"

    @server.tool()
    async def read(uri: str, ctx: Context) -> str:
        contents = await ctx.read_resource(uri)
        first = contents[0]
        return f"{len(contents)} {first.content!r} {first.mime_type}"

    @server.tool()
    async def whose(ctx: Context) -> dict[str, str | None]:
        return {"client": ctx.client_id, "session": ctx.session_id}

    @server.tool()
    async def talk_and_ask(ctx: Context) -> str:
        await ctx.info("before")
        answer = await ctx.ask("sure", "Sure?", Choice)
        await ctx.info("after")
        return str(answer.ok)

    @server.resource("note://text", mime_type="text/markdown")
    def text() -> str:
        return "# Note"

    @server.resource("note://bytes/{name}", mime_type="application/x-note")
    def data(name: str) -> bytes:
        return name.encode()

    return server


class Log:
    """Messages in a client's log."""

    def __init__(self) -> None:
        self.entries: list[tuple[LoggingLevel, str | None, Any]] = []

    async def __call__(self, params: LoggingMessageNotificationParams) -> None:
        self.entries.append((params.level, params.logger, params.data))


ENTRIES: Final = [
    ("debug", None, "looking"),
    ("info", "desk", "found"),
    ("warning", None, {"left": [1, None, "two"], "none": None}),
    ("error", None, {"msg": "broken", "extra": {"shelf": 3}}),
    ("notice", None, 7),
]
