"""Tool registration: check a function and its options, and generate the tool's schemas."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import logging
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, Protocol, TypeVar, cast, get_args, get_origin

from mcp.server.mcpserver.tools.base import Tool as SdkTool
from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata, func_metadata
from mcp.shared.inbound import find_invalid_x_mcp_header, x_mcp_header_map
from mcp.shared.tool_name_validation import validate_and_warn_tool_name
from mcp_types import Tool as WireTool
from pydantic import PydanticUserError

from roundtrip.errors import InvalidSignature
from roundtrip.legs.extensions import LegExtension
from roundtrip.legs.functions import AskingFunction, FunctionSignature, read_signature
from roundtrip.machine.journal import Limits
from roundtrip.on_demand import load_on_use
from roundtrip.questions.markers import ExternalMarker
from roundtrip.resolvers.markers import Dependency
from roundtrip.resolvers.signatures import display_name, given_by_partials, hints_of
from roundtrip.tools import options
from roundtrip.tools.arguments import ArgumentReader
from roundtrip.tools.promises import OncePolicy, TaskMode
from roundtrip.tools.results import WRAPPED, mark_wrapped, results_for, returned_type
from roundtrip.visibility.rules import Component, read_enabled

if TYPE_CHECKING:
    from roundtrip.tools import confirmation
    from roundtrip.tools.consent_rules import ConsentPolicy
    from roundtrip.tools.schemas import checks, docstrings, inlining
    from roundtrip.visibility.gates import VisibilityGate

load_on_use(
    globals(),
    "roundtrip.tools.confirmation",
    "roundtrip.tools.schemas.docstrings",
    "roundtrip.tools.schemas.checks",
    "roundtrip.tools.schemas.inlining",
)

logger = logging.getLogger("roundtrip")

FunctionT = TypeVar("FunctionT", bound=AskingFunction)

_SDK_TOOL_OPTIONS: Final = ("name", "title", "description", "annotations", "icons", "meta")
"""Options that an SDK tool object carries."""
# Pattern for the start of a docstring section. The section parsers are imported only if a docstring matches it.
_SECTION_START: Final = re.compile(r"^(?::\w|[A-Z][A-Za-z ]*:[ \t]*$|-{3,}[ \t]*$)", re.MULTILINE)


_DEPENDENCY_PACKAGES: Final = {"docket", "uncalled_for"}
"""Packages whose dependencies can provide parameter values. While a package is not imported, no parameter can use its
dependencies.
"""


class ForeignParameters(Protocol):
    """Support for parameters whose values come from another library's dependencies."""

    def filled(self, fn: Callable[..., Any], /) -> Mapping[str, Any]:
        """Return the other library's dependencies, keyed by the tool parameter that each one fills."""
        ...

    def fill(self, signature: FunctionSignature, policies: Mapping[type, object], /) -> LegExtension:
        """Return the leg extension that fills these parameters during a call."""
        ...

    def reject(self, given: Any, subject: str, /) -> None:
        """Reject another library's dependency marker in a place where roundtrip cannot resolve it.

        Raises:
            InvalidSignature: The value is a dependency marker of the other library.
        """
        ...


class ToolDefaults(NamedTuple):
    """Server options that apply to all tools on the server."""

    limits: Limits
    foreign: ForeignParameters
    """Support for parameters whose values come from another library's dependencies."""
    build: str | None = None
    strict: bool = False
    inline: bool = True
    consent: ConsentPolicy | None = None
    """Decides which tools without a confirmation ask their users; None if no tool does."""

    def filled(self, fn: Callable[..., Any]) -> Mapping[str, Any]:
        """Return the other library's dependencies, keyed by the tool parameter that each one fills."""
        return {} if _DEPENDENCY_PACKAGES.isdisjoint(sys.modules) else self.foreign.filled(fn)

    def reject(self, given: Any, subject: str) -> None:
        """Reject another library's dependency marker in a place where roundtrip cannot resolve it.

        Raises:
            InvalidSignature: The value is a dependency marker of another library.
        """
        if not _DEPENDENCY_PACKAGES.isdisjoint(sys.modules):
            self.foreign.reject(given, subject)


