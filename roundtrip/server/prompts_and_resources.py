"""Prompts, resources and templates: their questions, their visibility gates, and the SDK handlers that serve them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar

from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.lowlevel.server import LifespanResultT
from mcp.server.mcpserver import Context as SdkContext
from mcp.server.mcpserver import ResourceSecurity
from mcp.server.mcpserver.exceptions import ResourceError
from mcp.server.mcpserver.prompts import Prompt
from mcp.server.mcpserver.resources import Resource
from mcp.shared.uri_template import UriTemplate
from mcp_types import Annotations, GetPromptResult, Icon, InputRequiredResult
from mcp_types import Prompt as WirePrompt
from mcp_types import Resource as WireResource
from mcp_types import ResourceTemplate as WireTemplate
from pydantic import AnyUrl
from typing_extensions import Unpack

from roundtrip.errors import InvalidSignature
from roundtrip.legs.boundary import Request
from roundtrip.legs.functions import AskingFunction, FunctionSignature, read_signature
from roundtrip.legs.requests import Incoming, serving_client, take_client_lookup
from roundtrip.legs.runner import LegRunner, log_teardown, result_of
from roundtrip.on_demand import load_on_use
from roundtrip.resolvers.markers import check_inline
from roundtrip.resolvers.signatures import display_name
from roundtrip.sdk import HookedServer, Shelf, low_level_of
from roundtrip.server.attach import ServerInternals, wrap
from roundtrip.tools.registered import ToolDefaults
from roundtrip.visibility.notifications import Announcer
from roundtrip.visibility.rules import Enabled, Listing, Strings, Visibility, read_enabled

if TYPE_CHECKING:
    from roundtrip.server import context
    from roundtrip.tools import failures
    from roundtrip.visibility import catalog, gates

load_on_use(
    globals(),
    "roundtrip.visibility.catalog",
    "roundtrip.tools.failures",
    "roundtrip.server.context",
    "roundtrip.visibility.gates",
)

T = TypeVar("T")
_CallableT = TypeVar("_CallableT", bound=Callable[..., Any])

_KIND_OF: Final[Mapping[str, Shelf]] = {
    "prompts/list": "prompt",
    "resources/list": "resource",
    "resources/templates/list": "resource",
    "resources/read": "resource",
}

LISTINGS: Final[Mapping[Shelf, Listing]] = {"prompt": "prompts", "resource": "resources"}
"""Maps each kind of item to the list that changes with it."""


class ResourceDetails(TypedDict, total=False):
    """Resource options that the SDK's decorator already has."""

    name: str | None
    title: str | None
    description: str | None
    mime_type: str | None
    icons: list[Icon] | None
    annotations: Annotations | None
    meta: dict[str, Any] | None
    security: ResourceSecurity | None


