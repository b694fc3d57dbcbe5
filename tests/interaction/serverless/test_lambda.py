"""AWS Lambda: one handler for many events, and processes that end between the legs of a call."""

import asyncio
import base64
import json
import logging
import math
import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import anyio
import pytest
from mcp.server import MCPServer
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from roundtrip import Context, Elicit, Resolve, Server
from roundtrip.ledger import LedgerDown, SqliteLedger
from roundtrip.serverless import lambda_handler
from tests.interaction.serverless.platform import (
    BatchingTracer,
    LambdaContext,
    call_event,
    event_of,
    failing_once,
    json_of,
    request_event,
    rpc_event,
)
from tests.kit.hosts import ROOT, WAIT
from tests.kit.raised import raised
from tests.kit.wire import accept

Json = dict[str, Any]
KEYS: Final = ["7f" * 32]


class Handled:
    """A handler as Lambda uses it, whose responses are read as JSON-RPC."""

    def __init__(self, server: Server[Any], **options: Any) -> None:
        self.handler = lambda_handler(server, **options)

    def __call__(self, event: Json, *, seconds: float = 60) -> Json:
        response = self.handler(event, LambdaContext(seconds))
        assert response["statusCode"] == 200, response
        return json_of(response)

    def result(self, tool: str, arguments: Json | None = None, **more: Any) -> Json:
        return self(call_event(tool, arguments, **more))["result"]


def text_in(result: Json) -> str:
    assert result["resultType"] == "complete", result
    return result["content"][0]["text"]


def next_leg(result: Json, *answers: Json) -> Json:
    """Return the parameters of the next leg, which accepts each question in order."""
    asked: Json = result.get("inputRequests") or {}
    return {"requestState": result["requestState"], "inputResponses": dict(zip(asked, answers, strict=True))}


def lines_in(transcript: Path) -> list[Json]:
    return [json.loads(line) for line in transcript.read_text(encoding="utf-8").splitlines()]


def test_a_hundred_warm_events_through_one_handler(tmp_path: Path) -> None:
    entered: list[str] = []
    payments: list[int] = []
    transcript = tmp_path / "calls.jsonl"

    @asynccontextmanager
    async def lifespan(server: MCPServer[str]) -> AsyncGenerator[str]:
        entered.append(server.name)
        yield "warm"

    server = Server("shop", keys=KEYS, lifespan=lifespan, ledger=SqliteLedger(tmp_path / "calls.db"), trace=transcript)

    @server.tool
    async def look(ctx: Context) -> str:
        return f"{ctx.request_context.lifespan_context} {id(asyncio.get_running_loop())}"

    async def ask_size(cup: str) -> Elicit[int]:
        return Elicit(f"How much {cup}?", int)

    @server.tool
    async def order(cup: str, size: Annotated[int, Resolve(ask_size)]) -> str:
        return f"{size} ml of {cup}"

    @server.tool(exactly_once=True, uncovered="round")
    def pay(amount: int) -> str:
        payments.append(amount)
        return f"payment {len(payments)}"

    handled = Handled(server)

    def recorded(*ends: str) -> None:
        """Check that the events so far are in the transcript, which the process may never touch again."""
        assert [line["event"] for line in lines_in(transcript)][-len(ends) :] == list(ends)

    looked: set[str] = set()
    for events in range(15):
        looked.add(text_in(handled.result("look")))
        recorded("began", "ended")
        asked = handled.result("order", {"cup": "tea"})
        recorded("began", "asked")
        answered = handled.result("order", {"cup": "tea"}, **next_leg(asked, accept(value=events)))
        assert text_in(answered) == f"{events} ml of tea"
        recorded("began", "ended")
        begun = handled.result("pay", {"amount": events})
        recorded("began", "asked")
        paid = next_leg(begun)
        assert text_in(handled.result("pay", {"amount": events}, **paid)) == f"payment {len(payments)}"
        # The client sends its last leg again.
        assert text_in(handled.result("pay", {"amount": events}, **paid)) == f"payment {len(payments)}"
        recorded("began", "ended")
        assert len(handled(rpc_event("tools/list"))["result"]["tools"]) == 3
    assert entered == ["shop"]
    assert [look.split()[0] for look in looked] == ["warm"]
    assert payments == list(range(15))
    assert len(lines_in(transcript)) == 15 * 12


