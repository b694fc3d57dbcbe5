"""Register tools: check a function and its options, and make its schemas."""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar, get_args, get_origin

from mcp.server.mcpserver.tools.base import Tool as SdkTool
from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata, func_metadata
from mcp.shared.inbound import find_invalid_x_mcp_header, x_mcp_header_map
from mcp.shared.tool_name_validation import validate_and_warn_tool_name
from mcp_types import Tool as WireTool
from pydantic import PydanticUserError

from roundtrip.engine.leg import Limits
from roundtrip.errors import InvalidSignature
from roundtrip.resolvers.markers import Dependency
from roundtrip.resolvers.signatures import display_name, given_by_partials, hints_of
from roundtrip.server.functions import AskingFunction, FunctionSignature, read_signature
from roundtrip.server.tools.arguments import ArgumentReader
from roundtrip.server.tools.descriptions import describe
from roundtrip.server.tools.options import ToolSpec, mark_registered, spec_of, version_text
from roundtrip.server.tools.results import WRAPPED, results_for, returned_type
from roundtrip.server.tools.schemas import inlined, with_descriptions
from roundtrip.server.visibility import Component, read_enabled

if TYPE_CHECKING:
    from roundtrip.server.tasks.docket_parameters import DocketParameters
    from roundtrip.server.tools.confirmation import ToolConfirmation
    from roundtrip.server.tools.promises import OncePolicy
    from roundtrip.server.tools.task_mode import TaskMode
    from roundtrip.server.visibility_gates import VisibilityGate

__all__ = ["RegisteredTool", "ToolDefaults", "asking_function", "dependencies_of", "register"]

logger = logging.getLogger("roundtrip")

FunctionT = TypeVar("FunctionT", bound=AskingFunction)


class ToolDefaults(NamedTuple):
    """Options of a server for all its tools."""

    limits: Limits
    build: str | None = None
    strict: bool = False
    inline: bool = True


class RegisteredTool(NamedTuple):
    """One tool, ready to be listed and called."""

    component: Component
    spec: ToolSpec
    function: AskingFunction
    arguments: ArgumentReader
    visibility_gate: VisibilityGate | None
    listing: WireTool
    names_headers: bool
    """True if `Mcp-Param-*` headers must repeat arguments of its schema."""

    @property
    def name(self) -> str:
        """Return the name that clients call."""
        return self.component.name

    @property
    def version(self) -> str | None:
        """Return the version, if the tool has any."""
        return self.component.version

    def listed_with(self, lower: Sequence[RegisteredTool]) -> WireTool:
        """Return the listing for clients that may also call these lower versions, the highest first."""
        if self.version is None:
            return self.listing
        versions = [tool.version for tool in (self, *lower) if tool.version is not None]
        update: dict[str, Any] = {"meta": self.spec.listed_meta(versions)}
        if any(tool.listing.output_schema != self.listing.output_schema for tool in lower):
            # Clients check the results of all versions against this one schema.
            update["output_schema"] = None
        return self.listing.model_copy(update=update)


