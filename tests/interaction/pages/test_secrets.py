"""Secrets: no form asks for one; users may type them on a page."""

import dataclasses
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, SecretStr
from typing_extensions import TypedDict

from roundtrip import Context, Elicit, ElicitUrl, InvalidSignature, Resolve, Server
from roundtrip.testing import Era
from tests.interaction.pages.ways import ways
from tests.kit.players import Person, connect, text_of
from tests.kit.secrets import NEW
from tests.kit.visitors import Visitor, visiting

pytestmark = pytest.mark.anyio


class Login(BaseModel):
    user: str
    password: SecretStr


@dataclasses.dataclass
class Card:
    number: SecretStr


class Pin(TypedDict):
    pin: Annotated[str, Field(json_schema_extra={"writeOnly": True})]


SECRETS: list[tuple[Any, str]] = [(Login, "password"), (Card, "number"), (Pin, "pin"), (SecretStr, "value")]


@pytest.mark.parametrize(
    ("schema", "field", "era"),
    [(schema, field, [Era.RETRY, Era.LIVE][place % 2]) for place, (schema, field) in enumerate(SECRETS)],
    ids=["model", "dataclass", "typed dict", "value"],
)
async def test_secret_form_of_a_body_is_rejected_before_it_shows(
    schema: Any, field: str, era: Era, caplog: pytest.LogCaptureFixture
) -> None:
    """Shows S11."""
    server = Server[Any]("shop")

    @server.tool()
    async def export(ctx: Context) -> str:
        await ctx.ask("login", "Log in.", schema)
        return "done"

    person = Person()
    async with connect(server, era, person) as client:
        result = await client.call_tool("export")
    assert result.is_error
    assert person.asked == []
    assert f"field '{field}' is a secret" in caplog.text


@pytest.mark.parametrize(("schema", "field"), SECRETS[:1])
def test_secret_form_of_a_resolver_is_rejected_at_registration(schema: Any, field: str) -> None:
    """Shows S11."""

    def login() -> Any:
        return Elicit("Log in.", schema)

    login.__annotations__["return"] = Elicit[schema]

    async def export(account: Annotated[Any, Resolve(login)]) -> str:
        return "done"

    with pytest.raises(InvalidSignature, match=f"field '{field}' is a secret"):
        Server("shop").add_tool(export)


@ways
async def test_secret_typed_on_a_page_bypasses_the_client(place: str, era: Era) -> None:
    """Shows S11."""
    typed: list[str] = []
    used: list[str] = []

    def done() -> bool:
        return bool(typed)

    async def login() -> ElicitUrl[bool]:
        return ElicitUrl("Type your password.", "https://bookshop.example/login", done=done)

    async def by_resolver(ready: Annotated[bool, Resolve(login)]) -> str:
        used.append(typed[0])
        return f"logged in: {ready}"

    async def by_body(ctx: Context) -> str:
        question = ElicitUrl("Type your password.", "https://bookshop.example/login", done=done)
        ready = await ctx.ask("login", question)
        used.append(typed[0])
        return f"logged in: {ready}"

    server = Server[Any]("shop", keys=[NEW])
    server.add_tool(by_resolver if place == "resolver" else by_body, name="export")
    visitor = Visitor(visit=lambda page: typed.append("hunter2"))
    async with visiting(server, era, visitor) as client:
        result = await client.call_tool("export")
    assert text_of(result) == "logged in: True"
    assert used == ["hunter2"]
    assert visitor.forms == []
