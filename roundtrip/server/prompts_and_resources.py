"""Serve prompts, resources and templates, which may ask as tools do, be hidden, or have visibility gates."""

import inspect
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.lowlevel.server import LifespanResultT
from mcp.server.mcpserver import Context as SdkContext
from mcp.server.mcpserver import ResourceSecurity
from mcp.server.mcpserver.exceptions import ResourceError
from mcp.server.mcpserver.prompts import Prompt
from mcp.server.mcpserver.resources import Resource
from mcp.shared.exceptions import MCPError
from mcp.shared.uri_template import UriTemplate
from mcp_types import Annotations, GetPromptResult, Icon, InputRequiredResult
from mcp_types import Prompt as WirePrompt
from mcp_types import Resource as WireResource
from mcp_types import ResourceTemplate as WireTemplate
from pydantic import AnyUrl

from roundtrip.errors import InvalidSignature
from roundtrip.resolvers.signatures import display_name
from roundtrip.server.catalog import Catalog, Listed, Shelf
from roundtrip.server.failures import log_unknown, log_unread, prompt_failure, resource_failure, with_failures
from roundtrip.server.functions import AskingFunction, FunctionSignature, read_signature
from roundtrip.server.install import install, wrap
from roundtrip.server.leg_runner import Incoming, log_teardown, result_of
from roundtrip.server.notifications import Announcer, Listing
from roundtrip.server.overrides import Overrides
from roundtrip.server.parts import Parts
from roundtrip.server.request_state import Recover, Request
from roundtrip.server.requests import begins_for_client, serving_client
from roundtrip.server.sdk_private import HookedServer
from roundtrip.server.tools.arguments import fields_rejected_by, rejected_fields
from roundtrip.server.tools.registered import ToolDefaults
from roundtrip.server.visibility import Enabled, Strings, Visibility, VisibilityGate, read_enabled

if TYPE_CHECKING:
    from roundtrip.server.visibility_gates import GateEvaluator

__all__ = ["LISTINGS", "PromptsAndResources"]

T = TypeVar("T")
_CallableT = TypeVar("_CallableT", bound=Callable[..., Any])

_KIND_OF: Final[Mapping[str, Shelf]] = {
    "prompts/list": "prompt",
    "resources/list": "resource",
    "resources/templates/list": "resource",
    "resources/read": "resource",
}

LISTINGS: Final[Mapping[Shelf, Listing]] = {"prompt": "prompts", "resource": "resources"}
"""The list that contains each kind, for announcing its changes."""

_UNKNOWN_PROMPT_CODE: Final = 0
"""The SDK's answer for an unknown prompt."""


