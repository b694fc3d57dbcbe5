"""Questions in a FastMCP server's tools, prompts and resources: call `install(mcp, keys=...)` once, before adding them.

FastMCP still handles registration, schemas, dependencies, middleware and results. For options that FastMCP does not
have, use roundtrip's standalone decorator, below FastMCP's decorator:

```python
mcp = FastMCP("shop")
install(mcp, keys=[os.environ["SHOP_KEY"]])


@mcp.tool
@roundtrip.tool(confirm="Delete {path}?", exactly_once=True)
def delete(path: str) -> str: ...
```
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary, WeakSet

from mcp.server.mcpserver.resolve import Resolve as SdkResolve
from typing_extensions import Unpack

from roundtrip.adapters import fastmcp_names as names
from roundtrip.adapters.fastmcp_functions import (
    ERRORS,
    checked_before_task,
    function_for_fastmcp,
    function_of_plain,
    own_function,
    without_own_answers,
)
from roundtrip.adapters.fastmcp_stored import FastMcpTools, install_stored_fastmcp_calls
from roundtrip.adapters.finding import signal
from roundtrip.adapters.installation import (
    Installation,
    InstallOptions,
    installation_in,
    reject_options,
    reject_second_install,
)
from roundtrip.adapters.marked import misused_context, uses_roundtrip
from roundtrip.errors import InvalidSignature
from roundtrip.legs.functions import Kind
from roundtrip.on_demand import load_on_use
from roundtrip.resolvers.markers import Dependency
from roundtrip.resolvers.signatures import display_name
from roundtrip.server.settings import wants_stored_calls
from roundtrip.tools.options import ToolSpec, mark_registered, spec_of

if TYPE_CHECKING:
    from roundtrip.adapters import fastmcp_consent

load_on_use(globals(), "roundtrip.adapters.fastmcp_consent")

__all__ = ["install", "signal"]

_logger = logging.getLogger(__name__)

_COMPONENT_CLASSES: Final = (names.Tool, names.Prompt, names.Resource, names.ResourceTemplate)
_METADATA_CLASSES: Final[dict[Kind, type[Any]]] = {
    "tool": names.ToolMeta,
    "prompt": names.PromptMeta,
    "resource": names.ResourceMeta,
}

_UNSUPPORTED_OPTIONS: Final = (
    (
        ("name", "title", "description", "annotations", "icons", "meta", "tags", "version", "output_schema"),
        "belongs to FastMCP; give it to FastMCP's decorator, as in @mcp.tool(title=...)",
    ),
    (("structured_output",), "belongs to FastMCP; write @mcp.tool(output_schema=None) for unstructured results"),
    (("input_schema",), "does not work with FastMCP, whose schema comes from the parameters; annotate them"),
    (("enabled",), "belongs to FastMCP; use its visibility (mcp.disable) or auth=, which decide for each request"),
)
_TOOL_ONLY: Final = tuple(name for name in ToolSpec.__annotations__ if name not in ("dependencies", "inline"))
_MARKERS: Final = (SdkResolve, Dependency)
"""Marker classes that FastMCP does not know."""

_GUARDED: Final = "__roundtrip_guarded__"

_ASKING_CACHE: Final[WeakKeyDictionary[Callable[..., Any], bool]] = WeakKeyDictionary()
_LOGGED_FUNCTIONS: Final[WeakSet[Callable[..., Any]]] = WeakSet()


def install(mcp: names.FastMCP[Any], **options: Unpack[InstallOptions]) -> None:
    """Let tools, prompts and resources ask questions, if they are registered on the server after this call.

    Functions without roundtrip's markers, contexts and options stay unchanged.

    Args:
        mcp: The server.
        **options: Options that `roundtrip.Server` has under the same names: keys, ttl, max_age, encrypt, principal,
            audience, seal_keys, build, trace, ledger, pages, channels, approvals, no_empty_rounds, max_token_bytes,
            max_journal_bytes, system, run_tasks, task_engine and consent. With consent=, trust_hints=True believes the
            hints of tools from other servers, such as proxied tools.

    Raises:
        TypeError: `mcp` is not a FastMCP server, or an option does not exist.
        ValueError: roundtrip is already installed on this server, or the options contradict each other.
        InvalidSignature: A function with roundtrip's markers was registered before this call. This error is also raised
            if pages= or channels= needs stored calls, and the ledger cannot store calls.
        KeysMissing: pages= or channels= needs stored calls that other processes can read, and the server has no keys.
    """
    if not isinstance(mcp, names.FastMCP):  # pyright: ignore[reportUnnecessaryIsInstance]
        kind = type(mcp)
        raise TypeError(
            f"install() of roundtrip.fastmcp must be given a FastMCP server, got {kind.__module__}.{kind.__name__}; "
            "for the SDK's own classes, use roundtrip.install"
        )
    low_level, policy = names.low_level_of(mcp), names.policy_of(mcp)
    reject_second_install(low_level)
    shares_keys = options.get("keys") is not None and options.get("audience") is None
    if shares_keys and names.has_generated_name(mcp):
        raise ValueError(
            "a server with keys= must have a name, because each token names its service, and FastMCP generates another "
            'name in each process; write FastMCP("bookshop"), or give audience='
        )
    require_installed(mcp)
    installation = Installation(
        mcp,
        low_level,
        options,
        given=policy,
        routes=lambda: names.routes_of(mcp),
        mounted=lambda: _mounted_on(mcp),
        shown=without_own_answers,
    )
    function_of = own_function
    if installation.consent is not None:
        function_of = fastmcp_consent.ConsentingServer(installation, installation.consent).function_of
    installation.tool_host = tools = FastMcpTools(installation, function_of)
    for provider in names.providers_of(mcp):
        _patch_provider(provider, installation)
    _watch_providers(mcp, installation)
    if wants_stored_calls(options):
        install_stored_fastmcp_calls(tools, options)


def _mounted_on(mcp: names.FastMCP[Any]) -> Iterator[Installation[Any]]:
    for provider in mcp.providers:
        if (mounted := names.mounted_by(provider)) is not None:
            found = installation_in(names.low_level_of(mounted))
            yield from _mounted_on(mounted) if found is None else [found]


def _watch_providers(mcp: names.FastMCP[Any], installation: Installation[Any]) -> None:
    """Patch each provider that the author adds later, so that its functions may ask."""
    add = mcp.add_provider

    def add_provider(provider: Any, *, namespace: str = "") -> None:
        if isinstance(provider, names.LocalProvider):
            for component in names.components_of(provider):
                _require_plain(component)
        _require_installed_in(provider)
        add(provider, namespace=namespace)
        if isinstance(provider, names.LocalProvider):
            _patch_provider(provider, installation)

    setattr(mcp, "add_provider", add_provider)  # noqa: B010 - type checkers reject assigning a method


def _patch_provider(provider: names.LocalProvider, installation: Installation[Any]) -> None:
    """Wrap the provider's methods that register functions, so that FastMCP receives a plain function in place of each
    function that asks.
    """
    for kind in ("tool", "prompt", "resource"):
        method = f"add_{kind}"
        setattr(provider, method, _wrap_registration(kind, getattr(provider, method), installation))


def _wrap_registration(kind: Kind, add: Callable[[Any], Any], installation: Installation[Any]) -> Callable[[Any], Any]:
    def register(target: Any) -> Any:
        if isinstance(target, _COMPONENT_CLASSES):
            _require_plain(target)
            return add(target)
        added = _register(kind, target, add, installation) if _asks(target) else add(target)
        if kind == "tool" and callable(target):
            mark_registered(target)
        return added

    return register


def _register(kind: Kind, fn: Callable[..., Any], add: Callable[[Any], Any], installation: Installation[Any]) -> Any:
    found = getattr(fn, "__fastmcp__", None)
    meta: Any = found if isinstance(found, _METADATA_CLASSES[kind]) else None
    name = str(meta.uri) if meta is not None and kind == "resource" else (meta and meta.name) or display_name(fn)
    spec, owner = spec_of(fn), f"{kind} {name!r}"
    if kind != "tool":
        reject_options(spec, [(_TOOL_ONLY, "is for tools; leave it out")], owner=owner)
    reject_options(spec, _UNSUPPORTED_OPTIONS, owner=owner)
    if getattr(meta, "task", None):
        raise InvalidSignature(
            f"{owner} uses roundtrip, but FastMCP's task=True runs it in a worker, which has no client to ask; write "
            "@mcp.tool(task=False) with @roundtrip.tool(task=True) below it "
            "(docs/fleet.md#docket: Moving from FastMCP's task=True)"
        )
    version = getattr(meta, "version", None)
    function, plain = function_for_fastmcp(
        fn,
        kind=kind,
        name=name,
        spec=spec,
        defaults=installation.defaults,
        version=str(version) if version is not None else None,
        inline=not getattr(meta, "run_in_thread", True),
    )
    if meta is not None:
        setattr(plain, "__fastmcp__", meta)  # noqa: B010 - FastMCP's own attribute of functions
    added = add(plain)
    if isinstance(added, names.Tool):
        function.tool = added
        if function.hands_over and added.auth is not None:
            added.auth = checked_before_task(added.auth, function)
    installation.adopt(function)
    return added


def require_installed(mcp: names.FastMCP[Any], *, where: str = "") -> None:
    """Reject a server without `install` if its tools have roundtrip's markers or options, which would have no effect.

    The check includes servers that this server mounts.

    Args:
        mcp: The server.
        where: The server's location, for the error message.

    Raises:
        InvalidSignature: A server without `install` has such a tool.
    """
    if installation_in(names.low_level_of(mcp)) is None:
        for provider in names.providers_of(mcp):
            for component in names.components_of(provider):
                _require_plain(component, where=where)
    for provider in mcp.providers:
        _require_installed_in(provider)


def _require_installed_in(provider: Any) -> None:
    """Check a provider's mounted server with `require_installed`."""
    mounted = names.mounted_by(provider)
    if mounted is not None:
        require_installed(mounted, where=f"on the server {mounted.name!r}, ")


