"""Ask a client the questions of a stored call that only its software answers: samples and roots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp_types import CreateMessageRequestParams

from roundtrip.errors import CapabilityMissing
from roundtrip.questions.markers import ListRoots, Marker, SdkSample
from roundtrip.questions.wire import question_of
from roundtrip.server.context import Context

__all__ = ["ask_client"]


async def ask_client(ctx: Context, questions: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the client's answers as on the wire, by the keys of their questions; None if it cannot answer all.

    Args:
        ctx: A request of the client.
        questions: The requests as on the wire.
    """
    markers = {key: _marker_of(asked) for key, asked in questions.items()}
    try:
        for key, marker in markers.items():
            question_of(marker).require(key, ctx.client_capabilities)
    except CapabilityMissing:
        return None
    said = await ctx.ask_all(markers)
    return {key: question_of(markers[key]).plain(answer) for key, answer in said.items()}


def _marker_of(asked: Mapping[str, Any]) -> Marker:
    if asked["method"] == "roots/list":
        return ListRoots()
    params = CreateMessageRequestParams.model_validate(asked["params"], by_name=False)
    sample = SdkSample(params.messages, max_tokens=params.max_tokens)
    sample.params = params
    return sample
