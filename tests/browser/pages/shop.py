"""A bookshop whose question pages real browsers open: a server in a thread, with calls in memory."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette

from roundtrip.pages.forms import OpenQuestions
from roundtrip.pages.handler import QuestionPages
from roundtrip.pages.settings import PageLook
from tests.browser.hosting import hosted_in_a_thread
from tests.kit.page_calls import KEY, TICKET, MemoryCalls, ScriptedCall, confirmation, form, link

__all__ = ["DELIVERY", "ORDER", "SEVERAL", "PageShop", "page_shop"]

_LOGO: Final = (
    "data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHZpZXdCb3g9IjAgMCAzMiAzMiI+PHJlY3Qg"
    "d2lkdGg9IjMyIiBoZWlnaHQ9IjMyIiByeD0iOCIgZmlsbD0iIzBiNWNhZCIvPjxwYXRoIGQ9Ik04IDkuNWMzLTEuMyA1LjYtLjkgOCAxLjEgMi40LT"
    "IgNS0yLjQgOC0xLjF2MTMuM2MtMy0xLjMtNS42LS45LTggMS4xLTIuNC0yLTUtMi40LTgtMS4xeiIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjZmZmIiBz"
    "dHJva2Utd2lkdGg9IjIiIHN0cm9rZS1saW5lam9pbj0icm91bmQiLz48cGF0aCBkPSJNMTYgMTAuNlYyNSIgc3Ryb2tlPSIjZmZmIiBzdHJva2Utd2"
    "lkdGg9IjIiLz48L3N2Zz4="
)

ORDER: Final[OpenQuestions] = {
    "order": form(
        "How shall we send your books?\nThe parcel weighs 1.2 kg. You can change the order until it leaves the shop.",
        {
            "name": {"type": "string", "title": "Name on the parcel", "minLength": 2, "maxLength": 40},
            "email": {"type": "string", "title": "E-mail", "format": "email"},
            "copies": {"type": "integer", "title": "Copies", "minimum": 1, "maximum": 9, "default": 1},
            "way": {
                "type": "string",
                "title": "Delivery",
                "description": "Delivery by bicycle is for this town only.",
                "oneOf": [
                    {"const": "post", "title": "By post, 3 days"},
                    {"const": "bike", "title": "By bicycle, today"},
                    {"const": "shop", "title": "I collect them"},
                ],
            },
            "day": {"type": "string", "title": "Not before", "format": "date"},
            "extras": {
                "type": "array",
                "title": "Extras",
                "items": {"anyOf": [{"const": "wrap", "title": "Gift wrapping"}, {"const": "card", "title": "A card"}]},
            },
            "insured": {"type": "boolean", "title": "Insure the parcel?"},
            "note": {"type": "string", "title": "Note for the courier", "maxLength": 400},
        },
        required=["name", "email", "copies", "way", "insured"],
    )
}
DELIVERY: Final[OpenQuestions] = {
    "delivery": form(
        "How shall we send your books?\nThe parcel weighs 1.2 kg.",
        {
            name: shape
            for name, shape in ORDER["order"]["params"]["requestedSchema"]["properties"].items()
            if name in ("name", "way", "day")
        },
        required=["name", "way"],
    )
}
SEVERAL: Final[OpenQuestions] = {
    "seat": form(
        "Where do you want to sit?",
        {
            "row": {"type": "string", "title": "Row", "enum": ["Front", "Middle", "Back"]},
            "when": {"type": "string", "title": "Show", "format": "date-time"},
        },
        required=["row", "when"],
    ),
    "charge": confirmation("Charge 24.50 euros to the card on file?"),
    "login": link("Please log in at the cinema.", "https://cinema.example/login?next=seat"),
}


class PageShop:
    """A running shop, and the calls behind its pages."""

    def __init__(self) -> None:
        self.calls = MemoryCalls({})
        self.base = ""

    def ask(self, *rounds: OpenQuestions, ticket: str = TICKET, **options: Any) -> ScriptedCall:
        """Begin a call, and return it."""
        call = self.calls.calls[ticket] = ScriptedCall(list(rounds), **options)
        return call

    def url(self, ticket: str = TICKET) -> str:
        return f"{self.base}/ask/{ticket}"


@contextmanager
def page_shop(*, templates: Path | None = None) -> Generator[PageShop]:
    """Serve a shop on this machine, in a thread."""
    shop = PageShop()
    app = Starlette()
    with hosted_in_a_thread(app) as shop.base:
        pages = QuestionPages(
            shop.calls,
            base_url=shop.base,
            keys=[KEY],
            look=PageLook("Corner Bookshop", logo=_LOGO),
            templates=templates,
        )
        app.router.routes.extend(pages.routes)
        yield shop
