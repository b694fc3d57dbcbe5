"""The vocabulary of combinations: each feature is a part of one booking, and parts make one tool.

A feature may add parameters that roundtrip fills, options of the registration, and a passage of the body. It says how a
user answers what it asks. `compose` makes the function.
"""

import inspect
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field

from roundtrip import Context, Depends, Elicit, ElicitUrl, Resolve
from roundtrip.errors import BodyMistake
from roundtrip.testing import ACCEPT
from tests.combinations.agency import Agency

__all__ = ["FEATURES", "LUGGAGE", "OTHER_LUGGAGE", "PAGE", "Feature", "compose"]


PAGE: Final = re.compile("^Please pay")
OTHER_LUGGAGE: Final = "other luggage"
LUGGAGE: Final = re.compile("^How many bags")


class Seat(BaseModel):
    row: Literal["front", "middle", "back"]
    window: bool = False


class Traveller(BaseModel):
    name: str = Field(min_length=1, max_length=60)
    age: int = Field(ge=0, le=130, default=30)


class Meal(BaseModel):
    dish: str = Field(max_length=60)


class Bags(BaseModel):
    number: int = Field(ge=0, le=5)
    fragile: bool = False


class Consent(BaseModel):
    agreed: bool


class Verdict(BaseModel):
    fit: bool
    why: str


Passage = Callable[[Context, Mapping[str, Any]], Any]
"""A passage of the body: given the context and what fills the parameters, it returns what it has to say."""


@dataclass(frozen=True)
class Feature:
    """One feature, made for one agency."""

    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    passage: Passage | None = None
    answers: Mapping[re.Pattern[str], Any] = field(default_factory=dict[re.Pattern[str], Any])
    """By patterns, as a server in another process tells no names on the live era."""
    visits: Mapping[re.Pattern[str], Any] = field(default_factory=dict[re.Pattern[str], Any])


def by_resolver(agency: Agency) -> Feature:
    """Ask by two resolvers: the second depends on the answer of the first."""

    async def choose_seat(traveller: str) -> Elicit[Seat]:
        return Elicit(f"Which seat for {traveller}?", Seat)

    async def choose_meal(seat: Annotated[Seat, Resolve(choose_seat)]) -> Elicit[Meal]:
        return Elicit(f"What shall we serve in the {seat.row}?", Meal)

    async def tell(ctx: Context, filled: Mapping[str, Any]) -> str:
        del ctx
        return f"seat {filled['seat'].row}, {filled['meal'].dish}"

    return Feature(
        parameters={"seat": Annotated[Seat, Resolve(choose_seat)], "meal": Annotated[Meal, Resolve(choose_meal)]},
        passage=tell,
        answers={
            re.compile("^Which seat"): {"row": "middle"},
            re.compile("^What shall we serve"): {"dish": agency.plant("answer")},
        },
    )


def once(agency: Agency) -> Feature:
    """Fix a price for the call, seal it, and ask for agreement to it."""

    async def quote() -> str:
        agency.count("quotes")
        return agency.secret_quote

    async def agree(nights: int, quote: Annotated[str, Resolve(quote, remember=True)]) -> Elicit[Consent]:
        del quote
        return Elicit(f"Agree to the price of {nights} nights?", Consent)

    async def tell(ctx: Context, filled: Mapping[str, Any]) -> str:
        del ctx
        return "agreed" if filled["consent"].agreed else "not agreed"

    return Feature(
        parameters={"consent": Annotated[Consent, Resolve(agree)]},
        passage=tell,
        answers={re.compile("^Agree to"): {"agreed": True}},
    )


def in_body(agency: Agency) -> Feature:
    """Ask in the body; the next question depends on the answer."""

    async def ask(ctx: Context, filled: Mapping[str, Any]) -> str:
        del filled
        guest = await ctx.ask("guest", "Who else travels?", Traveller, attempts=1)
        if guest.age < 12 and not await ctx.ask("child", "Is a child's bed needed?", bool):
            return f"with {guest.name}"
        return f"with {guest.name} in a small bed"

    return Feature(
        passage=ask,
        answers={re.compile("^Who else"): {"name": agency.plant("answer"), "age": 9}, re.compile("^Is a child"): True},
    )


