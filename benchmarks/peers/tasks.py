"""Tasks that ask, and a task in two processes: `python -m benchmarks.peers.tasks begin | end`."""

import asyncio
import logging
import subprocess
import sys
from collections.abc import AsyncGenerator, Container
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from fastmcp import Context as FastContext
from fastmcp_tasks import TasksExtension
from fastmcp_tasks.client import TasksClientExtension
from fastmcp_tasks.client_models import (
    ClientCreateTaskResult,
    ClientGetTaskResult,
    GetTaskRequest,
    GetTaskRequestParams,
    UpdateTaskRequest,
    UpdateTaskRequestParams,
)
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, InputRequiredResult, Result
from pydantic import BaseModel

from benchmarks.peers.clients import Person, connect, short, text_of
from benchmarks.peers.servers import answer_to, asking, fast, ours
from roundtrip import Context
from roundtrip.ledger import SqliteLedger

__all__ = ["NO_REDIS", "answered", "begin", "restarted", "tasks_client", "with_fastmcp_task", "with_task"]

NO_REDIS: Final = "there is no Redis here"
_ROOT: Final = Path(__file__).resolve().parents[2]
_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.02


class Named(BaseModel):
    name: str


def with_task(**options: Any) -> Any:
    """Create a roundtrip server with a task that asks."""
    server = ours(**options)

    @server.tool(task=True)
    async def work(ctx: Context) -> str:
        return (await ctx.ask("name", "Which name?", Named)).name

    return server


def with_fastmcp_task(url: str) -> Any:
    """Create a FastMCP server with a task that asks, in the store at this URL."""
    server = fast()
    server.add_extension(TasksExtension(url=url))

    @server.tool(task=True)
    async def work(ctx: FastContext) -> str | InputRequiredResult:
        return answer_to(ctx, "name") or asking("name", "Which name?")

    return server


@asynccontextmanager
async def tasks_client(server: Any) -> AsyncGenerator[Client]:
    """Connect a client that can have tasks."""
    person = Person({"name": "Ada"})
    async with connect(server, person=person, extensions=[TasksClientExtension(person)]) as client:
        yield client


async def begin(client: Client) -> str:
    """Call the tool, and return its task id when it asks."""
    created = await client.session.call_tool("work", {}, allow_claimed=True, allow_input_required=True)
    if not isinstance(created, ClientCreateTaskResult):
        raise AssertionError(f"expected a task, got {created}")
    await _until(client, created.task_id)
    return created.task_id


async def answered(client: Client, task_id: str, name: object = "Ada") -> str:
    """Answer a task's question, and return the text of its result, or `asked` if it asks again."""
    task = await _until(client, task_id)
    responses = {key: {"action": "accept", "content": {"name": name}} for key in task.input_requests or {}}
    request = UpdateTaskRequest(params=UpdateTaskRequestParams(task_id=task_id, input_responses=responses))
    await client.session.send_request(request, Result)
    final = await _until(client, task_id, responses)
    if final.status == "input_required":
        return "asked"
    return text_of(CallToolResult.model_validate(final.result)) if final.status == "completed" else final.status


async def _until(client: Client, task_id: str, answered: Container[str] = ()) -> ClientGetTaskResult:
    """Poll until a task has ended, or asks something that has not been answered."""
    async with asyncio.timeout(_SECONDS):
        while True:
            request = GetTaskRequest(params=GetTaskRequestParams(task_id=task_id))
            task = await client.session.send_request(request, ClientGetTaskResult)
            asks = task.status == "input_required" and any(key not in answered for key in task.input_requests or {})
            if asks or task.status in ("completed", "failed", "cancelled"):
                return task
            await asyncio.sleep(_POLL_SECONDS)


def restarted(library: str, store: str) -> str:
    """Begin a task in one process, answer its question in another, and return what the second process found."""
    task_id = _run("begin", library, store)
    return _run("end", library, store, task_id)


def _run(*arguments: str) -> str:
    command = [sys.executable, "-m", "benchmarks.peers.tasks", *arguments]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=_SECONDS * 2, check=False)
    if done.returncode:
        raise AssertionError(done.stderr)
    return done.stdout.strip()


async def _main(phase: str, library: str, store: str, task_id: str = "") -> str:
    server = with_task(ledger=SqliteLedger(Path(store))) if library == "roundtrip" else with_fastmcp_task(store)
    async with tasks_client(server) as client:
        if phase == "begin":
            return await begin(client)
        try:
            text = await answered(client, task_id)
        except MCPError:
            return "the task is unknown"
        return "the task continues" if text == "Ada" else short(text)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    print(asyncio.run(_main(*sys.argv[1:])))
