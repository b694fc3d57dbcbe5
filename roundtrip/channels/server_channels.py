"""Server channels: the ways in which a question can reach its user or a model.

- `form`: the client shows a form.
- `local`: a page opens on the user's machine.
- `url`: the client shows a page address.
- `app`: the client shows the questions in an app inside the conversation.
- `model`: the tool's result contains the question.
- `link`: the tool's result contains a page address.

A question uses the first of these channels that the client and the question's policy allow. `local` comes before `url`
because a stdio server serves only local pages, and their addresses are never sent to clients. `model` carries only
questions that anyone may answer. It comes before `link` because it needs no human.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from mcp.server.context import ServerRequestContext
from mcp_types import (
    ClientCapabilities,
    ElicitationCapability,
    ElicitRequest,
    FormElicitationCapability,
    InputRequest,
    InputResponse,
    UrlElicitationCapability,
)
from pydantic import BaseModel
from typing_extensions import override

from roundtrip.engine.ports import Channels
from roundtrip.legs.requests import RequestClient
from roundtrip.revisions import CLIENTS_STOP_AFTER_ROUNDS, FIRST_OF_RETRY_ERA
from roundtrip.untrusted import mapping_of

if TYPE_CHECKING:
    from roundtrip.pages.settings import Pages

ChannelName = Literal["form", "local", "url", "app", "model", "link"]
"""Name of a channel."""

CHANNELS: Final[tuple[ChannelName, ...]] = ("form", "local", "url", "app", "model", "link")
_PAGE_CHANNELS: Final[tuple[ChannelName, ...]] = ("local", "url", "app", "link")
_FOR_KNOWN_USERS: Final[tuple[ChannelName, ...]] = ("app", "link")
LAST_ROUND: Final = CLIENTS_STOP_AFTER_ROUNDS - 1
"""The last round that a client answers automatically."""

UI_EXTENSION: Final = "io.modelcontextprotocol/ui"
"""The extension MCP Apps."""
APP_MIME_TYPE: Final = "text/html;profile=mcp-app"

PAGE_ELICITATION: Final = ElicitationCapability(form=FormElicitationCapability(), url=UrlElicitationCapability())
"""The elicitation capability of a page, which can show forms and links."""


@dataclass(frozen=True, slots=True)
class ServerChannels:
    """Channels of one server."""

    names: frozenset[ChannelName]
    from_round: int
    """The first round that is shown on a page instead of in a form, if the client can show links."""
    is_for_users: bool = False
    """True if only the user who made a call can open its page."""
    takes_any_for_app: bool = False
    """True if clients get apps whatever they declare."""

    @classmethod
    def of(cls, given: Iterable[ChannelName] | None, pages: Pages | None, *, knows_users: bool) -> ServerChannels:
        """Return the channels for `Server(channels=...)`.

        Args:
            given: The author's option. None means `form` and those page channels for which `pages` has the settings.
                `local` needs `local=`, `url` needs `base_url=`, and `link` also needs `authenticate=`. `app` comes with
                `link`.
            pages: The question page settings.
            knows_users: False if the server never knows its callers.

        Raises:
            TypeError: The option is not a list of names.
            ValueError: The option has an unknown channel, or a channel that the server cannot serve.
        """
        if given is None:
            served: list[ChannelName] = [
                name for name in _PAGE_CHANNELS if _lack_of(name, pages, knows_users=True) is None
            ]
            if "link" not in served and "app" in served:
                served.remove("app")
            names: frozenset[ChannelName] = frozenset(("form", *served))
        else:
            names = _check_names(given, pages, knows_users=knows_users)
        if pages is None:
            return cls(names, LAST_ROUND)
        for_users, for_any = pages.authenticate is not None, pages.app == "always"
        return cls(names, pages.from_round, is_for_users=for_users, takes_any_for_app=for_any)

    @property
    def has_results(self) -> bool:
        """Return True if a tool's result may be replaced by a result with a handle, a link or a question."""
        return not self.names.isdisjoint({"local", "app", "model", "link"})

    @property
    def continues(self) -> bool:
        """Return True if calls may be stored, so that a handle can continue them."""
        return self.has_results or not self.names.isdisjoint(_PAGE_CHANNELS)

    def channels(
        self,
        declared: ClientCapabilities | None,
        *,
        asked: int,
        knows_user: bool,
        is_live: bool,
        can_open_locally: bool = False,
        may_show_app: bool = True,
    ) -> Channels:
        """Return the channels, other than forms, on which a request's questions may be asked.

        Args:
            declared: The client's capabilities.
            asked: The number of rounds that this call has already asked its client.
            knows_user: True if the server knows the user, so that only this user can open a link.
            is_live: True if the client is asked over its connection.
            can_open_locally: True if a page can open in the user's browser on this machine.
            may_show_app: False if the host shows another app for this call.
        """
        is_local = "local" in self.names and can_open_locally
        shows_links = self.shows_links(declared, knows_user=knows_user, is_live=is_live)
        goes_to_pages = shows_links or (is_local and _declares_links(declared))
        # A page interrupts its user, so use forms as long as the client answers them.
        by_link = self.in_result(declared, may_show_app=may_show_app) if knows_user else None
        if self.shows_forms(declared) and asked < (self.from_round if goes_to_pages else LAST_ROUND):
            for_links = None if _declares_links(declared) else "local" if is_local else by_link
            return Channels(is_live=is_live, for_links=for_links)
        if is_local:
            return Channels("local", is_live=is_live)
        if shows_links:
            return Channels("url")
        return Channels(by_link, "model" in self.names, is_live)

    def in_result(self, declared: ClientCapabilities | None, *, may_show_app: bool = True) -> ChannelName | None:
        """Return the channel that puts a page into a tool's result."""
        if may_show_app and "app" in self.names and (self.takes_any_for_app or shows_apps(declared)):
            return "app"
        return "link" if "link" in self.names else None

    def channels_of_task(self, declared: ClientCapabilities | None, *, knows_user: bool) -> Channels:
        """Return the channels for a task's questions, if its client cannot show them. They replace the tool's result
        with a handle, a link or questions.

        Args:
            declared: The client's capabilities. There are no such channels for a client that can show links.
            knows_user: True if the server knows the user, so that only this user can open a link.
        """
        # Choose the channels of other clients as for a first request that has no open connection.
        if _declares_links(declared):
            return Channels()
        return self.channels(declared, asked=0, knows_user=knows_user, is_live=False)

    def shows_links(self, declared: ClientCapabilities | None, *, knows_user: bool, is_live: bool) -> bool:
        """Return True if a client can show a page address as a question, and then ask again for the result.

        Live clients cannot, because the call would keep a connection open until its user answers. If only the caller
        may open a page, the server must also know the user.
        """
        opens = knows_user or not self.is_for_users
        return _declares_links(declared) and "url" in self.names and opens and not is_live

    def shows_forms(self, declared: ClientCapabilities | None) -> bool:
        """Return True if a client can show forms, and the server may use them."""
        elicitation = declared.elicitation if declared is not None else None
        if elicitation is None or "form" not in self.names:
            return False
        # `elicitation: {}` comes from clients older than elicitation modes, and means forms.
        return elicitation.form is not None or elicitation.url is None


