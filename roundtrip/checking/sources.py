"""The parts of generated tests that are the same in all of them. Lines with `#NAME#` are filled in."""

from typing import Final

__all__ = ["ENDED", "FAILURE", "FORMS_TOLD", "LIVE", "MIXED_TOLD", "NEVER", "RESULT_SHOWN", "RETRY"]

FORMS_TOLD: Final = '''\
def told(params: Any) -> dict[str, Any]:
    """What a form shows."""
    shown = params.model_dump(mode="json", by_alias=True, exclude_none=True)
    form = shown["requestedSchema"]
    return {
        "message": shown["message"],
        "fields": form["properties"],
        "required": form.get("required", []),
    }'''

MIXED_TOLD: Final = '''\
def told(params: Any) -> dict[str, Any]:
    """What a question shows."""
    if params is None:
        return {}
    shown = params.model_dump(mode="json", by_alias=True, exclude_none=True)
    if "requestedSchema" in shown:
        form = shown["requestedSchema"]
        return {
            "message": shown["message"],
            "fields": form["properties"],
            "required": form.get("required", []),
        }
    left_out = #LEFT_OUT#
    return {name: value for name, value in shown.items() if name not in left_out}'''

NEVER: Final = '''\
async def never(*_: Any) -> Any:
    """Declares that the client can be asked; it answers with its next request."""
    raise AssertionError("the server asked on the open connection")'''

RETRY: Final = '''\
async def play_retry() -> tuple[list[dict[str, Any]], Any]:
    """Play the call, each round in a request: what was asked, and how it ended."""
    asked: list[dict[str, Any]] = []
    answers: Any = None
    state: str | None = None
    async with Client(#CLIENT#) as client:
        while True:
            try:
                result = await client.session.call_tool(
                    TOOL,
                    ARGUMENTS,
                    input_responses=answers,
                    request_state=state,
                    #META#,
                    allow_input_required=True,
                )
            except MCPError as error:
                return asked, error
            if not isinstance(result, InputRequiredResult):
                return asked, result
            requests = result.input_requests or {}
            asked.append({key: told(each.params) for key, each in requests.items()})
            if asked != ROUNDS[: len(asked)] or len(asked) > len(ANSWERS):
                return asked, None
            answers, state = ANSWERS[len(asked) - 1], result.request_state'''

LIVE: Final = '''\
async def play_live() -> tuple[list[dict[str, Any]], Any]:
    """Play the call on an open connection: what was asked, and how it ended."""
    asked: list[dict[str, Any]] = []
    script = [(number, key) for number, said in enumerate(ANSWERS) for key in said]

    def answering(kind: Any) -> Any:
        async def answer(context: Any, params: Any = None) -> Any:
            if not script:
                asked.append({"(not recorded)": told(params)})
                raise MCPError(code=-32603, message="there is no such answer")
            number, key = script.pop(0)
            if number == len(asked):
                asked.append({})
            asked[number][key] = told(params)
            return kind.model_validate(ANSWERS[number][key])

        return answer

    async with Client(#CLIENT#) as client:
        try:
            result = await client.session.call_tool(#CALL#)
        except MCPError as error:
            return asked, error
        return asked, result'''

RESULT_SHOWN: Final = '''\
def shown(result: Any) -> Any:
    """How the call ended, as far as it was recorded."""
    if not isinstance(result, CallToolResult):
        return result
    whole = result.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {name: whole[name] for name in whole if name in RESULT}'''

ENDED: Final = '''\
def is_error(result: Any) -> bool:
    """Whether the call ended with a result that is an error; it has to be a result."""
    assert isinstance(result, CallToolResult), result
    return bool(result.is_error)'''

FAILURE: Final = '''\
def failure(result: Any) -> str:
    """What the client is told of why the call failed."""
    if isinstance(result, MCPError):
        return result.error.message
    assert isinstance(result, CallToolResult) and result.is_error, result
    return "".join(getattr(block, "text", "") for block in result.content)'''
