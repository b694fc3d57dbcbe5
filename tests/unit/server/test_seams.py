"""What `seams` and `Server` use of the SDK is still there, and means what it did."""

import inspect
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast, get_type_hints

import pytest
from mcp.server import MCPServer
from mcp.server.connection import Connection
from mcp.server.session import ServerSession
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from roundtrip import Server
from roundtrip.sdk import RestartingManager
from roundtrip.server.server import SdkOptions

pytestmark = pytest.mark.anyio


def test_a_session_knows_its_connection_and_a_connection_its_session() -> None:
    assert "self._connection = connection" in inspect.getsource(ServerSession.__init__)
    assert "session_id" in inspect.signature(Connection).parameters
    # Only a session that the manager opened has an id, and no request can claim one.
    manager = inspect.getsource(StreamableHTTPSessionManager)
    assert manager.count("session_id=session_id,") == 1


async def test_manager_of_a_server_runs_again_but_not_twice_at_once() -> None:
    server = Server("shop")
    server.streamable_http_app()
    for _ in range(2):
        async with server.session_manager.run():
            with pytest.raises(RuntimeError, match="once per instance"):
                async with server.session_manager.run():
                    pass
            with pytest.raises(RuntimeError, match="once per instance"):
                async with server.session_manager.run():
                    pass


SDK = inspect.signature(MCPServer.__init__).parameters
OWN = inspect.signature(Server.__init__).parameters


def test_every_keyword_of_the_sdk_is_accepted_once() -> None:
    """A new keyword of the SDK goes into `SdkOptions`, or into the signature of `Server`."""
    options = set(SdkOptions.__annotations__)
    assert options == set(SDK) - set(OWN)
    assert options.isdisjoint(OWN)


def test_keywords_have_the_types_of_the_sdk() -> None:
    theirs = get_type_hints(MCPServer.__init__)
    for name, type_ in get_type_hints(SdkOptions).items():
        assert theirs[name] == type_, name


def test_arguments_of_both_have_the_positions_and_defaults_of_the_sdk() -> None:
    for name, parameter in SDK.items():
        if name in OWN:
            assert (OWN[name].kind, OWN[name].default) == (parameter.kind, parameter.default), name
    positional = [name for name, one in SDK.items() if one.kind is one.POSITIONAL_OR_KEYWORD]
    assert list(OWN)[: len(positional)] == positional


def test_server_adds_only_api_names_and_one_for_the_package() -> None:
    added = {name for name in {*dir(Server()), *vars(Server())} if not name.startswith("_")} - {*dir(MCPServer())}
    api = "allow_tools disable enable identity ledger local_provider overrides signal verify_ticket"
    assert added == {*api.split(), "internals"}


async def test_no_request_begins_while_the_lifespan_ends() -> None:
    seen: list[bool] = []

    @asynccontextmanager
    async def lifespan(_: MCPServer[Any]) -> AsyncGenerator[None]:
        yield
        seen.append(cast("RestartingManager", server.session_manager).is_running)

    server = Server[Any]("shop", lifespan=lifespan)
    server.streamable_http_app()
    async with server.session_manager.run():
        assert cast("RestartingManager", server.session_manager).is_running
    assert seen == [False]