AskInApp = Callable[[dict[str, Any]], dict[str, Any]]
"""Function that adds an app's address to a question's parameters in wire form."""


class ChannelClient(RequestClient):
    """Client with changed capabilities, because a page can ask its user, or the server does not use its forms.

    Args:
        request: The client's request.
        server_channels: The server's channels.
        channels: The channels for this request's questions.
        in_app: Lets an app render a form that the client is asked over its connection; None if the server has no apps.
    """

    __slots__ = ("_channels", "_in_app", "_server_channels")

    def __init__(
        self,
        request: ServerRequestContext[Any, Any] | None,
        server_channels: ServerChannels,
        channels: Channels,
        in_app: AskInApp | None = None,
    ) -> None:
        super().__init__(request)
        self._server_channels = server_channels
        self._channels = channels
        self._in_app = in_app
        if channels.replaces_client:
            # The questions are returned in a result, whatever the client's protocol revision.
            self.protocol_version = FIRST_OF_RETRY_ERA

    @property
    def capabilities(self) -> ClientCapabilities | None:
        """Return the client's capabilities, with the elicitation capability of a page, or without forms if the server
        does not use them.
        """
        declared = super().capabilities
        if self._channels.page is not None:
            return with_elicitation(declared, PAGE_ELICITATION)
        elicitation = declared.elicitation if declared is not None else None
        if elicitation is None or self._server_channels.shows_forms(declared):
            return declared
        url = elicitation.url
        return with_elicitation(declared, None if url is None else ElicitationCapability(url=url))

    @override
    async def send(self, request: InputRequest, result_type: type[BaseModel]) -> InputResponse:
        if self._in_app is not None and isinstance(request, ElicitRequest) and renders_forms(super().capabilities):
            asked = self._in_app(request.params.model_dump(mode="json", by_alias=True, exclude_none=True))
            request = ElicitRequest.model_validate({"method": request.method, "params": asked}, by_name=False)
        return await super().send(request, result_type)


