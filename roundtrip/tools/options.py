"""Options of a tool, from `@server.tool`, `add_tool` or the standalone `@tool`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict, TypeVar, cast, overload

from mcp_types import Icon, ToolAnnotations
from typing_extensions import Unpack

from roundtrip.errors import InvalidSignature
from roundtrip.on_demand import load_on_use
from roundtrip.resolvers.markers import Dependency
from roundtrip.visibility.rules import Enabled

if TYPE_CHECKING:
    from roundtrip.questions.markers import ExternalMarker
    from roundtrip.tools import guard
else:
    load_on_use(globals(), "roundtrip.tools.guard")

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


class After(NamedTuple):
    """Seconds after which a call becomes a task; see `after`."""

    seconds: float


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
    confirm: str | ExternalMarker[Any] | None
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


class ToolSpec(ToolDetails, total=False):
    """Given options of a tool; those that are None are left out."""

    name: str | None


def hints_of_tool(spec: ToolSpec) -> ToolAnnotations | None:
    """Return the annotations of a tool, from a model or a dict with either spelling of the fields."""
    given = spec.get("annotations")
    if not isinstance(given, dict):
        return given
    for name in given.keys() - _HINT_NAMES.keys():
        # The SDK drops unknown names, so a misspelled hint would have no effect.
        from difflib import get_close_matches  # for mistakes only

        if near := get_close_matches(name, _HINT_NAMES, n=1, cutoff=0.8):
            raise InvalidSignature(f"annotations= have no {name!r}; did you mean {_HINT_NAMES[near[0]]!r}?")
    return ToolAnnotations.model_validate(given, by_name=True, by_alias=True)


def listed_meta(spec: ToolSpec, versions: Iterable[str] = ()) -> dict[str, Any] | None:
    """Return the metadata as clients see it, with tags and versions where FastMCP's clients look for them."""
    public: dict[str, Any] = {}
    if spec.get("tags") is not None:
        public["tags"] = sorted(label_set(spec))
    if (version := spec.get("version")) is not None:
        public["version"] = str(version)
    if others := list(versions):
        public["versions"] = others
    meta = spec.get("meta")
    if not public:
        return meta
    given: object = (meta or {}).get("fastmcp", {})
    if not isinstance(given, Mapping):
        raise InvalidSignature(f"meta['fastmcp'] must be a dict, got {given!r}; tags and versions go there")
    return {**(meta or {}), "fastmcp": {**cast("Mapping[str, Any]", given), **public}}


def label_set(spec: ToolSpec) -> frozenset[str]:
    """Return the tags, as a set."""
    given = spec.get("tags")
    tags = frozenset([given] if isinstance(given, str) else given or ())
    if not all(isinstance(tag, str) for tag in tags):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidSignature(f"tags must be strings, got {given!r}")
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
        if spec.keys().isdisjoint(_PROMISES):
            return fn
        return guard.guarded(fn)

    return attach if target is None else attach(target)


def spec_from(given: Mapping[str, Any]) -> ToolSpec:
    """Read the options of a tool.

    Raises:
        TypeError: An option does not exist.
    """
    for name in given:
        if name in _REMOVED:
            raise TypeError(f"tools have no option {name!r} anymore; docs/upgrading.md says what to use instead")
        if name not in ToolSpec.__annotations__:
            raise unknown_option("tools have", name, [*ToolSpec.__annotations__])
    return cast("ToolSpec", {name: value for name, value in given.items() if value is not None})


def unknown_option(owner: str, name: str, known: Sequence[str]) -> TypeError:
    """Return the error for an option that does not exist, with the one that was probably meant.

    Args:
        owner: The start of the message: what has options, and the verb.
        name: The name.
        known: The options that exist.
    """
    from difflib import get_close_matches  # for mistakes only

    # `channels=` was `ladder=` in 0.2.0, which reads like `ledger=`.
    near = get_close_matches("channels" if name == "ladder" else name.replace("-", "_").lower(), known, n=1)
    meant = f"did you mean {near[0]}=?" if near else f"there are {', '.join(sorted(known))}"
    return TypeError(f"{owner} no option {name!r}; {meant}")


def spec_of(fn: Any) -> ToolSpec:
    """Return the options that the standalone `@tool` attached to a function."""
    attached = getattr(fn, _ATTACHED, None)
    return cast("ToolSpec", attached) if isinstance(attached, dict) else ToolSpec()


def mark_registered(fn: Any) -> None:
    """Note that a server has registered a function without options: any that come later are an error."""
    function = getattr(fn, "__func__", fn)
    if spec_of(function):
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
