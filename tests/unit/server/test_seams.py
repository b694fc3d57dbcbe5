"""The private names of the SDK that `seams` uses are still there, and still mean what they did."""

import inspect

import pytest
from mcp.server import MCPServer
from mcp.server.connection import Connection
from mcp.server.mcpserver.prompts import PromptManager
from mcp.server.mcpserver.resources import ResourceManager
from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata
from mcp.server.session import ServerSession
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from roundtrip import Server

pytestmark = pytest.mark.anyio


def test_sdk_looks_prompts_and_resources_up_each_time() -> None:
    managers = {
        "self._prompt_manager.": (
            MCPServer.list_prompts,
            MCPServer.get_prompt,
            MCPServer.add_prompt,
            MCPServer.remove_prompt,
        ),
        "self._resource_manager.": (
            MCPServer.list_resources,
            MCPServer.list_resource_templates,
            MCPServer.read_resource,
            MCPServer.add_resource,
            MCPServer.resource,
        ),
    }
    for use, methods in managers.items():
        for method in methods:
            assert use in inspect.getsource(method), f"{method.__qualname__} does not use {use}"
        assert inspect.getsource(MCPServer).count(use) == len(methods)


def test_sdk_managers_store_registrations_under_shared_names() -> None:
    assert vars(PromptManager(False)) == {"_prompts": {}, "warn_on_duplicate_prompts": False}
    assert vars(ResourceManager(False)) == {"_resources": {}, "_templates": {}, "warn_on_duplicate_resources": False}


def test_sdk_resource_lookup_is_the_replaced_one() -> None:
    source = inspect.getsource(ResourceManager.get_resource)
    for step in (
        "self._resources.get(uri_str)",
        "in self._templates.values()",
        "template.matches(uri_str)",
        "except ResourceSecurityError as e",
        "await template.create_resource(uri_str, params, context=context)",
        'ResourceNotFoundError(f"Unknown resource: {uri}")',
    ):
        assert step in source


def test_a_session_knows_its_connection_and_a_connection_its_session() -> None:
    assert "self._connection = connection" in inspect.getsource(ServerSession.__init__)
    assert "session_id" in inspect.signature(Connection).parameters
    # Only a session that the manager opened has an id, and no request can claim one.
    manager = inspect.getsource(StreamableHTTPSessionManager)
    assert manager.count("session_id=session_id,") == 1


def test_sdk_function_metadata_makes_the_result_adapter() -> None:
    assert list(inspect.signature(FuncMetadata._output_adapter).parameters) == ["self", "output_model"]  # pyright: ignore[reportPrivateUsage]
    assert "self._output_adapter(output_model)" in inspect.getsource(FuncMetadata.convert_result)


async def test_sdk_manager_runs_once_by_its_own_mark() -> None:
    server = MCPServer("shop")
    server.streamable_http_app()
    manager = server.session_manager
    async with manager.run():
        assert manager._task_group is not None  # pyright: ignore[reportPrivateUsage]
    assert manager._task_group is None  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(RuntimeError, match="once per instance"):
        async with manager.run():
            pass
    manager._has_started = False  # pyright: ignore[reportPrivateUsage]
    async with manager.run():
        pass


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
