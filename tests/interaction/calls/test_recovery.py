"""Calls that expired during a question begin again with the forms filled in, if the tool allows it."""

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequestFormParams, ElicitResult, InputRequiredResult
from pydantic import AfterValidator, BaseModel, Field

from roundtrip import Elicit, ElicitationResult, Resolve, Server
from roundtrip.ledger import MemoryLedger
from roundtrip.ledger.contract import ClaimAnswer, LedgerDown
from roundtrip.system import System
from roundtrip.testing import Clock, LegByLeg
from tests.interaction.protocol.frozen import FROZEN
from tests.kit.players import text_of

pytestmark = pytest.mark.anyio

KEY = "7f" * 32
TTL, RECOVER = 600.0, 3600.0
TRIP = {"city": "Oslo"}
ANN = {"days": 3, "hotel": "Ritz"}


class Stay(BaseModel):
    days: Annotated[int, Field(ge=1)]
    hotel: str
    breakfast: bool = False


class Yes(BaseModel):
    yes: bool


@dataclass
class Agency:
    """Travel agency, and its bookings."""

    wording: str = "How long, and where?"
    booked: list[str] = field(default_factory=list[str])

    def server(self, *, recover: float | None = RECOVER, once: bool = False, **options: Any) -> Server[Any]:
        server = Server("agency", keys=[KEY], ttl=TTL, **options)

        async def stay(city: str) -> Elicit[Stay]:
            return Elicit(self.wording, Stay)

        async def agree(stay: Annotated[Stay, Resolve(stay)]) -> Elicit[Yes]:
            return Elicit(f"{stay.days} days at the {stay.hotel}?", Yes)

        @server.tool(recover=recover, exactly_once=once)
        async def book(
            city: str, stay: Annotated[Stay, Resolve(stay)], agree: Annotated[ElicitationResult[Yes], Resolve(agree)]
        ) -> str:
            """Book."""
            self.booked.append(f"{city}: {stay.days} at {stay.hotel}")
            return f"booked, {agree.action}"

        return server


@pytest.fixture
def agency() -> Agency:
    return Agency()


def defaults(result: object, key: str) -> Mapping[str, Any]:
    """Return the defaults that a form shows."""
    assert isinstance(result, InputRequiredResult)
    assert result.input_requests is not None
    params = result.input_requests[key].params
    assert isinstance(params, ElicitRequestFormParams)
    properties: Any = params.requested_schema["properties"]
    return {name: shape["default"] for name, shape in properties.items() if "default" in shape}


async def begun(server: Any, *, principal: str | None = "ann") -> LegByLeg:
    legs = LegByLeg(server, principal=principal)
    await legs.leg("book", TRIP)
    return legs


async def refused(legs: LegByLeg, arguments: dict[str, Any] = TRIP, *, state: str | None = None, **leg: Any) -> None:
    with pytest.raises(MCPError) as caught:
        await legs.leg("book", arguments, state=state or legs.token, **leg)
    assert caught.value.error == FROZEN


async def test_recovered_answers_are_filled_in_when_their_turn_comes(agency: Agency, clock: Clock) -> None:
    legs = await begun(agency.server())
    await legs.leg("book", TRIP, answers={"stay": ANN}, state=legs.token)
    clock.advance(TTL + 1)
    again = await legs.leg("book", TRIP, answers={"agree": {"yes": True}}, state=legs.token)
    assert defaults(again, "stay") == {"days": 3, "hotel": "Ritz", "breakfast": False}
    # Nothing counts as answered.
    unanswered = await legs.leg("book", TRIP, answers={}, state=legs.token)
    assert defaults(unanswered, "stay")["hotel"] == "Ritz"
    assert agency.booked == []
    second = await legs.leg("book", TRIP, answers={"stay": ANN}, state=legs.token)
    assert defaults(second, "agree") == {"yes": True}
    result = await legs.leg("book", TRIP, answers={"agree": {"yes": True}}, state=legs.token)
    assert text_of(result) == "booked, accept"
    assert agency.booked == ["Oslo: 3 at Ritz"]


