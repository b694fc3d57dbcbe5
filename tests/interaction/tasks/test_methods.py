"""The methods of the Tasks extension, over HTTP."""

from typing import Annotated, Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from roundtrip import Context, Elicit, InvalidSignature, Resolve, Server, ToolError, after
from tests.kit.peer import EXTENSION, Peer, peers, text_of
from tests.kit.shops import KEY

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("each_class")]


def how_many() -> Elicit[int]:
    return Elicit("How many?", int)


def shop() -> Server[Any]:
    server = Server[Any]("shop", keys=[KEY])

    @server.tool(task=True)
    async def order(title: str, copies: Annotated[int, Resolve(how_many)], ctx: Context) -> str:
        gift = await ctx.ask("gift", f"Wrap {title}?", bool)
        return f"{copies} x {title}, {'wrapped' if gift else 'bare'}"

    @server.tool(task=True)
    async def both(ctx: Context) -> str:
        answers = await ctx.ask_all({"a": Elicit("A?", int), "b": Elicit("B?", int)})
        return f"{answers['a']} {answers['b']}"

    @server.tool(task=True)
    async def fail() -> str:
        raise ToolError("out of stock")

    @server.tool(task=True)
    async def break_off() -> str:
        raise MCPError(code=-32099, message="no paper", data={"tray": 2})

    @server.tool(task=True, timeout=0.05)
    async def late() -> str:
        await anyio.sleep_forever()
        return "never"

    @server.tool(task=True)
    async def wait() -> str:
        await anyio.sleep_forever()
        return "never"

    @server.tool(task="required")
    async def only() -> str:
        return "as a task"

    @server.tool()
    async def plain() -> str:
        return "at once"

    return server


async def task_of(peer: Peer, tool: str, **arguments: Any) -> str:
    handle = await peer.call(tool, **arguments)
    assert handle["resultType"] == "task", handle
    return handle["taskId"]


async def test_server_advertises_the_extension_once_it_has_tasks() -> None:
    without = Server[Any]("plain")

    @without.tool()
    async def plain() -> str:
        return "at once"

    async with peers(shop(), without) as (peer, other):
        assert EXTENSION in (await peer.ask("server/discover"))["capabilities"]["extensions"]
        assert EXTENSION not in (await other.ask("server/discover"))["capabilities"].get("extensions", {})
        assert (await other.send("tasks/get", taskId="x"))["error"]["code"] == -32601


async def test_resolvers_ask_before_the_task_and_bodies_inside() -> None:
    async with peers(shop()) as (peer,):
        first = await peer.call("order", title="Ulysses")
        assert first["resultType"] == "input_required"
        assert list(first["inputRequests"]) == ["how_many"]
        again = {
            "name": "order",
            "arguments": {"title": "Ulysses"},
            "requestState": first["requestState"],
            "inputResponses": {"how_many": {"action": "accept", "content": {"value": 3}}},
        }
        handle = await peer.ask("tools/call", **again)
        assert handle["resultType"] == "task"
        assert "requestState" not in handle
        assert "inputRequests" not in handle
        assert isinstance(handle["ttlMs"], int)
        # A repeated request gets the same handle.
        assert [(await peer.ask("tools/call", **again))["taskId"] for _ in range(2)] == [handle["taskId"]] * 2
        await peer.asked(handle["taskId"], "gift")
        await peer.answer(handle["taskId"], gift=True)
        task = await peer.until(handle["taskId"])
        assert text_of(task) == "3 x Ulysses, wrapped"
        assert task["result"]["structuredContent"] == {"result": "3 x Ulysses, wrapped"}
        assert task["resultType"] == "complete"


@pytest.mark.parametrize(
    "answer", [None, {"action": "accept", "content": 3}, {"action": "accept", "content": {"value": "many"}}]
)
async def test_invalid_answer_is_asked_again_under_a_fresh_key(answer: Any) -> None:
    async with peers(shop()) as (peer,):
        task = await task_of(peer, "both")
        await peer.asked(task, "a", "b")
        await peer.ask("tasks/update", taskId=task, inputResponses={"a": answer, "c": 1})
        await peer.asked(task, "b")
        await peer.answer(task, b=2)
        questions = await peer.asked(task, "a#2")
        assert "not valid" in questions["a#2"]["params"]["message"]
        await peer.answer(task, a=1, b=7)
        await peer.asked(task, "a#2")
        await peer.answer(task, **{"a#2": 1})
        assert text_of(await peer.until(task)) == "1 2"


