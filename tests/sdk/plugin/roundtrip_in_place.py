"""A pytest plugin that runs the SDK's tests with `roundtrip.Server` as their `MCPServer`, and reports each outcome.

It is loaded by the tests of the SDK, in an environment of theirs. Without ROUNDTRIP_SDK_SWAP it only reports.
"""

import functools
import inspect
import json
import os
import time
import types
from typing import Any, cast

import mcp.server
import mcp.server.mcpserver
import mcp.server.mcpserver.server
import mcp.server.request_state
import pytest

_WHERE_IT_IS_IMPORTED_FROM = (mcp.server, mcp.server.mcpserver, mcp.server.mcpserver.server)
_TAIL_CHARS = 4000


def _swap() -> None:
    import roundtrip.server.server
    import roundtrip.system

    for module in _WHERE_IT_IS_IMPORTED_FROM:
        setattr(module, "MCPServer", roundtrip.server.server.Server)  # noqa: B010 - to type checkers it is a class
    # Tests that stop the clock of request states replace `time` in the module that reads it on the SDK.
    clock = types.SimpleNamespace(**vars(time))
    clock.time = lambda: mcp.server.request_state.time.time()  # type: ignore[attr-defined]
    setattr(roundtrip.system, "time", clock)  # noqa: B010 - as above


if os.environ.get("ROUNDTRIP_SDK_SWAP"):
    _swap()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let a failed `pytest.raises` in a task group fail its own test only.

    It is a `BaseException`, and so is the group around it, which ends the event loop that the tests of a module share.
    """
    test: Any = getattr(item, "obj", None)
    if not inspect.iscoroutinefunction(test):
        return

    @functools.wraps(test)
    async def run(*args: Any, **kwargs: Any) -> None:
        try:
            await test(*args, **kwargs)
        except BaseExceptionGroup as group:
            outcomes, _ = group.split((pytest.fail.Exception, pytest.skip.Exception))
            if outcomes is None:
                raise
            raise AssertionError(str(_first(outcomes))) from group

    setattr(item, "obj", run)  # noqa: B010 - to type checkers an item has none


def _first(error: BaseException) -> BaseException:
    if not isinstance(error, BaseExceptionGroup):
        return error
    group = cast("BaseExceptionGroup[BaseException]", error)
    return _first(group.exceptions[0])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Append the outcome of one test to the file that ROUNDTRIP_SDK_REPORT names."""
    if "PYTEST_XDIST_WORKER" in os.environ or not (report.when == "call" or report.failed):
        return
    with open(os.environ["ROUNDTRIP_SDK_REPORT"], "a", encoding="utf-8") as file:
        error = str(report.longrepr)[-_TAIL_CHARS:] if report.failed else ""
        file.write(json.dumps({"test": report.nodeid, "failed": report.failed, "error": error}) + "\n")


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Report a module that cannot be imported as one failed test."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        with open(os.environ["ROUNDTRIP_SDK_REPORT"], "a", encoding="utf-8") as file:
            error = str(report.longrepr)[-_TAIL_CHARS:]
            file.write(json.dumps({"test": report.nodeid, "failed": True, "error": error}) + "\n")
