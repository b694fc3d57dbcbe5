"""`roundtrip doctor` against real processes: its observations, its report and its exit code."""

import json
import socket
import time
import urllib.request
from collections.abc import Generator
from contextlib import ExitStack
from typing import Any

import pytest

from roundtrip.cli import main
from tests.interaction.doctor import shops
from tests.kit.hosts import WAIT, HttpProcess
from tests.kit.programs import is_found, needs
from tests.kit.redis_server import redis_server


class Town:
    """Two processes, which serve the same shops."""

    def __init__(self, processes: list[HttpProcess]) -> None:
        self._processes = processes

    def at(self, process: int, shop: str) -> str:
        return self._processes[process].url.replace("/mcp", f"/{shop}/mcp")


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Generator[Town]:
    folder = tmp_path_factory.mktemp("town")
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setenv(shops.FOLDER, str(folder))
        if is_found("redis"):
            patch.setenv(shops.REDIS, stack.enter_context(redis_server()).url)
        processes = [stack.enter_context(HttpProcess()) for _ in range(2)]
        for process in processes:
            process.start(shops.street)
        for process in processes:
            _wait_for(process.url.replace("/mcp", "/website/mcp"))
        yield Town(processes)


def _wait_for(url: str) -> None:
    ends = time.monotonic() + 3 * WAIT
    # The socket is there before the process listens to it, so one request waits for as long as it takes.
    with urllib.request.urlopen(url, timeout=ends - time.monotonic()) as response:
        assert response.status == 200


class Report:
    """The report of one run, as JSON."""

    def __init__(self, code: int, data: dict[str, Any]) -> None:
        self.code = code
        self.data = data

    def levels(self, topic: str) -> list[str]:
        return [finding["level"] for finding in self.data["findings"] if finding["topic"] == topic]

    def said(self, topic: str) -> str:
        return " ".join(
            f"{finding['text']} {finding['advice']}" for finding in self.data["findings"] if finding["topic"] == topic
        )

    @property
    def problems(self) -> set[str]:
        return {finding["topic"] for finding in self.data["findings"] if finding["level"] == "problem"}


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]) -> Any:
    def visit(*arguments: str) -> Report:
        code = main(["doctor", "--json", "--timeout", "60", *arguments])
        return Report(code, json.loads(capsys.readouterr().out))

    return visit


