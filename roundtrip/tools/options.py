"""Tool options, from `@server.tool`, `add_tool` or the standalone `@tool`."""

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

load_on_use(globals(), "roundtrip.tools.guard")

_ATTACHED = "__roundtrip_tool__"
_PROMISES = ("confirm", "dependencies", "enabled", "exactly_once", "once_per")
"""Options that only roundtrip enforces. A function with any of them must not run on another server."""
_REGISTERED = "__roundtrip_registered__"
_REMOVED = ("recover",)
"""Options from earlier versions. The upgrade page names their replacements."""

_HINT_NAMES = {
    spelled: field.alias or name
    for name, field in ToolAnnotations.model_fields.items()
    for spelled in (name, field.alias or name)
}

_MAX_SECONDS = 366 * 24 * 3600.0

_T = TypeVar("_T")
_CallableT = TypeVar("_CallableT", bound=Callable[..., Any])


OnUnknown = Literal["fail", "rerun"]
OnFailure = Literal["keep", "rerun"]
Scope = Literal["caller", "service"]
Uncovered = Literal["round", "run", "reject"]


class FromMeta(NamedTuple):
    """Key in a request's `_meta` under which clients send an intent's name; see `from_meta`."""

    key: str


def from_meta(key: str) -> FromMeta:
    """Return a value for `once_per=` that reads the intent from a request's `_meta`.

    Args:
        key: The key in `_meta`, such as `"com.example/idempotencyKey"`. Its value is a text that the client chooses.

    Raises:
        ValueError: The key is empty.
    """
    if not isinstance(key, str) or not key:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"from_meta(key): the key must be a text such as 'com.example/key', got {key!r}")
    return FromMeta(key)


class After(NamedTuple):
    """Number of seconds after which a call becomes a task; see `after`."""

    seconds: float


class OnceOptions(TypedDict, total=False):
    """Tool options about how often a body runs."""

    exactly_once: bool | None
    """True to run the body only once per call, even if the last leg is sent again; the ledger stores the result."""
    once_per: str | Callable[..., Any] | FromMeta | None
    """The intent of a call: calls with the same intent share one body and one result. A template such as
    `"{order_id}"`, a function of the arguments, or `from_meta(key)` for a key that clients choose.
    """
    uncovered: Uncovered | None
    """What to do with a call that cannot be identified: `round` sends a round without questions first, `run` runs the
    body, which may then run again, and `reject` fails. The default is `round` for `exactly_once=True`, and `reject` for
    `once_per=`.
    """
    keep: float | None
    """Seconds for which an intent's result is kept after its end; one day by default."""
    declined_for: float | None
    """Seconds for which a user's decline of an intent holds; five minutes by default."""
    scope: Scope | None
    """Who shares an intent: `caller`, the default, means one caller, and `service` means all callers."""
    on_failure: OnFailure | None
    """What an intent's later calls get after its body has failed: `keep`, the default, gives them the error, and
    `rerun` runs the body again.
    """
    on_unknown: OnUnknown | None
    """What to do if a process died while it ran the body of a run-once tool: `fail`, the default, or `rerun`."""


class ToolOptions(OnceOptions, total=False):
    """Tool options that only roundtrip has."""

    tags: Iterable[str] | None
    """Labels by which tools can be enabled, disabled and filtered."""
    timeout: float | None
    """Seconds that one leg's work may take. The time that users need to answer questions does not count."""
    version: str | int | None
    """The tool's version, if several versions share one name. By default, clients call the highest."""
    input_schema: dict[str, Any] | None
    """JSON schema of the arguments, used instead of the schema generated from the parameters. Arguments that do not
    match it are rejected.
    """
    output_schema: dict[str, Any] | None
    """JSON schema of the result, used instead of the schema generated from the return annotation."""
    enabled: Enabled | None
    """False to hide the tool initially; or a visibility gate: a function or `Depends` that decides per request."""
    dependencies: Sequence[Dependency | Callable[..., Any]] | None
    """Dependencies that run before the tool although no parameter receives their values."""
    confirm: str | ExternalMarker[Any] | None
    """Question that the user must accept before anything runs, or an `Approve` with such a question. Braces insert
    arguments: `"Delete {path}?"`.
    """
    consent: bool | None
    """True to ask the user before anything runs, with all arguments shown; False not to ask, although the server's
    `consent=` would.
    """
    ttl: float | None
    """Seconds that a client has to answer the questions of one leg."""
    max_age: float | None
    """Seconds after which a call cannot be resumed."""
    inline: bool | None
    """True to run a plain function on the event loop instead of a worker thread. The function must not block."""
    task: bool | Literal["required"] | After | None
    """True to run the tool as a task for clients that support tasks; other clients get a normal call. `required` runs
    it only as a task; `after(seconds)` turns a call into a task if its body takes longer.
    """
    task_ttl: float | None
    """Seconds after which a task and its result are deleted; one week by default."""


class ToolDetails(ToolOptions, total=False):
    """All tool options except the name."""

    title: str | None
    description: str | None
    annotations: ToolAnnotations | dict[str, Any] | None
    icons: list[Icon] | None
    meta: dict[str, Any] | None
    structured_output: bool | None