async def test_error_of_a_tool_completes_and_a_protocol_error_fails() -> None:
    async with peers(shop()) as (peer,):
        failed = await peer.until(await task_of(peer, "fail"))
        assert (failed["status"], failed["result"]["isError"]) == ("completed", True)
        assert "out of stock" in text_of(failed)
        broken = await peer.until(await task_of(peer, "break_off"))
        assert (broken["status"], broken["error"]) == (
            "failed",
            {"code": -32099, "message": "no paper", "data": {"tray": 2}},
        )
        assert "result" not in broken
        late = await peer.until(await task_of(peer, "late"))
        assert late["error"]["data"]["reason"] == "tool_timeout"


async def test_running_and_asking_tasks_can_be_cancelled() -> None:
    async with peers(shop()) as (peer,):
        for tool in ("wait", "both"):
            task = await task_of(peer, tool)
            assert set(await peer.ask("tasks/cancel", taskId=task)) == {"resultType", "_meta"}
            assert (await peer.until(task))["status"] == "cancelled"
            # It may be repeated, and an answer after the end changes nothing.
            await peer.ask("tasks/cancel", taskId=task)
            await peer.answer(task, a=1)
            assert (await peer.get(task))["status"] == "cancelled"


async def test_client_without_the_extension_gets_results_and_no_tasks() -> None:
    async with peers(shop(), declares=False) as (peer,):
        assert (await peer.call("plain"))["content"][0]["text"] == "at once"
        assert (await peer.call("fail"))["isError"]
        asked = await peer.call("both")
        assert asked["resultType"] == "input_required"
        rejected = [await peer.send("tools/call", name="only", arguments={})]
        rejected += [await peer.send(f"tasks/{method}", taskId="x") for method in ("get", "update", "cancel")]
        rejected.append(await peer.send("subscriptions/listen", notifications={"taskIds": ["x"]}))
        for error in [response["error"] for response in rejected]:
            assert error["code"] == -32021
            assert error["data"] == {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}


async def test_unknown_and_foreign_tasks_get_one_answer() -> None:
    one, other = shop(), Server[Any]("shop", keys=[b"o" * 32])

    @other.tool(task=True)
    async def both() -> str:
        return "done"

    async with peers(one, other) as (peer, stranger):
        task = await task_of(peer, "both")
        call_id, _, secret = task.partition(".")
        forged = [
            f"{call_id}.{'A' * len(secret)}",
            call_id,
            f"{call_id}.",
            "x",
            "",
            "." * 300,
            await task_of(stranger, "both"),
        ]
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            answers = [await peer.send(method, taskId=each, inputResponses={}) for each in forged]
            assert [answer["error"] for answer in answers] == [{"code": -32602, "message": "Task not found"}] * len(
                forged
            )
        await peer.asked(task, "a", "b")


async def test_requests_that_name_no_task_are_rejected() -> None:
    async with peers(shop()) as (peer,):
        task = await task_of(peer, "both")
        assert (await peer.send("tasks/get", header="another", taskId=task))["error"]["code"] == -32020
        given: list[dict[str, Any]] = [{}, {"taskId": 7}, {"taskId": None}]
        told = [await peer.send("tasks/get", header="x", **params) for params in given]
        assert [reply["error"]["code"] for reply in told] == [-32602] * 3
        # Methods of older drafts do not exist.
        told = [await peer.send(method, taskId="x") for method in ("tasks/result", "tasks/list")]
        assert [reply["error"]["code"] for reply in told] == [-32601] * 2


def _mistake_of(**options: Any) -> str:
    """Return the error at the registration of a tool with these options."""
    with pytest.raises(InvalidSignature) as rejected:
        Server[Any]("shop").add_tool(lambda: "", name="work", **options)
    return str(rejected.value)


def test_invalid_options_of_tasks_are_rejected() -> None:
    task = "task must be True, False, 'required' or after(seconds)"
    seconds = "task_ttl must be a number of seconds"
    together = "task_ttl= must be given together with task="
    required = "exactly_once= needs task='required'"
    mistakes: list[tuple[dict[str, Any], str]] = [
        *(({"task": given}, task) for given in (2, "always", "optional")),
        *(({"task": True, "task_ttl": given}, seconds) for given in (0, -1, True, float("inf"), "1")),
        *(({"task": given, "task_ttl": 60}, together) for given in (None, False)),
        *(({"task": given, "exactly_once": True}, required) for given in (True, after(2))),
    ]
    assert [(options, text) for options, why in mistakes if why not in (text := _mistake_of(**options))] == []
