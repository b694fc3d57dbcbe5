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
            f"{subject}: inline must be used with a plain def, got an async def; leave out inline=True: it runs on "
            "the event loop already"
        )


class Resolve(SdkResolve):
    """Fill a parameter by running `fn`: `Annotated[T, Resolve(fn)]`.

    Clients do not see the parameter, and a value that they send for it is ignored. `fn` may take the tool's arguments
    by name, a `Context`, and parameters with `Resolve`. It returns the value, or a question (`Elicit`, `Sample`,
    `ListRoots`) whose answer becomes the value.

    Args:
        fn: A function, coroutine function, method, class, callable object or partial.
        name: The question's name on the wire and in calls in flight. By default the function's name.
        former_names: Names this question had in earlier versions, so that a rename does not ask again.
        remember: Keep the first value of `fn` for the whole call: it does not run again on later legs.
        inline: Run a plain `fn` on the event loop instead of in a worker thread. It must not block.

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
            raise TypeError(f"former_names must be a sequence of names, got {former_names!r}; give ({former_names!r},)")
        if name == "":
            raise ValueError("Resolve(name='') names nothing; leave it out to use the function's name")
        for given in (name, *former_names):
            if given is not None and given.startswith("~"):
                raise ValueError(f"{given!r} cannot name a question; give it a name that does not begin with '~'")
        self.name = name
        self.former_names = tuple(former_names)
        self.remember = remember
        self.inline = inline

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> Never:
        """Reject use inside a client's data type: its server would let clients fill the parameter."""
        raise InvalidSignature(
            f"{self!r} fills a parameter, and its server has no roundtrip that runs it; call install(server) of "
            "roundtrip.install, or of roundtrip.fastmcp, before its tools are registered"
        )

    def __repr__(self) -> str:
        return f"Resolve({getattr(self.fn, '__qualname__', self.fn)!r})"


class Dependency:
    """Marker that `Depends` makes: a function, its positional dependencies, and whether its value is shared."""

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
                raise TypeError(f"Depends({part!r}) takes functions; give it one that returns the value")
        self.fn: Callable[..., Any] = fn
        self.subs: tuple[Marker, ...] = tuple(sub if isinstance(sub, _MARKERS) else Dependency(sub) for sub in subs)
        self.base: Hashable = identity(fn)
        """A key that is equal for two mentions of one function with the same positional dependencies."""
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

    `Depends` is another spelling of `Resolve`, in a default or in `Annotated`, for values that a request needs and does
    not ask for. A generator function, or a context-manager class, is entered before the body and exited when the leg
    ends.

    Args:
        fn: A function, coroutine function, generator function, method, class, callable object or partial.
        *subs: Functions, or other `Depends`, whose values `fn` receives as its first positional arguments.
        use_cache: Run it once for all its consumers. False runs it for each.
        inline: Run a plain `fn` on the event loop instead of in a worker thread. It must not block. Generators with a
            cancel scope need it.

    Returns:
        A marker, typed as Any, so that it may be the default of any parameter.

    Example:
        ```python
        @server.tool(enabled=Depends(is_pro, current_account))
        async def forecast(city: str, account: Account = Depends(current_account)) -> str: ...
        ```
    """
    return Dependency(fn, *subs, use_cache=use_cache, inline=inline)


def base_of(marker: "Marker") -> Hashable:
    """Return a key that is equal for two mentions of one function with the same positional dependencies."""
    return marker.base if isinstance(marker, Dependency) else identity(marker.fn)


def digest_of(parts: object) -> bytes:
    """Return a digest for parts that may be nested too deeply to compare as tuples."""
    return hashlib.sha256(repr(parts).encode()).digest()


_MARKERS = (SdkResolve, Dependency)

Marker = SdkResolve | Dependency
"""A marker in either spelling."""
