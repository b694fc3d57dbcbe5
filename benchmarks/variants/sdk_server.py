"""The SDK's `MCPServer` with its own `Resolve`."""

from typing import Final

from mcp.server import MCPServer
from mcp.server.mcpserver import Elicit, Resolve, Sample
from mcp.server.request_state import RequestStateSecurity
from starlette.types import ASGIApp

from benchmarks.asgi import PATH
from benchmarks.variants.resolvers import Markers, register
from benchmarks.variants.variant import Variant
from benchmarks.workloads import KEY, Workload

_PROGRAM: Final = """\
from mcp.server import MCPServer

server = MCPServer("shop")

@server.tool()
def greet(name: str) -> str:
    return f"Hello, {name}!"

app = server.streamable_http_app()
"""


def build(workload: Workload) -> ASGIApp | None:
    """Create an `MCPServer` with the workload's tool."""
    server: MCPServer[None] = MCPServer("bench", request_state_security=RequestStateSecurity(keys=[KEY]))
    if not register(server, workload, markers=Markers(resolve=Resolve, elicit=Elicit, sample=Sample)):
        return None
    return server.streamable_http_app(streamable_http_path=PATH, json_response=True, stateless_http=True)


VARIANT = Variant(
    name="sdk",
    title="SDK MCPServer",
    imports="from mcp.server import MCPServer",
    note="questions by Resolve and Elicit",
    build=build,
    program=_PROGRAM,
    serve=("-m", "uvicorn", "shop:app"),
)
