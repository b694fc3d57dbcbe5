"""A client that times out and calls again gets the result of its first call, from any worker of `roundtrip serve`."""

from collections.abc import Generator
from pathlib import Path
from typing import Final

import anyio
import pytest
from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, ElicitRequestParams, ElicitResult

from roundtrip.once.intents import RECALLED_META
from roundtrip.testing import Era
from tests.clients.intent_shop import GATE, ran
from tests.interaction.serving.services import Service
from tests.kit.players import Person, connect, text_of
from tests.kit.waiting import until

pytestmark = pytest.mark.anyio

ORDER: Final = {"order": "7"}
_SOON: Final = 0.5
"""Read timeout of a client in a hurry. The body ends only after it."""


@pytest.fixture(params=[Era.RETRY, Era.LIVE], ids=lambda era: f"then {era.name.lower()}")
def other_era(request: pytest.FixtureRequest) -> Era:
    return request.param


@pytest.fixture
def service(tmp_path: Path) -> Generator[Service]:
    with Service("tests.clients.intent_shop:fleet", "--workers", "2", folder=tmp_path) as service:
        yield service


async def gives_up(client: Client) -> None:
    with pytest.raises(MCPError, match=r"[Tt]imed out"):
        await client.call_tool("deliver", ORDER, read_timeout_seconds=_SOON)


async def recalled(service: Service, era: Era, tool: str) -> CallToolResult:
    """Call a tool over a new connection, which either worker may serve, and check that its result was there."""
    async with connect(service.url, era, Person()) as client:
        result = await client.call_tool(tool, ORDER)
    assert (result.meta or {}).get(RECALLED_META)
    return result


async def test_call_after_a_timeout_joins_the_body_that_runs(service: Service, tmp_path: Path, era: Era) -> None:
    async with connect(service.url, era) as client:
        await gives_up(client)
        await until(lambda: ran(tmp_path))
        for _ in range(3):
            await gives_up(client)
            async with connect(service.url, era) as other:
                await gives_up(other)
        (tmp_path / GATE).touch()
        result = await client.call_tool("deliver", ORDER)
    assert text_of(result) == "deliver 7 as number 1"
    for _ in range(4):
        assert text_of(await recalled(service, era, "deliver")) == text_of(result)
    assert ran(tmp_path) == ["deliver 7"]


async def test_call_after_a_timeout_gets_the_result_of_a_body_that_ended(
    service: Service, tmp_path: Path, era: Era
) -> None:
    async with connect(service.url, era) as client:
        await gives_up(client)
        await until(lambda: ran(tmp_path))
    (tmp_path / GATE).touch()
    texts = {text_of(await recalled(service, era, "deliver")) for _ in range(4)}
    assert texts == {"deliver 7 as number 1"}
    assert ran(tmp_path) == ["deliver 7"]


async def test_user_whose_client_left_is_asked_by_the_next_client(
    service: Service, tmp_path: Path, era: Era, other_era: Era
) -> None:
    is_asked = anyio.Event()

    async def never(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        del context, params
        is_asked.set()
        await anyio.sleep_forever()
        raise AssertionError

    async def ask() -> None:
        async with Client(service.url, mode=era.value, elicitation_callback=never) as client:
            await client.call_tool("wrap", ORDER)

    person = Person({"value": 3})
    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await is_asked.wait()
        async with connect(service.url, other_era, person) as client:
            assert text_of(await client.call_tool("wrap", ORDER)) == "wrap 7 in 3 as number 1"
        group.cancel_scope.cancel()
    assert person.messages == ["How many sheets?"]
    assert text_of(await recalled(service, era, "wrap")) == "wrap 7 in 3 as number 1"
    assert ran(tmp_path) == ["wrap 7 in 3"]


async def test_call_of_another_worker_is_recalled(service: Service, tmp_path: Path, era: Era) -> None:
    person = Person({"value": 3})
    async with connect(service.url, era, person) as client:
        result = await client.call_tool("wrap", ORDER)
    assert person.messages == ["How many sheets?"]
    for each in (Era.RETRY, Era.LIVE) * 2:
        assert text_of(await recalled(service, each, "wrap")) == text_of(result) == "wrap 7 in 3 as number 1"
    assert ran(tmp_path) == ["wrap 7 in 3"]
