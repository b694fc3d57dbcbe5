"""Provide `Server`: an `MCPServer` whose tools may ask, on every protocol revision, and resume on any instance."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

from mcp.server import MCPServer
from mcp.server.auth.provider import OAuthAuthorizationServerProvider, TokenVerifier
from mcp.server.auth.settings import AuthSettings
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.context import ServerMiddleware
from mcp.server.extension import Extension
from mcp.server.lowlevel.server import LifespanResultT
from mcp.server.mcpserver import ResourceSecurity
from mcp.server.mcpserver.resources import Resource
from mcp.server.mcpserver.tools import Tool as SdkTool
from mcp.server.request_state import RequestStateSecurity
from mcp.server.subscriptions import SubscriptionBus
from mcp_types import Icon
from starlette.applications import Starlette
from typing_extensions import Unpack

from roundtrip.docket import foreign
from roundtrip.on_demand import load_on_use
from roundtrip.server.features import install_stored_calls
from roundtrip.server.prompts_and_resources import LISTINGS
from roundtrip.server.settings import PartsOptions, StoringOptions, parts_of
from roundtrip.server.tool_server import ToolServer
from roundtrip.switches import FAST_LANE_VARIABLE, is_on, runs_tasks
from roundtrip.tools.options import unknown_option
from roundtrip.tools.registered import ToolDefaults
from roundtrip.tools.registry import OnDuplicate
from roundtrip.visibility.rules import VisibilityChoice

if TYPE_CHECKING:
    from mcp.server.transport_security import TransportSecuritySettings

    from roundtrip.http import connections
    from roundtrip.stored.worker import DistributedEngine
else:
    load_on_use(globals(), "roundtrip.http.connections")

_CallableT = TypeVar("_CallableT", bound=Callable[..., Any])


class SdkOptions(TypedDict, total=False):
    """Keyword arguments that `MCPServer` has beside those in the signature of `Server`."""

    tools: list[SdkTool] | None
    resources: list[Resource] | None
    extensions: Sequence[Extension] | None
    debug: bool
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]
    warn_on_duplicate_resources: bool
    warn_on_duplicate_tools: bool
    warn_on_duplicate_prompts: bool
    dependencies: list[str] | None
    auth: AuthSettings | None
    resource_security: ResourceSecurity
    request_state_security: RequestStateSecurity | None
    cache_hints: Mapping[CacheableMethod, CacheHint] | None
    subscriptions: SubscriptionBus | Literal[False] | None
    middleware: Sequence[ServerMiddleware[Any]] | None


class ServerOptions(PartsOptions, StoringOptions, SdkOptions, total=False):
    """Options of `Server` that it passes on."""


def _with_signature_of(original: Callable[..., Any]) -> Callable[[_CallableT], _CallableT]:
    """Show the SDK's own parameters to those who inspect a method that passes them on."""

    def sign(method: _CallableT) -> _CallableT:
        setattr(method, "__signature__", inspect.signature(original))  # noqa: B010 - to type checkers it has none
        return method

    return sign


