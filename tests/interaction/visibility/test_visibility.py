"""Hidden tools, prompts and resources are in no list, and get the same reply as unknown names."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Annotated, Any

import pytest
from mcp.client import Client
from mcp.server.mcpserver.resources import TextResource
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolResult,
    Completion,
    CompletionArgument,
    CompletionContext,
    PromptReference,
    ResourceTemplateReference,
)

from roundtrip import Context, Resolve, Server
from roundtrip.sdk import Shelf
from roundtrip.testing import Era
from tests.interaction.visibility import gates
from tests.interaction.visibility.gates import read
from tests.kit.players import connect, text_of
from tests.kit.shops import Choice, sure

pytestmark = pytest.mark.anyio


def library() -> Server[Any]:
    server = Server[Any]("library")

    @server.tool(tags={"public"})
    def find(title: str) -> str:
        return f"found {title}"

    @server.tool(tags={"admin"})
    def burn(title: str) -> str:
        return f"burnt {title}"

    @server.tool()
    async def read(uri: str, ctx: Context) -> str:
        (contents,) = await ctx.read_resource(uri)
        return str(contents.content)

    @server.prompt(tags={"public"})
    def review(title: str) -> str:
        return f"Review {title}"

    @server.prompt(tags={"admin"})
    def audit(title: str, choice: Annotated[Choice, Resolve(sure)]) -> str:
        return f"Audit {title} {choice.ok}"

    @server.resource("shelf://open", tags={"public"})
    def open_shelf() -> str:
        return "open"

    @server.resource("shelf://closed", tags={"admin"})
    def closed_shelf() -> str:
        return "closed"

    @server.resource("book://{title}", tags={"public"})
    def book(title: str) -> str:
        return f"book {title}"

    @server.resource("secret://{title}", tags={"admin"})
    def secret(title: str, ctx: Context) -> str:
        return f"secret {title} {ctx.request_id}"

    @server.completion()
    async def complete(
        ref: PromptReference | ResourceTemplateReference,
        argument: CompletionArgument,
        context: CompletionContext | None,
    ) -> Completion | None:
        named = ref.name if isinstance(ref, PromptReference) else ref.uri
        return Completion(values=[f"{named} {argument.name}"])

    return server


async def listed(client: Client) -> dict[str, list[str]]:
    return {"tools": await gates.tools(client), **await gates.listed(client)}


EVERYTHING = {
    "tools": ["find", "burn", "read"],
    "prompts": ["review", "audit"],
    "resources": ["shelf://open", "shelf://closed"],
    "templates": ["book://{title}", "secret://{title}"],
}
PUBLIC = {
    "tools": ["find"],
    "prompts": ["review"],
    "resources": ["shelf://open"],
    "templates": ["book://{title}"],
}


async def test_hidden_item_is_in_no_list_until_shown(era: Era) -> None:
    server = library()
    async with connect(server, era) as client:
        assert await listed(client) == EVERYTHING
        server.disable(tags="admin")
        without = {kind: [entry for entry in entries if entry != "read"] for kind, entries in PUBLIC.items()}
        assert await listed(client) == {**without, "tools": ["find", "read"]}
        server.enable(tags="public", only=True)
        assert await listed(client) == PUBLIC
        server.enable(
            keys=["tool:burn", "tool:read", "prompt:audit", "resource:shelf://closed", "template:secret://{title}"]
        )
        assert await listed(client) == EVERYTHING


async def test_component_registered_disabled_is_hidden_until_enabled() -> None:
    server = Server[Any]("drafts")

    @server.tool(enabled=False)
    def tool() -> str:
        return "done"

    @server.prompt(enabled=False)
    def prompt() -> str:
        return "say"

    @server.resource("file:///one", enabled=False)
    def resource() -> str:
        return "one"

    @server.resource("file:///{name}/more", enabled=False)
    def template(name: str) -> str:
        return name

    async with connect(server, Era.RETRY) as client:
        assert await listed(client) == {"tools": [], "prompts": [], "resources": [], "templates": []}
        server.enable(names={"tool", "prompt", "resource", "template"})
        assert await listed(client) == {
            "tools": ["tool"],
            "prompts": ["prompt"],
            "resources": ["file:///one"],
            "templates": ["file:///{name}/more"],
        }
        assert text_of(await client.call_tool("tool", {})) == "done"


Attempt = Callable[[Client, str], Awaitable[Any]]
ATTEMPTS: dict[str, tuple[Attempt, str, str]] = {
    "a tool": (lambda client, name: client.call_tool(name, {"title": "Dune"}), "burn", "burm"),
    "a prompt": (lambda client, name: client.get_prompt(name, {"title": "Dune"}), "audit", "audii"),
    "a prompt without its arguments": (lambda client, name: client.get_prompt(name, {}), "audit", "audii"),
    "a resource": (lambda client, uri: client.read_resource(uri), "shelf://closed", "shelf://clossd"),
    "a template": (lambda client, uri: client.read_resource(uri), "secret://dune", "secrat://dune"),
    # The SDK refuses a path that leaves the template's directory; a hidden template has none.
    "a path in a template": (lambda client, uri: client.read_resource(uri), "secret://..%2Fdune", "secrat://..%2Fdune"),
    "a resource read by a tool": (
        lambda client, uri: client.call_tool("read", {"uri": uri}),
        "secret://d",
        "secrat://d",
    ),
}


async def outcome(client: Client, attempt: Attempt, name: str) -> str:
    try:
        result: CallToolResult = await attempt(client, name)
    except MCPError as error:
        return error.error.model_dump_json()
    assert result.is_error
    return result.model_dump_json()


async def test_hidden_item_answers_like_a_missing_one(era: Era) -> None:
    server = library()
    server.disable(tags="admin")
    different: list[str] = []
    async with connect(server, era) as client:
        for what, (attempt, hidden, unknown) in ATTEMPTS.items():
            answer = (await outcome(client, attempt, hidden)).replace(hidden, "NAME")
            if answer != (await outcome(client, attempt, unknown)).replace(unknown, "NAME"):
                different.append(what)
    assert different == []


class Removing(Server[Any]):
    """Server that removes a prompt just before its visibility is looked up, as another thread may do."""

    def _is_visible(self, kind: Shelf, identifier: str) -> bool:
        with suppress(ValueError):
            self.remove_prompt(identifier)
        return super()._is_visible(kind, identifier)


@pytest.mark.parametrize("enabled", [False, lambda: False])
async def test_hidden_prompt_stays_hidden_while_it_is_removed(era: Era, enabled: Any) -> None:
    server = Removing("drafts")
    add = server.prompt("secret", enabled=enabled)
    async with connect(server, era) as client:
        add(lambda: "say")
        assert (await client.list_prompts()).prompts == []
        add(lambda: "say")
        with pytest.raises(MCPError, match="secret"):
            await client.get_prompt("secret")


async def test_nothing_is_completed_for_what_is_hidden() -> None:
    server = library()
    title = {"name": "title", "value": ""}
    async with connect(server, Era.RETRY) as client:

        async def values(ref: PromptReference | ResourceTemplateReference) -> list[str]:
            return (await client.complete(ref, title)).completion.values

        prompt, template = PromptReference(name="audit"), ResourceTemplateReference(uri="secret://{title}")
        assert await values(prompt) == ["audit title"]
        assert await values(template) == ["secret://{title} title"]
        server.disable(tags="admin")
        assert await values(prompt) == await values(template) == []
        assert await values(PromptReference(name="review")) == ["review title"]
        assert await values(PromptReference(name="never was")) == ["never was title"]


async def test_constructor_tools_can_be_hidden_too() -> None:
    server = Server[Any]("given", resources=[TextResource(uri="note://one", name="one", text="1")])
    server.disable(keys="resource:note://one")
    async with connect(server, Era.RETRY) as client:
        assert (await client.list_resources()).resources == []
        with pytest.raises(MCPError, match="Unknown resource: note://one"):
            await client.read_resource("note://one")
        server.enable(names="one")
        assert await read(client, "note://one") == "1"


async def test_a_mistaken_call_says_what_to_pass_and_changes_nothing() -> None:
    server = library()
    with pytest.raises(ValueError, match="must be given keys="):
        server.disable()
    with pytest.raises(ValueError, match="got 'burn'"):
        server.disable(keys={"burn"})
    async with connect(server, Era.RETRY) as client:
        assert await listed(client) == EVERYTHING