def register(
    target: Callable[..., Any] | SdkTool, spec: ToolSpec, *, defaults: ToolDefaults, since: int = 0
) -> RegisteredTool:
    """Make a tool of a function, and reject one that can never work.

    Args:
        target: The function; or a tool object of the SDK, which keeps its metadata and schemas.
        spec: Options that win over those that `@tool` attached.
        defaults: Options of the server for all its tools.
        since: Serial number of the registration, for visibility.

    Raises:
        InvalidSignature: A parameter cannot be classified, or a graph of resolvers cannot work.
        ValueError: The tool has no usable name, or an option no usable value.
    """
    if isinstance(target, SdkTool):
        fn, prepared = target.fn, target.fn_metadata
        attached = _spec_of_prepared(target).over(spec_of(fn))
    else:
        fn, prepared, attached = _callable_part(target), None, spec_of(target)
    spec = spec.over(attached)
    name = spec.name or display_name(fn)
    validate_and_warn_tool_name(name)
    if name == "<lambda>":
        raise ValueError("You must provide a name for lambda functions")
    _require_bound(fn, tool=name)
    signature = read_signature(fn, kind="tool", name=name, dependencies=dependencies_of(spec.dependencies, tool=name))
    metadata = prepared or _metadata_of(signature, tool=name, structured=spec.structured_output is not False)
    derived = schema = metadata.arg_model.model_json_schema(by_alias=True)
    names = {field: info.alias or field for field, info in metadata.arg_model.model_fields.items()}
    description = spec.description
    if isinstance(target, SdkTool):
        schema = target.parameters
    else:
        docstring = describe(fn)
        described = {**docstring.parameters, **_described_by_annotation(fn)}
        schema = with_descriptions(schema, {names.get(key, key): text for key, text in described.items()})
        description = description or docstring.text
    if spec.input_schema is not None:
        from roundtrip.server.tools.input_schemas import checked_schema  # few tools have one

        schema = checked_schema(spec.input_schema, derived, tool=name)
    if (reason := find_invalid_x_mcp_header(schema)) is not None:
        raise InvalidSignature(f"Tool {name!r} has an invalid x-mcp-header annotation: {reason}")
    results = results_for(
        metadata,
        hints_of(fn).get("return"),
        tool=name,
        output_schema=spec.output_schema,
        # A tool object of the SDK was created with this choice.
        structured=False if prepared is not None and prepared.output_schema is None else spec.structured_output,
    )
    check: Callable[[object], None] | None = None
    if defaults.strict or spec.input_schema is not None:
        from roundtrip.server.tools.input_schemas import check_of  # most servers coerce arguments

        check = check_of(schema, tool=name)
    arguments = ArgumentReader(metadata, check)
    version = version_text(spec.version, tool=name)
    convert = results.convert
    if version is not None and WRAPPED in (results.output_schema or {}):
        from roundtrip.server.tools.versioned_results import marked  # few tools have versions

        convert = marked(convert)
    serve = inlined if defaults.inline else _as_written
    # Serve a hand-written schema unchanged: its references and anchors belong to its author.
    by_hand = spec.input_schema is not None or (isinstance(target, SdkTool) and schema != derived)
    enabled, visibility_gate = read_enabled(
        spec.enabled, owner=f"tool {name!r}" if version is None else f"tool {name!r}, version {version}"
    )
    if not isinstance(target, SdkTool):
        mark_registered(target)
    return RegisteredTool(
        component=Component(kind="tool", name=name, tags=spec.label_set, version=version, since=since, enabled=enabled),
        spec=spec,
        function=asking_function(signature, spec, arguments.names, defaults=defaults, version=version, convert=convert),
        arguments=arguments,
        visibility_gate=visibility_gate,
        names_headers=bool(x_mcp_header_map(listed_schema := copy.deepcopy(schema) if by_hand else serve(schema))),
        listing=WireTool(
            name=name,
            title=spec.title,
            description=description or "",
            input_schema=listed_schema,
            output_schema=serve(results.output_schema) if results.output_schema is not None else None,
            annotations=spec.hints,
            icons=spec.icons,
            _meta=spec.listed_meta(),
        ),
    )


def asking_function(
    signature: FunctionSignature,
    spec: ToolSpec,
    arguments: Mapping[str, str],
    *,
    defaults: ToolDefaults,
    version: str | None = None,
    convert: Callable[[Any], Any] | None = None,
    kind: type[FunctionT] = AskingFunction,
) -> FunctionT:
    """Make the function of a tool that may ask; `AskingFunction` describes the arguments.

    Raises:
        InvalidSignature: An option has no usable value, or a graph of resolvers cannot work.
        ValueError: A time is invalid.
    """
    name = signature.name
    return kind(
        signature,
        arguments,
        limits=_limits_of(spec, defaults.limits, tool=name),
        build=defaults.build,
        timeout=spec.timeout,
        version=version,
        convert=convert,
        confirmation=_confirmation_of(spec, tool=name, arguments=arguments),
        once=_once_policy(spec, tool=name),
        inline=bool(spec.inline),
        task=_task_mode(spec, name),
        docket=_docket_of(signature, spec),
    )


def _spec_of_prepared(tool: SdkTool) -> ToolSpec:
    return ToolSpec(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        annotations=tool.annotations,
        icons=tool.icons,
        meta=tool.meta,
    )