class RegisteredTool(NamedTuple):
    """Tool that is ready to be listed and called."""

    component: Component
    spec: options.ToolSpec
    function: AskingFunction
    arguments: ArgumentReader
    visibility_gate: VisibilityGate | None
    listing: WireTool
    names_headers: bool
    """True if the tool's schema has arguments that clients must repeat in `Mcp-Param-*` headers."""

    @property
    def name(self) -> str:
        """Return the name by which clients call the tool."""
        return self.component.name

    @property
    def version(self) -> str | None:
        """Return the tool's version; None for a tool without versions."""
        return self.component.version

    def listed_with(self, lower: Sequence[RegisteredTool]) -> WireTool:
        """Return the listing for clients that may also call the given lower versions. `lower` is sorted from high to
        low.
        """
        if self.version is None:
            return self.listing
        versions = [tool.version for tool in (self, *lower) if tool.version is not None]
        update: dict[str, Any] = {"meta": options.listed_meta(self.spec, versions)}
        if any(tool.listing.output_schema != self.listing.output_schema for tool in lower):
            # Clients validate the results of every version against the one listed schema, so list no schema if the
            # versions' schemas differ.
            update["output_schema"] = None
        return self.listing.model_copy(update=update)


def register(
    target: Callable[..., Any] | SdkTool, spec: options.ToolSpec, *, defaults: ToolDefaults, since: int = 0
) -> RegisteredTool:
    """Build a tool from a function, and reject a function that can never work as a tool.

    Args:
        target: The function; or an SDK tool object, whose metadata and schemas are kept.
        spec: Options that override the options attached by `@tool`.
        defaults: Server options that apply to all tools on the server.
        since: Serial number of the registration. Visibility rules use it.

    Raises:
        InvalidSignature: A parameter cannot be classified, or a resolver graph cannot work.
        ValueError: The tool has no usable name, or an option has an invalid value.
    """
    if isinstance(target, SdkTool):
        fn, prepared = target.fn, target.fn_metadata
        attached: options.ToolSpec = {
            **options.spec_of(fn),
            **options.spec_from({name: getattr(target, name) for name in _SDK_TOOL_OPTIONS}),
        }
    else:
        fn, prepared, attached = _callable_part(target), None, options.spec_of(target)
    spec = {**attached, **spec}
    name = spec.get("name") or display_name(fn)
    validate_and_warn_tool_name(name)
    if name == "<lambda>":
        raise ValueError("You must provide a name for lambda functions")
    _require_bound(fn, tool=name)
    dependencies, foreign = dependencies_of(spec.get("dependencies"), tool=name), defaults.filled(fn)
    signature = read_signature(
        fn, kind="tool", name=name, dependencies=dependencies, foreign=foreign, reject=defaults.reject
    )
    metadata = prepared or _metadata_of(signature, tool=name, structured=spec.get("structured_output") is not False)
    derived = schema = metadata.arg_model.model_json_schema(by_alias=True)
    names = {field: info.alias or field for field, info in metadata.arg_model.model_fields.items()}
    description = spec.get("description")
    if isinstance(target, SdkTool):
        schema = target.parameters
    else:
        text, documented = describe(fn)
        described = {**documented, **_annotation_descriptions(fn)}
        schema = with_descriptions(schema, {names.get(key, key): text for key, text in described.items()})
        description = description or text
    if (given := spec.get("input_schema")) is not None:
        schema = checks.checked_schema(given, derived, tool=name)
    if (reason := find_invalid_x_mcp_header(schema)) is not None:
        raise InvalidSignature(f"Tool {name!r} has an invalid x-mcp-header annotation: {reason}")
    results = results_for(
        metadata,
        hints_of(fn).get("return"),
        tool=name,
        output_schema=spec.get("output_schema"),
        # An SDK tool object without an output schema was created with structured output disabled.
        structured=False if prepared is not None and prepared.output_schema is None else spec.get("structured_output"),
    )
    check: Callable[[object], None] | None = None
    if defaults.strict or given is not None:
        check = checks.check_of(schema, tool=name)
    arguments = ArgumentReader(metadata, check)
    version = options.version_text(spec.get("version"), tool=name)
    convert = results.convert
    if version is not None and WRAPPED in (results.output_schema or {}):
        convert = mark_wrapped(convert)
    # Serve a hand-written schema unchanged: inlining could break its references and anchors.
    by_hand = given is not None or (isinstance(target, SdkTool) and schema != derived)
    enabled, visibility_gate = read_enabled(
        spec.get("enabled"),
        owner=f"tool {name!r}" if version is None else f"tool {name!r}, version {version}",
        reject=signature.reject,
    )
    if not isinstance(target, SdkTool):
        options.mark_registered(target)
    listing = WireTool(
        name=name,
        title=spec.get("title"),
        description=description or "",
        input_schema=_prepare_schema(schema, inline=defaults.inline and not by_hand),
        output_schema=_prepare_schema(results.output_schema, inline=defaults.inline) if results.output_schema else None,
        annotations=options.hints_of_tool(spec),
        icons=spec.get("icons"),
        _meta=options.listed_meta(spec),
    )
    if defaults.consent is not None and spec.keys().isdisjoint(("confirm", "consent")):
        spec = {**spec, "consent": defaults.consent.reason(listing) is not None}
    return RegisteredTool(
        component=Component(
            kind="tool", name=name, tags=options.label_set(spec), version=version, since=since, enabled=enabled
        ),
        spec=spec,
        function=asking_function(signature, spec, arguments.names, defaults=defaults, version=version, convert=convert),
        arguments=arguments,
        visibility_gate=visibility_gate,
        names_headers=bool(x_mcp_header_map(listing.input_schema)),
        listing=listing,
    )