def _require_plain(component: Any, *, where: str = "") -> None:
    """Reject a component made from a function with roundtrip's markers, because clients could fill the marked
    parameters.

    Raises:
        InvalidSignature: FastMCP made the component from such a function.
    """
    if _is_unsafe(component):
        kind, name = names.kind_and_name_of(component)
        raise InvalidSignature(
            f"{kind} {name!r} asks with roundtrip, but was made before roundtrip could fill its "
            f"parameters; call install() {where}before registering tools, and register the function (@mcp.tool, "
            "mcp.add_tool(fn)), not an object made from it"
        )


def _asks(target: object) -> bool:
    """Return True if a function asks, and roundtrip has not yet replaced it with a plain function."""
    return callable(target) and function_of_plain(target) is None and uses_roundtrip(target, kinds=_MARKERS)


def _is_unsafe(component: object) -> bool:
    """Return True if running this component would run an asking function, even behind transforms."""
    part: Any = component
    while part is not None:
        if _asks_cached(getattr(part, "fn", None)):
            return True
        part = part.parent_tool if isinstance(part, names.TransformedTool) else None
    return False


def _guard_functions() -> None:
    """Make FastMCP's classes reject asking functions, and omit such functions from lists.

    A component made from the author's function can reach FastMCP without `install`: through a mounted server, a
    provider, a transform, a middleware or a proxy. FastMCP would let clients fill the parameters that roundtrip fills,
    and would run the function without its confirmation. The check is therefore made where FastMCP runs and lists
    functions, and applies to all servers in the process. It also catches a plain function that asks with FastMCP's own
    context; the error names the right context.
    """
    for kind in names.FUNCTION_COMPONENTS:
        _replace(*kind, _reject_asking)
    for name in names.LISTS:
        _replace(names.FastMCP, name, _omit_unsafe)