def in_new_process(code: str, given: object = None, **environment: str) -> list[Any]:
    """Run code in a new process, and return the lines of JSON that it prints."""
    head = "import json, sys\nfrom tests.interaction.serverless.shop import handler, server\n"
    done = subprocess.run(
        [sys.executable, "-c", head + code],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "ROUNDTRIP_KEYS": KEYS[0], **environment},
        timeout=WAIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_each_leg_of_a_call_runs_in_a_new_process(tmp_path: Path) -> None:
    def result(tool: str, arguments: Json, **more: Any) -> Json:
        code = "print(json.dumps(handler(json.load(sys.stdin), None)))"
        (response,) = in_new_process(code, call_event(tool, arguments, **more), SHOP_LEDGER=str(tmp_path / "calls.db"))
        return json_of(response)["result"]

    cup: Json = {"cup": "tea"}
    asked = result("order", cup)
    again = result("order", cup, **next_leg(asked, accept(value=250)))
    done = result("order", cup, **next_leg(again, accept(value=True)))
    assert text_in(done).startswith("250 ml of tea, sweet, by process ")

    begun = result("pay", {"amount": 5})
    paid = [result("pay", {"amount": 5}, **next_leg(begun)) for _ in range(2)]
    # The second process has the result of the first.
    assert text_in(paid[0]) == text_in(paid[1])


def test_first_leg_imports_nothing_and_the_process_leaves_its_lifespan() -> None:
    code = """
legs = json.load(sys.stdin)
before = set(sys.modules)
for leg in legs:
    assert handler(leg, None)["statusCode"] == 200
print(json.dumps(sorted(set(sys.modules) - before)))
"""
    legs = [call_event("order", {"cup": "tea"}), call_event("pay", {"amount": 5})]
    assert in_new_process(code, legs, SHOP_SAYS="1") == [[], "left"]


def with_echo(server: Server[Any]) -> Server[Any]:
    @server.custom_route("/{path:path}/echo", methods=["GET", "POST"])
    async def echo(request: Request) -> JSONResponse:  # pyright: ignore[reportUnusedFunction]
        scope = request.scope
        return JSONResponse(
            {
                "body": (await request.body()).decode(),
                "url": str(request.url),
                "path": request.path_params["path"],
                "raw_path": scope["raw_path"].decode(),
                "query": request.query_params.multi_items(),
                "cookies": request.headers["cookie"],
                "client": request.client.host if request.client else None,
                "header2": request.headers.get("header2"),
                "event": scope["aws.event"]["requestContext"]["requestId"],
                "context": type(scope["aws.context"]).__name__,
            }
        )

    return server


def test_event_of_an_http_api_reaches_the_application_whole() -> None:
    handler = lambda_handler(with_echo(Server("shop", keys=KEYS)))
    event = event_of("http_api", rawPath="/prod/caf%C3%A9/echo")
    assert json_of(handler(event, LambdaContext())) == {
        "body": "Hello from Lambda",
        "url": "https://id.execute-api.us-east-1.amazonaws.com/prod/café/echo"
        "?parameter1=value1&parameter1=value2&parameter2=value",
        "path": "café",
        "raw_path": "/prod/caf%C3%A9/echo",
        "query": [["parameter1", "value1"], ["parameter1", "value2"], ["parameter2", "value"]],
        "cookies": "cookie1; cookie2",
        "client": "192.0.2.1",
        "header2": "value1,value2",
        "event": "JKJaXmPLvHcESHA=",
        "context": "LambdaContext",
    }
    # The stage is left out of the path only where it is there.
    paths = ("/prod/a/echo", "/a/echo", "/production/echo")
    found = [json_of(handler(event_of("http_api", rawPath=path), LambdaContext()))["path"] for path in paths]
    assert found == ["a", "a", "production"]


