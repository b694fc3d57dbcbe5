"""A server with something to protect, and a real client that sends any message."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Final

import anyio
from hypothesis import strategies as st
from mcp.client import Client
from mcp.client.context import ClientRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, ElicitRequestParams, ElicitResult, ListRootsResult, Request, Result
from pydantic import BaseModel, Field

from roundtrip import Elicit, ElicitationResult, ListRoots, Resolve, Server
from roundtrip.testing import Era, LegByLeg

VALID: Final[dict[str, Any]] = {
    "confirm": {"action": "accept", "content": {"ok": True}},
    "list_roots": {"roots": []},
}
"""The answers that open it."""


class Choice(BaseModel):
    ok: bool
    note: str = Field(default="", max_length=10)


class Reply(Result):
    """Any result, unparsed."""

    result_type: str | None = None
    is_error: bool | None = None
    request_state: str | None = None


class Vault:
    """Server whose tool opens for valid answers only, and counts the runs of its functions."""

    def __init__(self, *, encrypt: bool = False) -> None:
        self.opened = 0
        self.computed = 0
        self.server = Server("vault", keys=[b"k" * 32], encrypt=encrypt)

        async def confirm() -> Elicit[Choice]:
            return Elicit("Open?", Choice, attempts=1000)

        async def list_roots() -> ListRoots:
            return ListRoots()

        async def combination(seen: Annotated[ElicitationResult[Choice], Resolve(confirm)]) -> int:
            self.computed += 1
            return len(seen.action)

        @self.server.tool(name="open")
        async def open_(
            choice: Annotated[Choice, Resolve(confirm)],
            roots: Annotated[ListRootsResult, Resolve(list_roots)],
            number: Annotated[int, Resolve(combination)],
        ) -> str:
            self.opened += 1
            return f"{choice} {roots} {number}"

    @property
    def untouched(self) -> bool:
        return self.opened == self.computed == 0

    async def token(self) -> str:
        """Return the state of a call that waits for its answers."""
        hopper = LegByLeg([self.server], list_roots_callback=_roots)
        await hopper.leg("open")
        return hopper.token


Send = Callable[[Mapping[str, Any]], Awaitable[Reply | MCPError]]


def besiege(vault: Vault, play: Callable[[Send], Awaitable[None]]) -> None:
    """Play against a vault; `send` takes the parameters of a call of its tool, however wrong."""

    async def run() -> None:
        failure: AssertionError | None = None
        async with Client(
            vault.server, mode=Era.RETRY.value, elicitation_callback=_elicit, list_roots_callback=_roots
        ) as client:

            async def send(params: Mapping[str, Any]) -> Reply | MCPError:
                whole: dict[str, Any] = {"name": "open", "arguments": {}, **params}
                try:
                    return await client.session.send_request(
                        Request[dict[str, Any], str](method="tools/call", params=whole), Reply
                    )
                except MCPError as error:
                    return error

            try:
                await play(send)
            except AssertionError as error:
                # Raised in here it would leave the client inside an exception group.
                failure = error
        if failure is not None:
            raise failure

    anyio.run(run)


def is_the_frozen_refusal(answer: Reply | MCPError) -> bool:
    return (
        isinstance(answer, MCPError)
        and answer.code == INVALID_PARAMS
        and answer.message == "Invalid or expired requestState"
        and answer.error.data == {"reason": "invalid_request_state"}
    )


def json_of(text: st.SearchStrategy[str], *, leaves: int = 8) -> st.SearchStrategy[Any]:
    """Return a strategy for any JSON value over some texts."""

    def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.one_of(st.lists(inner, max_size=3), st.dictionaries(text, inner, max_size=3))

    plain: st.SearchStrategy[Any] = st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), text
    )
    return st.recursive(plain, nested, max_leaves=leaves)


async def _elicit(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
    raise AssertionError("a retry-era question is answered by the next leg")


async def _roots(context: ClientRequestContext) -> ListRootsResult:
    raise AssertionError("a retry-era question is answered by the next leg")
