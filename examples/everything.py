"""Serve a small fixture for each check in the official MCP conformance suite.

Run it with `python examples/everything.py --port 8000`. It answers at `http://127.0.0.1:8000/mcp`, in both protocol
eras. The suite defines the names of the tools, prompts and resources, and their arguments.

The interesting part is "Questions". A tool declares its needs in its signature, and a resolver asks for them. The same
code serves 2026-07-28, where the server returns the question, and 2025-11-25, where it sends the question and waits.
A question has its resolver's name.
"""

from __future__ import annotations

import argparse
import base64
import json
from typing import Annotated, Any, Literal

import anyio
import uvicorn
from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import UserMessage
from mcp.server.streamable_http import EventCallback, EventId, EventMessage, EventStore, StreamId
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    Completion,
    CompletionArgument,
    CompletionContext,
    ContentBlock,
    CreateMessageResult,
    EmbeddedResource,
    EmptyResult,
    JSONRPCMessage,
    ListRootsResult,
    PromptReference,
    ResourceTemplateReference,
    SetLevelRequestParams,
    SubscribeRequestParams,
    TextContent,
    TextResourceContents,
    UnsubscribeRequestParams,
)
from pydantic import BaseModel, Field, WithJsonSchema
from starlette.applications import Starlette

from roundtrip import (
    AcceptedElicitation,
    Audio,
    Context,
    Elicit,
    ElicitationResult,
    Image,
    ListRoots,
    Resolve,
    Sample,
    Server,
    ToolError,
)

server = Server("everything", version="1.0.0")

RED_PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
SILENCE = base64.b64decode("UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAAAAA==")


def embedded(uri: str, text: str, mime_type: str = "text/plain") -> EmbeddedResource:
    """Return a resource for a tool result or a prompt message."""
    return EmbeddedResource(resource=TextResourceContents(uri=uri, text=text, mime_type=mime_type))


# Result content ------------------------------------------------------------------------------------------


@server.tool()
def test_simple_text() -> str:
    """Return plain text."""
    return "This is a simple text response for testing."


@server.tool()
def test_image_content() -> Image:
    """Return a PNG with one red pixel."""
    return Image(data=RED_PIXEL, format="png")


@server.tool()
def test_audio_content() -> Audio:
    """Return a very short, silent WAV."""
    return Audio(data=SILENCE, format="wav")


@server.tool()
def test_embedded_resource() -> EmbeddedResource:
    """Return a resource inside the result."""
    return embedded("test://embedded-resource", "This is an embedded resource content.")


@server.tool()
def test_multiple_content_types() -> list[ContentBlock]:
    """Return text, an image and a resource in one result."""
    return [
        TextContent(text="Multiple content types test:"),
        Image(data=RED_PIXEL, format="png").to_image_content(),
        embedded("test://mixed-content-resource", '{"test":"data","value":123}', "application/json"),
    ]


@server.tool()
def test_error_handling() -> str:
    """Fail in a way that the model can read: an error result, not a protocol error."""
    raise ToolError("This tool intentionally returns an error for testing")


# While a tool runs: progress, log messages, list changes ------------------------------------------------


@server.tool()
async def test_tool_with_progress(ctx: Context) -> str:
    """Report progress three times; without a progress token in the request nothing is sent."""
    for progress in (0, 50, 100):
        await ctx.report_progress(progress, total=100)
        await anyio.sleep(0.05)
    return "Progress reported."


@server.tool()
async def test_tool_with_logging(ctx: Context) -> str:
    """Send three log messages, with a pause between them."""
    for message in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.info(message)  # pyright: ignore[reportDeprecated]  # 2025-11-25 clients still use it
        await anyio.sleep(0.05)
    return "Messages logged."


@server.tool()
async def test_logging_tool(ctx: Context) -> str:
    """Log once; a 2026-07-28 client that set no level in its request must not see it."""
    await ctx.info("Only for those who asked for it")  # pyright: ignore[reportDeprecated]
    return "Done."


@server.tool()
async def test_trigger_tool_change(ctx: Context) -> str:
    """Notify listeners that the tool list changed."""
    await ctx.notify_tools_changed()
    return "Listeners notified."


@server.tool()
async def test_trigger_prompt_change(ctx: Context) -> str:
    """Notify listeners that the prompt list changed."""
    await ctx.notify_prompts_changed()
    return "Listeners notified."


@server.tool()
async def test_reconnection(ctx: Context) -> str:
    """Close the stream during the call; the client gets the result on its next stream (2025-11-25)."""
    # The SDK closes it at once, even before the first event. A client that has received none cannot reconnect.
    for _ in range(20):
        await anyio.sleep(0.01)
    await ctx.close_sse_stream()
    await anyio.sleep(0.1)
    return "Reconnected."


# Argument schemas and headers ----------------------------------------------------------------------------