def with_descriptions(schema: dict[str, Any], descriptions: Mapping[str, str]) -> dict[str, Any]:
    """Add a description to each property that has none.

    Call this before the schema is inlined: inlining copies definition descriptions into properties.
    """
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not descriptions:
        return schema
    described: dict[str, Any] = {}
    for name, part in cast("dict[str, Any]", properties).items():
        text = descriptions.get(name)
        lacks = text and isinstance(part, dict) and "description" not in part
        described[name] = {**cast("dict[str, Any]", part), "description": text} if lacks else part
    return {**schema, "properties": described}


def _prepare_schema(schema: dict[str, Any], *, inline: bool) -> dict[str, Any]:
    return inlining.inlined(schema) if inline and "$defs" in schema else copy.deepcopy(schema)


def asking_function(
    signature: FunctionSignature,
    spec: options.ToolSpec,
    arguments: Mapping[str, str],
    *,
    defaults: ToolDefaults,
    version: str | None = None,
    convert: Callable[[Any], Any] | None = None,
    kind: type[FunctionT] = AskingFunction,
) -> FunctionT:
    """Build a tool's asking function. `AskingFunction` describes the arguments.

    Raises:
        InvalidSignature: An option has an invalid value, or a resolver graph cannot work.
        ValueError: A duration is invalid.
    """
    name, confirm = signature.name, spec.get("confirm")
    policies: dict[type, object] = {}
    confirmed = task = None
    if "consent" in spec:
        consents: object = spec["consent"]
        if not isinstance(consents, bool):
            raise InvalidSignature(f"{signature.owner}: consent must be True or False, got {consents!r}")
        if confirm is not None:
            raise InvalidSignature(
                f"{signature.owner} must not have both confirm= and consent=, because confirm= always asks; leave out "
                "consent="
            )
        if consents:
            confirmed = confirmation.ToolConfirmation.for_consent(name, version=version)
    if confirm is not None:
        confirmed = confirmation.ToolConfirmation.of(confirm, tool=name, arguments=arguments)
        if confirmed.approve is not None:
            policies[ExternalMarker] = confirmed.approve
    if not spec.keys().isdisjoint(options.OnceOptions.__annotations__):
        policies[OncePolicy] = OncePolicy.of(spec, signature, arguments)
    if not spec.keys().isdisjoint(("task", "task_ttl")):
        task = policies[TaskMode] = TaskMode.of(spec, tool=name)
    return kind(
        signature,
        arguments,
        limits=_limits_of(spec, defaults.limits, tool=name),
        build=defaults.build,
        timeout=spec.get("timeout"),
        version=version,
        convert=convert,
        confirm=confirmed.named_question if confirmed is not None else None,
        inline=bool(spec.get("inline")),
        hands_over=task is not None,
        policies=policies,
        extension=defaults.foreign.fill(signature, policies) if signature.foreign else None,
    )


