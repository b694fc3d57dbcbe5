"""Page visitors: a client whose user visits pages, and a tool that sends users there."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, Final, cast

from mcp.client import Client
from mcp.client.session import ClientRequestContext, IncomingMessage
from mcp_types import (
    ElicitCompleteNotification,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitRequestURLParams,
    ElicitResult,
)

from roundtrip import Context, ElicitUrl, Resolve, Server
from roundtrip.testing import AskedQuestion, Era
from roundtrip.testing.networks.fleet import Instance
from tests.kit.players import Reply, reply_of

PLACES: Final = ("resolver", "body")
"""Where a question can be."""

Visit = Callable[[ElicitRequestURLParams], Awaitable[object] | None]


class Visitor:
    """User who answers pages with the actions in turn, repeating the last one, and forms with `form`.

    `visit` is what the user does on a page after agreeing to open it, before the client hears that they agreed.
    """

    def __init__(self, *actions: str, visit: Visit | None = None, form: Reply = "cancel") -> None:
        self._actions = list(actions) or ["accept"]
        self._visit = visit
        self._form = form
        self.pages: list[ElicitRequestURLParams] = []
        self.forms: list[ElicitRequestFormParams] = []
        self.told_done: list[str] = []

    @property
    def urls(self) -> list[str]:
        return [page.url for page in self.pages]

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        del context
        if isinstance(params, ElicitRequestFormParams):
            self.forms.append(params)
            return reply_of(self._form)
        self.pages.append(params)
        action = self._actions[min(len(self.pages), len(self._actions)) - 1]
        if action == "accept" and self._visit is not None:
            done = self._visit(params)
            if done is not None:
                await done
        return ElicitResult.model_validate({"action": action})

    async def listen(self, message: IncomingMessage) -> None:
        """Receive the server's notifications."""
        if isinstance(message, ElicitCompleteNotification):
            self.told_done.append(message.params.elicitation_id)


@asynccontextmanager
async def connect_user(server: Instance, era: Era, visitor: Visitor, **options: Any) -> AsyncGenerator[Client]:
    """Connect a client that shows pages to a visitor."""
    async with Client(
        cast("Any", server), mode=era.value, elicitation_callback=visitor, message_handler=visitor.listen, **options
    ) as client:
        yield client


def page_of(question: AskedQuestion) -> ElicitRequestURLParams:
    """Return the page in a retry-era question."""
    if not isinstance(question.params, ElicitRequestURLParams):
        raise TypeError(f"a page was expected, not {question}")
    return question.params


def add_export(server: Server[Any], place: str, make: Callable[[Context], ElicitUrl[Any]]) -> Server[Any]:
    """Add a tool `export(title)` that needs an account, and so sends the user to a page named `login`."""

    async def login(ctx: Context) -> ElicitUrl[Any]:
        return make(ctx)

    async def by_resolver(title: str, account: Annotated[Any, Resolve(login)]) -> str:
        return f"{title} for {account}"

    async def by_body(title: str, ctx: Context) -> str:
        return f"{title} for {await ctx.ask('login', make(ctx))}"

    server.add_tool(by_resolver if place == "resolver" else by_body, name="export")
    return server
