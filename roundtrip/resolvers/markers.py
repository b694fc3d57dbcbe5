"""`Resolve` and `Depends`, the markers that fill a parameter by running a function."""

import hashlib
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Never, cast

from mcp.server.mcpserver.resolve import Resolve as SdkResolve

from roundtrip.errors import InvalidSignature
from roundtrip.resolvers.signatures import display_name, identity, is_async, is_async_generator_function

__all__ = ["Dependency", "Depends", "Marker", "Resolve", "SdkResolve", "check_inline"]


def check_inline(fn: Callable[..., Any], *, subject: str) -> None:
    """Check that a function may run inline.

    Raises:
        InvalidSignature: The function is an `async def`.
    """
    if is_async(fn) or is_async_generator_function(fn):
        raise InvalidSignature(
            f"{subject}: inline must be used with a plain def, got an async def; leave out inline=True: an async def "
            "always runs on the event loop"
        )


class Resolve(SdkResolve):
    """Fill a parameter by running `fn`: `Annotated[T, Resolve(fn)]`.

    Clients do not see the parameter, and a value that a client sends for it is ignored. `fn` may take the tool's
    arguments by name, a `Context`, and parameters with `Resolve`. It returns the value, or a question (`Elicit`,
    `Sample`, `ListRoots`) whose answer becomes the value.

    Args:
        fn: A function, coroutine function, method, class, callable object or partial.
        name: The question's name on the wire and in calls in flight. By default the function's name.
        former_names: Names that the question had in earlier versions, so that a renamed question is not asked again.
        remember: Keep the first value of `fn` for the whole call: `fn` does not run again on later legs.
        inline: Run a plain `fn` on the event loop instead of in a worker thread. `fn` must not block.

    Example:
        ```python
        @server.tool()
        async def order(title: str, quote: Annotated[float, Resolve(get_quote, remember=True)]) -> str: ...
        ```
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        name: str | None = None,
        former_names: Sequence[str] = (),
        remember: bool = False,
        inline: bool = False,
    ) -> None:
        super().__init__(fn)
        if inline:
            check_inline(fn, subject=f"Resolve({display_name(fn)})")
        if isinstance(former_names, str):
            raise TypeError(f"former_names must be a sequence of names, got {former_names!r}; use ({former_names!r},)")
        if name == "":
            raise ValueError("Resolve(name='') must not be empty; leave out name= to use the function's name")
        for given in (name, *former_names):
            if given is not None and given.startswith("~"):
                raise ValueError(f"{given!r} cannot name a question; use a name that does not begin with '~'")
        self.name = name
        self.former_names = tuple(former_names)
        self.remember = remember
        self.inline = inline

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> Never:
        """Raise an error on a server without roundtrip, because such a server would let clients fill the parameter."""
        raise InvalidSignature(
            f"{self!r} fills a parameter, but roundtrip is not installed on this server; call install(server) from "
            "roundtrip.install or roundtrip.fastmcp before the server's tools are registered"
        )

    def __repr__(self) -> str:
        return f"Resolve({getattr(self.fn, '__qualname__', self.fn)!r})"


class Dependency:
    """The marker that `Depends` makes: a function, its positional dependencies, and whether its value is shared."""

    __slots__ = ("base", "fn", "inline", "subs", "use_cache")

    def __init__(
        self,
        fn: Callable[..., Any],
        *subs: "Callable[..., Any] | Marker",
        use_cache: bool = True,
        inline: bool = False,
    ) -> None:
        for part in (fn, *subs):
            if not callable(part) and (part is fn or not isinstance(cast("object", part), _MARKERS)):
                raise TypeError(f"Depends({part!r}) must be given functions; write a function that returns the value")
        self.fn: Callable[..., Any] = fn
        self.subs: tuple[Marker, ...] = tuple(sub if isinstance(sub, _MARKERS) else Dependency(sub) for sub in subs)
        self.base: Hashable = identity(fn)
        """A key that is equal for two markers with the same function and the same positional dependencies."""
        if subs:
            self.base = self.base, digest_of([base_of(sub) for sub in self.subs])
        self.use_cache = use_cache
        if inline:
            check_inline(fn, subject=f"Depends({display_name(fn)})")
        self.inline = inline

    def __repr__(self) -> str:
        return f"Depends({getattr(self.fn, '__qualname__', self.fn)!r})"


def Depends(
    fn: Callable[..., Any], *subs: "Callable[..., Any] | Marker", use_cache: bool = True, inline: bool = False
) -> Any:
    """Fill a parameter by running `fn`: `account: Account = Depends(current_account)`.

    `Depends` is another spelling of `Resolve`, as a default or in `Annotated`. Use it for values that need no answer
    from a user. A generator function or a context-manager class is entered before the body and exited when the leg
    ends.

    Args:
        fn: A function, coroutine function, generator function, method, class, callable object or partial.
        *subs: Functions or other `Depends` markers. `fn` receives their values as its first positional arguments.
        use_cache: True runs `fn` once and shares the value among all consumers. False runs `fn` for each consumer.
        inline: Run a plain `fn` on the event loop instead of in a worker thread. `fn` must not block. Generators with a
            cancel scope need this option.

    Returns:
        A marker. Its static type is Any, so that type checkers accept it as any parameter's default.

    Example:
        ```python
        @server.tool(enabled=Depends(is_pro, current_account))
        async def forecast(city: str, account: Account = Depends(current_account)) -> str: ...
        ```
    """
    return Dependency(fn, *subs, use_cache=use_cache, inline=inline)


def base_of(marker: "Marker") -> Hashable:
    """Return a key that is equal for two markers with the same function and the same positional dependencies."""
    return marker.base if isinstance(marker, Dependency) else identity(marker.fn)


def digest_of(parts: object) -> bytes:
    """Return a digest of parts that may be nested too deeply to compare as tuples."""
    return hashlib.sha256(repr(parts).encode()).digest()


_MARKERS = (SdkResolve, Dependency)

Marker = SdkResolve | Dependency
"""A marker in either spelling, `Resolve` or `Depends`."""
