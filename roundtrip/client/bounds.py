"""Answers up to a size: whoever is called may be anybody, and may never come to an end."""

from collections.abc import AsyncIterator

import httpx2

__all__ = ["TooLarge", "bound", "uncompressed"]

_MIB = 2**20


class TooLarge(Exception):
    """An answer is larger than anybody wants to read."""


class _Bounded(httpx2.AsyncByteStream):
    """The body of an answer, up to a size."""

    def __init__(self, body: httpx2.AsyncByteStream, most: int) -> None:
        self._body = body
        self._most = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._most
        async for part in self._body:
            left -= len(part)
            if left < 0:
                raise TooLarge(f"its answer is larger than {self._most // _MIB} MiB")
            yield part

    async def aclose(self) -> None:
        await self._body.aclose()


def uncompressed() -> dict[str, str]:
    """The header of a request whose answer is to be as large as it looks."""
    return {"accept-encoding": "identity"}


def bound(response: httpx2.Response, *, most: int) -> None:
    """Have no more than some bytes read of an answer.

    Raises:
        TooLarge: It is compressed, and may be of any size.
    """
    if "content-encoding" in response.headers:
        raise TooLarge("it sends compressed what was not to be")
    if isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = _Bounded(response.stream, most)
