"""Clients see only the own arguments and variables of prompts and templates that ask."""

from typing import Annotated, Any

import pytest
from mcp.server import MCPServer
from mcp.shared.exceptions import MCPError
from mcp_types import PromptArgument
from pydantic import BaseModel, Field

from roundtrip import Context, Elicit, InvalidSignature, Resolve, Server
from roundtrip.client.legs import ERAS
from roundtrip.testing import Era
from tests.interaction.handlers.asking import said
from tests.kit.players import Person, connect

pytestmark = pytest.mark.anyio


@pytest.fixture
def era() -> Era:
    """Return one era: lists and checks of arguments are the same on each."""
    return Era.RETRY


class Tone(BaseModel):
    tone: str = "plain"


async def ask_tone(title: str) -> Elicit[Tone]:
    return Elicit(f"Praise {title} in what tone?", Tone)


async def ask_any_tone() -> Elicit[Tone]:
    return Elicit("What tone?", Tone)


async def test_prompt_lists_only_its_own_arguments(era: Era) -> None:
    server, plain = Server[Any]("shop"), MCPServer[Any]("shop")

    @server.prompt(title="Praise", description="Praises a book.")
    async def praise(
        ctx: Context,
        title: Annotated[str, Field(description="The book's.")],
        tone: Annotated[Tone, Resolve(ask_tone)],
        words: int = 10,
    ) -> str:
        return f"{title} {words} {tone.tone}"

    @plain.prompt("praise", title="Praise", description="Praises a book.")
    async def praise_plainly(title: Annotated[str, Field(description="The book's.")], words: int = 10) -> str:
        return title

    async with connect(server, era) as client, connect(plain, era) as other:
        (shown,), (expected,) = (await client.list_prompts()).prompts, (await other.list_prompts()).prompts
    assert shown == expected
    assert [(item.name, item.required) for item in shown.arguments or []] == [("title", True), ("words", False)]


async def test_template_lists_only_its_own_variables(era: Era) -> None:
    server, plain = Server[Any]("shop"), MCPServer[Any]("shop")

    @server.resource("praise://{title}{?words}", mime_type="text/markdown", description="Praise.")
    async def praise(tone: Annotated[Tone, Resolve(ask_tone)], title: str, ctx: Context, words: int = 10) -> str:
        return f"{title} {words} {tone.tone}"

    @plain.resource("praise://{title}{?words}", name="praise", mime_type="text/markdown", description="Praise.")
    async def praise_plainly(title: str, words: int = 10) -> str:
        return title

    async with connect(server, era) as client, connect(plain, era) as other:
        shown = (await client.list_resource_templates()).resource_templates
        assert shown == (await other.list_resource_templates()).resource_templates
        assert (await client.list_resources()).resources == []


async def test_arguments_are_validated_before_anything_is_asked(era: Era) -> None:
    server = Server[Any]("shop")

    @server.prompt()
    async def praise(title: str, words: int, tone: Annotated[Tone, Resolve(ask_tone)]) -> str:
        return f"{title} {words + 1} {tone.tone}"

    person = Person({"tone": "dry"})
    refused: list[MCPError] = []
    async with connect(server, era, person) as client:
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


async def test_client_values_for_filled_parameters_are_ignored(era: Era) -> None:
    server = Server[Any]("shop")

    @server.prompt()
    async def praise(title: str, tone: Annotated[Tone, Resolve(ask_tone)]) -> str:
        return tone.tone

    async with connect(server, era, Person({"tone": "dry"})) as client:
        (prompt,) = (await client.list_prompts()).prompts
        assert prompt.arguments == [PromptArgument(name="title", required=True)]
        try:
            text = said(await client.get_prompt("praise", {"title": "Dune", "tone": "solemn"}))
        except MCPError:
            return
    assert text == "dry"


def test_a_resource_without_variables_is_rejected_a_resolver() -> None:
    server = Server[Any]("shop")
    with pytest.raises(InvalidSignature, match=r"resource 'praise://all' has no variables"):

        @server.resource("praise://all")
        async def praise(tone: Annotated[Tone, Resolve(ask_any_tone)]) -> str:
            return tone.tone


def test_resolver_needing_an_absent_uri_variable_is_rejected_at_registration() -> None:
    server = Server[Any]("shop")
    with pytest.raises(InvalidSignature, match=r"resource 'praise://\{author\}'.*'title'"):

        @server.resource("praise://{author}")
        async def praise(author: str, tone: Annotated[Tone, Resolve(ask_tone)]) -> str:
            return author

    with pytest.raises(InvalidSignature, match=r"prompt 'praise_author'.*'title'"):

        @server.prompt()
        async def praise_author(author: str, tone: Annotated[Tone, Resolve(ask_tone)]) -> str:
            return author


def test_the_decorated_function_stays_itself() -> None:
    server = Server[Any]("shop")

    async def praise(title: str, tone: Annotated[Tone, Resolve(ask_tone)]) -> str:
        return title

    assert server.prompt()(praise) is praise
    assert server.resource("praise://{title}")(praise) is praise
