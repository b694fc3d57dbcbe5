"""roundtrip's `Server`, with the same tools as the SDK's, and roundtrip's markers."""

from functools import partial
from typing import Final, Literal

from starlette.types import ASGIApp

from benchmarks.asgi import PATH
from benchmarks.variants.resolvers import Markers, register
from benchmarks.variants.variant import Variant
from benchmarks.workloads import KEY, Workload
from roundtrip import Elicit, Recorder, Resolve, Sample, Server

_MARKERS: Final = Markers(resolve=Resolve, elicit=Elicit, sample=Sample, once=partial(Resolve, remember=True))

_PROGRAM: Final = """\
from roundtrip import Server

server = Server("shop")

@server.tool()
def greet(name: str) -> str:
    return f"Hello, {name}!"
"""


def make(workload: Workload, *, trace: Recorder | Literal[False] = False) -> Server:
    """Create a `Server` with the workload's tool."""
    server = Server("bench", keys=[KEY], trace=trace)
    register(server, workload, markers=_MARKERS)
    return server


def build(workload: Workload, *, trace: Recorder | Literal[False] = False) -> ASGIApp:
    """Return the application for a `Server` with the workload's tool."""
    return make(workload, trace=trace).streamable_http_app(
        streamable_http_path=PATH, json_response=True, stateless_http=True
    )


VARIANT = Variant(
    name="roundtrip",
    title="roundtrip",
    imports="from roundtrip import Server",
    note="the SDK's tools with roundtrip's markers",
    build=build,
    program=_PROGRAM,
    serve=("-m", "roundtrip", "serve", "shop:server"),
    help=("-m", "roundtrip", "--help"),
)