def _callable_part(target: Any) -> Callable[..., Any]:
    if isinstance(target, staticmethod):
        return target.__func__
    if isinstance(target, classmethod) or not callable(target):
        raise InvalidSignature(
            f"{target!r} is not a function yet. Decorate methods with the standalone @tool (from roundtrip), and "
            "register them bound: server.add_tool(TheClass.method) for a class method, and "
            "server.add_tool(instance.method) for an instance method"
        )
    return target


def _require_bound(fn: Callable[..., Any], *, tool: str) -> None:
    """Reject a method that is not bound to an instance, and a function with parameters that no schema can describe."""
    parameters = list(inspect.signature(fn).parameters.values())
    place, _, _ = getattr(fn, "__qualname__", "").rpartition(".")
    in_class = bool(place) and not place.endswith("<locals>") and not inspect.ismethod(fn)
    if in_class and inspect.isfunction(fn) and parameters and parameters[0].name in ("self", "cls"):
        raise InvalidSignature(
            f"tool {tool!r} is a method without its instance, so clients would have to send {parameters[0].name!r}. "
            "Decorate it with the standalone @tool (from roundtrip) instead, and register it bound: "
            "server.add_tool(instance.method)"
        )
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
            raise InvalidSignature(
                f"tool {tool!r} takes {stars}{parameter.name}, which no schema can describe; name its parameters"
            )
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise InvalidSignature(
                f"tool {tool!r} takes {parameter.name!r} by position only, but clients send arguments by name; "
                "remove the '/'"
            )


def _metadata_of(signature: FunctionSignature, *, tool: str, structured: bool) -> FuncMetadata:
    """Return the SDK's metadata for any kind of callable."""
    fn = signature.fn
    hints = hints_of(fn)
    bound = given_by_partials(fn)
    visible: list[inspect.Parameter] = []
    original = inspect.signature(fn)
    # An annotation can name FastMCP's context only if the author has imported FastMCP.
    fastmcp: Any = sys.modules.get("fastmcp.server.context")
    for name, parameter in original.parameters.items():
        if name in signature.hidden or name in bound:
            continue
        annotation = hints.get(name, parameter.annotation)
        if isinstance(annotation, str):
            raise InvalidSignature(f"tool {tool!r}: the annotation {annotation!r} of {name!r} cannot be evaluated")
        if fastmcp is not None and annotation is fastmcp.Context:
            raise InvalidSignature(
                f"tool {tool!r} takes FastMCP's Context as {name!r}, which only FastMCP servers provide; import "
                "Context from roundtrip"
            )
        if name in ("ctx", "context") and annotation is parameter.empty:
            logger.warning(
                "tool %r lets clients send %r, a parameter without an annotation; to ask questions, write %s: Context "
                "(from roundtrip)",
                tool,
                name,
                name,
            )
        visible.append(parameter.replace(annotation=annotation, kind=parameter.KEYWORD_ONLY))
    returns = hints.get("return", original.return_annotation)

    def stand_in() -> None: ...

    stand_in.__name__ = stand_in.__qualname__ = display_name(fn)
    stand_in.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        visible, return_annotation=returned_type(inspect.Signature.empty if isinstance(returns, str) else returns)
    )
    try:
        metadata = func_metadata(stand_in, structured_output=None if structured else False)
    except PydanticUserError as error:
        raise InvalidSignature(f"tool {tool!r}: a parameter has no schema ({error.message})") from error
    if len(metadata.arg_model.model_fields) < len(visible):
        raise InvalidSignature(
            f"tool {tool!r}: it has two parameters such as 'copy' and 'field_copy', which clash because the SDK "
            "renames the first; rename one of them"
        )
    return metadata


