"""`roundtrip serve`, with real processes and real clients."""

import json
import os
import re
import signal
import socket
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import httpx2
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult

from roundtrip.cli import main
from roundtrip.testing import Era
from tests.interaction.serving.services import KEY, WAIT, InterpretedService, Service, eventually, refused
from tests.kit.hosts import ROOT
from tests.kit.players import Person, call, connect, text_of

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="workers are found in /proc"),
]


@pytest.fixture(scope="module", params=[True, False], ids=["fast", "plain"])
def fleet(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Generator[Service]:
    """Start two workers, whose keys are in a file, with uvloop, httptools and rich, and as if these were missing."""
    folder = tmp_path_factory.mktemp("fleet")
    assert main(["keys", "new", str(folder / "keys")]) == 0
    variables = {"ROUNDTRIP_KEY_FILE": str(folder / "keys")}
    fast = ("uvloop", "httptools")
    if not request.param:
        for name in (*fast, "rich"):
            (folder / f"{name}.py").write_text(f"raise ImportError({name!r}, name={name!r})")
        variables["PYTHONPATH"] = f"{folder}{os.pathsep}{ROOT}"
    with Service("shop", "--workers", "2", "--drain", "0.3", folder=folder, **variables) as service:
        for worker in service.workers():
            mapped = Path(f"/proc/{worker}/maps").read_text()
            assert [name in mapped for name in fast] == [request.param] * len(fast)
        yield service


async def _in_thread(what: Any, *arguments: Any) -> Any:
    with anyio.fail_after(WAIT):
        return await anyio.to_thread.run_sync(what, *arguments)


async def _said(service: Service, *texts: str) -> None:
    """Wait until all texts are in the log of a service."""
    await _in_thread(eventually, lambda: all(any(text in line for line in service.log) for text in texts))


async def test_fleet_answers_and_reports_ready(fleet: Service) -> None:
    for worker in fleet.workers():
        assert any(re.match(rf"20[0-9-]+ [0-9:,]+ INFO \[{worker}\] ", line) for line in fleet.log), fleet.log
    assert text_of(await call(fleet.url, Era.RETRY, "agree", {}, {"value": True})) == "agreed: True"
    assert text_of(await call(fleet.url, Era.LIVE, "slowly", {"seconds": 0})) == "done"
    assert fleet.get("/health/live") == (200, {"status": "live"})
    assert fleet.get("/health/ready") == (200, {"status": "ready"})
    assert len(fleet.workers()) == 2


async def test_progress_arrives_although_most_answers_are_one_body(fleet: Service, era: Era) -> None:
    seen: list[float] = []

    async def told(progress: float, total: float | None, message: str | None) -> None:
        del total, message
        seen.append(progress)

    async with connect(fleet.url, era) as client:
        await client.call_tool("count", {"to": 3}, progress_callback=told)
    assert seen == [0, 1, 2]


async def test_name_that_is_not_the_servers_is_refused(fleet: Service) -> None:
    assert fleet.get("/mcp", Host="evil.example")[0] == 421
    assert fleet.get("/health/ready", Host="10.0.0.7:8000")[0] == 200


async def test_workers_ask_clients_of_both_eras(fleet: Service, era: Era) -> None:
    for value in (True, False) * 5:
        assert text_of(await call(fleet.url, era, "agree", {}, {"value": value})) == f"agreed: {value}"


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_workers_unable_to_ask_older_clients_say_so(workers: str, tmp_path: Path) -> None:
    flags = ("--no-sessions", "--workers", workers)
    with Service("shop", *flags, folder=tmp_path, ROUNDTRIP_KEYS=KEY) as service:
        async with connect(service.url, Era.LIVE, Person({"value": True})) as client:
            with pytest.raises(MCPError, match="way back"), anyio.fail_after(WAIT):
                await client.call_tool("agree", {})
        fails = "each tool that asks them fails"
        await _said(service, "--no-sessions", fails, "tool 'agree' could not ask 'python-httpx")


def _ignores_being_hung_up_on(worker: int) -> bool:
    status = Path(f"/proc/{worker}/status").read_text()
    ignored = next(line for line in status.splitlines() if line.startswith("SigIgn:"))
    return bool(int(ignored.split()[1], 16) & 1 << signal.SIGHUP - 1)


async def test_replacement_of_a_killed_worker_survives_a_signal(fleet: Service) -> None:
    before = fleet.workers()
    os.kill(min(before), signal.SIGKILL)
    await _in_thread(eventually, lambda: bool(fleet.workers() - before))
    (new,) = fleet.workers() - before
    os.kill(new, signal.SIGHUP)
    await _in_thread(eventually, lambda: _ignores_being_hung_up_on(new))
    assert text_of(await call(fleet.url, Era.RETRY, "slowly", {"seconds": 0})) == "done"
    assert fleet.workers() == before - {min(before)} | {new}


async def _roll(fleet: Service) -> None:
    before = fleet.workers()
    rolls = sum("replaced all workers" in line for line in fleet.log)
    fleet.signal(signal.SIGHUP)
    await _in_thread(eventually, lambda: sum("replaced all workers" in line for line in fleet.log) > rolls)
    assert not before & fleet.workers()


async def test_replacing_keys_worker_by_worker_loses_no_call(fleet: Service) -> None:
    path = fleet.folder / "keys"
    before = path.read_text()
    finished = 0
    rolled = False

    async def keep_calling() -> None:
        nonlocal finished
        async with connect(fleet.url, Era.RETRY) as client:
            while not rolled:
                assert text_of(await client.call_tool("slowly", {"seconds": 0.05})) == "done"
                finished += 1

    class Slow(Person):
        async def __call__(self, context: Any, params: Any) -> Any:
            # Workers that do not know the second key cannot be replaced by workers that sign with it.
            assert [main(["keys", "rotate", str(path)]) for _ in range(2)] == [0, 0]
            fleet.signal(signal.SIGHUP)
            await _in_thread(eventually, lambda: any("keys rotate FILE --back" in line for line in fleet.log))
            # The first key has signed this call; then another one signs, and the first is known still.
            for option in (["--back"], []):
                assert main(["keys", "rotate", str(path), *option]) == 0
                await _roll(fleet)
            return await super().__call__(context, params)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keep_calling)
        async with connect(fleet.url, Era.RETRY, Slow({"value": True})) as client:
            assert text_of(await client.call_tool("agree", {})) == "agreed: True"
        rolled = True
    assert finished
    assert path.read_text() != before