class PromptsAndResources(HookedServer[LifespanResultT]):
    """The part of `Server` for prompts, resources and templates.

    Args:
        parts: The parts that every leg uses.
        defaults: The defaults of the server's functions.
        visibility: The rules of `enable` and `disable`.
        recover: Returns the answers of an expired call that may be begun again.
        sdk: The arguments of `MCPServer`.
    """

    def __init__(
        self,
        parts: Parts,
        defaults: ToolDefaults,
        visibility: Visibility,
        *,
        recover: Recover,
        sdk: Mapping[str, Any],
    ) -> None:
        # Extensions register tools from inside the SDK's constructor, so all of this must exist before it runs.
        self._parts = parts
        self._defaults = defaults
        self._visibility = visibility
        self._overrides = Overrides()
        self._announcer = Announcer(parts.effects, is_private=self.is_private)
        self._catalog = Catalog(visibility)
        self._hidden_of: dict[str, frozenset[str]] = {}
        """By the names of prompts, the parameters that clients do not fill."""
        self._in_legs: set[tuple[Shelf, str]] = set()
        self._gate_evaluator: GateEvaluator | None = None
        # Those of the constructor come before those of extensions.
        for tool in sdk.get("tools") or ():
            self.add_tool(tool)
        super().__init__(**{**sdk, "tools": None})
        for resource in sdk.get("resources") or ():
            with self._catalog.adding("resource", str(resource.uri), name=resource.name):
                pass
        self._legs = install(self._lowlevel_server, parts, host=self, recover=recover, subject_of=self._subject_of)
        self.middleware.insert(0, self._announcer)

    @property
    def _gates(self) -> "GateEvaluator":
        """Return the evaluator of visibility gates; most servers need none."""
        if self._gate_evaluator is None:
            from roundtrip.server.visibility_gates import GateEvaluator

            self._gate_evaluator = GateEvaluator(
                self, effects=self._parts.effects, overrides=self._overrides, report=log_teardown
            )
        return self._gate_evaluator

    def _track(self, gate: VisibilityGate | None) -> None:
        """Let `overrides` replace functions of a visibility gate."""
        if gate is not None:
            self._overrides.track(gate.planned)

    def prompt(
        self,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: list[Icon] | None = None,
        *,
        tags: Strings | None = None,
        enabled: Enabled = True,
    ) -> Callable[[_CallableT], _CallableT]:
        """Register the decorated function as a prompt; it may ask as a tool does.

        Clients do not see parameters that `Resolve` fills.

        Args:
            name: The prompt's name; by default the function's.
            title: A name for people.
            description: Its purpose; by default the docstring.
            icons: Icons for people.
            tags: Labels to enable and disable by.
            enabled: False hides it until it is enabled; a function or `Depends` decides for each request if it exists.
        """
        if callable(name):
            return super().prompt(name)

        def decorate(fn: _CallableT) -> _CallableT:
            label = name or display_name(fn)
            signature = read_signature(fn, kind="prompt", name=label)
            seen_at_first, gate = read_enabled(enabled, owner=f"prompt {label!r}")
            self._track(gate)
            function = self._bind(signature)

            async def serve(arguments: dict[str, Any], context: SdkContext[Any, Any]) -> Any:
                opened = self._gates.opened_here(gate) if gate is not None else None
                run = self._legs.run(function, arguments, Incoming.by(context), opened=opened)
                return result_of(await with_failures(run, anticipated=partial(prompt_failure, label)))

            register = super(PromptsAndResources, self).prompt(label, title, description, icons)
            in_leg = signature.hidden or (gate is not None and gate.enters)
            with self._adding("prompt", label, tags=tags, enabled=seen_at_first, gate=gate):
                register(wrap(signature, serve) if in_leg else fn)
            # The SDK keeps the first of two.
            self._hidden_of.setdefault(label, frozenset(signature.hidden))
            if in_leg:
                self._in_legs.add(("prompt", label))
            return fn

        return decorate

    def resource(
        self,
        uri: str,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        icons: list[Icon] | None = None,
        annotations: Annotations | None = None,
        meta: dict[str, Any] | None = None,
        security: ResourceSecurity | None = None,
        tags: Strings | None = None,
        enabled: Enabled = True,
    ) -> Callable[[_CallableT], _CallableT]:
        """Register the decorated function as a resource, or, if the URI has variables, as a template.

        A template may ask as a tool does; parameters that `Resolve` fills are not variables of its URI.

        Args:
            uri: The URI, or a template of it with `{variables}`.
            name: The resource's name; by default the function's.
            title: A name for people.
            description: Its content; by default the docstring.
            mime_type: The type of its content.
            icons: Icons for people.
            annotations: Hints for the client.
            meta: Metadata passed on to the client.
            security: The values that variables of the URI may have; by default the server's policy.
            tags: Labels to enable and disable by.
            enabled: False hides it until it is enabled; a function or `Depends` decides for each request if it exists.
        """
        register = super().resource(
            uri,
            name=name,
            title=title,
            description=description,
            mime_type=mime_type,
            icons=icons,
            annotations=annotations,
            meta=meta,
            security=security,
        )

        def decorate(fn: _CallableT) -> _CallableT:
            signature = read_signature(fn, kind="resource", name=uri)
            seen_at_first, gate = read_enabled(enabled, owner=f"resource {uri!r}")
            self._track(gate)
            is_template = bool(UriTemplate.parse(uri).variable_names)
            adding = self._adding(
                "resource",
                uri,
                name=name or display_name(fn),
                tags=tags,
                enabled=seen_at_first,
                gate=gate,
                template=is_template,
            )
            in_leg = signature.hidden or (gate is not None and gate.enters)
            if not in_leg or not is_template:
                if signature.resolved:
                    raise InvalidSignature(
                        f"resource {uri!r} has no variables, so it is read without a call that could ask; fill its "
                        "parameters inside the function, or make it a template"
                    )
                with adding:
                    register(fn)
                return fn
            function = self._bind(signature)

            async def serve(arguments: dict[str, Any], context: SdkContext[Any, Any]) -> Any:
                opened = self._gates.opened_here(gate) if gate is not None else None
                run = self._legs.run(function, arguments, Incoming.by(context), opened=opened)
                return result_of(await with_failures(run, anticipated=ResourceError))

            with adding:
                register(wrap(signature, serve))
            self._in_legs.add(("resource", uri))
            return fn

        return decorate

    def is_served_in_legs(self, kind: Shelf, identifier: str) -> bool:
        """Return True if a prompt of this name, or a template of this URI, is served in legs and so may ask."""
        return (kind, identifier) in self._in_legs

    async def list_prompts(self) -> list[WirePrompt]:
        """Return the prompts as the client of the request sees them."""
        return await self._behind_all_gates("prompts", super().list_prompts)

    async def list_resources(self) -> list[WireResource]:
        """Return the resources as the client of the request sees them."""
        return await self._behind_all_gates("resources", super().list_resources)

    async def list_resource_templates(self) -> list[WireTemplate]:
        """Return the resource templates as the client of the request sees them."""
        return await self._behind_all_gates("templates", super().list_resource_templates)

    async def get_prompt(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        context: SdkContext[LifespanResultT, Any] | None = None,
    ) -> GetPromptResult | InputRequiredResult:
        """Serve one leg of a prompt, as the SDK does; a client's values for filled parameters are ignored."""
        for_client = begins_for_client()
        hidden = self._hidden_of.get(name)
        if hidden and arguments:
            arguments = {key: value for key, value in arguments.items() if key not in hidden}
        get = partial(super().get_prompt, name, arguments, context)
        try:
            if self._catalog.gate_of("prompt", name) is None:
                return await get()
            return await self._behind_gates("prompt", [name], get, context)
        except ValueError as error:
            fields = fields_rejected_by(error)
            if fields is None:
                if for_client and str(error) == f"Unknown prompt: {name}":
                    # The dispatcher would log the name, with a traceback.
                    log_unknown("Prompt")
                    raise MCPError(code=_UNKNOWN_PROMPT_CODE, message=str(error)) from None
                raise
            # The dispatcher logs it with its causes; the SDK's cause would quote the client's values.
            raise ValueError(str(error)) from rejected_fields(fields)

    async def read_resource(
        self, uri: AnyUrl | str, context: SdkContext[LifespanResultT, Any] | None = None
    ) -> Iterable[ReadResourceContents] | InputRequiredResult:
        """Serve one leg of reading a resource, as the SDK does."""
        read = partial(super().read_resource, uri, context)
        for_client = begins_for_client()
        try:
            if not self._catalog.has_gates("resource"):
                return await read()
            return await self._behind_gates("resource", self.resources_for(str(uri)), read, context)
        except ResourceError as error:
            if not for_client:
                raise
            log_unread(next(self.resources_for(str(uri)), None), error)
            raise resource_failure(str(uri), error) from error

    def add_prompt(self, prompt: Prompt) -> None:
        """Register the SDK's own prompt object."""
        with self._adding("prompt", prompt.name):
            super().add_prompt(prompt)

    def remove_prompt(self, name: str) -> None:
        """Remove a prompt.

        Raises:
            ValueError: No prompt has that name.
        """
        super().remove_prompt(name)
        self._hidden_of.pop(name, None)
        self._in_legs.discard(("prompt", name))
        if self._catalog.remove("prompt", name):
            self._announcer.note("prompts")

    def add_resource(self, resource: Resource) -> None:
        """Register the SDK's own resource object."""
        with self._adding("resource", str(resource.uri), name=resource.name):
            super().add_resource(resource)

    def is_private(self, method: str) -> bool:
        """Return True if the answers of a method depend on the caller, and must not be cached for others."""
        kind = _KIND_OF.get(method)
        return kind is not None and self._catalog.has_gates(kind)

    def _subject_of(self, ctx: Request) -> tuple[str | None, bool]:
        """Return the registered name that a request calls (of a resource, its template), and True if it is traced."""
        params = ctx.params or {}
        named = params.get("uri" if ctx.method == "resources/read" else "name")
        if isinstance(named, str):
            if ctx.method == "resources/read":
                return next(self.resources_for(named), None), True
            if self._catalog.knows("prompt", named):
                return named, True
        return None, True

    def _bind(self, signature: FunctionSignature) -> AskingFunction:
        """Plan a prompt's or a template's function, whose resolvers may take its arguments by name."""
        names = [name for name in inspect.signature(signature.fn).parameters if name not in signature.hidden]
        function = signature.bind(
            {name: name for name in names}, limits=self._defaults.limits, build=self._defaults.build
        )
        self._adopt(function)
        return function

    def serving_client(self) -> AbstractContextManager[None]:
        """Surround the SDK's handler of one request, whose first lookup serves the client itself."""
        return serving_client()

    def is_visible(self, kind: Shelf, identifier: str) -> bool:
        """Return True if the current request may see a prompt of this name, or a resource or template of this URI."""
        if self._parts.effects.rehearsal is not None:
            return True
        if not self._catalog.sees(kind, identifier):
            return False
        gate = self._catalog.gate_of(kind, identifier)
        return gate is None or self._gates.opened_here(gate) is not None

    async def completing(self, kind: Shelf, identifier: str, ask: Callable[[], Awaitable[T]]) -> T | None:
        """Complete an argument of a prompt or template; return None if the client cannot see it.

        If any of the kind has a visibility gate, arguments of unregistered ones are not completed either.
        """
        if not self._catalog.has_gates(kind):
            return await super().completing(kind, identifier, ask)
        if self._catalog.knows(kind, identifier):
            candidates = [identifier]
        else:
            candidates = [*self.resources_for(identifier)] if kind == "resource" else []

        async def complete() -> T | None:
            return await ask() if any(self.is_visible(kind, candidate) for candidate in candidates) else None

        return await self._behind_gates(kind, candidates, complete)

    async def _behind_gates(
        self,
        kind: Shelf,
        candidates: Iterable[str],
        serve: Callable[[], Awaitable[T]],
        context: SdkContext[Any, Any] | None = None,
    ) -> T:
        """Serve with the first candidate that the request may see, or without any."""
        rehearsal = self._parts.effects.rehearsal
        for identifier in candidates:
            if not self._catalog.sees(kind, identifier) and rehearsal is None:
                continue
            gate = self._catalog.gate_of(kind, identifier)
            if gate is None:
                return await serve()
            opened = await self._gates.open(gate, Incoming.by(context).request if context is not None else None)
            if opened is not None:
                return await opened.around(serve())
            if rehearsal is not None:
                # A rehearsal has no user for whom a gate could open.
                rehearsal.let_in(f"{kind} {identifier!r}")
                return await serve()
        return await self._gates.serve_unseen(serve())

    async def _behind_all_gates(self, listed: Listed, serve: Callable[[], Awaitable[T]]) -> T:
        """Serve a list with the items that the request may see."""
        gates = self._catalog.gates_of(listed)
        if not gates:
            return await serve()
        return await (await self._gates.open_all(gates)).around(serve())

    @contextmanager
    def _adding(self, kind: Shelf, identifier: str, **details: Any) -> Generator[None]:
        with self._catalog.adding(kind, identifier, **details):
            yield
        if self._catalog.sees(kind, identifier):
            self._announcer.note(LISTINGS[kind])

    def _adopt(self, function: AskingFunction) -> None:
        """Reject a function that this server could not serve; let `overrides` replace functions of its graph."""
        if function.plan.may_carry_secrets and not self._parts.protection.journals.can_seal:
            raise InvalidSignature(
                f"{function.owner} has to keep a value secret from the client (once=True), and "
                "request_state_security= gives no key for that; add seal_keys="
            )
        self._overrides.track(function.planned)
