"""Questions that an author writes by hand."""

from typing import Any

from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult

__all__ = ["by_hand", "question"]


def question() -> ElicitRequest:
    schema: dict[str, Any] = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
    return ElicitRequest(params=ElicitRequestFormParams(message="Sure?", requested_schema=schema))


def by_hand(state: str | None) -> InputRequiredResult:
    return InputRequiredResult(input_requests={"sure": question()}, request_state=state)
