"""What an author says of a tool: by the arguments of `@server.tool` and `add_tool`, or by the standalone `@tool`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple, TypedDict, TypeVar, cast, overload

from mcp_types import Icon, ToolAnnotations
from typing_extensions import Unpack

from roundtrip.errors import InvalidSignature
from roundtrip.resolvers.markers import Dependency
from roundtrip.server.exactly_once import OnUnknown
from roundtrip.server.gates import Enabled

__all__ = ["ToolDetails", "ToolOptions", "ToolSpec", "spec_from", "spec_of", "tool"]

_ATTACHED = "__roundtrip_tool__"

_T = TypeVar("_T")
_CallableT = TypeVar("_CallableT", bound=Callable[..., Any])


class ToolOptions(TypedDict, total=False):
    """The options of a tool that are roundtrip's own."""

    tags: Iterable[str] | None
    """Labels to enable, disable and filter by."""
    timeout: float | None
    """Seconds that the work of one leg may take; what people take to answer is not counted."""
    version: str | int | None
    """Its version, where several of one name are registered; the highest is listed and called."""
    input_schema: dict[str, Any] | None
    """The JSON schema of its arguments, in place of the one that its parameters give; what does not fit is rejected."""
    output_schema: dict[str, Any] | None
    """The JSON schema of its result, in place of the one that the return annotation gives."""
    enabled: Enabled | None
    """Whether it is seen at first; or a function or `Depends` that decides it for each request."""
    dependencies: Sequence[Dependency | Callable[..., Any]] | None
    """What runs before it, though no parameter takes its value."""
    confirm: str | None
    """A question to have accepted before anything runs, with arguments in braces: `"Delete {path}?"`."""
    ttl: float | None
    """Seconds a client may take over one leg's questions of this tool."""
    max_age: float | None
    """Seconds after which a call of this tool cannot be resumed."""
    recover: float | None
    """Seconds after a call of this tool has expired in which the same authenticated user can begin it again with the
    forms filled in as they were answered; nothing counts as answered. By default 0: never."""
    exactly_once: bool | Literal["when_possible"] | None
    """Whether its body runs once for a call, however often its last leg arrives; the ledger keeps what it returned.
    `when_possible` sends no round without questions: a call that is asked nothing is not covered then."""
    on_unknown: OnUnknown | None
    """Of a tool that runs once, what to do where it was begun and its process died: `fail`, which is the default, or
    `rerun`."""
    task: bool | None
    """Reserved for background tasks, which do not exist yet."""


class ToolDetails(ToolOptions, total=False):
    """Everything that can be said of a tool, but for its name."""

    title: str | None
    description: str | None
    annotations: ToolAnnotations | dict[str, Any] | None
    icons: list[Icon] | None
    meta: dict[str, Any] | None
    structured_output: bool | None


class ToolSpec(NamedTuple):
    """What has been said of a tool; None where nothing has."""

    name: str | None = None
    title: str | None = None
    description: str | None = None
    annotations: ToolAnnotations | dict[str, Any] | None = None
    icons: list[Icon] | None = None
    meta: dict[str, Any] | None = None
    structured_output: bool | None = None
    tags: Iterable[str] | None = None
    timeout: float | None = None
    version: str | int | None = None
    input_schema: dict[str, Any] | None = None
    output_schema: dict[str, Any] | None = None
    enabled: Enabled | None = None
    dependencies: Sequence[Dependency | Callable[..., Any]] | None = None
    confirm: str | None = None
    ttl: float | None = None
    max_age: float | None = None
    recover: float | None = None
    exactly_once: bool | Literal["when_possible"] | None = None
    on_unknown: OnUnknown | None = None
    task: bool | None = None

    def over(self, other: "ToolSpec") -> "ToolSpec":
        """This one, and where it says nothing, the other."""
        said: dict[str, Any] = {}
        for name in self._fields:
            own = getattr(self, name)
            said[name] = own if own is not None else getattr(other, name)
        return ToolSpec(**said)

    @property
    def hints(self) -> ToolAnnotations | None:
        """The annotations, by whichever names their fields were given."""
        given = self.annotations
        return ToolAnnotations.model_validate(given, by_name=True, by_alias=True) if isinstance(given, dict) else given

    def listed_meta(self, versions: Iterable[str] = ()) -> dict[str, Any] | None:
        """The metadata as clients see it; tags and versions are where FastMCP's clients look for them."""
        public: dict[str, Any] = {}
        if self.tags is not None:
            public["tags"] = sorted(self.label_set)
        if self.version is not None:
            public["version"] = str(self.version)
        if others := list(versions):
            public["versions"] = others
        if not public:
            return self.meta
        meta: Mapping[str, Any] = self.meta or {}
        given = meta.get("fastmcp", {})
        if not isinstance(given, Mapping):
            raise InvalidSignature(f"meta['fastmcp'] is {given!r}, and has to be a dict: tags and versions go there")
        return {**meta, "fastmcp": {**cast("Mapping[str, Any]", given), **public}}

    @property
    def label_set(self) -> frozenset[str]:
        """The tags."""
        tags = frozenset([self.tags] if isinstance(self.tags, str) else self.tags or ())
        if not all(isinstance(tag, str) for tag in tags):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidSignature(f"tags={self.tags!r} have to be strings")
        return tags


@overload
def tool(target: _CallableT, /, *, name: str | None = ..., **details: Unpack[ToolDetails]) -> _CallableT: ...
@overload
def tool(
    target: str | None = ..., /, *, name: str | None = ..., **details: Unpack[ToolDetails]
) -> Callable[[_T], _T]: ...
def tool(target: Any = None, /, *, name: str | None = None, **details: Unpack[ToolDetails]) -> Any:
    """Say of a function or method what it is as a tool, without registering it.

    For methods: decorate them with this, and register them once they are bound.

    Args:
        target: The function, or its name as a tool.
        name: Its name as a tool; by default its own.
        **details: What `Server.tool` takes.

    Example:
        ```python
        class Shop:
            @tool(description="Counts copies.")
            def count(self, title: str) -> int: ...


        server.add_tool(Shop().count)
        ```
    """
    if isinstance(target, str):
        name, target = name if name is not None else target, None
    spec = spec_from({"name": name, **details})

    def attach(fn: Any) -> Any:
        # In a class body a static or class method is still a wrapper; its function is what binding passes on.
        setattr(getattr(fn, "__func__", fn), _ATTACHED, spec)
        return fn

    return attach if target is None else attach(target)


def spec_from(said: Mapping[str, Any]) -> ToolSpec:
    """Read what was said of a tool.

    Raises:
        TypeError: There is no such option.
    """
    for name in said:
        if name not in ToolSpec._fields:
            near = get_close_matches(name.replace("-", "_").lower(), ToolSpec._fields, n=1)
            meant = f"; did you mean {near[0]}=?" if near else f"; there are {', '.join(ToolSpec._fields)}"
            raise TypeError(f"tools have no option {name!r}{meant}")
    return ToolSpec(**said)


def spec_of(fn: Any) -> ToolSpec:
    """What the standalone `@tool` said of a function."""
    attached = getattr(fn, _ATTACHED, None)
    return attached if isinstance(attached, ToolSpec) else ToolSpec()
