"""A server that changes its lists in every way, and clients that hear of it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Final

import anyio
from mcp.client import Client
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)

from roundtrip import Context, Resolve, Server
from roundtrip.testing import Era
from roundtrip.testing.networks.fleet import Instance
from tests.kit.hosts import WAIT
from tests.kit.players import Person, connect
from tests.kit.shops import Choice

__all__ = ["DONE", "EVENTS", "LISTS", "Bus", "Ears", "flip", "furnish", "hearing", "listening", "shop"]

LISTS: Final = ("tools", "prompts", "resources")
EVENTS: Final = {"tools": ToolsListChanged(), "prompts": PromptsListChanged(), "resources": ResourcesListChanged()}
DONE: Final = "test://done"


class Bus(InMemorySubscriptionBus):
    """Bus that keeps its publications."""

    def __init__(self) -> None:
        super().__init__()
        self.published: list[ServerEvent] = []

    async def publish(self, event: ServerEvent) -> None:
        self.published.append(event)
        await super().publish(event)


def flip(server: Server[Any], tag: str) -> None:
    """Change the visibility of a tag, more than once."""
    server.disable(tags=tag)
    server.enable(tags=tag)
    server.disable(tags=tag)


def furnish(server: Server[Any]) -> None:
    """Register one item of each kind, tagged with the name of its list."""

    @server.tool(tags={"tools", "all"})
    def subject_tool() -> str:
        return "done"

    @server.prompt(tags={"prompts", "all"})
    def subject_prompt() -> str:
        return "say"

    @server.resource("subject://it", tags={"resources", "all"})
    def subject_resource() -> str:
        return "text"


def shop(bus: Bus | None = None, **options: Any) -> Server[Any]:
    server = Server[Any]("shop", subscriptions=bus, **options)
    furnish(server)

    async def flipped(tag: str) -> str:
        flip(server, tag)
        return tag

    @server.tool()
    async def change(tag: str) -> str:
        flip(server, tag)
        return tag

    @server.tool()
    def change_in_thread(tag: str) -> str:
        flip(server, tag)
        return tag

    @server.tool()
    async def change_by_resolver(tag: str, done: Annotated[str, Resolve(flipped)]) -> str:
        return done

    @server.tool()
    async def change_and_fail(tag: str) -> str:
        flip(server, tag)
        raise RuntimeError("on purpose")

    @server.tool()
    async def change_and_ask(tag: str, ctx: Context) -> str:
        server.disable(tags=tag)
        answer = await ctx.ask("sure", "Sure?", Choice)
        return f"{tag} {answer.ok}"

    @server.tool()
    async def finish(ctx: Context) -> str:
        await ctx.notify_resource_updated(DONE)
        await ctx.session.send_resource_updated(DONE)
        return "finished"

    @server.prompt()
    async def change_prompt(tag: str) -> str:
        flip(server, tag)
        return tag

    @server.resource("change://{tag}")
    def change_template(tag: str) -> str:
        flip(server, tag)
        return tag

    return server


class Ears:
    """Notifications that a client receives as its message handler, or events as a listener."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.finished = anyio.Event()

    async def __call__(self, message: object) -> None:
        method = getattr(message, "method", "")
        if method == "notifications/resources/updated":
            self.finished.set()
        elif method.endswith("/list_changed"):
            self.heard.append(method.split("/")[1])


@asynccontextmanager
async def hearing(
    target: Instance, era: Era, person: Person | None = None, *, standing: bool = False
) -> AsyncGenerator[tuple[Client, Ears]]:
    """A client, and the lists that it hears have changed: all of them once the context is left.

    With a standing stream, notifications may come over it, at another time than answers do.
    """
    ears = Ears()
    if era is Era.LIVE:
        async with connect(target, era, person, message_handler=ears) as client:
            if standing:
                await finish(client, ears)
            yield client, ears
            await (finish(client, ears) if standing else client.call_tool("finish", {}))
        return
    async with connect(target, era, person) as client, listening(client, ears):
        yield client, ears
        with anyio.fail_after(WAIT):
            await client.call_tool("finish", {})


async def finish(client: Client, ears: Ears) -> None:
    """Wait until the standing stream is open, and all that it carried has come."""
    ears.finished = anyio.Event()
    with anyio.fail_after(WAIT):
        while not ears.finished.is_set():
            await client.call_tool("finish", {})


@asynccontextmanager
async def listening(client: Client, ears: Ears) -> AsyncGenerator[None]:
    """Listen on 2026-07-28, until the event that `finish` publishes."""
    async with (
        client.listen(
            tools_list_changed=True,
            prompts_list_changed=True,
            resources_list_changed=True,
            resource_subscriptions=[DONE],
        ) as subscription,
        anyio.create_task_group() as group,
    ):

        async def listen() -> None:
            async for event in subscription:
                if isinstance(event, ResourceUpdated):
                    return
                ears.heard += [name for name, known in EVENTS.items() if event == known]

        group.start_soon(listen)
        yield
