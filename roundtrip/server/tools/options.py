"""Options of a tool, from `@server.tool`, `add_tool` or the standalone `@tool`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict, TypeVar, cast, overload

from mcp_types import Icon, ToolAnnotations
from typing_extensions import Unpack

from roundtrip.errors import InvalidSignature
from roundtrip.resolvers.markers import Dependency
from roundtrip.server.visibility import Enabled

if TYPE_CHECKING:
    from roundtrip.questions.approvals import Approve
    from roundtrip.server.tools.task_mode import After

__all__ = [
    "OnUnknown",
    "ToolDetails",
    "ToolOptions",
    "ToolSpec",
    "mark_registered",
    "spec_from",
    "spec_of",
    "tool",
    "version_text",
]

_ATTACHED = "__roundtrip_tool__"
_PROMISES = ("confirm", "dependencies", "enabled", "exactly_once")
"""Options of a function that must not run in a server without roundtrip."""
_REGISTERED = "__roundtrip_registered__"
_REMOVED = ("recover",)
"""Options of earlier versions, which the upgrade page lists."""

_HINT_NAMES = {
    spelled: field.alias or name
    for name, field in ToolAnnotations.model_fields.items()
    for spelled in (name, field.alias or name)
}

_T = TypeVar("_T")
_CallableT = TypeVar("_CallableT", bound=Callable[..., Any])


OnUnknown = Literal["fail", "rerun"]


class ToolOptions(TypedDict, total=False):
    """Options of a tool that only roundtrip has."""

    tags: Iterable[str] | None
    """Labels to enable, disable and filter by."""
    timeout: float | None
    """Seconds that the work of one leg may take, not counting the time users take to answer."""
    version: str | int | None
    """Version of the tool, if several of one name are registered; clients get the highest."""
    input_schema: dict[str, Any] | None
    """JSON schema of the arguments that replaces the one of the parameters; other arguments are rejected."""
    output_schema: dict[str, Any] | None
    """JSON schema of the result that replaces the one of the return annotation."""
    enabled: Enabled | None
    """False to hide the tool at first; or a visibility gate: a function or `Depends` that decides for each request."""
    dependencies: Sequence[Dependency | Callable[..., Any]] | None
    """Dependencies that run before the tool, although no parameter takes their values."""
    confirm: str | Approve | None
    """Question that the user must accept before anything runs, with arguments in braces: `"Delete {path}?"`; or an
    `Approve` with such a message."""
    ttl: float | None
    """Seconds that a client may take to answer the questions of one leg."""
    max_age: float | None
    """Seconds after which a call cannot be resumed."""
    exactly_once: bool | Literal["when_possible"] | None
    """True to run the body once for each call, even if its last leg arrives again; the ledger stores the result.
    `when_possible` sends no round without questions, so it does not cover calls that ask nothing."""
    on_unknown: OnUnknown | None
    """The action if a process died in the body of a tool that runs once: `fail`, the default, or `rerun`."""
    inline: bool | None
    """True to run a plain function on the event loop, and not in a worker thread. It must not block."""
    task: bool | Literal["required"] | After | None
    """True to run it as a task for clients that can have tasks, and as a usual call for others; `required` to run it as
    a task only; `after(seconds)` to make a call a task if its body takes longer."""
    task_ttl: float | None
    """Seconds after which a task is forgotten, with its result. By default a week."""


class ToolDetails(ToolOptions, total=False):
    """All options of a tool except its name."""

    title: str | None
    description: str | None
    annotations: ToolAnnotations | dict[str, Any] | None
    icons: list[Icon] | None
    meta: dict[str, Any] | None
    structured_output: bool | None


class ToolSpec(NamedTuple):
    """Given options of a tool; None where absent."""

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
    confirm: str | Approve | None = None
    ttl: float | None = None
    max_age: float | None = None
    exactly_once: bool | Literal["when_possible"] | None = None
    on_unknown: OnUnknown | None = None
    inline: bool | None = None
    task: bool | Literal["required"] | After | None = None
    task_ttl: float | None = None

    def over(self, other: ToolSpec) -> ToolSpec:
        """Return these options, completed from `other`."""
        merged: dict[str, Any] = {}
        for name in self._fields:
            own = getattr(self, name)
            merged[name] = own if own is not None else getattr(other, name)
        return ToolSpec(**merged)

    @property
    def hints(self) -> ToolAnnotations | None:
        """Return the annotations, from a model or a dict with either spelling of the fields."""
        given = self.annotations
        if not isinstance(given, dict):
            return given
        for name in given.keys() - _HINT_NAMES.keys():
            # The SDK drops unknown names, so a misspelled hint would have no effect.
            from difflib import get_close_matches  # for mistakes only

            if near := get_close_matches(name, _HINT_NAMES, n=1, cutoff=0.8):
                raise InvalidSignature(f"annotations= have no {name!r}; did you mean {_HINT_NAMES[near[0]]!r}?")
        return ToolAnnotations.model_validate(given, by_name=True, by_alias=True)

    def listed_meta(self, versions: Iterable[str] = ()) -> dict[str, Any] | None:
        """Return the metadata as clients see it, with tags and versions where FastMCP's clients look for them."""
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
            raise InvalidSignature(f"meta['fastmcp'] must be a dict, got {given!r}; tags and versions go there")
        return {**meta, "fastmcp": {**cast("Mapping[str, Any]", given), **public}}

    @property
    def label_set(self) -> frozenset[str]:
        """Return the tags, as a set."""
        tags = frozenset([self.tags] if isinstance(self.tags, str) else self.tags or ())
        if not all(isinstance(tag, str) for tag in tags):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidSignature(f"tags must be strings, got {self.tags!r}")
        return tags


