"""Answers to the wizard of the examples, and what it says in the end."""

import re
from typing import Any, Final

from roundtrip.testing import Answers

__all__ = ["ADA", "BOOKED", "HOLIDAY"]

ADA: Final[dict[str, Any]] = {"name": "Ada", "age": 36}
GRACE: Final[dict[str, Any]] = {"name": "Grace", "age": 2}
# A program has no names for its questions on the live era.
HOLIDAY: Final[Answers] = {
    re.compile("Where would you like to go"): "coast",
    re.compile("How many of you"): 2,
    re.compile("traveler 1"): ADA,
    re.compile("traveler 2"): GRACE,
    re.compile("A cot for"): True,
    re.compile("Book it"): True,
}
BOOKED: Final = re.compile(r"Booked for Ada, Grace: the coast, with a cot, (\d+) euros\.")