def test_two_instances_that_fit_together_are_found_in_order(town: Town, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", town.at(0, "plain"), town.at(1, "plain")]) == 0
    told = capsys.readouterr().out
    assert "2 instances met: no problems" in told
    assert "2 calls started on one instance and ended on another" in told
    assert "\x1b" not in told
    assert main(["doctor", "python server.py"]) == 2
    assert "URL must be an http(s) address" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("shop", "other", "cause", "told"),
    [
        (
            "plain",
            "other-keys",
            "keys",
            "because the second instance does not know the key: from #1 to #2, from #2 to #1",
        ),
        ("plain", "other-audience", "audience", "because the audiences differ"),
        ("other-principal", "other-principal", "caller", "because the instances see different callers"),
    ],
)
def test_rejected_calls_are_explained_by_their_cause(
    town: Town, doctor: Any, shop: str, other: str, cause: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    urls = [town.at(0, shop), town.at(1, other)]
    report = doctor(*urls)
    assert report.code == 1
    assert report.problems == {cause, "calls"}
    assert told in report.said("calls")
    if cause == "keys":
        assert "#1 has no key in common with #2" in report.said("keys")
    if cause == "audience":
        assert main(["doctor", *urls]) == 1
        assert "\x1b" not in capsys.readouterr().out


def test_another_build_is_only_a_note_that_names_the_tools(town: Town, doctor: Any) -> None:
    report = doctor(town.at(0, "plain"), town.at(1, "next-build"))
    assert report.code == 0
    assert report.levels("build") == ["note"]
    assert "(hidden), refund" in report.said("build")
    assert "launder" not in json.dumps(report.data)


def test_ten_minutes_of_skew_names_the_wrong_clock(town: Town, doctor: Any) -> None:
    report = doctor(town.at(0, "plain"), town.at(1, "plain"), town.at(1, "far-behind"))
    assert report.problems == {"clock", "calls"}
    assert "#3's clock is 10.0 min behind" in report.said("clock")
    assert "NTP" in report.said("clock")
    # Around the ring of three, both ways.
    assert len({(journey["start"], journey["end"]) for journey in report.data["journeys"]}) == 6
    assert "because the clocks differ" in report.said("calls")


def test_answers_without_an_end_are_not_read_to_it(town: Town, doctor: Any) -> None:
    report = doctor(town.at(0, "endless"))
    assert [place["trouble"] for place in report.data["places"]] == ["not-mcp"]
    assert "larger than" in report.said("reach")
    # A readiness route that says no, without an end too: there the status is enough.
    report = doctor(town.at(0, "plain"), "--header", f"{shops.ENDLESS}: yes")
    assert report.problems == {"reach"}
    assert "not ready" in report.said("reach")


@pytest.mark.parametrize(
    ("shop", "ledger"),
    [("paying", "SqliteLedger"), pytest.param("paying-in-redis", "RedisLedger", marks=needs("redis"))],
)
def test_ledger_shared_by_two_processes_counts_as_one(town: Town, doctor: Any, shop: str, ledger: str) -> None:
    report = doctor(town.at(0, shop), town.at(1, shop))
    assert report.code == 0
    assert f"#1 and #2 share one ledger ({ledger})" in report.said("ledger")


def test_ledgers_that_are_not_shared_or_down_are_a_problem(town: Town, doctor: Any) -> None:
    report = doctor(town.at(0, "paying"), town.at(1, "paying-alone"))
    assert report.problems == {"ledger"}
    assert "#2: the ledger lacks the mark that #1 set" in report.said("ledger")
    assert "serves one process" in report.said("ledger")
    report = doctor(town.at(0, "paying-in-vain"), town.at(1, "paying"))
    assert report.problems == {"ledger"}
    assert "#1: the ledger does not answer" in report.said("ledger")
    assert "missing" not in json.dumps(report.data)


def test_fewer_instances_than_expected_are_a_problem(town: Town, doctor: Any) -> None:
    assert doctor(town.at(0, "balanced"), "--expect", "3").code == 0
    report = doctor(town.at(0, "balanced"), "--expect", "4")
    assert report.code == 1
    assert "found 3 of 4 instances" in report.said("instances")


def test_unprobed_items_are_listed_and_the_rest_continues(
    town: Town, doctor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        closed_port = f"http://127.0.0.1:{closed.getsockname()[1]}/mcp"
    urls = {
        closed_port: "unreachable",
        town.at(0, "without-probe"): "no-probe",
        town.at(0, "website"): "not-mcp",
        town.at(0, "nowhere"): "not-found",
        town.at(0, "locked"): "forbidden",
        town.at(0, "plain").replace("http:", "https:"): "tls",
    }
    report = doctor(*urls, town.at(0, "plain"), town.at(1, "plain"))
    assert {place["url"]: place["trouble"] for place in report.data["places"][:-2]} == urls
    assert report.levels("reach") == ["problem"] * len(urls)
    assert "ROUNDTRIP_PROBE=1" in report.said("reach")
    assert "FastMCP and SDK servers cannot be probed" in report.said("reach")
    assert report.levels("keys") == ["ok"]
    assert report.code == 1
    unanswered = doctor(town.at(0, "without-probe"))
    assert (unanswered.code, unanswered.data["instances"]) == (2, [])
    monkeypatch.setenv("PASSWORD", shops.PASSWORD)
    assert doctor(town.at(0, "locked"), "--header", "Authorization: ${PASSWORD}").code == 0


def test_older_clients_are_askable_with_sessions(town: Town, doctor: Any) -> None:
    report = doctor(town.at(0, "with-sessions"))
    assert (report.levels("older clients"), report.levels("apps")) == (["ok"], [])
    assert doctor(town.at(0, "with-pages")).levels("apps") == ["ok"]
    for name in ("plain", "with-pages"):
        report = doctor(town.at(0, name))
        assert report.levels("older clients") == ["note"]
        assert "stateless_http=False" in report.said("older clients")
        assert "Unknown tool" not in report.said("older clients")
