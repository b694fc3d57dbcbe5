"""Run the calls of a job with a Python client of an older SDK: `python older_python.py sdk|langchain|agents`.

The job is JSON on standard input, the outcomes are JSON on standard output. The interpreter is that of
`tests/kit/own_environments.py`, which has neither roundtrip nor the SDK that it needs.
"""

import asyncio
import json
import logging
import re
import sys
import urllib.parse
import urllib.request
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

Call = Callable[[str, dict[str, Any]], Awaitable[Any]]
Answer = Callable[[Any], Awaitable[Any]]

MAX_CONTINUATIONS = 5


class Questions:
    """Answers of the current call, and the questions that it was asked."""

    def __init__(self, desktop: str | None) -> None:
        self.answers: list[Any] = []
        self.asked: list[str] = []
        self._desktop = desktop

    async def open(self, link: str) -> None:
        """Open a link for the user; see `tests/clients/desktop.py`."""
        if self._desktop is not None:
            url = f"{self._desktop}?{urllib.parse.urlencode({'url': link})}"
            await asyncio.to_thread(urllib.request.urlopen, url)

    async def answer(self, params: Any) -> Any:
        from mcp.types import ElicitResult

        url = getattr(params, "url", None)
        self.asked.append(params.message if url is None else f"{params.message} {url}")
        if url is not None:
            await self.open(url)
        if not self.answers:
            return ElicitResult(action="decline")
        content = self.answers.pop(0)
        return ElicitResult(action="accept", content=content if url is None else None)


@asynccontextmanager
async def sdk(job: dict[str, Any], answer: Answer) -> AsyncGenerator[Call]:
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamablehttp_client

    async def elicit(context: Any, params: Any) -> Any:
        return await answer(params)

    if job["url"] is not None:
        transport: Any = streamablehttp_client(job["url"])
    else:
        transport = stdio_client(StdioServerParameters(command=job["command"][0], args=job["command"][1:]))
    async with (
        transport as (read, write, *_),
        ClientSession(read, write, elicitation_callback=elicit if job["asks"] else None) as session,
    ):
        await session.initialize()
        yield session.call_tool


@asynccontextmanager
async def langchain(job: dict[str, Any], answer: Answer) -> AsyncGenerator[Call]:
    from langchain_mcp_adapters.callbacks import Callbacks
    from langchain_mcp_adapters.client import MultiServerMCPClient
    from langchain_mcp_adapters.tools import load_mcp_tools

    async def elicit(mcp_context: Any, params: Any, context: Any) -> Any:
        return await answer(params)

    if job["url"] is not None:
        connection: Any = {"transport": "streamable_http", "url": job["url"]}
    else:
        connection = {"transport": "stdio", "command": job["command"][0], "args": job["command"][1:]}
    client = MultiServerMCPClient({"shop": connection}, callbacks=Callbacks(on_elicitation=elicit))
    async with client.session("shop") as session:
        tools = {tool.name: tool for tool in await load_mcp_tools(session)}

        async def call(tool: str, arguments: dict[str, Any]) -> Any:
            message = await tools[tool].ainvoke({"type": "tool_call", "id": tool, "name": tool, "args": arguments})
            return message

        yield call


@asynccontextmanager
async def agents(job: dict[str, Any], answer: Answer) -> AsyncGenerator[Call]:
    from agents.mcp import MCPServerStdio, MCPServerStreamableHttp

    del answer
    if job["url"] is not None:
        server: Any = MCPServerStreamableHttp(params={"url": job["url"]}, client_session_timeout_seconds=20)
    else:
        params: Any = {"command": job["command"][0], "args": job["command"][1:]}
        server = MCPServerStdio(params=params, client_session_timeout_seconds=20)
    async with server:
        yield server.call_tool


def outcome_of(result: Any, asked: list[str]) -> dict[str, Any]:
    if not hasattr(result, "isError"):  # LangChain's message
        artifact = result.artifact or {}
        content = (
            result.content if isinstance(result.content, str) else "\n".join(one["text"] for one in result.content)
        )
        failed, data = result.status == "error", artifact.get("structured_content")
    else:
        content = "\n".join(block.text for block in result.content)
        failed, data = bool(result.isError), result.structuredContent
    return {"error": content, "asked": asked} if failed else {"text": content, "asked": asked, "data": data}


async def to_the_end(call: Call, each: dict[str, Any], questions: Questions, *, follows: bool) -> dict[str, Any]:
    """Make a call, do what its results say about links and `continue_call`, and return its outcome."""
    results: list[str] = []
    tool, arguments = each["tool"], each["arguments"]
    try:
        while True:
            outcome = outcome_of(await call(tool, arguments), questions.asked)
            handle = re.search(r"handle='([^']+)'", outcome.get("text", "")) if follows else None
            if handle is None or len(results) > MAX_CONTINUATIONS:
                return {**outcome, "results": results}
            results.append(outcome["text"])
            if link := re.search(r"https?://\S+", outcome["text"]):
                await questions.open(link[0])
            tool, arguments = "continue_call", {"handle": handle[1]}
    except Exception as error:  # noqa: BLE001 - whatever the client raises is the outcome
        return {"error": str(error), "asked": questions.asked, "results": results}


async def main(kind: str) -> None:
    job = json.load(sys.stdin)
    questions = Questions(job["desktop"])
    outcomes: list[dict[str, Any]] = []
    async with {"sdk": sdk, "langchain": langchain, "agents": agents}[kind](job, questions.answer) as call:
        for each in job["calls"]:
            questions.answers, questions.asked = list(each["answers"]), []
            outcomes.append(await to_the_end(call, each, questions, follows=job["desktop"] is not None))
    json.dump(outcomes, sys.stdout)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(main(sys.argv[1]))