class Server(ToolServer[LifespanResultT]):
    """MCP server whose tools can ask the client before they finish; any instance may serve the next leg.

    It is the SDK's `MCPServer`: the same constructor, decorators and `run`. These arguments are added.

    Args:
        keys: Secrets of at least 32 bytes, newest first, the same on every instance. The first signs, all verify,
            so a key is replaced in three steps: `[old, new]`, `[new, old]`, `[new]`. By default those of the
            environment: ROUNDTRIP_KEYS lists them, or ROUNDTRIP_KEY_FILE names a file of `roundtrip keys`. Without
            either the server makes its own key, and only this process can resume its calls.
        ttl: Seconds a client may take over one leg's questions. By default 600, or as `request_state_security` says.
        max_age: Seconds after which a call cannot be resumed, however often it was. By default 3600, or `ttl` if
            `request_state_security` has a longer one.
        encrypt: Encrypt whole tokens. Values that the server computed are never readable either way.
        principal: Returns the owner of a token. By default the authenticated identity; `False` binds tokens to no one.
        audience: The service that tokens are for. By default the server's name.
        request_state_security: The SDK's policy, instead of `keys`: its codec then carries the journal.
        seal_keys: With `request_state_security`, the keys that seal values which the server computed.
        build: A name for this build of the application. By default a digest of the tools' source.
        trace: The place to record calls: the path of a transcript, a `Recorder`, another tracer, a function that is
            called with each `Transition` and each `TokenRejection`, or several of those. By default the transcript that
            the environment variable ROUNDTRIP_TRACE names, if it is set; False for none at all.
        ledger: Keeps the results of calls of tools that run once (`exactly_once=True`): by default in the memory of
            this process. Instances of one service share a `SqliteLedger`, a `RedisLedger` or a `PostgresLedger`.
        no_empty_rounds: Names of clients (`clientInfo.name`) that cannot take a round without questions. They are sent
            none: a tool that runs once and asks them nothing runs without that, and the log and the trace say so.
        probe: True to answer the probe of `roundtrip doctor`, a tool that no list shows. By default as the environment
            variable ROUNDTRIP_PROBE says; without it, False.
        run_tasks: False to leave the tasks of the store to other processes; "own" to run those of this process's
            clients only. By default as the environment variable ROUNDTRIP_RUN_TASKS says; without it, True.
        task_engine: A `DocketEngine`, which delivers tasks to workers. By default each worker looks at the store.
        pages: `Pages(...)`, on which users answer if their clients cannot ask them by form. By default such calls fail.
        channels: The ways in which questions may be asked: `form` (by the client), `local` (a page on the user's
            machine), `url` (a page that the client shows), `model` (the model that called the tool answers questions
            with `answered_by="anyone"`) and `link` (a page whose address is in the result). Each question takes the
            first that it can. By default `form`, and those that `pages` serves.
        approvals: `Approvals(...)`, by which people of a group decide calls of others, with `Approve`.
        fast_lane: False to serve requests of 2026-07-28 over HTTP by the SDK's transport, which is slower and sends the
            same. By default as the environment variable ROUNDTRIP_FAST_LANE says; without it, True.
        max_token_bytes: A longer token is neither made nor accepted.
        max_journal_bytes: The most bytes that a call may remember.
        strict_input_validation: Check arguments against the tool's JSON schema as they are, and coerce nothing.
        mask_error_details: Tell clients that a tool crashed, but not the text; `ToolError` is sent in any case. By
            default clients get the text, unless `roundtrip serve` serves without `--show-errors`.
        dereference_schemas: Serve the schemas of tools without `$ref`, which some clients do not follow.
        on_duplicate_tools: The treatment of a second tool of one name. By default it replaces the first and a warning
            is logged; with the SDK's `warn_on_duplicate_tools=False` it is ignored, as by the SDK.
        system: The clocks, randomness and sleep that the server uses; by default the real ones of the process.
        **options: The other options above, and all other keyword arguments of `MCPServer`.

    Raises:
        ValueError: A key is too short, or the arguments contradict each other.

    Example:
        ```python
        server = Server("bookshop", keys=[os.environ["BOOKSHOP_KEY"]])
        ```
    """

    def __init__(
        self,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        instructions: str | None = None,
        website_url: str | None = None,
        icons: list[Icon] | None = None,
        version: str = "",
        auth_server_provider: OAuthAuthorizationServerProvider[Any, Any, Any] | None = None,
        token_verifier: TokenVerifier | None = None,
        *,
        lifespan: Callable[[MCPServer[LifespanResultT]], AbstractAsyncContextManager[LifespanResultT]] | None = None,
        build: str | None = None,
        probe: bool | None = None,
        run_tasks: bool | Literal["own"] | None = None,
        task_engine: DistributedEngine | None = None,
        fast_lane: bool | None = None,
        strict_input_validation: bool = False,
        mask_error_details: bool | None = None,
        dereference_schemas: bool = True,
        on_duplicate_tools: OnDuplicate | None = None,
        **options: Unpack[ServerOptions],
    ) -> None:
        for option in options.keys() - ServerOptions.__annotations__:
            known = {*inspect.signature(Server).parameters, *ServerOptions.__annotations__} - {"options"}
            raise unknown_option("Server() has", option, [*known])
        sdk: dict[str, Any] = {
            name: given for name, given in options.items() if name not in StoringOptions.__annotations__
        }
        for_parts = {option: sdk.pop(option) for option in PartsOptions.__annotations__ if option in sdk}
        bus = options.get("subscriptions")
        given = options.get("request_state_security")
        parts = parts_of(name, given=given, bus=None if bus is False else bus, **for_parts)
        self._has_warned_of_errors = False
        self._decision = Lock()
        super().__init__(
            parts,
            ToolDefaults(
                parts.limits,
                foreign,
                build=build,
                strict=strict_input_validation,
                inline=dereference_schemas,
            ),
            on_duplicate=on_duplicate_tools or ("warn" if sdk.get("warn_on_duplicate_tools", True) else "ignore"),
            mask_errors=mask_error_details,
            probe=probe,
            sdk={
                "name": name,
                "title": title,
                "description": description,
                "instructions": instructions,
                "website_url": website_url,
                "icons": icons,
                "version": version,
                "auth_server_provider": auth_server_provider,
                "token_verifier": token_verifier,
                "lifespan": lifespan,
                **sdk,
                "request_state_security": parts.protection.policy,
                "subscriptions": False if bus is False else parts.effects.bus,
            },
        )
        self.storage.engine = task_engine
        self.storage.runs_tasks = runs_tasks(run_tasks, environment=os.environ)
        has_auth = self.settings.auth is not None
        self.stored_calls = install_stored_calls(self._calls, self.storage, options, has_auth=has_auth)
        if self.stored_calls is not None:
            self._tools.relist = self.stored_calls.relist
        for add in self._early:
            add()
        self._has_fast_lane = is_on(fast_lane, FAST_LANE_VARIABLE, environment=os.environ, default=True)
        self._slow_reason = "fast_lane=False" if fast_lane is not None else FAST_LANE_VARIABLE

    @_with_signature_of(MCPServer.streamable_http_app)
    def streamable_http_app(self, **options: Unpack[connections.HttpOptions]) -> Starlette:
        """Return the ASGI application that serves streamable HTTP; the arguments are the SDK's.

        Clients on 2025-11-25 and older can be asked only without `stateless_http` and `json_response`. Such a call
        ends when its client has left, unless an `event_store` lets the client come back to it.

        A request may be as large as `max_request_body_size`, but is rejected if it has more than 50,000 JSON values.
        """
        self._warn_of_exposure(options.get("transport_security"))
        app = connections.watch_app(self, super().streamable_http_app(**options), options)
        if self._has_fast_lane:
            from roundtrip.http.fast_lane import FastLane

            FastLane.put_before(self._lowlevel_server)
            self.tell_transport("the fast lane")
        else:
            self.tell_transport(f"the SDK's transport, because of {self._slow_reason}")
        return app

    @_with_signature_of(MCPServer.sse_app)  # pyright: ignore[reportDeprecated]
    def sse_app(self, **options: Unpack[connections.SseOptions]) -> Starlette:
        """Return the ASGI application that serves the old HTTP+SSE transport; the arguments are the SDK's."""
        self._warn_of_exposure(options.get("transport_security"))
        return super().sse_app(**options)  # pyright: ignore[reportDeprecated]

    def trust_readers_of_errors(self) -> None:
        """Log no warning that clients may read the texts of exceptions: no one but the developer can reach it."""
        self._has_warned_of_errors = True

    def _warn_of_exposure(self, security: TransportSecuritySettings | None) -> None:
        if self.shows_error_details and self.settings.auth is None and not self._has_warned_of_errors:
            self._has_warned_of_errors = True
            connections.warn_of_readable_errors(self.name)
        connections.warn_of_unchecked_names(security)

    def enable(self, **chosen: Unpack[VisibilityChoice]) -> None:
        """Let clients see tools, prompts and resources again; later calls win over earlier ones.

        Args:
            keys: `tool:name`, `tool:name@version`, `prompt:name`, `resource:uri` or `resource:template`.
            names: Names of tools, prompts and resources.
            tags: Labels; one in common is enough. Of several arguments, all must fit.
            only: Disable everything else.

        Raises:
            ValueError: Nothing was chosen, or a key has none of these forms.
        """
        with self._deciding():
            self._visibility.enable(**chosen)

    def disable(self, **chosen: Unpack[VisibilityChoice]) -> None:
        """Hide tools, prompts and resources: lists omit them, and requests for them are answered as for unknown ones.

        Args:
            keys: As for `enable`.
            names: As for `enable`.
            tags: As for `enable`.
            only: Enable everything else.

        Raises:
            ValueError: Nothing was chosen, or a key has none of these forms.
        """
        with self._deciding():
            self._visibility.disable(**chosen)

    def allow_tools(self, names: Iterable[str] | None) -> None:
        """Show clients no other tools than these, whatever else is enabled; None lifts that again.

        The tools may be registered later. A name that no tool has when clients first list them is logged.

        Raises:
            TypeError: It is one string.
        """
        with self._deciding():
            self._tools.allow(names)

    @contextmanager
    def _deciding(self) -> Generator[None]:
        """Surround a change of visibility, one at a time."""
        with self._decision:
            before = self._tools.seen.versions
            yield
            self._tools.refresh()
            if self._tools.seen.versions != before:
                self._announcer.note("tools")
            for kind in self._catalog.refresh():
                self._announcer.note(LISTINGS[kind])
