"""`Resolve`, the marker that fills a parameter by running a function."""

from collections.abc import Callable, Sequence
from typing import Any

from mcp.server.mcpserver.resolve import Resolve as SdkResolve

__all__ = ["Resolve", "SdkResolve"]


class Resolve(SdkResolve):
    """Fill a parameter by running `fn`: `Annotated[T, Resolve(fn)]`.

    The parameter disappears from what the client sees, and a value it sends is ignored. `fn` may take the tool's
    arguments by name, a `Context`, and parameters of its own with `Resolve`; it returns the value, or a question
    (`Elicit`, `Sample`, `ListRoots`) whose answer becomes the value.

    Args:
        fn: A function, coroutine function, method, class, callable object or partial.
        key: The question's name on the wire and in calls in flight. By default the function's name.
        was: Names this question had in earlier versions, so that a rename does not ask again.
        once: Keep what `fn` yields first for the whole call: it is not run again on later legs.

    Example:
        ```python
        @server.tool()
        async def order(title: str, quote: Annotated[float, Resolve(get_quote, once=True)]) -> str: ...
        ```
    """

    def __init__(
        self, fn: Callable[..., Any], *, key: str | None = None, was: Sequence[str] = (), once: bool = False
    ) -> None:
        super().__init__(fn)
        if isinstance(was, str):
            raise TypeError(f"Resolve(was={was!r}) takes a sequence of names: was=({was!r},)")
        if key == "":
            raise ValueError("Resolve(key='') names nothing; leave it out to use the function's name")
        for name in (key, *was):
            if name is not None and name.startswith("~"):
                raise ValueError(f"{name!r} cannot name a question; give it a name that does not begin with '~'")
        self.key = key
        self.was = tuple(was)
        self.once = once

    def __repr__(self) -> str:
        return f"Resolve({getattr(self.fn, '__qualname__', self.fn)!r})"
