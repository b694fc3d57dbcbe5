"""The tests of FastMCP that concern its servers, with `install` called on each server as it is made.

Every test that fails with it and passes without must be listed in `differences.toml`, with the line of the docs that
says why.
"""

from pathlib import Path
from typing import Final

from tests.sdk.suite import ROOT, Suite

__all__ = ["DIFFERENCES", "FastMcpSuite"]

DIFFERENCES: Final = Path(__file__).parent / "differences.toml"


class FastMcpSuite(Suite):
    """The tests of the installed FastMCP."""

    package = "fastmcp"
    unbuilt = ":all:"
    as_here = ("anyio", "fastmcp", "fastmcp-tasks", "mcp", "mcp-types", "pydantic", "starlette")
    needed = (
        "dirty-equals",
        "fastapi",
        "inline-snapshot",
        "opentelemetry-sdk",
        "psutil",
        "pytest",
        "pytest-asyncio",
        "pytest-env",
        "pytest-flakefinder",
        "pytest-retry",
        "pytest-timeout",
        "pytest-xdist",
    )
    # It measures time.
    left_out = ("tests/server/providers/openapi/test_openapi_performance.py",)
    all_tests = (
        "tests/client/test_elicitation.py",
        "tests/prompts",
        "tests/resources",
        "tests/server/middleware",
        "tests/server/mount",
        "tests/server/providers",
        "tests/server/test_call_arguments.py",
        "tests/server/test_context.py",
        "tests/server/test_dependencies.py",
        "tests/server/test_dependencies_advanced.py",
        "tests/server/test_input_validation.py",
        "tests/server/test_mrtr_guards.py",
        "tests/server/test_mrtr_guards_components.py",
        "tests/server/test_protocol_eras.py",
        "tests/server/test_server.py",
        "tests/server/test_tool_transformation.py",
        "tests/server/transforms",
        "tests/server/versioning",
        "tests/tools",
    )
    fewest = 3000
    loaded = (*Suite.loaded, "roundtrip_installed")
    swap_variable = "ROUNDTRIP_FASTMCP_INSTALL"
    plugins = (Path(__file__).parent / "plugin", *Suite.plugins)

    def __init__(self) -> None:
        super().__init__(ROOT / ".ci" / "fastmcp")