def describe(fn: Callable[..., Any]) -> tuple[str, Mapping[str, str]]:
    """Return a docstring's description, and the descriptions of the callable's parameters.

    Google, NumPy and Sphinx styles are tried, and the style that finds the most parameter descriptions wins. The
    returned description is the text above the parameters; sections about results, errors and examples are left out.
    """
    text = inspect.cleandoc(_docstring(fn))
    if not _SECTION_START.search(text):
        return text, {}
    return docstrings.read_sections(text, frozenset(inspect.signature(fn).parameters))


def _docstring(fn: Any) -> str:
    """Return the docstring that the author wrote for a callable.

    For a partial, use the docstring of the wrapped function. For a callable object, use the docstring of its `__call__`
    method or of its class.
    """
    if inspect.isclass(fn):
        return _class_docstring(fn)
    if inspect.isroutine(fn):
        return _text(fn.__doc__)
    # The object itself has a docstring, for example from `functools.update_wrapper`. Its class's docstring is read
    # below.
    if own := _text(getattr(fn, "__dict__", {}).get("__doc__")):
        return own
    if isinstance(fn, functools.partial):
        return _docstring(cast("functools.partial[Any]", fn).func)
    kind = cast("type[Any]", type(fn))
    return _text(kind.__call__.__doc__) or _class_docstring(kind)


def _class_docstring(cls: type[Any]) -> str:
    text = _text(cls.__doc__)
    # If a dataclass has no docstring, Python uses its signature as the docstring.
    return "" if dataclasses.is_dataclass(cls) and text.startswith(f"{cls.__name__}(") else text


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _annotation_descriptions(fn: Callable[..., Any]) -> Mapping[str, str]:
    """Return the parameter descriptions that are plain text in an annotation: `Annotated[int, "How many"]`."""
    described: dict[str, str] = {}
    for name, hint in hints_of(fn).items():
        extras = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        if texts := [extra for extra in extras if isinstance(extra, str)]:
            described[name] = texts[0]
    return described


def dependencies_of(given: Sequence[Dependency | Callable[..., Any]] | None, *, tool: str) -> list[Dependency]:
    """Return the markers in a tool's `dependencies=` option."""
    if given is None:
        return []
    if isinstance(given, Dependency) or callable(given):
        raise InvalidSignature(f"tool {tool!r}: dependencies= must be a list, as in dependencies=[Depends(check)]")
    return [marker if isinstance(marker, Dependency) else Dependency(marker) for marker in given]


def _limits_of(spec: options.ToolSpec, general: Limits, *, tool: str) -> Limits:
    ttl, max_age = spec.get("ttl"), spec.get("max_age")
    try:
        return Limits(
            ttl=general.ttl if ttl is None else ttl,
            max_age=max(general.max_age, ttl or 0.0) if max_age is None else max_age,
        )
    except ValueError as error:
        raise ValueError(f"tool {tool!r}: {error}") from error
    except TypeError as error:
        raise TypeError(f"tool {tool!r}: ttl= and max_age= must be numbers of seconds") from error
