"""Snapshots of real calls."""

from typing import Annotated, Any, Final

import pytest
from pydantic import BaseModel

from roundtrip import Elicit, Resolve, Server
from roundtrip.testing import Conversation, User
from roundtrip.testing.snapshots import call_text, wire_text
from roundtrip.testing.snapshots.extension import CallSnapshot
from tests.interaction.testing.keepsakes import CALLS
from tests.kit.shops import server_with

pytestmark = [pytest.mark.anyio]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.roundtrip(eras="both")
async def test_a_call_has_its_text(call: str, call_snapshot: CallSnapshot) -> None:
    assert await CALLS[call]() == call_snapshot


@pytest.mark.roundtrip(eras="both")
async def test_calls_have_the_same_texts_over_http() -> None:
    told = {over: [call_text(await call(over=over)) for call in CALLS.values()] for over in ("memory", "http")}
    assert told["http"] == told["memory"]


class Card(BaseModel):
    number: str = "4111 2222"
    name: str


async def ask_card(card: str) -> Elicit[Card]:
    return Elicit(f"Is it still {card}?", Card)


async def ask_pin() -> Elicit[str]:
    return Elicit("Your PIN?", str)


class Receipt(BaseModel):
    card: str
    lines: list[dict[str, str]]


async def pay(
    card: str, answer: Annotated[Card, Resolve(ask_card)], pin: Annotated[str, Resolve(ask_pin, name="pin")]
) -> Receipt:
    return Receipt(card=card, lines=[{"number": answer.number, "said": f"{pin} of {answer.name}"}])


async def paying(**options: Any) -> Conversation:
    answers: Any = {"ask_card": {"number": "5500-6600", "name": "Ada"}, "pin": "8462"}
    return await User(server_with(pay), answers, **options).call("pay", card="4929-1234")


_SECRETS: Final = ("4929-1234", "4111 2222", "5500-6600", "8462")


async def test_redacted_fields_are_nowhere() -> None:
    call = await paying(record_messages=True)
    open_texts = call_text(call), wire_text(call)
    texts = [make(call, redacting={"card", "number", "pin"}) for make in (call_text, wire_text)]
    for secret in _SECRETS:
        assert all(secret in text for text in open_texts)
        assert not any(secret in text for text in texts), secret
    assert all("Ada" in text and "Your PIN?" in text for text in texts)


async def test_prompts_and_resources_have_texts(call_snapshot: CallSnapshot) -> None:
    server = Server[Any]("library")

    @server.prompt()
    async def recommend(mood: str) -> str:
        return f"A book for a {mood} day"

    @server.resource("library://opening")
    async def opening() -> str:
        return "9 to 17"

    assert await User(server).get_prompt("recommend", mood="rainy") == call_snapshot
    assert await User(server).read_resource("library://opening") == call_snapshot


async def test_unrecorded_messages_are_requested() -> None:
    with pytest.raises(ValueError, match="use the fixture wire_snapshot"):
        wire_text(await CALLS["ordering"]())