@server.tool()
def test_custom_header(
    region: Annotated[str, WithJsonSchema({"type": "string", "x-mcp-header": "Region"})],
) -> str:
    """Take an argument that clients repeat in the header `Mcp-Param-Region`, which balancers can use for routing."""
    return f"Region: {region}"


@server.tool(
    # Annotations cannot express this schema, so it is written by hand and served unchanged.
    input_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    }
)
def json_schema_2020_12_tool(
    name: str = "",
    address: dict[str, str] | None = None,
    contactMethod: Literal["phone", "email"] = "email",
    phone: str = "",
    email: str = "",
) -> str:
    """Take a person with a phone number or an email address."""
    return f"{name}: {phone if contactMethod == 'phone' else email}, {address}"


# Questions: schemas and resolvers ----------------------------------------------------------------------


class Name(BaseModel):
    """A form with one text field."""

    name: str


class Color(BaseModel):
    """A form with one text field."""

    color: str


class Confirmation(BaseModel):
    """A form with one checkbox."""

    ok: bool


class Account(BaseModel):
    """A form whose fields have descriptions."""

    username: str = Field(description="User's response")
    email: str = Field(description="User's email address")


class Defaults(BaseModel):
    """A form with a default for each primitive type."""

    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


Option = Literal["option1", "option2", "option3"]
Value = Literal["value1", "value2", "value3"]
TITLED_VALUES = [
    {"const": "value1", "title": "First"},
    {"const": "value2", "title": "Second"},
    {"const": "value3", "title": "Third"},
]
LEGACY = {"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["Option One", "Option Two"]}


class Choices(BaseModel):
    """A form with each of the five ways to offer choices. The suite defines the field names."""

    untitledSingle: Option
    titledSingle: Annotated[Value, WithJsonSchema({"type": "string", "oneOf": TITLED_VALUES})]
    legacyEnum: Annotated[Literal["opt1", "opt2"], WithJsonSchema(LEGACY)]
    untitledMulti: list[Option]
    titledMulti: Annotated[list[Value], WithJsonSchema({"type": "array", "items": {"anyOf": TITLED_VALUES}})]


def user_name() -> Elicit[Name]:
    """Ask the user for a name."""
    return Elicit("What is your name?", Name)


def confirm() -> Elicit[Confirmation]:
    """Ask the user to confirm."""
    return Elicit("Please confirm", Confirmation)


def capital_question() -> Sample:
    """Ask the client's model a question."""
    return Sample("What is the capital of France?", max_tokens=100)


def greeting() -> Sample:
    """Ask the client's model for a greeting."""
    return Sample("Generate a greeting", max_tokens=50)


def client_roots() -> ListRoots:
    """Ask the client for its roots."""
    return ListRoots()


def said(answer: CreateMessageResult) -> str:
    """Return the text in the model's answer."""
    return answer.content.text if isinstance(answer.content, TextContent) else f"[{answer.content.type}]"


def describe(outcome: ElicitationResult[Any]) -> str:
    """Describe an outcome in one line: the action, and the content if there is any."""
    content: dict[str, Any] = outcome.data.model_dump() if isinstance(outcome, AcceptedElicitation) else {}
    return f"action={outcome.action}, content={json.dumps(content)}"


# Questions in either era -------------------------------------------------------------------------------


def account(message: str) -> Elicit[Account]:
    """Ask with the wording in the tool's `message` argument."""
    return Elicit(message, Account)


@server.tool()
def test_elicitation(message: str, outcome: Annotated[ElicitationResult[Account], Resolve(account)]) -> str:
    """Show the user a message and a form; the tool gets the outcome."""
    return f"User response: {describe(outcome)}"


def defaults() -> Elicit[Defaults]:
    """Ask with a default for each field."""
    return Elicit("Please review your details", Defaults)


@server.tool()
def test_elicitation_sep1034_defaults(
    outcome: Annotated[ElicitationResult[Defaults], Resolve(defaults)],
) -> str:
    """Ask with a form whose fields have defaults."""
    return f"Elicitation completed: {describe(outcome)}"


def choices() -> Elicit[Choices]:
    """Ask for choices of each kind."""
    return Elicit("Please choose", Choices)


@server.tool()
def test_elicitation_sep1330_enums(outcome: Annotated[ElicitationResult[Choices], Resolve(choices)]) -> str:
    """Ask with a form that has single and multiple choices."""
    return f"Elicitation completed: {describe(outcome)}"


def completion_of(prompt: str) -> Sample:
    """Pass the tool's `prompt` argument to the client's model."""
    return Sample(prompt, max_tokens=100)


@server.tool()
def test_sampling(prompt: str, answer: Annotated[CreateMessageResult, Resolve(completion_of)]) -> str:
    """Let the client's model answer a prompt."""
    return f"LLM response: {said(answer)}"


@server.tool()
def test_missing_capability(answer: Annotated[CreateMessageResult, Resolve(greeting)]) -> str:
    """Require sampling: a client without it gets an error before anything is asked."""
    return said(answer)


@server.tool()
def test_streaming_elicitation(ok: Annotated[Confirmation, Resolve(confirm)]) -> str:
    """Ask on a stream. For a 2026-07-28 client it carries only the result, never a request."""
    return f"Confirmed: {ok.ok}"


# Questions that a 2026-07-28 client answers with another request ------------------------------------------


@server.tool()
def test_input_required_result_elicitation(user: Annotated[Name, Resolve(user_name)]) -> str:
    """Greet the user by name. A call without a usable answer is asked again."""
    return f"Hello, {user.name}!"


@server.tool()
def test_input_required_result_sampling(answer: Annotated[CreateMessageResult, Resolve(capital_question)]) -> str:
    """Return the answer from the client's model."""
    return said(answer)


@server.tool()
def test_input_required_result_list_roots(roots: Annotated[ListRootsResult, Resolve(client_roots)]) -> str:
    """Name the client's roots."""
    return ", ".join(root.name or str(root.uri) for root in roots.roots)


@server.tool()
def test_input_required_result_request_state(ok: Annotated[Confirmation, Resolve(confirm)]) -> str:
    """Prove that the client returned the request state: no answer counts without it."""
    return f"state-ok (confirmed: {ok.ok})"


@server.tool()
def test_input_required_result_tampered_state(ok: Annotated[Confirmation, Resolve(confirm)]) -> str:
    """Fail with a protocol error before the body, if the request state was changed."""
    return f"Confirmed: {ok.ok}"


@server.tool()
def test_input_required_result_multiple_inputs(
    user: Annotated[Name, Resolve(user_name)],
    welcome: Annotated[CreateMessageResult, Resolve(greeting)],
    roots: Annotated[ListRootsResult, Resolve(client_roots)],
) -> str:
    """Ask the user, the model and the client in one round, because none of the three waits for another."""
    return f"{said(welcome)} {user.name}, you have {len(roots.roots)} root(s)."


def step1() -> Elicit[Name]:
    """Ask in the first round."""
    return Elicit("Step 1: What is your name?", Name)


def step2(first: Annotated[Name, Resolve(step1)]) -> Elicit[Color]:
    """Ask in the second round, because this resolver needs the first answer."""
    return Elicit("Step 2: What is your favorite color?", Color)


@server.tool()
def test_input_required_result_multi_round(
    first: Annotated[Name, Resolve(step1)], second: Annotated[Color, Resolve(step2)]
) -> str:
    """Ask twice, one question after the other. The state carries the first answer."""
    return f"{first.name} likes {second.color}."


def name_if_possible() -> Elicit[Name]:
    """Ask the user if the client can show a form; otherwise use a default name."""
    return Elicit("What is your name?", Name, fallback=Name(name="friend"))


def greeting_if_possible() -> Sample:
    """Ask the client's model if there is one; otherwise say hello."""
    hello = CreateMessageResult(role="assistant", content=TextContent(text="Hello"), model="none")
    return Sample("Generate a greeting", max_tokens=50, fallback=hello)


@server.tool()
def test_input_required_result_capabilities(
    user: Annotated[Name, Resolve(name_if_possible)],
    welcome: Annotated[CreateMessageResult, Resolve(greeting_if_possible)],
) -> str:
    """Ask only for capabilities that the client declared."""
    return f"{said(welcome)}, {user.name}!"


# Prompts -------------------------------------------------------------------------------------------------


@server.prompt()
def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@server.prompt()
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with two arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.prompt()
def test_prompt_with_embedded_resource(resourceUri: str) -> list[UserMessage]:
    """A prompt with a resource."""
    return [
        UserMessage(embedded(resourceUri, "Embedded resource content for testing.")),
        UserMessage("Please process the embedded resource above."),
    ]


@server.prompt()
def test_prompt_with_image() -> list[UserMessage]:
    """A prompt with an image."""
    return [UserMessage(Image(data=RED_PIXEL, format="png")), UserMessage("Please analyze the image above.")]


class Topic(BaseModel):
    """A form with one text field."""

    context: str


def user_context() -> Elicit[Topic]:
    """Ask the user for the prompt's topic."""
    return Elicit("What context should the prompt use?", Topic)


@server.prompt()
def test_input_required_result_prompt(topic: Annotated[Topic, Resolve(user_context)]) -> str:
    """A prompt that asks the user first, and has no arguments."""
    return f"Use this context: {topic.context}"


@server.completion()
async def complete(
    ref: PromptReference | ResourceTemplateReference, argument: CompletionArgument, context: CompletionContext | None
) -> Completion | None:
    """Suggest values for the arguments to `test_prompt_with_arguments`."""
    if not isinstance(ref, PromptReference):
        return None
    return Completion(values=[word for word in ("paris", "park", "party") if word.startswith(argument.value)])


# Resources -----------------------------------------------------------------------------------------------


@server.resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    """A text resource."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """A binary resource."""
    return RED_PIXEL


@server.resource("test://template/{id}/data", mime_type="application/json")
def template_data(id: str) -> str:
    """A resource for every id."""
    return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})


@server.resource("test://watched-resource", mime_type="text/plain")
def watched_resource() -> str:
    """A resource to subscribe to."""
    return "Watched resource content."


# Methods that only 2025-11-25 has -------------------------------------------------------------------------

subscriptions: set[str] = set()


async def subscribe(ctx: ServerRequestContext[Any], params: SubscribeRequestParams) -> EmptyResult:
    """Remember a resource that the client wants to hear about."""
    subscriptions.add(params.uri)
    return EmptyResult()


async def unsubscribe(ctx: ServerRequestContext[Any], params: UnsubscribeRequestParams) -> EmptyResult:
    """Forget the resource again."""
    subscriptions.discard(params.uri)
    return EmptyResult()


async def set_level(ctx: ServerRequestContext[Any], params: SetLevelRequestParams) -> EmptyResult:
    """Accept a log level; this server sends messages at `info` only."""
    return EmptyResult()


# Tasks: calls that outlive their request, for clients that declare the extension.


@server.tool()
async def greet(name: str) -> str:
    """Greet a person at once, never as a task."""
    return f"Hello, {name}!"


@server.tool(task=True)
async def slow_compute(seconds: float = 1, label: str = "") -> str:
    """Compute for some seconds."""
    await anyio.sleep(seconds)
    return f"Computed {label} in {seconds:g} s."


@server.tool(task="required")
async def failing_job() -> str:
    """Fail like a tool: the task completes with an error result."""
    await anyio.sleep(0.5)
    raise ToolError("This job intentionally fails.")


@server.tool(task=True)
async def protocol_error_job() -> str:
    """Fail like a protocol: the task fails."""
    raise MCPError(code=INTERNAL_ERROR, message="This job intentionally breaks off.")


class Deletion(BaseModel):
    """A form with one checkbox."""

    confirm: bool


@server.tool(task=True)
async def confirm_delete(filename: str, ctx: Context) -> str:
    """Ask inside the task."""
    sure = await ctx.ask("confirm", f"Delete {filename}?", Deletion)
    return f"Deleted {filename}." if sure.confirm else f"Kept {filename}."


@server.tool(task=True)
async def multi_input(ctx: Context) -> str:
    """Ask two questions at once inside the task. Their answers may arrive separately."""
    answers = await ctx.ask_all({"first": Elicit("Your name?", Name), "second": Elicit("Another name?", Name)})
    return " and ".join(answer.name for answer in answers.values())


@server.tool(task="required")
async def test_tool_with_task(user_name: Annotated[Name, Resolve(user_name)]) -> str:
    """Ask before the task exists, and continue as a task."""
    return f"Hello, {user_name.name}, from a task."


class Events(EventStore):
    """This process's messages, for clients on 2025-11-25 that reconnect for missed ones."""

    def __init__(self) -> None:
        self._sent: list[tuple[StreamId, JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: StreamId, message: JSONRPCMessage | None) -> EventId:
        """Store a message, and number it."""
        self._sent.append((stream_id, message))
        return str(len(self._sent))

    async def replay_events_after(self, last_event_id: EventId, send_callback: EventCallback) -> StreamId | None:
        """Send the later messages in an event's stream."""
        seen = int(last_event_id) if last_event_id.isdecimal() else 0
        if not 0 < seen <= len(self._sent):
            return None
        stream = self._sent[seen - 1][0]
        for number, (of_stream, message) in enumerate(self._sent[seen:], start=seen + 1):
            if of_stream == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


def asgi_app() -> Starlette:
    """Return the server as an ASGI application, with its endpoint at `/mcp`."""
    app = server.streamable_http_app(event_store=Events(), retry_interval=100)
    # The high-level server has no decorators for these three, so register them on the low-level server.
    # It rejects them for 2026-07-28 clients.
    protocol = server.session_manager.app
    protocol.add_request_handler("resources/subscribe", SubscribeRequestParams, subscribe)
    protocol.add_request_handler("resources/unsubscribe", UnsubscribeRequestParams, unsubscribe)
    protocol.add_request_handler("logging/setLevel", SetLevelRequestParams, set_level)
    return app


def main() -> None:
    """Serve on 127.0.0.1 until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--port", type=int, default=8000)
    uvicorn.run(asgi_app(), host="127.0.0.1", port=parser.parse_args().port, log_level="warning")


if __name__ == "__main__":
    main()