async def test_a_call_that_expires_twice_keeps_what_is_newest(agency: Agency, clock: Clock) -> None:
    legs = await begun(agency.server())
    clock.advance(TTL + 1)
    await legs.leg("book", TRIP, answers={"stay": ANN}, state=legs.token)
    clock.advance(TTL + 1)
    silent = await legs.leg("book", TRIP, state=legs.token)
    assert defaults(silent, "stay")["hotel"] == "Ritz"
    clock.advance(TTL + 1)
    other = await legs.leg("book", TRIP, answers={"stay": {"days": 2, "hotel": "Savoy"}}, state=legs.token)
    assert defaults(other, "stay") == {"days": 2, "hotel": "Savoy", "breakfast": False}


@pytest.mark.parametrize(("recover", "late"), [(None, 0.001), (0.0, 0.001), (RECOVER, RECOVER)])
async def test_nothing_is_recovered_without_recover_or_too_late(
    agency: Agency, clock: Clock, recover: float | None, late: float
) -> None:
    legs = await begun(agency.server(recover=recover))
    clock.advance(TTL + late)
    await refused(legs, answers={"stay": ANN})


async def test_foreign_anonymous_or_forged_call_recovers_nothing(agency: Agency, clock: Clock) -> None:
    server = agency.server()
    legs = await begun(server)
    clock.advance(TTL + RECOVER - 2)
    await refused(legs, {"city": "Rome"})
    await refused(legs, state=legs.token[:-6] + "AAAAAA")
    for thief in ("eve", None):
        await refused(LegByLeg(server, principal=thief), state=legs.token)
    assert isinstance(await legs.leg("book", TRIP, state=legs.token), InputRequiredResult)
    nobodys = await begun(server, principal=None)
    clock.advance(TTL + 1)
    await refused(nobodys)
    await refused(legs, state=nobodys.token)


def found(code: str) -> str:
    return {"known": code}[code]


class Coupon(BaseModel):
    code: Annotated[str, AfterValidator(found)]


class Weight(BaseModel):
    kilos: float


class Story(BaseModel):
    text: str


NOISE = "".join(chr(32 + byte % 90) for byte in random.Random(1).randbytes(70_000))


def asking(form: type[BaseModel]) -> Callable[..., Any]:
    """Return a tool that asks for a form."""

    async def told() -> Elicit[Any]:
        return Elicit("Tell.", form)

    async def book(city: str, told: Annotated[Any, Resolve(told)]) -> str:
        """Book."""
        return "booked"

    return book


@pytest.mark.parametrize(
    ("form", "content", "shown"),
    [
        (Stay, {"days": 0, "hotel": "Ritz"}, {"hotel": "Ritz", "breakfast": False}),
        (Stay, {"days": [], "x": "y"}, {"breakfast": False}),
        (Stay, None, {"breakfast": False}),
        (Coupon, {"code": "no such"}, {}),
        (Weight, {"kilos": float("nan")}, {}),
        (Story, {"text": NOISE}, {"text": NOISE}),
    ],
    ids=["a part", "nonsense", "declined", "a validator that crashes", "no number", "more than a token holds"],
)
async def test_valid_fields_are_filled_in_and_nothing_prevents_the_restart(
    clock: Clock, form: type[BaseModel], content: dict[str, Any] | None, shown: dict[str, Any]
) -> None:
    server = Server("agency", keys=[KEY], ttl=TTL)
    server.add_tool(asking(form), recover=RECOVER)
    legs = await begun(server)
    clock.advance(TTL + 1)
    late = {"told": ElicitResult(action="decline" if content is None else "accept", content=content)}
    again = await legs.leg("book", TRIP, answers=late, state=legs.token)
    assert defaults(again, "told") == shown
    assert isinstance(await legs.leg("book", TRIP, state=legs.token), InputRequiredResult)


async def test_nothing_is_filled_into_another_question_or_version(agency: Agency, clock: Clock) -> None:
    legs = await begun(agency.server())
    clock.advance(TTL + 1)
    agency.wording = "How long, and which of our own hotels?"
    again = await legs.leg("book", TRIP, answers={"stay": ANN}, state=legs.token)
    assert defaults(again, "stay") == {"breakfast": False}
    server = Server("agency", keys=[KEY], ttl=TTL)
    server.add_tool(asking(Story), version="1", recover=RECOVER)
    legs = await begun(server)
    server.add_tool(asking(Story), version="2")
    clock.advance(TTL + 1)
    again = await legs.leg("book", TRIP, answers={"told": {"text": "secret"}}, state=legs.token)
    assert defaults(again, "told") == {}


