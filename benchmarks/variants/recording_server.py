"""roundtrip's `Server` as in `roundtrip_server`, with a transcript of every call."""

import atexit
import tempfile
from pathlib import Path
from typing import Final

from starlette.types import ASGIApp

from benchmarks.variants import roundtrip_server
from benchmarks.variants.variant import Variant
from benchmarks.workloads import Workload
from roundtrip import Recorder

_FOLDER: Final = tempfile.TemporaryDirectory(prefix="roundtrip-benchmarks-")
atexit.register(_FOLDER.cleanup)


def build(workload: Workload) -> ASGIApp:
    """Create a `Server` with the workload's tool, and a recorder."""
    return roundtrip_server.build(workload, trace=Recorder(Path(_FOLDER.name) / "calls.jsonl"))


VARIANT = Variant(
    name="recording",
    title="roundtrip, recording",
    imports="from roundtrip import Server",
    note="the same with Server(trace=...), into a file",
    build=build,
)