class ToolSpec(ToolDetails, total=False):
    """Tool options as set by the author. Options that are None are left out."""

    name: str | None


def hints_of_tool(spec: ToolSpec) -> ToolAnnotations | None:
    """Return a tool's annotations, from a model or from a dict with either spelling of the field names."""
    given = spec.get("annotations")
    if not isinstance(given, dict):
        return given
    for name in given.keys() - _HINT_NAMES.keys():
        # The SDK ignores unknown names, so a misspelled hint would have no effect.
        from difflib import get_close_matches  # lazy: only mistakes need this import

        if near := get_close_matches(name, _HINT_NAMES, n=1, cutoff=0.8):
            raise InvalidSignature(f"annotations= has no field {name!r}; did you mean {_HINT_NAMES[near[0]]!r}?")
    return ToolAnnotations.model_validate(given, by_name=True, by_alias=True)


def listed_meta(spec: ToolSpec, versions: Iterable[str] = ()) -> dict[str, Any] | None:
    """Return the metadata for a tool's listing, with tags and versions where FastMCP clients look for them."""
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
    """Return the tool's tags as a set."""
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

    Decorate methods with `@tool`, and register them after binding. If another decorator registers the function, put
    `@tool` below that decorator.

    Args:
        target: The function, or the tool's name.
        name: The tool's name; by default the function's name.
        **details: Options that `Server.tool` accepts.

    Raises:
        InvalidSignature: A server has already registered the function, so the options would have no effect.

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
        # In a class body, a static or class method is still a wrapper; the wrapped function is registered later.
        function = getattr(fn, "__func__", fn)
        if getattr(function, _REGISTERED, None) is function:
            raise InvalidSignature(
                f"{getattr(fn, '__name__', fn)!r} is already registered without the options of @roundtrip.tool; put "
                "@roundtrip.tool below the decorator that registers the function, or give the options to add_tool"
            )
        setattr(function, _ATTACHED, spec)
        if spec.keys().isdisjoint(_PROMISES) and not spec.get("consent"):
            return fn
        return guard.guarded(fn)

    return attach if target is None else attach(target)


def spec_from(given: Mapping[str, Any]) -> ToolSpec:
    """Return the tool options that are not None.

    Raises:
        TypeError: An option does not exist.
    """
    for name in given:
        if name in _REMOVED:
            raise TypeError(f"tools have no option {name!r} anymore; docs/stability.md says what to use instead")
        if name not in ToolSpec.__annotations__:
            raise unknown_option("tool()", name, [*ToolSpec.__annotations__])
    return cast("ToolSpec", {name: value for name, value in given.items() if value is not None})


def unknown_option(owner: str, name: str, known: Sequence[str]) -> TypeError:
    """Return the error for an option that does not exist. Its message suggests the option that was probably meant.

    Args:
        owner: The function that got the option.
        name: The option's name.
        known: The options that exist.
    """
    from difflib import get_close_matches  # lazy: only mistakes need this import

    # In 0.2.0, `channels=` was called `ladder=`, whose closest match would be `ledger=`.
    near = get_close_matches("channels" if name == "ladder" else name.replace("-", "_").lower(), known, n=1)
    meant = f"did you mean {near[0]}=?" if near else f"there are {', '.join(sorted(known))}"
    return TypeError(f"{owner} got an unexpected keyword argument {name!r}; {meant}")


def spec_of(fn: Any) -> ToolSpec:
    """Return the options that the standalone `@tool` attached to a function."""
    attached = getattr(fn, _ATTACHED, None)
    return cast("ToolSpec", attached) if isinstance(attached, dict) else ToolSpec()


def mark_registered(fn: Any) -> None:
    """Mark a function as registered without options, so that attaching options later raises an error."""
    function = getattr(fn, "__func__", fn)
    if spec_of(function):
        return
    with suppress(AttributeError, TypeError):  # some callables reject new attributes
        setattr(function, _REGISTERED, function)


def version_text(version: object, *, tool: str) -> str | None:
    """Return a tool's version as text.

    Raises:
        InvalidSignature: The version is invalid.
    """
    if version is None:
        return None
    if isinstance(version, bool) or not isinstance(version, str | int):
        raise InvalidSignature(f"tool {tool!r}: version={version!r} must be text, such as '1.10', or a whole number")
    text = str(version)
    if not text or "@" in text:
        raise InvalidSignature(f"tool {tool!r}: version={text!r} must not be empty or contain '@'; use another text")
    return text


def seconds_of(
    spec: ToolSpec, option: Literal["keep", "declined_for", "task_ttl"], default: float, owner: str
) -> float:
    """Return an option that is a number of seconds.

    Raises:
        InvalidSignature: The option is not such a number, or is longer than a year.
    """
    given: Any = spec.get(option)
    if given is None:
        return default
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given <= _MAX_SECONDS:
        raise InvalidSignature(
            f"{owner}: {option} must be a number of seconds, more than 0 and at most a year, got {given!r}"
        )
    return float(given)
