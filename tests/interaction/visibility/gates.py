"""Parts for tests of visibility gates: gates that tests switch, functions to gate, and the view of a client."""

from collections.abc import Callable
from typing import Any

from mcp.client import Client
from mcp_types import TextContent, TextResourceContents

from tests.kit.players import text_of
from tests.kit.wire import Json


class Switch:
    """Visibility gate that a test switches, and that counts its evaluations."""

    def __init__(self, *, on: bool = True) -> None:
        self.on = on
        self.asked = 0

    def __call__(self) -> bool:
        self.asked += 1
        return self.on


def saying(text: str) -> Callable[[], str]:
    def say() -> str:
        return text

    return say


def same(value: Any) -> Any:
    return value


def both(one: Any, other: Any) -> Any:
    return one and other


def is_pro(plan: str) -> bool:
    return plan == "pro"


def by_title(title: str) -> str:
    return title


async def tools(client: Client) -> list[str]:
    return [tool.name for tool in (await client.list_tools()).tools]


async def listed(client: Client) -> dict[str, list[str]]:
    return {
        "prompts": [prompt.name for prompt in (await client.list_prompts()).prompts],
        "resources": [str(resource.uri) for resource in (await client.list_resources()).resources],
        "templates": [
            template.uri_template for template in (await client.list_resource_templates()).resource_templates
        ],
    }


async def said(client: Client, name: str, arguments: Json | None = None) -> str:
    return text_of(await client.call_tool(name, arguments or {}))


async def read(client: Client, uri: str) -> str:
    (contents,) = (await client.read_resource(uri)).contents
    assert isinstance(contents, TextResourceContents)
    return contents.text


async def prompted(client: Client, name: str) -> str:
    (message,) = (await client.get_prompt(name)).messages
    assert isinstance(message.content, TextContent)
    return message.content.text