@overload
def tool(target: _CallableT, /, *, name: str | None = ..., **details: Unpack[ToolDetails]) -> _CallableT: ...
@overload
def tool(
    target: str | None = ..., /, *, name: str | None = ..., **details: Unpack[ToolDetails]
) -> Callable[[_T], _T]: ...
def tool(target: Any = None, /, *, name: str | None = None, **details: Unpack[ToolDetails]) -> Any:
    """Attach tool options to a function or method without registering it.

    Decorate methods with this, and register them once they are bound. Below another decorator it comes first.

    Args:
        target: The function, or its name as a tool.
        name: Its name as a tool; by default its own.
        **details: Options that `Server.tool` accepts.

    Raises:
        InvalidSignature: A server has registered the function already, and would not read the options.

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
        # In a class body, a static or class method is still a wrapper around the function that is later registered.
        function = getattr(fn, "__func__", fn)
        if getattr(function, _REGISTERED, None) is function:
            raise InvalidSignature(
                f"{getattr(fn, '__name__', fn)!r} is registered already, without the options of this @roundtrip.tool; "
                "put it below the decorator that registers the function, or give the options to add_tool"
            )
        setattr(function, _ATTACHED, spec)
        if all(getattr(spec, each) is None for each in _PROMISES):
            return fn
        from roundtrip.server.tools.guard import guarded  # most functions promise nothing

        return guarded(fn)

    return attach if target is None else attach(target)


def spec_from(given: Mapping[str, Any]) -> ToolSpec:
    """Read the options of a tool.

    Raises:
        TypeError: An option does not exist.
    """
    for name in given:
        if name in _REMOVED:
            raise TypeError(f"tools have no option {name!r} anymore; docs/upgrading.md says what to use instead")
        if name not in ToolSpec._fields:
            from difflib import get_close_matches  # for mistakes only

            near = get_close_matches(name.replace("-", "_").lower(), ToolSpec._fields, n=1)
            meant = f"; did you mean {near[0]}=?" if near else f"; there are {', '.join(ToolSpec._fields)}"
            raise TypeError(f"tools have no option {name!r}{meant}")
    return ToolSpec(**given)


def spec_of(fn: Any) -> ToolSpec:
    """Return the options that the standalone `@tool` attached to a function."""
    attached = getattr(fn, _ATTACHED, None)
    return attached if isinstance(attached, ToolSpec) else ToolSpec()


def mark_registered(fn: Any) -> None:
    """Note that a server has registered a function without options: any that come later are an error."""
    function = getattr(fn, "__func__", fn)
    if spec_of(function) != ToolSpec():
        return
    with suppress(AttributeError, TypeError):  # some callables take no attributes
        setattr(function, _REGISTERED, function)


def version_text(version: object, *, tool: str) -> str | None:
    """Return an author's version as text.

    Raises:
        InvalidSignature: The version is invalid.
    """
    if version is None:
        return None
    if isinstance(version, bool) or not isinstance(version, str | int):
        raise InvalidSignature(f"tool {tool!r}: version={version!r} must be text, such as '1.10', or a whole number")
    text = str(version)
    if not text or "@" in text:
        raise InvalidSignature(f"tool {tool!r}: version={text!r} must not be empty or contain '@', which keys use")
    return text