async def test_call_whose_single_body_ran_is_not_restarted(agency: Agency, clock: Clock) -> None:
    legs = await begun(agency.server(once=True, ledger=MemoryLedger(system=System(monotonic=clock))))
    await legs.leg("book", TRIP, answers={"stay": ANN}, state=legs.token)
    agreed: dict[str, Any] = {"answers": {"agree": {"yes": True}}, "state": legs.token}
    assert text_of(await legs.leg("book", TRIP, **agreed)) == "booked, accept"
    clock.advance(TTL + 1)
    await refused(legs, **agreed)
    clock.advance(RECOVER - 2)
    await refused(legs, **agreed)
    assert len(agency.booked) == 1


async def test_restarted_call_does_not_run_where_clocks_are_behind(agency: Agency, clock: Clock) -> None:
    legs = await begun(agency.server(once=True, ledger=MemoryLedger(system=System(monotonic=clock))))
    await legs.leg("book", TRIP, answers={"stay": ANN}, state=legs.token)
    late: dict[str, Any] = {"answers": {"agree": {"yes": True}}, "state": legs.token}
    clock.advance(TTL + 1)
    # The second stands for a client that lost the answer to the first.
    for _ in range(2):
        assert defaults(await legs.leg("book", TRIP, **late), "stay")["hotel"] == "Ritz"
    await legs.leg("book", TRIP, answers={"stay": ANN}, state=legs.token)
    await legs.leg("book", TRIP, answers={"agree": {"yes": True}}, state=legs.token)
    assert len(agency.booked) == 1
    clock.advance(-31)
    assert "has ended already" in text_of(await legs.leg("book", TRIP, **late))
    assert len(agency.booked) == 1


async def test_a_very_late_copy_ends_no_call_that_went_on(agency: Agency, clock: Clock) -> None:
    legs = await begun(agency.server(once=True, ledger=MemoryLedger(system=System(monotonic=clock))))
    late: dict[str, Any] = {"answers": {"stay": ANN}, "state": legs.token}
    clock.advance(TTL - 1)
    await legs.leg("book", TRIP, **late)
    gone_on = legs.token
    clock.advance(62)
    assert defaults(await legs.leg("book", TRIP, **late), "stay")["hotel"] == "Ritz"
    result = await legs.leg("book", TRIP, answers={"agree": {"yes": True}}, state=gone_on)
    assert text_of(result) == "booked, accept"


class Broken(MemoryLedger):
    """Ledger that cannot be reached."""

    async def claim(self, *args: Any, **options: Any) -> ClaimAnswer:
        raise LedgerDown("it is gone")

    async def wait(self, key: str, *, patience: float) -> ClaimAnswer | None:
        raise LedgerDown("it is gone")


@pytest.mark.parametrize("late", [1, 100])
async def test_silent_ledger_prevents_a_restart(agency: Agency, clock: Clock, late: float) -> None:
    legs = await begun(agency.server(once=True, ledger=Broken()))
    clock.advance(TTL + late)
    with pytest.raises(MCPError) as caught:
        await legs.leg("book", TRIP, answers={"stay": ANN}, state=legs.token)
    assert caught.value.error.data == {"reason": "ledger_unavailable", "tool": "book"}


async def test_the_transcript_says_which_call_it_takes_the_place_of(
    agency: Agency, clock: Clock, tmp_path: Path
) -> None:
    transcript = tmp_path / "calls.jsonl"
    legs = await begun(agency.server(trace=str(transcript)))
    clock.advance(TTL + 1)
    await legs.leg("book", TRIP, answers={"stay": ANN}, state=legs.token)
    lines = [json.loads(line) for line in transcript.read_text().splitlines()]
    first, second = (line for line in lines if line["event"] == "began")
    assert second["replaces"] == first["call"] != second["call"]
    assert "replaces" not in first
    assert "Ritz" not in transcript.read_text()


def test_recovery_needs_known_users_and_a_time(agency: Agency) -> None:
    with pytest.raises(ValueError, match="recover= shows a user their former answers"):
        agency.server(principal=False)
    for recover in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="recover="):
            agency.server(recover=recover)