class PromptsAndResources(HookedServer[LifespanResultT]):
    """The part of `Server` that serves prompts, resources and templates. `sdk` has the arguments for `MCPServer`."""

    def __init__(
        self, internals: ServerInternals, defaults: ToolDefaults, visibility: Visibility, *, sdk: Mapping[str, Any]
    ) -> None:
        # Extensions register resources while the SDK's constructor runs, so these attributes must exist first.
        self.internals = internals
        """Internals for the rest of the package, not part of the API."""
        self._defaults = defaults
        self._visibility = visibility
        self._announcer = Announcer(internals.parts.effects)
        for method, kind in _KIND_OF.items():
            self._announcer.private[method] = partial(self._has_gates, kind)
        # Register the constructor's tools before the tools that extensions add.
        for tool in sdk.get("tools") or ():
            self.add_tool(tool)
        super().__init__(**{**sdk, "tools": None})
        for resource in sdk.get("resources") or ():
            with self._catalog.adding("resource", str(resource.uri), name=resource.name):
                pass
        internals.attach(low_level_of(self), host=self, subject_of=self._subject_of)
        self.middleware.insert(0, self._announcer)

    @cached_property
    def _catalog(self) -> catalog.Catalog:
        """Return the catalog that records prompts and resources."""
        # Use `setdefault`, because several threads may register their first item at the same time.
        return vars(self).setdefault(
            "_catalog", catalog.Catalog(self._visibility, self.internals.parts.effects, gates=lambda: self._gates)
        )

    @cached_property
    def _gates(self) -> gates.GateEvaluator:
        """Return the evaluator for visibility gates."""
        return gates.GateEvaluator(
            lambda request: context.GateContext(
                request_context=request, mcp_server=self, subscriptions=self.internals.parts.effects.bus
            ),
            replacements=lambda: self.internals.overrides.replacements,
            report=log_teardown,
        )

    def prompt(
        self,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: list[Icon] | None = None,
        *,
        tags: Strings | None = None,
        enabled: Enabled = True,
        inline: bool = False,
    ) -> Callable[[_CallableT], _CallableT]:
        """Register the decorated function as a prompt. A prompt may ask questions, as tools do.

        Clients do not see parameters that `Resolve` fills.

        Args:
            name: The prompt's name. The default is the function's name.
            title: A name to show to people.
            description: The prompt's purpose. The default is the docstring.
            icons: Icons to show to people.
            tags: Labels by which `enable` and `disable` can select the prompt.
            enabled: False hides the prompt until it is enabled. A function or `Depends` decides for each request
                whether the prompt exists.
            inline: Run a plain function on the event loop instead of in a worker thread. The function must not block.
        """
        if callable(name):
            return super().prompt(name)

        def decorate(fn: _CallableT) -> _CallableT:
            label = name or display_name(fn)
            register = super(PromptsAndResources, self).prompt(label, title, description, icons)
            self._enter("prompt", label, fn, register, tags=tags, enabled=enabled, inline=inline)
            return fn

        return decorate

    def resource(
        self,
        uri: str,
        *,
        tags: Strings | None = None,
        enabled: Enabled = True,
        inline: bool = False,
        **details: Unpack[ResourceDetails],
    ) -> Callable[[_CallableT], _CallableT]:
        """Register the decorated function as a resource, or as a template if the URI has variables.

        A template may ask questions, as tools do. Parameters that `Resolve` fills are not variables of its URI.

        Args:
            uri: The URI, or a URI template with `{variables}`.
            tags: Labels by which `enable` and `disable` can select the resource.
            enabled: False hides the resource until it is enabled. A function or `Depends` decides for each request
                whether the resource exists.
            inline: Run a plain function on the event loop instead of in a worker thread. The function must not block.
            **details: Options that the SDK's decorator also has:
                name (the resource's name, by default the function's name),
                title (a name to show to people),
                description (the resource's content, by default the docstring),
                mime_type (the content's type),
                icons (icons to show to people),
                annotations (hints for the client),
                meta (metadata for the client), and
                security (the values that URI variables may have, by default the server's policy).
        """
        register = super().resource(uri, **details)

        def decorate(fn: _CallableT) -> _CallableT:
            is_template = bool(UriTemplate.parse(uri).variable_names)
            entry = {"name": details.get("name") or display_name(fn), "template": is_template}
            self._enter("resource", uri, fn, register, tags=tags, enabled=enabled, inline=inline, **entry)
            return fn

        return decorate

    def _enter(
        self,
        kind: Shelf,
        identifier: str,
        fn: Callable[..., Any],
        register: Callable[[Callable[..., Any]], Any],
        *,
        enabled: Enabled,
        inline: bool,
        **details: Any,
    ) -> None:
        """Register a function with the SDK and the catalog. A function that may ask questions is wrapped, so that each
        call serves one leg.
        """
        signature = read_signature(fn, kind=kind, name=identifier, reject=self._defaults.reject)
        seen_at_first, gate = read_enabled(enabled, owner=signature.owner, reject=self._defaults.reject)
        if gate is not None:
            self.internals.track(gate.planned)
        in_legs = bool(signature.hidden) or (gate is not None and gate.enters)
        if kind == "resource" and not details["template"]:
            if signature.resolved:
                raise InvalidSignature(
                    f"{signature.owner} has no URI variables, so it must not have parameters that ask questions; "
                    "compute their values inside the function, or make the resource a template"
                )
            in_legs = False
        entry = {"enabled": seen_at_first, "gate": gate, "filled": signature.hidden, "in_legs": in_legs}
        with self._adding(kind, identifier, **details, **entry):
            if in_legs:
                opened = partial(self._gates.opened_here, gate) if gate is not None else None
                function, plain = serve_in_legs(
                    signature, self.internals.legs, defaults=self._defaults, inline=inline, opened=opened
                )
                self.internals.adopt(function)
                register(plain)
            else:
                register(_on_loop(fn, owner=signature.owner) if inline else fn)

    async def list_prompts(self) -> list[WirePrompt]:
        """Return the prompts that the requesting client may see."""
        return await self._catalog.serve_list("prompts", super().list_prompts)

    async def list_resources(self) -> list[WireResource]:
        """Return the resources that the requesting client may see."""
        return await self._catalog.serve_list("resources", super().list_resources)

    async def list_resource_templates(self) -> list[WireTemplate]:
        """Return the resource templates that the requesting client may see."""
        return await self._catalog.serve_list("templates", super().list_resource_templates)

    async def get_prompt(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        context: SdkContext[LifespanResultT, Any] | None = None,
    ) -> GetPromptResult | InputRequiredResult:
        """Serve one leg of a prompt through the SDK's handler. Values that a client sends for resolved parameters are
        ignored.
        """
        for_client = take_client_lookup()
        filled = self._catalog.filled_in("prompt", name)
        if filled and arguments:
            arguments = {key: value for key, value in arguments.items() if key not in filled}
        get = partial(super().get_prompt, name, arguments, context)
        try:
            return await self._catalog.serve("prompt", [name], get, Incoming.by(context).request)
        except ValueError as error:
            failures.raise_prompt_failure(name, error, for_client=for_client)

    async def read_resource(
        self, uri: AnyUrl | str, context: SdkContext[LifespanResultT, Any] | None = None
    ) -> Iterable[ReadResourceContents] | InputRequiredResult:
        """Serve one leg of a `resources/read` request through the SDK's handler."""
        read, request = partial(super().read_resource, uri, context), Incoming.by(context).request
        for_client = take_client_lookup()
        try:
            return await self._catalog.serve("resource", self._resources_for(str(uri)), read, request)
        except ResourceError as error:
            if not for_client:
                raise
            raise failures.resource_failure(str(uri), next(self._resources_for(str(uri)), None), error) from error

    def add_prompt(self, prompt: Prompt) -> None:
        """Register a prompt object of the SDK."""
        with self._adding("prompt", prompt.name):
            super().add_prompt(prompt)

    def remove_prompt(self, name: str) -> None:
        """Remove a prompt.

        Raises:
            ValueError: No prompt has that name.
        """
        super().remove_prompt(name)
        if self._catalog.remove("prompt", name):
            self._announcer.note("prompts")

    def add_resource(self, resource: Resource) -> None:
        """Register a resource object of the SDK."""
        with self._adding("resource", str(resource.uri), name=resource.name):
            super().add_resource(resource)

    def _has_gates(self, kind: Shelf) -> bool:
        return self._catalog.has_gates(kind)

    def _subject_of(self, ctx: Request) -> tuple[str | None, bool]:
        """Return the name of the prompt or resource template that a request uses, and whether to trace the request."""
        params = ctx.params or {}
        named = params.get("uri" if ctx.method == "resources/read" else "name")
        if isinstance(named, str):
            if ctx.method == "resources/read":
                return next(self._resources_for(named), None), True
            if self._catalog.knows("prompt", named):
                return named, True
        return None, True

    def _serving_client(self) -> AbstractContextManager[None]:
        """Return a context manager for the SDK's handler. In it, the first lookup of an item counts as the client's."""
        return serving_client()

    def _is_visible(self, kind: Shelf, identifier: str) -> bool:
        """Return True if the current request may see the prompt with this name, or the resource or template with this
        URI.
        """
        return self._catalog.is_visible(kind, identifier)

    async def _completing(self, kind: Shelf, identifier: str, ask: Callable[[], Awaitable[T]]) -> T | None:
        """Complete an argument of a prompt or template; return None if the client cannot see that item.

        If an item of this kind has a visibility gate, arguments of unregistered items are not completed.
        """
        if not self._catalog.has_gates(kind):
            return await super()._completing(kind, identifier, ask)
        if self._catalog.knows(kind, identifier):
            candidates = [identifier]
        else:
            candidates = [*self._resources_for(identifier)] if kind == "resource" else []

        async def complete() -> T | None:
            return await ask() if any(self._is_visible(kind, candidate) for candidate in candidates) else None

        return await self._catalog.serve(kind, candidates, complete)

    @contextmanager
    def _adding(self, kind: Shelf, identifier: str, **details: Any) -> Generator[None]:
        with self._catalog.adding(kind, identifier, **details):
            yield
        if self._catalog.sees(kind, identifier):
            self._announcer.note(LISTINGS[kind])