def shows_apps(declared: ClientCapabilities | None) -> bool:
    """Return True if a client shows MCP Apps."""
    types = _ui(declared).get("mimeTypes")
    return isinstance(types, list) and APP_MIME_TYPE in types


def renders_forms(declared: ClientCapabilities | None) -> bool:
    """Return True if a client shows forms, and lets an app render them (SEP-3118)."""
    elicitation = declared.elicitation if declared is not None else None
    has_forms = elicitation is not None and elicitation.form is not None
    return has_forms and shows_apps(declared) and isinstance(_ui(declared).get("elicitation"), Mapping)


def _ui(declared: ClientCapabilities | None) -> Mapping[str, Any]:
    found: Any = (declared.extensions or {}).get(UI_EXTENSION) if declared is not None else None
    return mapping_of(found)


def with_elicitation(
    declared: ClientCapabilities | None, elicitation: ElicitationCapability | None
) -> ClientCapabilities:
    """Return a client's capabilities with a different elicitation capability."""
    return (declared or ClientCapabilities()).model_copy(update={"elicitation": elicitation})


def _declares_links(declared: ClientCapabilities | None) -> bool:
    elicitation = declared.elicitation if declared is not None else None
    return elicitation is not None and elicitation.url is not None


def _check_names(given: Any, pages: Pages | None, *, knows_users: bool) -> frozenset[ChannelName]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"channels must be a list of names, such as ['form', 'model'], got {given!r}")
    names: list[Any] = list(given)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    known = ", ".join(CHANNELS)
    if not names:
        raise ValueError(f"channels must have at least one name; the names are {known}")
    for name in names:
        if name not in CHANNELS:
            raise ValueError(f"channels must have only known names, got {name!r}; the names are {known}")
        if (lack := _lack_of(name, pages, knows_users=knows_users)) is not None:
            raise ValueError(f"channels must not have {name!r} {lack[0]}, got {names!r}; {lack[1]}")
    return frozenset(names)


def _lack_of(name: ChannelName, pages: Pages | None, *, knows_users: bool) -> tuple[str, str] | None:
    """Return what a server lacks for a channel, and how to fix it; None if the server can serve the channel."""
    if name not in _PAGE_CHANNELS:
        return None
    if name in _FOR_KNOWN_USERS and not knows_users:
        return "with principal=False", f"{name!r} is only for the call's user, so the server must know the user"
    if name == "app":
        return None if pages is None or pages.app else ("with Pages(app=False)", "remove one of the two")
    if pages is None:
        return "without pages", "add pages=Pages(...)"
    if name == "local":
        return None if pages.local else ("without local pages", "add Pages(local=True)")
    if pages.base_url is None:
        return "without a browser address", "add Pages(base_url=...)"
    if name == "link" and pages.authenticate is None:
        why = "a model reads the link, so the page must open only for the call's user"
        return "without Pages(authenticate=...)", why
    return None
