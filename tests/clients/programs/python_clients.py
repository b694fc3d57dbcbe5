"""Run the calls of a job with a Python client: `python python_clients.py CLIENT`, where CLIENT is in `CLIENTS`.

The job is JSON on standard input, the outcomes are JSON on standard output. The interpreter is one of
`tests/kit/own_environments.py`, which does not have roundtrip, and mostly has another SDK.
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
from itertools import count
from types import SimpleNamespace
from typing import Any

Call = Callable[[str, dict[str, Any]], Awaitable[Any]]
Answer = Callable[[Any], Awaitable[dict[str, Any]]]

MAX_CONTINUATIONS = 5
RECALLED_META = "roundtrip/recalled"
ANOTHER_PAGE = "the call began again, and has another page"


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

    async def answer(self, params: Any) -> dict[str, Any]:
        """Return the fields of an `ElicitResult`."""
        url = getattr(params, "url", None)
        self.asked.append(params.message if url is None else f"{params.message} {url}")
        if url is not None:
            await self.open(url)
        if not self.answers:
            return {"action": "decline"}
        content = self.answers.pop(0)
        return {"action": "accept", "content": content if url is None else None}


@asynccontextmanager
async def sdk(job: dict[str, Any], answer: Answer) -> AsyncGenerator[Call]:
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamablehttp_client

    if job["url"] is not None:
        transport: Any = streamablehttp_client(job["url"])
    else:
        transport = stdio_client(StdioServerParameters(command=job["command"][0], args=job["command"][1:]))
    async with (
        transport as (read, write, *_),
        ClientSession(read, write, elicitation_callback=elicitor(answer) if job["asks"] else None) as session,
    ):
        await session.initialize()
        yield session.call_tool


@asynccontextmanager
async def langchain_adapters(job: dict[str, Any], answer: Answer) -> AsyncGenerator[Call]:
    from langchain_mcp_adapters.callbacks import Callbacks
    from langchain_mcp_adapters.client import MultiServerMCPClient
    from langchain_mcp_adapters.tools import load_mcp_tools

    elicit = elicitor(answer)
    if job["url"] is not None:
        connection: Any = {"transport": "streamable_http", "url": job["url"]}
    else:
        connection = {"transport": "stdio", "command": job["command"][0], "args": job["command"][1:]}
    callbacks = Callbacks(on_elicitation=lambda mcp_context, params, context: elicit(mcp_context, params))
    client = MultiServerMCPClient({"shop": connection}, callbacks=callbacks)
    async with client.session("shop") as session:
        tools = {tool.name: tool for tool in await load_mcp_tools(session)}

        async def call(tool: str, arguments: dict[str, Any]) -> Any:
            return await tools[tool].ainvoke({"type": "tool_call", "id": tool, "name": tool, "args": arguments})

        yield call


@asynccontextmanager
async def mcp_use(job: dict[str, Any], answer: Answer) -> AsyncGenerator[Call]:
    from mcp_use import MCPClient

    if job["url"] is not None:
        server: Any = {"url": job["url"]}
    else:
        server = {"command": job["command"][0], "args": job["command"][1:]}
    client = MCPClient.from_dict({"mcpServers": {"shop": server}}, elicitation_callback=elicitor(answer))
    session = await client.create_session("shop")
    try:
        yield session.call_tool
    finally:
        await client.close_all_sessions()


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


@asynccontextmanager
async def fastmcp(job: dict[str, Any], answer: Answer) -> AsyncGenerator[Call]:
    async with fastmcp_client(job, answer) as client:
        yield client.call_tool_mcp


@asynccontextmanager
async def pydantic_ai(job: dict[str, Any], answer: Answer) -> AsyncGenerator[Call]:
    from pydantic_ai.mcp import MCPToolset

    async with MCPToolset(fastmcp_client(job, answer), tool_error_behavior="error") as tools:
        yield tools.direct_call_tool


@asynccontextmanager
async def langchain(job: dict[str, Any], answer: Answer) -> AsyncGenerator[Call]:
    """Call tools in a graph of LangGraph, which stops for each question and is resumed with the answer.

    To resume, it makes the call again from its start, and gives the answers again. If the call was asked at a page by
    then, a new call has a new page, and so on without an end.
    """
    from langchain.mcp import MCPAdapter
    from langchain_core.messages import AIMessage
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode
    from langgraph.types import Command

    async with MCPAdapter(fastmcp_client(job)) as adapter:
        graph: Any = StateGraph(MessagesState)
        graph.add_node("tools", ToolNode(await adapter.list_tools()))
        graph.set_entry_point("tools")
        compiled = graph.compile(checkpointer=InMemorySaver())
        threads = count()

        async def call(tool: str, arguments: dict[str, Any]) -> Any:
            thread = {"configurable": {"thread_id": str(next(threads))}}
            called = AIMessage("", tool_calls=[{"name": tool, "args": arguments, "id": tool}])
            state = await compiled.ainvoke({"messages": [called]}, thread)
            pages = set[str]()
            while "__interrupt__" in state:
                requests = state["__interrupt__"][0].value["requests"]
                pages.update(one["url"] for one in requests if one["mode"] == "url")
                if len(pages) > 1:
                    raise RuntimeError(ANOTHER_PAGE)
                responses = {one["key"]: await answer(SimpleNamespace(**one)) for one in requests}
                state = await compiled.ainvoke(Command(resume={"responses": responses}), thread)
            return state["messages"][-1]

        yield call


def fastmcp_client(job: dict[str, Any], answer: Answer | None = None) -> Any:
    from fastmcp import Client
    from fastmcp.client.elicitation import ElicitResult
    from fastmcp.client.transports import StdioTransport

    async def elicit(message: str, response_type: Any, params: Any, context: Any) -> Any:
        answered = await answer(params) if answer is not None else {}
        # Such content is not checked against a class that FastMCP makes of the schema.
        return answered["content"] if answered.get("content") is not None else ElicitResult(**answered)

    server = job["url"] or StdioTransport(job["command"][0], job["command"][1:], keep_alive=False)
    return Client(server, mode=job["mode"], elicitation_handler=None if answer is None else elicit)


def elicitor(answer: Answer) -> Callable[[Any, Any], Awaitable[Any]]:
    """Return a callback of the SDK, version 1."""
    from mcp.types import ElicitResult

    async def elicit(context: Any, params: Any) -> Any:
        return ElicitResult(**await answer(params))

    return elicit


CLIENTS = {one.__name__: one for one in (sdk, langchain_adapters, mcp_use, agents, fastmcp, pydantic_ai, langchain)}


def outcome_of(result: Any, asked: list[str]) -> dict[str, Any]:
    if isinstance(result, str | dict):  # Pydantic AI returns what the tool returned, and raises its error
        content, failed, data = (result, False, None) if isinstance(result, str) else ("", False, result)
    elif hasattr(result, "artifact"):  # LangChain's message
        artifact = result.artifact or {}
        content = (
            result.content if isinstance(result.content, str) else "\n".join(one["text"] for one in result.content)
        )
        failed, data = result.status == "error", artifact.get("structured_content")
    else:
        content = "\n".join(block.text for block in result.content)
        # The names of the SDK's version 2, and those of version 1.
        failed = result.is_error if hasattr(result, "is_error") else result.isError
        data = result.structured_content if hasattr(result, "structured_content") else result.structuredContent
    if failed:
        return {"error": content, "asked": asked}
    # Pydantic AI and LangChain leave a result's `_meta` out.
    recalled = (getattr(result, "meta", None) or {}).get(RECALLED_META)
    return {"text": content, "asked": asked, "data": data, "recalled": recalled}


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
    async with CLIENTS[kind](job, questions.answer) as call:
        for each in job["calls"]:
            questions.answers, questions.asked = list(each["answers"]), []
            outcomes.append(await to_the_end(call, each, questions, follows=job["desktop"] is not None))
    json.dump(outcomes, sys.stdout)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(main(sys.argv[1]))