def test_response_has_cookies_joined_headers_bytes_or_a_logged_crash(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("shop", keys=KEYS)

    @server.custom_route("/picture", methods=["GET"])
    async def picture(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        del request
        response = Response(b"\x89PNG\xff", 201, media_type="image/png")
        response.set_cookie("a", "1")
        response.set_cookie("b", "2")
        response.headers.append("vary", "a")
        response.headers.append("vary", "b")
        return response

    @server.custom_route("/crash", methods=["GET"])
    async def crash(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        raise LookupError(request.method)

    handler = lambda_handler(server)
    response = handler(request_event(method="GET", path="/crash"), LambdaContext())
    assert (response["statusCode"], response["body"]) == (500, "Internal Server Error")
    assert "LookupError" in caplog.text
    response = handler(request_event(method="GET", path="/picture"), LambdaContext())
    assert response == {
        "statusCode": 201,
        "headers": {"content-length": "5", "content-type": "image/png", "vary": "a,b"},
        "cookies": ["a=1; Path=/; SameSite=lax", "b=2; Path=/; SameSite=lax"],
        "body": base64.b64encode(b"\x89PNG\xff").decode(),
        "isBase64Encoded": True,
    }


def test_other_events_are_rejected_with_advice() -> None:
    handler = lambda_handler(Server("shop", keys=KEYS))
    for name, advice in (
        ("rest_api", "set the integration's PayloadFormatVersion to 2.0"),
        ("load_balancer", "the event must have payload format 2.0, got a load balancer's event"),
        ("schedule", "the event must be an HTTP request in payload format 2.0"),
    ):
        with pytest.raises(ValueError, match=advice):
            handler(event_of(name), LambdaContext())


def test_endless_streams_are_answered_at_once() -> None:
    handler = lambda_handler(Server("shop", keys=KEYS))
    listening = request_event(method="GET", headers={"accept": "text/event-stream"})
    for event in (listening, request_event(method="GET", headers={"mcp-protocol-version": "2026-07-28"})):
        response = handler(event, LambdaContext(5))
        assert (response["statusCode"], response["headers"]["allow"]) == (405, "POST")
        assert "cannot keep responses open" in json_of(response)["error"]["message"]

    event = rpc_event("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    response = handler(event, LambdaContext(5))
    assert response["statusCode"] == 404
    assert json_of(response)["id"] == json.loads(base64.b64decode(event["body"]))["id"]
    assert json_of(response)["error"]["code"] == -32601


def test_leg_that_exceeds_the_time_limit_gets_an_answer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cancelled: list[str] = []
    transcript = tmp_path / "calls.jsonl"
    server = Server("shop", keys=KEYS, trace=transcript)

    @server.tool
    async def wait(minutes: int) -> str:
        try:
            await anyio.sleep(minutes * 60)
        except asyncio.CancelledError:
            cancelled.append("wait")
            raise
        return "done"

    handled = Handled(server)
    event = call_event("wait", {"minutes": 5})
    answer = handled(event, seconds=0.7)
    assert answer["id"] == json.loads(base64.b64decode(event["body"]))["id"]
    assert answer["error"]["data"] == {"reason": "out_of_time"}
    assert "raise the function's timeout" in answer["error"]["message"]
    assert cancelled == ["wait"]
    assert lines_in(transcript)[-1]["event"] == "ended"
    assert "the function's time limit ended a request" in caplog.text
    # The handler serves on.
    assert text_in(handled.result("wait", {"minutes": 0})) == "done"


def test_lifespan_that_fails_is_tried_again_at_the_next_event(caplog: pytest.LogCaptureFixture) -> None:
    handler = lambda_handler(Server("shop", keys=KEYS, lifespan=failing_once()))
    assert handler(rpc_event("tools/list"), LambdaContext())["statusCode"] == 500
    assert "no database yet" in caplog.text
    assert handler(rpc_event("tools/list"), LambdaContext())["statusCode"] == 200


def test_claims_of_an_authorizer_identify_the_caller() -> None:
    def subject(request: Any) -> str:
        return request.request.scope["aws.event"]["requestContext"]["authorizer"]["jwt"]["claims"]["sub"]

    server = Server("shop", keys=KEYS, principal=subject)

    @server.tool
    async def order(ctx: Context) -> str:
        return f"{await ctx.ask('size', 'How much?', int)} ml"

    def leg(user: str, **more: Any) -> Json:
        event = call_event("order", **more)
        event["requestContext"]["authorizer"] = {"jwt": {"claims": {"sub": user}, "scopes": None}}
        return json_of(lambda_handler(server)(event, LambdaContext()))

    answer = next_leg(leg("ada")["result"], accept(value=250))
    assert "error" in leg("eve", **answer)
    assert text_in(leg("ada", **answer)["result"]) == "250 ml"


class ForgetfulLedger(SqliteLedger):
    """Ledger that is down for the first result."""

    failures = 1

    async def settle(self, *args: Any, **options: Any) -> bool:
        if self.failures:
            self.failures -= 1
            raise LedgerDown("restarting")
        return await super().settle(*args, **options)


def test_tracers_and_late_results_are_saved_before_the_handler_returns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saved: list[str] = []
    tracer = BatchingTracer(saved)
    server = Server("shop", keys=KEYS, trace=tracer, ledger=ForgetfulLedger(tmp_path / "calls.db"))

    @server.tool(exactly_once=True, uncovered="round")
    async def pay() -> str:
        return "paid"

    begun = next_leg(Handled(server).result("pay"))
    assert saved == ["pay"]
    assert text_in(Handled(server).result("pay", **begun)) == "paid"
    assert "could not save its result, and will try again" in caplog.text
    assert saved == ["pay", "pay"]
    # Another process finds the result, although this one was frozen at once.
    other = Server("shop", keys=KEYS, ledger=SqliteLedger(tmp_path / "calls.db"))

    @other.tool(name="pay", exactly_once=True, uncovered="round")
    async def pay_again() -> str:
        return "paid twice"

    assert text_in(Handled(other).result("pay", **begun)) == "paid"


def test_settings_that_other_instances_cannot_serve_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("shop")

    @server.tool(exactly_once=True, uncovered="round")
    def pay() -> str:
        return "paid"

    handled = Handled(server)
    with caplog.at_level(logging.WARNING, "roundtrip"):
        handled.result("pay")
        handled.result("pay")
    assert caplog.text.count("only this instance can resume its calls") == 1
    assert caplog.text.count("its MemoryLedger is not shared by all instances") == 1


def test_wrong_arguments_of_the_handler_are_rejected() -> None:
    reserves: list[Any] = [-1, math.inf, math.nan, "1"]
    errors = [str(raised(lambda_handler, Server("shop"), reserve=reserve)) for reserve in reserves]
    assert [error for error in errors if "reserve= must be 0 or more seconds" not in error] == []
    with pytest.raises(TypeError, match="got Starlette; pass the server itself"):
        lambda_handler(Server("shop").streamable_http_app())  # type: ignore[arg-type]


def test_odd_headers_and_texts_of_a_client_are_answered() -> None:
    server = Server[Any]("shop")
    server.tool(name="pay")(lambda: "paid")
    handled = Handled(server)
    for port in ("abc", "", "443,443", "9" * 5000):
        event = call_event("pay")
        event["headers"]["x-forwarded-port"] = port
        assert text_in(handled(event)["result"]) == "paid"
    surrogates: Json = {"body": '{"\ud800', "isBase64Encoded": False, "rawQueryString": "\udfff"}
    event = call_event("pay") | surrogates
    event["headers"]["x-note"] = "\ud800"
    assert handled.handler(event, LambdaContext(60))["statusCode"] == 400


def test_events_of_several_threads_are_served_one_after_another() -> None:
    server = Server("shop")

    @server.tool
    async def pay() -> str:
        await anyio.sleep(0.05)
        return "paid"

    handled = Handled(server)
    with ThreadPoolExecutor(3) as threads:
        results = threads.map(handled.result, ["pay"] * 3)
    assert [text_in(result) for result in results] == ["paid"] * 3
