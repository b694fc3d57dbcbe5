"""Clients see only the own arguments and variables of prompts and templates that ask."""

from typing import Annotated, Any

import pytest
from mcp.server import MCPServer
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, Prompt
from pydantic import Field

from roundtrip import Context, Elicit, InvalidSignature, Resolve, Server
from roundtrip.client.legs import ERAS
from roundtrip.testing import Era
from tests.interaction.handlers.asking import Tone, ask_tone, said
from tests.kit.players import Person, connect

pytestmark = pytest.mark.anyio


async def ask_any_tone() -> Elicit[Tone]:
    return Elicit("What tone?", Tone)


async def test_prompts_and_templates_list_only_their_own_parameters() -> None:
    server, plain = Server[Any]("shop"), MCPServer[Any]("shop")

    async def praise(
        ctx: Context,
        title: Annotated[str, Field(description="The book's.")],
        tone: Annotated[Tone, Resolve(ask_tone)],
        words: int = 10,
    ) -> str:
        return f"{title} {words} {tone.tone}"

    async def praise_plainly(title: Annotated[str, Field(description="The book's.")], words: int = 10) -> str:
        return title

    listed: list[tuple[list[Prompt], Any, Any]] = []
    for shop, fn in ((server, praise), (plain, praise_plainly)):
        assert shop.prompt("praise", title="Praise", description="Praises a book.")(fn) is fn
        options: dict[str, Any] = {"mime_type": "text/markdown", "description": "Praise."}
        assert shop.resource("praise://{title}{?words}", name="praise", **options)(fn) is fn
        async with connect(shop, Era.RETRY) as client:
            templates = (await client.list_resource_templates()).resource_templates
            listed.append(((await client.list_prompts()).prompts, templates, (await client.list_resources()).resources))
    assert listed[0] == listed[1]
    ((prompt,), _, resources), _ = listed
    assert [(item.name, item.required) for item in prompt.arguments or []] == [("title", True), ("words", False)]
    assert resources == []


async def test_arguments_are_validated_before_anything_is_asked() -> None:
    server = Server[Any]("shop")

    @server.prompt()
    async def praise(title: str, words: int, tone: Annotated[Tone, Resolve(ask_tone)]) -> str:
        return f"{title} {words + 1} {tone.tone}"

    person = Person({"tone": "dry"})
    refused: list[MCPError] = []
    async with connect(server, Era.RETRY, person) as client:
        for arguments in ({"title": "Dune", "words": "many"}, {"title": "Dune"}):
            try:
                await client.get_prompt("praise", arguments)
            except MCPError as error:
                refused.append(error)
        assert len(refused) == 2
        assert person.asked == []
        assert said(await client.get_prompt("praise", {"title": "Dune", "words": "9"})) == "Dune 10 dry"


@pytest.mark.parametrize("era", ERAS)
async def test_defaults_and_query_variables_hold(era: Era) -> None:
    server = Server[Any]("shop")

    async def praise(
        title: str, tone: Annotated[Tone, Resolve(ask_tone)], words: int = 10, style: str = "prose"
    ) -> str:
        return f"{title} {words} {style} {tone.tone}"

    server.prompt("praise")(praise)
    server.resource("praise://{title}{?words,style}")(praise)
    person = Person(answer=lambda params: {"tone": "dry"})
    async with connect(server, era, person) as client:
        assert said(await client.get_prompt("praise", {"title": "Dune"})) == "Dune 10 prose dry"
        assert said(await client.get_prompt("praise", {"title": "Dune", "words": "3"})) == "Dune 3 prose dry"
        assert said(await client.read_resource("praise://Dune")) == "Dune 10 prose dry"
        assert said(await client.read_resource("praise://Dune?style=verse&words=4")) == "Dune 4 verse dry"
        assert said(await client.read_resource("praise://Dune?tone=solemn")) == "Dune 10 prose dry"
    assert set(person.messages) == {"Praise Dune in what tone?"}


def test_resolver_needing_an_absent_uri_variable_is_rejected_at_registration() -> None:
    server = Server[Any]("shop")
    with pytest.raises(InvalidSignature, match=r"resource 'praise://all' has no URI variables"):

        @server.resource("praise://all")
        async def praise_all(tone: Annotated[Tone, Resolve(ask_any_tone)]) -> str:
            return tone.tone

    with pytest.raises(InvalidSignature, match=r"resource 'praise://\{author\}'.*'title'"):

        @server.resource("praise://{author}")
        async def praise(author: str, tone: Annotated[Tone, Resolve(ask_tone)]) -> str:
            return author

    with pytest.raises(InvalidSignature, match=r"prompt 'praise_author'.*'title'"):

        @server.prompt()
        async def praise_author(author: str, tone: Annotated[Tone, Resolve(ask_tone)]) -> str:
            return author


@pytest.mark.parametrize("era", ERAS)
async def test_unknown_prompt_has_the_code_of_invalid_parameters(era: Era) -> None:
    async with connect(Server("shop"), era, Person("accept")) as client:
        with pytest.raises(MCPError, match=r"^Unknown prompt: greet$") as raised:
            await client.get_prompt("greet", {})
    assert raised.value.error.code == INVALID_PARAMS