async def test_legs_running_at_shutdown_are_answered(tmp_path: Path) -> None:
    answers: list[str] = []
    gate = tmp_path / "gate"

    async def leg(url: str, era: Era) -> None:
        async with connect(url, era) as client:
            # The client holds results against the listing, which it would fetch after the service has gone.
            await client.list_tools()
            told = await client.call_tool("slowly", {"gate": str(gate), "begun": str(tmp_path / era.name)})
            answers.append(text_of(told))

    flags = ("--workers", "2", "--drain", str(WAIT))
    with Service("shop", *flags, folder=tmp_path, ROUNDTRIP_KEYS=KEY) as service:
        async with anyio.create_task_group() as tasks:
            for era in (Era.RETRY, Era.LIVE):
                tasks.start_soon(leg, service.url, era)
            await _in_thread(eventually, lambda: all((tmp_path / era.name).exists() for era in (Era.RETRY, Era.LIVE)))
            service.signal(signal.SIGTERM)
            await _in_thread(eventually, lambda: service.get("/health/ready") == (503, {"status": "stopping"}))
            assert service.get("/health/live")[0] == 200
            # The rest of the drain is left out. Only a second interrupt would abort the legs.
            service.signal(signal.SIGINT)
            await anyio.sleep(0.5)
            gate.touch()
        assert answers == ["done", "done"]
        assert await _in_thread(service.ended) == 0


async def test_single_worker_asks_clients_of_both_eras(tmp_path: Path, era: Era) -> None:
    with Service("shop", folder=tmp_path) as service:
        assert not any("2025-11-25" in line for line in service.log)
        assert text_of(await call(service.url, era, "agree", {}, {"value": True})) == "agreed: True"
        assert any("made its own key" in line for line in service.log)
        service.signal(signal.SIGTERM)
        assert await _in_thread(service.ended) == 0


async def test_live_question_ends_with_its_process(tmp_path: Path) -> None:
    asked = anyio.Event()

    async def ponders(context: object, params: object) -> ElicitResult:
        del context, params
        asked.set()
        await anyio.sleep_forever()
        raise AssertionError

    async def call_in_vain(url: str) -> None:
        async with Client(url, mode="legacy", elicitation_callback=ponders) as client:
            with pytest.raises(MCPError, match="server is stopping"):
                await client.call_tool("agree", {})

    flags = ("--sessions", "--drain", "0", "--timeout-graceful-shutdown", str(2 * WAIT))
    with Service("shop", *flags, folder=tmp_path, ROUNDTRIP_KEYS=KEY) as service:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call_in_vain, service.url)
            with anyio.fail_after(WAIT):
                await asked.wait()
            service.signal(signal.SIGTERM)
            assert await _in_thread(service.ended) == 0
    assert not any("ERROR" in line for line in service.log)


