"""Arguments and results that break the rules of their types: each fails its own call."""

from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, model_serializer

from roundtrip import Server
from roundtrip.testing import Era, User

pytestmark = pytest.mark.anyio


class Shouted(BaseModel):
    x: int

    @model_serializer
    def shout(self):
        return {"x": f"{self.x}!"}


def returning() -> Server[Any]:
    server = Server[Any]("returning")

    @server.tool
    def numbers() -> list[float]:
        return [float("inf")]

    @server.tool
    def shouted() -> Shouted:
        return Shouted(x=1)

    return server


async def test_result_violating_its_own_schema_is_a_tool_failure(era: Era) -> None:
    # The client would raise, and the model never hear of it.
    assert "JSON has no number inf" in (await User(returning(), era=era).call("numbers")).text
    assert "does not fit the tool's output schema" in (await User(returning(), era=era).call("shouted")).text


@pytest.mark.parametrize("strict", [False, True])
async def test_arguments_that_would_take_for_ever_to_check_are_rejected(strict: bool) -> None:
    server = Server[Any]("checked", strict_input_validation=strict)

    @server.tool
    def matched(x: Annotated[str, Field(pattern=r"^(a+)+$")]) -> str:
        return x

    @server.tool
    def counted(x: list[int]) -> int:
        return len(x)

    assert "pattern" in (await User(server).call("matched", {"x": "a" * 50 + "!"})).text
    assert len((await User(server).call("counted", {"x": ["a"] * 10_000})).text) < 3000