def ask_all(agency: Agency) -> Feature:
    """Ask several questions in one round: the first answer of one is invalid, and two have equal choices."""

    async def ask(ctx: Context, filled: Mapping[str, Any]) -> str:
        del filled
        got = await ctx.ask_all_outcomes(
            {
                "luggage": Elicit("How many bags?", Bags),
                "cots": Elicit("Is a cot needed?", {0: "no", 1: "yes"}),
                "dog": Elicit("Is there a dog?", {False: "no", True: "yes"}),
            }
        )
        told: list[Any] = [getattr(outcome, "data", None) for outcome in got.values()]
        match told:
            case [Bags(number=2), int() as cots, bool() as dog] if not isinstance(cots, bool):
                return f"2 bags, {cots} cots, {'a dog' if dog else 'no dog'}"
            case _:
                # Another user's answers were sent to this question.
                return OTHER_LUGGAGE

    del agency
    return Feature(
        passage=ask,
        answers={
            LUGGAGE: [{"number": 9, "fragile": True}, {"number": 2}],
            re.compile("^Is a cot needed"): "1",
            re.compile("^Is there a dog"): "False",
        },
    )


def page(agency: Agency) -> Feature:
    """Send the user to a page, where they pay; the page informs the server and not the client."""

    def paid(ctx: Context) -> str | None:
        return agency.secret_receipt if ctx.call.id in agency.paid else None

    def link_of(ctx: Context, traveller: str) -> str:
        try:
            ticket = ctx.call.ticket("pay")
        except BodyMistake:
            agency.count("no owner of a ticket")
            ticket = ctx.call.ticket("pay", unbound=True)
        return f"https://agency.example/pay?t={ticket}#{traveller}"

    def question(ctx: Context, traveller: str) -> ElicitUrl[Any]:
        """Return the question for the page of the traveler's own bank, if that is an address."""
        options: dict[str, Any] = {"done": paid, "wait": 0, "elicitation_id": f"pay-{ctx.call.id}"}
        try:
            return ElicitUrl("Please pay.", f"javascript:pay('{traveller}')", **options)
        except ValueError:
            return ElicitUrl("Please pay.", link_of(ctx, traveller), **options)

    async def ask(ctx: Context, filled: Mapping[str, Any]) -> str:
        receipt = await ctx.ask("pay", question(ctx, filled["traveller"]))
        return "paid" if receipt == agency.secret_receipt else "not paid"

    return Feature(passage=ask, answers={PAGE: ACCEPT}, visits={PAGE: agency.visit})


def confirmation(agency: Agency) -> Feature:
    """Ask for a confirmation before anything runs."""
    del agency
    return Feature(options={"confirm": "Book {nights} nights for {traveller}?"}, answers={re.compile("^Book "): ACCEPT})


def review(agency: Agency) -> Feature:
    """Review the answers; questions that depend on a changed one are asked again."""

    async def ask(ctx: Context, filled: Mapping[str, Any]) -> str:
        del filled
        payer = await ctx.ask("payer", "Who pays?", Traveller)
        address = await ctx.ask("address", f"Where to send the bill of {payer.name}?", str)
        await ctx.review("right", "Is this right?", of=["payer"])
        return f"billed to {payer.name} at {address}"

    changed = {"payer.name": "Ada", "payer.age": 40}
    return Feature(
        passage=ask,
        answers={
            re.compile("^Who pays"): {"name": "Alan", "age": 40},
            re.compile("^Where to send"): [agency.plant("answer"), "a street"],
            re.compile("^Is this right"): changed,
        },
    )


