"""The rules and the dashboard of examples/metrics: Prometheus' own tool loads and tests them, and all names exist."""

import json
import re
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import anyio
import httpx
import pytest
import yaml
from mcp.shared.exceptions import MCPError
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import roundtrip.errors
from roundtrip import Context, Server, Telemetry
from roundtrip.testing import DECLINE, Era, LegByLeg, User
from tests.interaction.serving.services import KEY, Service
from tests.kit.hosts import ROOT, WAIT, free_port
from tests.kit.programs import needs

FOLDER: Final = ROOT / "examples" / "metrics"
RULES: Final = FOLDER / "roundtrip.rules.yml"


@needs("promtool")
@pytest.mark.parametrize("words", [("check", RULES.name), ("test", "roundtrip.rules.test.yml")])
def test_prometheus_loads_the_rules_and_they_fire_when_they_should(words: tuple[str, str]) -> None:
    command, file = words
    ran = subprocess.run(
        ["promtool", command, "rules", file], cwd=FOLDER, capture_output=True, text=True, timeout=WAIT, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "SUCCESS" in ran.stdout


@pytest.fixture(scope="module")
def exposed() -> dict[str, set[str]]:
    """Return the samples that a server exposes after calls of every kind, with their labels."""
    registry = CollectorRegistry()
    reader = PrometheusMetricReader(registry=registry)
    provider = MeterProvider([reader])
    server = Server[Any]("cinema", keys=[KEY], trace=Telemetry(meter_provider=provider))

    @server.tool()
    async def book(film: str, ctx: Context) -> str:
        seats = await ctx.ask("seats", "How many?", int)
        if film == "sold out":
            raise LookupError("sold out")
        return f"{film}: {seats}"

    async def calls() -> None:
        for era in (Era.RETRY, Era.LIVE):
            await User(server, {"seats": ["many", 2]}, era=era).call("book", film="Dune")
        await User(server, {"seats": 2}, allow_error=True).call("book", film="sold out")
        await User(server, {"seats": DECLINE}, allow_error=True).call("book", film="Dune")
        with pytest.raises(MCPError):
            await LegByLeg([server]).leg("book", {"film": "Dune"}, answers={}, state="r3s.x.y")

    anyio.run(calls)
    text = generate_latest(registry).decode()
    provider.shutdown()
    samples: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples.setdefault(sample.name, set()).update(sample.labels)
    return samples


def expressions() -> Generator[str]:
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        yield from (rule["expr"] for rule in group["rules"])
    dashboard = json.loads((FOLDER / "dashboard.json").read_text())
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    for variable in dashboard["templating"]["list"]:
        yield variable["query"]["query"]


def test_all_names_in_rules_and_dashboard_are_exposed(exposed: dict[str, set[str]]) -> None:
    labels_of_metrics = {label for labels in exposed.values() for label in labels}
    found = 0
    for expression in expressions():
        # A name before a brace, a bracket or a comma is a metric; the others are labels.
        metrics = set(re.findall(r"\b(roundtrip_\w+)(?=[{\[]|, roundtrip_tool\)| offset)", expression))
        assert metrics, expression
        for metric in metrics:
            assert metric in exposed, (metric, sorted(exposed))
        for label in re.findall(r"\b(\w+)(?=\s*[=!]~?\")", expression):
            assert all(label in exposed[metric] for metric in metrics), (label, expression)
        for listed in re.findall(r"by \(([^)]*)\)", expression):
            assert {name.strip() for name in listed.split(",")} <= labels_of_metrics, expression
        found += 1
    assert found > 10


def test_reasons_and_errors_in_the_rules_exist() -> None:
    from roundtrip.machine.facts import Reason

    rules = RULES.read_text()
    (left_out,) = re.findall(r'roundtrip_reason!~"([^"]+)"', rules)
    assert set(left_out.split("|")) <= {reason.value for reason in Reason}
    for name in set(re.findall(r'error_type="(\w+)"', rules)):
        assert hasattr(roundtrip.errors, name)


def test_server_of_the_example_is_scraped(tmp_path: Path) -> None:
    port = free_port()
    variables = {"METRICS_PORT": str(port), "ROUNDTRIP_KEYS": KEY}
    with Service(f"{FOLDER / 'serve.py'}:make_server", "--drain", "0", folder=tmp_path, **variables) as service:
        call = anyio.run(lambda: User(service.url, {"seats": 2}).call("book", film="Dune"))
        assert call.value == "Dune: 2 seats."
        told = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=WAIT).text
    labels = 'otel_scope_name="roundtrip"'
    (counted,) = [line for line in told.splitlines() if line.startswith("roundtrip_calls_total{")]
    assert labels in counted
    assert 'roundtrip_state="completed"' in counted
    assert counted.endswith(" 1.0")
