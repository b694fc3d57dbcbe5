"""Secrets: no form asks for one; users may type them on a page."""

import dataclasses
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, SecretStr
from typing_extensions import TypedDict

from roundtrip import Context, Elicit, ElicitUrl, InvalidSignature, Resolve, Server
from roundtrip.testing import Era
from tests.interaction.pages.ways import BOOK, URL, ways
from tests.kit.players import Person, connect, text_of
from tests.kit.visitors import Visitor, add_export, visiting

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


def test_secret_form_of_a_resolver_is_rejected_at_registration() -> None:
    """Shows S11."""

    def login() -> Elicit[Login]:
        return Elicit("Log in.", Login)

    async def export(account: Annotated[Any, Resolve(login)]) -> str:
        return "done"

    with pytest.raises(InvalidSignature, match="field 'password' is a secret"):
        Server("shop").add_tool(export)


@ways
async def test_secret_typed_on_a_page_bypasses_the_client(place: str, era: Era) -> None:
    """Shows S11."""
    typed: list[str] = []
    page = ElicitUrl("Type your password.", URL, done=lambda: bool(typed))
    visitor = Visitor(visit=lambda page: typed.append("hunter2"))
    async with visiting(add_export(Server("shop"), place, lambda ctx: page), era, visitor) as client:
        assert text_of(await client.call_tool("export", BOOK)) == "Dune for True"
    assert typed == ["hunter2"]
    assert visitor.forms == []
