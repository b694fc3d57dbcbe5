"""`roundtrip serve` with servers of FastMCP and of the SDK, with real processes and real clients."""

import json
import re
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import anyio
import pytest

from roundtrip.testing import ACCEPT, Era, User
from tests.interaction.serving.other_shops import BOOKED, LEDGER
from tests.interaction.serving.services import KEY, Service, refused

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="workers are found in /proc"),
]

SHOPS = "tests.interaction.serving.other_shops"
KINDS = ("fastmcp_shop", "mcpserver_shop", "low_level_shop")
ANSWERS: dict[Any, Any] = {re.compile("Book"): ACCEPT, re.compile("How many"): 2}
MAX_BODY = 20_000


def variables(folder: Path) -> dict[str, str]:
    return {LEDGER: str(folder / "ledger.db"), BOOKED: str(folder / "booked"), "ROUNDTRIP_KEYS": KEY}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Generator[Service]:
    folder = tmp_path_factory.mktemp("fleet")
    flags = ("--workers", "2", "--drain", "0", "--max-body", str(MAX_BODY))
    with Service(f"{SHOPS}:fastmcp_shop", *flags, folder=folder, **variables(folder)) as service:
        yield service


async def test_any_worker_continues_a_call_and_repeats_no_body(fleet: Service) -> None:
    assert len(fleet.workers()) == 2
    for number in range(6):
        call = await User(fleet.url, ANSWERS, network="duplicate").call("book", film=f"film {number}")
        assert call.value == f"film {number}, 2"
    booked = (fleet.folder / "booked").read_text().split("\n")
    assert sorted(filter(None, booked)) == [f"film {number}" for number in range(6)]


def test_settings_hold_for_every_class(fleet: Service) -> None:
    assert fleet.get("/health/ready") == (200, {"status": "ready"})
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    body = json.dumps(request).encode()
    assert fleet.post("/mcp", body, Host="evil.example")[0] == 421
    # Routes take a path with a line feed at its end for the path.
    assert fleet.post("/mcp%0A", body, Host="evil.example")[0] in (404, 421)
    assert fleet.post("/mcp", body, Origin="https://evil.example")[0] == 403
    large = json.dumps({**request, "params": {"text": "x" * MAX_BODY}}).encode()
    assert fleet.post("/mcp", large)[0] == 413
    many = json.dumps({**request, "params": {"list": [0] * 60_000}}, separators=(",", ":")).encode()
    assert fleet.post("/mcp", many)[0] == 413
    # So large that much of it is not read when the answer is sent: the connection must not be reset before.
    assert [fleet.post("/mcp", b"x" * 8_000_000)[0] for _ in range(5)] == [413] * 5


def test_pages_of_the_author_are_not_limited_as_mcp_is(fleet: Service) -> None:
    """Browsers send `Origin: null` from a page with a strict policy, such as a question page."""
    body = b"1," * 80_000
    assert fleet.post("/upload", body, Origin="null") == (200, str(len(body)))
    assert fleet.post("/mcp", b"{}", Origin="null")[0] == 403


@pytest.mark.parametrize("kind", KINDS)
async def test_one_worker_asks_clients_of_both_eras(kind: str, tmp_path: Path) -> None:
    with Service(f"{SHOPS}:{kind}", "--drain", "0", folder=tmp_path, **variables(tmp_path)) as service:
        for era in (Era.RETRY, Era.LIVE):
            assert (await User(service.url, ANSWERS, era=era).call("book", film=era.name)).value == f"{era.name}, 2"
        many = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"list": [0] * 60_000}})
        status, _ = await anyio.to_thread.run_sync(lambda: service.post("/mcp", many.encode()))
        assert status == 413
        service.signal(signal.SIGTERM)
        assert await anyio.to_thread.run_sync(service.ended) == 0


@pytest.mark.parametrize(
    ("kind", "given", "why"),
    [
        ("plain_shop", {}, "roundtrip is not installed on this server; call install"),
        (
            "mounting_shop",
            {},
            "tools that run once (exactly_once=, once_per=) need a ledger that all workers share, but MemoryLedger",
        ),
        ("mcpserver_shop", {"ROUNDTRIP_KEYS": ""}, "each worker would make its own key"),
    ],
)
def test_workers_that_would_lose_calls_do_not_start(kind: str, given: dict[str, str], why: str, tmp_path: Path) -> None:
    given = {name: value for name, value in {**variables(tmp_path), **given}.items() if value}
    assert why in refused(f"{SHOPS}:{kind}", "--workers", "2", folder=tmp_path, **given)


async def test_server_without_roundtrip_is_served_by_one_worker(tmp_path: Path) -> None:
    with Service(f"{SHOPS}:plain_shop", "--drain", "0", folder=tmp_path, ROUNDTRIP_PROBE="1") as service:
        assert any("ROUNDTRIP_PROBE is ignored: only a roundtrip.Server has the probe" in line for line in service.log)
        for era in (Era.RETRY, Era.LIVE):
            assert (await User(service.url, era=era).call("ping")).value == "pong"
