"""HTTP responses. When a response ends, the questions that wait for its client also end.

In the live era, one request's response carries a question and later the result. The SDK drops messages that are sent
after the client has left, so the question would wait forever. Each answer arrives in a separate request. A question
would therefore also wait forever in a process that no longer accepts requests.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import anyio
from starlette.requests import Request
from starlette.types import Scope

from roundtrip.errors import ConnectionLost

T = TypeVar("T")

RESPONSE: Final = "roundtrip.response"


class HttpResponse:
    """The response to one request, until it ends."""

    __slots__ = ("ending", "over", "waiting")

    def __init__(self) -> None:
        self.over = False
        self.ending = False
        self.waiting: set[anyio.CancelScope] = set()

    def end(self, *, ending: bool = False) -> None:
        """End the waiting questions. `ending` is True if the process is about to end."""
        self.over = True
        self.ending = self.ending or ending
        for scope in self.waiting:
            scope.cancel()


def take_no_answers(scope: Scope) -> None:
    """End the questions of a running request, because the process no longer accepts the requests that bring answers."""
    response = scope.get(RESPONSE)
    if isinstance(response, HttpResponse):
        response.end(ending=True)


async def while_answerable(request: Any, ask: Callable[[], Awaitable[T]]) -> T:
    """Return the result of `ask`, unless the HTTP response ends first.

    Args:
        request: The request in the SDK's context. If its response is not watched, `ask` has no time limit.
        ask: Asks the client.

    Raises:
        ConnectionLost: The client has left, or the process is about to end.
    """
    response = request.scope.get(RESPONSE) if isinstance(request, Request) else None
    if not isinstance(response, HttpResponse):
        return await ask()
    if not response.over:
        with anyio.CancelScope() as scope:
            response.waiting.add(scope)
            try:
                return await ask()
            finally:
                response.waiting.discard(scope)
    raise ConnectionLost(ending=response.ending)
