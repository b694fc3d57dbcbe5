"""`Telemetry` in processes with their own providers."""

import subprocess
import sys
from typing import Final

from tests.kit.hosts import ROOT, WAIT

PROVIDED: Final = """
import anyio
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from roundtrip import Telemetry
from roundtrip.testing import LegByLeg
from tests.kit.bookshop import bookshop

server = bookshop(trace=Telemetry())
exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
hopper = LegByLeg([server])
anyio.run(hopper.leg, "order", {"title": "Neuromancer"})
names = {span.context.span_id: span.name for span in exporter.get_finished_spans()}
print([names[span.parent.span_id] for span in exporter.get_finished_spans() if span.name.startswith("roundtrip.leg")])
"""


def run(program: str) -> str:
    """Run a program in a new process, and return its output."""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=WAIT)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_process_provider_is_used_even_when_set_later() -> None:
    assert run(PROVIDED) == "['tools/call order']"


def test_telemetry_needs_nothing_but_the_api() -> None:
    program = """
import sys
sys.modules["opentelemetry.sdk"] = None
import anyio
from roundtrip import Telemetry
from roundtrip.testing import LegByLeg
from tests.kit.bookshop import bookshop
anyio.run(LegByLeg([bookshop(trace=Telemetry())]).leg, "order", {"title": "Neuromancer"})
print(sorted(name for name in sys.modules if name.startswith("opentelemetry.sdk.")))
"""
    assert run(program) == "[]"
