"""How questions reach the client: returned with a token (retry era) or sent over the open connection (live era)."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from mcp_types import ClientCapabilities, ElicitResult, InputRequest, InputResponse
from pydantic import BaseModel, ValidationError

from roundtrip.engine.answers import PendingQuestion
from roundtrip.errors import ChannelMissing

__all__ = ["Client", "ask_live", "require_channel"]


class Client(Protocol):
    """The client of one request, as far as asking it goes."""

    @property
    def protocol_version(self) -> str | None:
        """The negotiated revision; None where there is no request at all."""
        ...

    @property
    def capabilities(self) -> ClientCapabilities | None:
        """What it declared."""
        ...

    @property
    def can_be_asked_live(self) -> bool:
        """Whether its connection carries requests from the server."""
        ...

    @property
    def in_session(self) -> bool:
        """Whether its requests belong to a session that the server keeps."""
        ...

    async def send(self, request: InputRequest, result_type: type[BaseModel]) -> InputResponse:
        """Put one question and wait for the answer.

        Raises:
            ConnectionLost: The client left before it answered.
        """
        ...

    async def tell_done(self, elicitation_id: str) -> None:
        """Tell a live client that its user is done with a page."""
        ...


def require_channel(client: Client, batch: Sequence[PendingQuestion]) -> None:
    """Raise ChannelMissing unless a live batch can be sent at all."""
    if not client.can_be_asked_live:
        keys = [waiting.key for waiting in batch]
        raise ChannelMissing(keys, protocol_version=client.protocol_version, in_session=client.in_session)


async def ask_live(client: Client, batch: Sequence[PendingQuestion]) -> Mapping[str, InputResponse | None]:
    """Put a batch of questions one after the other, and wait for each.

    A malformed answer comes back as None. After an answer that refuses the whole call the rest is not asked.
    """
    answers: dict[str, InputResponse | None] = {}
    for waiting in batch:
        try:
            answer = await client.send(waiting.request(), waiting.question.result_type)
        except ValidationError:
            answer = None
        answers[waiting.key] = answer
        if waiting.decisive and isinstance(answer, ElicitResult) and answer.action != "accept":
            break
    return answers
