"""A server of FastMCP, which asks in both eras."""

from fastmcp import Context, FastMCP
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult

server = FastMCP("cinema")
FORM = {
    "type": "object",
    "properties": {"row": {"type": "string", "enum": ["front", "back"]}},
    "required": ["row"],
}


@server.tool
async def book(film: str, ctx: Context) -> str | InputRequiredResult:
    """Book a seat."""
    message = f"Which row for {film}?"
    request = ctx.request_context
    if request is not None and request.protocol_version < "2026":
        elicited = await ctx.elicit(message, ["front", "back"])
        row = getattr(elicited, "data", None)
        return f"{film}, {row}"
    answer = (ctx.input_responses or {}).get("row")
    if not isinstance(answer, ElicitResult):
        params = ElicitRequestFormParams(message=message, requested_schema=FORM)
        return InputRequiredResult(input_requests={"row": ElicitRequest(params=params)}, request_state="asked")
    row = (answer.content or {})["row"]
    return f"{film}, {row}"


if __name__ == "__main__":
    server.run()