async def test_a_server_that_cannot_reach_its_ledger_is_not_ready(tmp_path: Path) -> None:
    with Service("with_redis", folder=tmp_path, ROUNDTRIP_KEYS=KEY) as service:
        status, told = service.get("/health/ready")
        assert (status, told["status"]) == (503, "unavailable")
        assert "127.0.0.1" not in json.dumps(told)
        assert service.get("/health/live")[0] == 200


@pytest.mark.parametrize(
    ("workers", "tool", "era"), [("1", "stubbornly", Era.RETRY), ("2", "slowly", Era.RETRY), ("1", "slowly", Era.LIVE)]
)
async def test_legs_beyond_the_grace_period_are_cut_and_reported(
    tmp_path: Path, workers: str, tool: str, era: Era
) -> None:
    begun = tmp_path / "begun"
    flags = ("--workers", workers, "--drain", "0", "--timeout-graceful-shutdown", "0.3")

    cut: list[MCPError] = []

    async def leg(url: str) -> None:
        async with connect(url, era) as client:
            with pytest.raises(MCPError) as raised:
                await client.call_tool(tool, {"seconds": 2 * WAIT, "begun": str(begun)})
            cut.append(raised.value)

    with Service("shop", *flags, folder=tmp_path, ROUNDTRIP_KEYS=KEY) as service:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(leg, service.url)
            await _in_thread(eventually, begun.exists)
            service.signal(signal.SIGTERM)
            assert await _in_thread(service.ended) == 1
    (error,) = cut
    assert error.error.message == "the server stopped while this call ran, so its outcome is unknown"
    assert error.error.data == {"reason": "server_stopped"}
    assert any("INFO [" in line for line in service.log), "readers of the log find a time and a process"


@pytest.mark.parametrize(
    ("target", "flags", "told"),
    [
        ("shop", ("--workers", "2"), "roundtrip keys new"),
        ("keyed_by_process", ("--workers", "2"), "different keys"),
        ("raise ValueError('x' * 200_000)", ("--workers", "2"), "ValueError: xxx"),
        ("import sys; sys.exit(0)", (), "SystemExit: 0"),
    ],
    ids=["no key", "different keys", "failing import", "exit"],
)
def test_workers_that_cannot_serve_do_not_start(target: str, flags: tuple[str, ...], told: str, tmp_path: Path) -> None:
    if " " in target:
        module = tmp_path / "module.py"
        module.write_text(target)
        target = f"{module}:server"
    assert told in refused(target, *flags, folder=tmp_path)


async def test_origin_that_was_not_allowed_is_rejected_on_any_host(tmp_path: Path) -> None:
    flags = ("--host", "0.0.0.0", "--allowed-origin", "https://app.example.com")
    with Service("shop", *flags, folder=tmp_path, ROUNDTRIP_KEYS=KEY) as service:
        assert service.get("/mcp", Host="any.example", Origin="https://evil.example")[0] == 403
        # A newline at the end of the path leads to the same route.
        assert service.get("/mcp%0A", Host="any.example", Origin="https://evil.example")[0] == 403
        assert service.get("/mcp", Host="any.example", Origin="https://app.example.com")[0] != 403


_FEW_FILES = """
import resource
from tests.interaction.serving.shops import shop as server
resource.setrlimit(resource.RLIMIT_NOFILE, (96, 96))
"""


