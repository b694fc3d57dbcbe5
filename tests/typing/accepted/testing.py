"""Types that an editor infers of the testing kit."""

import re
from collections.abc import Sequence
from typing import assert_type

from mcp_types import CallToolResult, InputRequiredResult
from pydantic import BaseModel

from roundtrip import Server, State
from roundtrip.testing import (
    ACCEPT,
    DECLINE,
    Answers,
    AskedQuestion,
    Conversation,
    Explored,
    Hop,
    LegByLeg,
    User,
    assert_same_on_both_eras,
    paths,
)


class Seat(BaseModel):
    row: str


def is_seat(question: AskedQuestion) -> bool:
    return question.name == "seat"


def make(keys: Sequence[bytes]) -> Server:
    return Server("cinema", keys=keys)


server = Server("cinema")
users = [
    User(server, answers={"seat": {"row": "back"}, "agree": ACCEPT, "size": 2, "again": [DECLINE, {"row": "front"}]}),
    User(server, answers=[{"seat": Seat(row="back")}, {"agree": ACCEPT, "size": 2}]),
    User(make, answers={re.compile("row"): "back"}, network=[Hop(), "replay"]),
    User("http://127.0.0.1:8000/mcp", answers={is_seat: "back"}),
]


async def calls(answers: Answers) -> None:
    call = await User(server, answers).call("book", film="Solaris")
    assert_type(call, Conversation)
    assert_type(call.questions, list[AskedQuestion])
    assert_type(call.states, list[State] | None)
    assert_type(call.text, str)
    await assert_same_on_both_eras(server, "book", answers={"seat": "back", "agree": ACCEPT})
    assert_type(await paths(server, "book", answers={"seat": "back", "size": 2}), Explored)
    assert_type(await LegByLeg(server).leg("book"), CallToolResult | InputRequiredResult)