def serve_in_legs(
    signature: FunctionSignature,
    legs: LegRunner,
    *,
    defaults: ToolDefaults,
    inline: bool = False,
    opened: Callable[[], gates.OpenGates | None] | None = None,
) -> tuple[AskingFunction, Callable[..., Awaitable[Any]]]:
    """Return the asking function for a prompt or template, and the function with which the SDK serves one leg.

    Args:
        signature: The signature of the prompt or template.
        legs: The runner that serves the legs.
        defaults: The server's options.
        inline: True to run a plain function on the event loop.
        opened: Returns the item's open visibility gates with the values that they computed, or None if it has no gate.
    """
    # Resolvers may request these arguments by name.
    names = {name: name for name in inspect.signature(signature.fn).parameters if name not in signature.hidden}
    function = AskingFunction(signature, names, limits=defaults.limits, build=defaults.build, inline=inline)

    async def serve(arguments: dict[str, Any], context: SdkContext[Any, Any]) -> Any:
        run = legs.run(function, arguments, Incoming.by(context), opened() if opened is not None else None)
        return result_of(await failures.with_failures(run, function))

    return function, wrap(signature, serve)


def _on_loop(fn: Callable[..., Any], *, owner: str) -> Callable[..., Any]:
    """Wrap a function as a coroutine function, because the SDK runs plain functions in threads."""
    check_inline(fn, subject=owner)

    @functools.wraps(fn)
    async def run(*args: Any, **kwargs: Any) -> Any:
        result = fn(*args, **kwargs)
        return await result if inspect.isawaitable(result) else result

    return run
