"""The entry files of the page about serverless platforms serve real clients, as their configuration says.

A block is written to the file that the text before it names last. The tests stand in for the platforms.
"""

import contextlib
import json
import os
import re
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import anyio
import azure.functions as azure
import httpx2
import pytest
import yaml
from mangum import Mangum
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from roundtrip.serverless import asgi_app
from roundtrip.testing import Era
from tests.docs.pages import ROOT, blocks
from tests.interaction.serverless.platform import LambdaTransport, rest_event
from tests.kit.hosts import WAIT, free_port, hosted
from tests.kit.players import Person, connect, text_of
from tests.kit.waiting import until

pytestmark = pytest.mark.anyio

PAGE: Final = ROOT / "docs" / "serving.md"
FILES: Final = {
    "cinema.py",
    "function.py",
    "template.yaml",
    "Dockerfile",
    "api/index.py",
    "vercel.json",
    "function_app.py",
    "host.json",
}
MODULES: Final = ("cinema", "function", "index", "function_app")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the files of the page, from which modules are imported, as a platform does."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    written: set[str] = set()
    end = 0
    for block in blocks(PAGE):
        before = re.findall(r"`([^`]+)`", " ".join(lines[end : block.line - 2]))
        end = block.line + len(block.text.splitlines()) + 1
        for name in [each for each in before if each in FILES][-1:]:
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(block.text)
            written.add(name)
    assert written == FILES
    monkeypatch.setenv("ROUNDTRIP_KEYS", "7f" * 32)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for module in MODULES:
        # Set it first, so that it is removed again after the test.
        monkeypatch.setitem(sys.modules, module, ModuleType(module))
        del sys.modules[module]
    return tmp_path


async def book(url: str, era: Era, transport: httpx2.AsyncBaseTransport | None = None) -> None:
    """Call the tool of the page with a real client, warm the second time."""
    async with httpx2.AsyncClient(transport=transport) as web:
        for seats in (2, 3):
            mcp = streamable_http_client(url, http_client=web)
            async with connect(mcp, era, Person({"value": seats})) as client:
                assert [tool.name for tool in (await client.list_tools()).tools] == ["book"]
                if era is Era.RETRY:
                    said = text_of(await client.call_tool("book", {"film": "Solaris"}))
                    assert said == f"Booked {seats} for Solaris."
                else:
                    with pytest.raises(MCPError, match="this transport has no way back to it"):
                        await client.call_tool("book", {"film": "Solaris"})


async def test_lambda_serves_its_handler(project: Path, era: Era) -> None:
    template = yaml.safe_load((project / "template.yaml").read_text())
    properties = template["Resources"]["Cinema"]["Properties"]
    module, _, name = properties["Handler"].rpartition(".")
    assert set(properties["Environment"]["Variables"]) <= set(os.environ)
    handler = getattr(import_module(module), name)
    await book("https://id.lambda-url.us-east-1.on.aws/mcp", era, LambdaTransport(handler))


async def test_mangum_serves_a_rest_api(project: Path, era: Era) -> None:
    del project
    assert 'Mangum(asgi_app(server), lifespan="off")' in PAGE.read_text(encoding="utf-8")

    def handler(event: Any, context: Any) -> Any:
        # Mangum wraps the server where the event loop of Lambda's thread is.
        return Mangum(asgi_app(import_module("cinema").server), lifespan="off")(event, context)

    await book("https://id.execute-api.us-east-1.amazonaws.com/mcp", era, LambdaTransport(handler, rest_event))


async def test_cloud_run_starts_and_stops_the_container(project: Path) -> None:
    command = re.findall(r"^CMD (.+)$", (project / "Dockerfile").read_text(), re.MULTILINE)[-1]
    (copied,) = re.findall(r"^COPY (\S+) \.$", (project / "Dockerfile").read_text(), re.MULTILINE)
    assert (project / copied).exists()
    port = free_port()
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PORT": str(port), "PATH": programs}
    container = await anyio.open_process(command, cwd=project, env=environment, stdout=None, stderr=None)
    try:
        await until(lambda: is_ready(f"http://127.0.0.1:{port}/health/ready"))
        for era in (Era.RETRY, Era.LIVE):
            await book(f"http://127.0.0.1:{port}/mcp", era)
        container.terminate()
        with anyio.fail_after(WAIT):
            assert await container.wait() == 0
    finally:
        if container.returncode is None:
            container.kill()
            await container.wait()


async def is_ready(url: str) -> bool:
    async with httpx2.AsyncClient() as web:
        with contextlib.suppress(httpx2.TransportError):
            return (await web.get(url)).status_code == 200
    return False


async def test_vercel_serves_the_rewritten_function(project: Path, era: Era, monkeypatch: pytest.MonkeyPatch) -> None:
    (rewrite,) = json.loads((project / "vercel.json").read_text())["rewrites"]
    assert re.fullmatch(rewrite["source"], "/mcp")
    file = project / f"{rewrite['destination'].lstrip('/')}.py"
    monkeypatch.setattr(sys, "path", [str(file.parent), *sys.path])
    async with hosted(import_module(file.stem).app) as url:
        await book(f"{url}/mcp", era)


def test_azure_functions_keep_the_path_of_the_server(project: Path) -> None:
    assert json.loads((project / "host.json").read_text())["extensions"]["http"]["routePrefix"] == ""
    app: azure.AsgiFunctionApp = import_module("function_app").app
    assert app.auth_level is azure.AuthLevel.ANONYMOUS