def _replace(owner: type[Any], name: str, make: Callable[[Any], Any]) -> None:
    method = vars(owner)[name]
    if not hasattr(method, _GUARDED):
        made = functools.wraps(method)(make(method))
        setattr(made, _GUARDED, True)
        setattr(owner, name, made)


def _reject_asking(run: Callable[..., Any]) -> Callable[..., Any]:
    async def run_plain(component: Any, *given: Any, **named: Any) -> Any:
        if _asks_cached(component.fn):
            kind, name = names.kind_and_name_of(component)
            raise ERRORS[kind](_unsupported_message(kind, name))
        try:
            return await run(component, *given, **named)
        except Exception as error:
            if (mistake := misused_context(error, names.Context)) is None:
                raise
            raise ERRORS[names.kind_and_name_of(component)[0]](str(mistake)) from error

    return run_plain


def _omit_unsafe(list_all: Callable[..., Any]) -> Callable[..., Any]:
    async def list_safe(server: names.FastMCP[Any], **named: Any) -> Sequence[Any]:
        safe: list[Any] = []
        for each in await list_all(server, **named):
            if not _is_unsafe(each):
                safe.append(each)
            elif _is_first_report(each.fn):
                _logger.error(
                    "server %r omits a component from its lists: %s",
                    server.name,
                    _unsupported_message(*names.kind_and_name_of(each)),
                )
        return safe

    return list_safe


def _unsupported_message(kind: str, name: str) -> str:
    return (
        f"{kind} {name!r} asks with roundtrip, but reached its server in a way that roundtrip cannot intercept, so it "
        "does not run; call install() of roundtrip.fastmcp on the server that creates it, and then register the "
        "function (@mcp.tool, mcp.add_tool(fn)), not an object made from it"
    )


def _is_first_report(fn: Any) -> bool:
    """Return True if no error has been logged about a function yet."""
    function = getattr(fn, "__func__", fn)
    is_new = function not in _LOGGED_FUNCTIONS
    _LOGGED_FUNCTIONS.add(function)
    return is_new


def _asks_cached(fn: Any) -> bool:
    try:
        known = _ASKING_CACHE.get(fn)
        if known is None:
            known = _ASKING_CACHE[fn] = _asks(fn)
    except TypeError:  # a callable that has no hash, or that cannot be weakly referenced
        return _asks(fn)
    return known


_guard_functions()