def approval(agency: Agency) -> Feature:
    """Wait until the desk approves."""

    async def ask(ctx: Context, filled: Mapping[str, Any]) -> str:
        approval = await ctx.approve("desk", f"May {filled['traveller']} travel?", by="desk")
        return f"approved by {approval.who}"

    del agency
    return Feature(passage=ask)


def sample(agency: Agency) -> Feature:
    """Ask the client's model for JSON."""

    async def ask(ctx: Context, filled: Mapping[str, Any]) -> str:
        del filled
        told = await ctx.sample("Is the hotel fit for children?", result_type=Verdict, name="verdict")
        return "fit for children" if told.result.fit else "not for children"

    verdict = Verdict(fit=True, why=agency.plant("sample"))
    return Feature(passage=ask, answers={re.compile("fit for children"): verdict.model_dump_json()})


def step(agency: Agency) -> Feature:
    """Compute a step once, and ask for its name afterwards."""

    async def reserve(nights: int) -> dict[str, str]:
        agency.count("reservations")
        return {"number": agency.secret_reservation, "nights": str(nights)}

    async def ask(ctx: Context, filled: Mapping[str, Any]) -> str:
        held = await ctx.step("reserve", reserve, filled["nights"])
        label = await ctx.ask("label", "What to call it?", str)
        return f"{label} for {held['nights']}"

    return Feature(passage=ask, answers={re.compile("^What to call it"): agency.plant("answer")})


def exactly_once(agency: Agency) -> Feature:
    """Run the body once for the call."""
    del agency
    return Feature(options={"exactly_once": True})


def timeout(agency: Agency) -> Feature:
    """Limit the time of a leg's work; users here are faster."""
    del agency
    return Feature(options={"timeout": 60.0})


def entered(agency: Agency) -> Feature:
    """Enter a dependency for each leg, and exit it."""

    async def connection() -> AsyncGenerator[str]:
        agency.count("entered")
        try:
            yield "connected"
        finally:
            agency.count("left")

    async def tell(ctx: Context, filled: Mapping[str, Any]) -> str:
        del ctx
        return filled["connection"]

    return Feature(parameters={"connection": str}, defaults={"connection": Depends(connection)}, passage=tell)


def gate(agency: Agency) -> Feature:
    """Decide for each request with a visibility gate whether the tool exists."""

    async def is_open(ctx: Context) -> bool:
        agency.count("gate")
        return bool(ctx.protocol_version)

    return Feature(options={"enabled": is_open})


def version(agency: Agency) -> Feature:
    """Register an older version of the tool, too; calls go to the newest."""
    del agency
    return Feature(options={"version": "2.0"})


FEATURES: Final[Mapping[str, Callable[[Agency], Feature]]] = {
    made.__name__: made
    for made in (
        by_resolver,
        once,
        in_body,
        ask_all,
        page,
        confirmation,
        review,
        approval,
        sample,
        step,
        exactly_once,
        timeout,
        entered,
        gate,
        version,
    )
}


def compose(agency: Agency, features: Sequence[Feature]) -> Callable[..., Any]:
    """Return a function that books a trip with some features, in their order."""

    async def book(ctx: Context, **filled: Any) -> str:
        said = [f"{filled['nights']} nights for {filled['traveller']}"]
        for feature in features:
            if feature.passage is not None:
                passage = await feature.passage(ctx, filled)
                said.append(passage)
        agency.book(ctx.call.id)
        return ", ".join(said)

    parameters = {"traveller": str, "nights": int}
    defaults: dict[str, Any] = {}
    for feature in features:
        parameters |= feature.parameters
        defaults |= feature.defaults
    keyword = inspect.Parameter.KEYWORD_ONLY
    book.__annotations__ = {**parameters, "ctx": Context, "return": str}
    book.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter("ctx", keyword, annotation=Context),
            *(
                inspect.Parameter(
                    name, keyword, annotation=annotation, default=defaults.get(name, inspect.Parameter.empty)
                )
                for name, annotation in parameters.items()
            ),
        ],
        return_annotation=str,
    )
    book.__doc__ = "Book a trip."
    return book