def test_half_sent_requests_stop_neither_health_nor_fill_the_log(tmp_path: Path) -> None:
    module = tmp_path / "few_files.py"
    module.write_text(_FEW_FILES)
    with Service(f"{module}:server", "--workers", "2", folder=tmp_path, ROUNDTRIP_KEYS=KEY) as service:
        address = urlsplit(service.url)
        held: list[socket.socket] = []
        try:
            for _ in range(300):
                held.append(socket.create_connection((str(address.hostname), int(address.port or 0)), WAIT))
                held[-1].sendall(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n")
            assert [service.get("/health/ready")[0] for _ in range(10)] == [200] * 10
        finally:
            for one in held:
                one.close()
        assert service.get("/health/live")[0] == 200
    assert len("".join(service.log)) < 20_000


_HEAD: Final = (
    b"POST /mcp HTTP/1.1\r\nHost: localhost\r\naccept: application/json, text/event-stream\r\n"
    b"content-type: application/json\r\n"
)


def test_requests_that_are_too_large_are_rejected(tmp_path: Path) -> None:
    with Service("shop", "--max-body", "2000", folder=tmp_path, ROUNDTRIP_KEYS=KEY) as service:
        for version in ("2026-07-28", "2025-11-25"):
            told = service.post("/mcp", b" " * 3000, **{"mcp-protocol-version": version})
            assert told[0] == 413
            address = urlsplit(service.url)
            with socket.create_connection((str(address.hostname), int(address.port or 0)), WAIT) as one:
                # The length alone, without a body.
                one.sendall(_HEAD + b"mcp-protocol-version: %s\r\ncontent-length: 3000\r\n\r\n" % version.encode())
                assert one.recv(100).startswith(b"HTTP/1.1 413 ")


async def _told(url: str, era: Era, tool: str) -> str:
    async with connect(url, era) as client:
        return text_of(await client.call_tool(tool, {"code": 4711}))


@pytest.mark.parametrize(
    ("target", "flags", "shown", "logged"),
    [
        ("shop", (), False, None),
        ("shop", ("--show-errors",), True, "has no authentication"),
        ("outspoken", (), True, "has no authentication"),
        ("discreet", ("--show-errors",), False, "--show-errors has no effect"),
    ],
)
async def test_error_details_appear_where_author_or_flag_allow(
    tmp_path: Path, target: str, flags: tuple[str, ...], shown: bool, logged: str | None
) -> None:
    with Service(target, *flags, folder=tmp_path, ROUNDTRIP_KEYS=KEY) as service:
        for era in (Era.RETRY, Era.LIVE):
            assert ("crashed with 4711" in await _told(service.url, era, "crash")) is shown
            assert "complains of 4711" in await _told(service.url, era, "complain")
    said = "".join(service.log)
    for warning in ("has no authentication", "--show-errors has no effect"):
        assert (warning in said) is (warning == logged)


def test_a_doctor_counts_the_workers_and_is_in_no_transcript(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "calls.jsonl"
    variables = {"ROUNDTRIP_KEYS": KEY, "ROUNDTRIP_PROBE": "1", "ROUNDTRIP_TRACE": str(path)}
    with Service("shop", "--workers", "3", folder=tmp_path, **variables) as service:
        assert main(["doctor", "--json", "--timeout", "30", service.url]) == 0
        told = json.loads(capsys.readouterr().out)
        arguments: dict[str, Any] = {}
        anyio.run(call, service.url, Era.RETRY, "agree", arguments, {"value": True})
    assert told["sought"] == 3
    (finding,) = [finding for finding in told["findings"] if finding["topic"] == "instances"]
    # Which of them accept is for the system to decide, as long as those that were met are counted.
    met = "found 3, as many as the servers report"
    assert finding["text"] in (met, f"found {told['met']} of 3 workers; the others were not compared")
    assert (told["met"] == 3) is (finding["text"] == met)
    assert [json.loads(line)["tool"] for line in path.read_text().splitlines() if '"began"' in line] == ["agree"] * 2


def test_the_access_log_holds_no_ticket(tmp_path: Path) -> None:
    ticket = f"rt1.WyJjYWxsIl0.{'s' * 43}"
    with Service("shop", "--access-log", folder=tmp_path) as service:
        assert service.get(f"/health/live?t={ticket}&page=1")[0] == 200
    log = "".join(service.log)
    assert '"GET /health/live?t=<ticket>&page=1 HTTP/1.1" 200' in log
    assert ticket not in log


async def test_plain_function_running_at_shutdown_is_waited_for(tmp_path: Path) -> None:
    begun, exited, answers = tmp_path / "begun", tmp_path / "exited", list[str]()

    async def leg(url: str) -> None:
        async with connect(url, Era.RETRY) as client:
            # The client holds results against the listing, which it would fetch after the service has gone.
            await client.list_tools()
            paths = {"begun": str(begun), "exited": str(exited)}
            answers.append(text_of(await client.call_tool("hold", {"seconds": 1, **paths})))

    with Service("shop", "--workers", "2", "--drain", "0", folder=tmp_path, ROUNDTRIP_KEYS=KEY) as service:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(leg, service.url)
            await _in_thread(eventually, begun.exists)
            service.signal(signal.SIGTERM)
        assert await _in_thread(service.ended) == 0
    assert answers == ["done"]
    assert exited.exists()


async def test_plain_function_does_not_delay_the_end_of_its_process(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    flags = ("--drain", "0", "--timeout-graceful-shutdown", "0.3")

    async def leg(url: str) -> None:
        paths = {"begun": str(begun), "exited": str(tmp_path / "exited")}
        try:
            await call(url, Era.RETRY, "hold", {"seconds": 10 * WAIT, **paths})
        # The second if the response has not begun.
        except* (MCPError, httpx2.RemoteProtocolError):
            pass

    with InterpretedService("shop", *flags, folder=tmp_path, ROUNDTRIP_KEYS=KEY) as service:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(leg, service.url)
            await _in_thread(eventually, begun.exists)
            service.signal(signal.SIGTERM)
            # Far less than the function takes.
            assert await _in_thread(service.ended) == 1
    assert any("ended while work was still running" in line for line in service.log)