def _callable_part(target: Any) -> Callable[..., Any]:
    if isinstance(target, staticmethod):
        return target.__func__
    if isinstance(target, classmethod) or not callable(target):
        raise InvalidSignature(
            f"{target!r} is not a function yet. Decorate methods with the standalone @tool (from roundtrip), and "
            "register them bound: server.add_tool(TheClass.method) for a class method, and "
            "server.add_tool(instance.method) for one of an instance"
        )
    return target


def _require_bound(fn: Callable[..., Any], *, tool: str) -> None:
    """Reject a method without its instance, and parameters that no schema can describe."""
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
                f"tool {tool!r} takes {parameter.name!r} by position only, and arguments come by name; remove the '/'"
            )


def _metadata_of(signature: FunctionSignature, *, tool: str, structured: bool) -> FuncMetadata:
    """Return the SDK's metadata for any kind of callable."""
    fn = signature.fn
    hints = hints_of(fn)
    bound = given_by_partials(fn)
    visible: list[inspect.Parameter] = []
    original = inspect.signature(fn)
    for name, parameter in original.parameters.items():
        if name in signature.hidden or name in bound:
            continue
        annotation = hints.get(name, parameter.annotation)
        if isinstance(annotation, str):
            raise InvalidSignature(f"tool {tool!r}: the annotation {annotation!r} of {name!r} cannot be evaluated")
        if name in ("ctx", "context") and annotation is parameter.empty:
            logger.warning(
                "tool %r lets clients send %r, which has no annotation; write %s: Context (from roundtrip) to ask",
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
            f"tool {tool!r}: it has two parameters such as 'copy' and 'field_copy', which become one as the first is "
            "renamed; rename one of them"
        )
    return metadata


def _described_by_annotation(fn: Callable[..., Any]) -> Mapping[str, str]:
    """Return the descriptions that parameters have as bare text: `Annotated[int, "How many"]`."""
    described: dict[str, str] = {}
    for name, hint in hints_of(fn).items():
        texts = (
            [extra for extra in get_args(hint)[1:] if isinstance(extra, str)] if get_origin(hint) is Annotated else []
        )
        if texts:
            described[name] = texts[0]
    return described


def _as_written(schema: dict[str, Any]) -> dict[str, Any]:
    return schema


def dependencies_of(given: Sequence[Dependency | Callable[..., Any]] | None, *, tool: str) -> list[Dependency]:
    """Return the markers of a tool's option `dependencies=`."""
    if given is None:
        return []
    if isinstance(given, Dependency) or callable(given):
        raise InvalidSignature(f"tool {tool!r}: dependencies= takes a list, as in dependencies=[Depends(check)]")
    return [marker if isinstance(marker, Dependency) else Dependency(marker) for marker in given]


def _limits_of(spec: ToolSpec, general: Limits, *, tool: str) -> Limits:
    try:
        return Limits(
            ttl=spec.ttl if spec.ttl is not None else general.ttl,
            max_age=spec.max_age if spec.max_age is not None else max(general.max_age, spec.ttl or 0.0),
        )
    except ValueError as error:
        raise ValueError(f"tool {tool!r}: {error}") from error
    except TypeError as error:
        raise TypeError(f"tool {tool!r}: ttl= and max_age= take numbers of seconds") from error


def _docket_of(signature: FunctionSignature, spec: ToolSpec) -> DocketParameters | None:
    if not signature.docket:
        return None
    from roundtrip.server.tasks.docket_parameters import DocketParameters  # few tools have any

    return DocketParameters.of(signature, has_task=bool(spec.task), runs_once=bool(spec.exactly_once))


def _confirmation_of(spec: ToolSpec, *, tool: str, arguments: Mapping[str, str]) -> ToolConfirmation | None:
    if spec.confirm is None:
        return None
    from roundtrip.server.tools.confirmation import ToolConfirmation  # most tools have none

    return ToolConfirmation.of(spec.confirm, tool=tool, arguments=arguments)


def _once_policy(spec: ToolSpec, *, tool: str) -> OncePolicy | None:
    if spec.exactly_once is None and spec.on_unknown is None:
        return None
    from roundtrip.server.tools.promises import OncePolicy  # most tools may run again

    return OncePolicy.of(spec, tool=tool)


def _task_mode(spec: ToolSpec, tool: str) -> TaskMode | None:
    if spec.task is None and spec.task_ttl is None:
        return None
    from roundtrip.server.tools.task_mode import TaskMode  # most tools have none

    return TaskMode.of(spec, tool=tool)
