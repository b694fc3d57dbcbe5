"""Plain FastMCP tools that may destroy ask their user in every client, or do not run."""

from collections.abc import Callable
from typing import Any, Final

import pytest
from fastmcp import FastMCP
from fastmcp.server import create_proxy
from fastmcp.server.middleware.tool_injection import ToolInjectionMiddleware
from fastmcp.server.transforms import ToolTransform
from fastmcp.tools import Tool
from fastmcp.tools.tool_transform import ToolTransformConfig
from mcp_types import ToolAnnotations

from roundtrip.fastmcp import install
from roundtrip.testing import served
from tests.clients.drivers import Driver, Target, ToolCall, of_clients_by
from tests.kit.shops import KEY

pytestmark = pytest.mark.anyio

READS: Final = ToolAnnotations(read_only_hint=True)
SAFE: Final = ("read_0", "read_1", "read_2", "read_3", "adds", "child_read", "child_deep_read")
ASKING: Final = (
    *("delete_0", "delete_1", "delete_2", "delete_3", "marked", "child_delete", "child_deep_delete", "late_delete"),
    *("far_delete", "far_read", "injected_delete", "renamed_delete", "object_delete"),
)


class Warehouse:
    """Twenty plain tools on one server, which note what they did."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.mcp = FastMCP[Any]("warehouse")
        install(self.mcp, keys=[KEY], consent="destructive")
        child, deep, far, late = (FastMCP[Any](name) for name in ("child", "deep", "far", "late"))
        for number in range(4):
            self.mcp.add_tool(self.tool(f"read_{number}", annotations=READS))
            self.mcp.tool(self.function(f"delete_{number}"), name=f"delete_{number}")
        self.mcp.add_tool(self.tool("adds", annotations=ToolAnnotations(destructive_hint=False)))
        self.mcp.add_tool(self.tool("marked", annotations=ToolAnnotations(destructive_hint=True)))
        for server, path in ((child, "child"), (deep, "child_deep"), (far, "far")):
            server.add_tool(self.tool(f"{path}_read", name="read", annotations=READS))
            server.tool(self.function(f"{path}_delete"), name="delete")
        child.mount(deep, namespace="deep")
        self.mcp.mount(child, namespace="child")
        self.mcp.mount(create_proxy(far), namespace="far")
        self.mcp.mount(late, namespace="late")
        late.tool(self.function("late_delete"), name="delete")
        self.mcp.add_middleware(ToolInjectionMiddleware([self.tool("injected_delete")]))
        self.mcp.add_transform(ToolTransform({"plain": ToolTransformConfig(name="renamed_delete")}))
        self.mcp.add_tool(self.tool("renamed_delete", name="plain"))
        self.mcp.add_tool(self.tool("object_delete"))

    def function(self, shown: str) -> Callable[..., Any]:
        async def tool(item: int) -> str:
            self.done.append(f"{shown} {item}")
            return self.done[-1]

        return tool

    def tool(self, shown: str, *, name: str | None = None, annotations: ToolAnnotations | None = None) -> Tool:
        return Tool.from_function(self.function(shown), name=name or shown, annotations=annotations)


@of_clients_by(lambda driver: not driver.is_nightly and not driver.starts_slowly)
async def test_no_plain_tool_runs_without_consent(driver: Driver) -> None:
    await driver.prepare()
    shop = Warehouse()
    # Each command of the Inspector is a process.
    names = [SAFE[-1], *ASKING[-2:]] if "Inspector" in driver.name else [*SAFE, *ASKING]
    asking = [name for name in names if name in ASKING]
    calls = [ToolCall(name, {"item": 7}) for name in names] + [ToolCall(name, {"item": 8}, [{}]) for name in asking]
    async with served(shop.mcp) as url:
        outcomes = await driver.run(Target(url=url), calls)
    declined, accepted = (
        dict(zip(names, outcomes, strict=False)),
        dict(zip(asking, outcomes[len(names) :], strict=True)),
    )
    for name in asking:
        refused, done = declined[name], accepted[name]
        assert refused.error is not None, refused.text
        if not refused.asked:
            assert "Client did not declare the form elicitation capability" in refused.error
            assert done.error is not None
            continue
        assert list(refused.asked) == [f'Allow "{name}" to run?\n\nitem: 7']
        assert list(done.asked) == [f'Allow "{name}" to run?\n\nitem: 8']
        assert done.text == f"{name} 8"
    ran = [name for name in asking if accepted[name].error is None]
    assert ran in ([], asking)
    safe = [name for name in names if name in SAFE]
    assert sorted(shop.done) == sorted([f"{name} 7" for name in safe] + [f"{name} 8" for name in ran])
