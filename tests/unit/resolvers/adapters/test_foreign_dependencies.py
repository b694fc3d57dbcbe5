"""Dependencies of other libraries: registration rejects each, and names what to write instead."""

from datetime import timedelta
from typing import Annotated, Any

import docket
import pytest
from fastmcp.dependencies import CurrentContext
from fastmcp.dependencies import Depends as FastMcpDepends
from fastmcp.dependencies import Progress as FastMcpProgress

from roundtrip import InvalidSignature, Resolve
from roundtrip.docket.foreign import reject
from tests.unit.resolvers.walking import plan_of


def number() -> int:
    return 1


class OwnTimeout(docket.Timeout):
    """Subclass of an author's own."""


MINUTE = timedelta(minutes=1)


FOREIGN: list[tuple[Any, str, str]] = [
    (docket.Timeout(MINUTE), "Docket dependency, got Timeout(...)", "own parameter: timeout: Timeout = Timeout(...)"),
    (docket.Timeout, "Docket dependency, got Timeout(...)", "own parameter: timeout: Timeout = Timeout(...)"),
    (docket.TaskKey(), "Docket dependency, got TaskKey(...)", "own parameter: taskkey: TaskKey = TaskKey(...)"),
    (OwnTimeout(MINUTE), "Docket dependency, got OwnTimeout(...)", "leave it out"),
    (
        docket.CurrentExecution(),
        "Docket dependency, got CurrentExecution(...)",
        "use ctx.call and ctx.task of a Context",
    ),
    (docket.ConcurrencyLimit("isbn", 1), "Docket dependency, got ConcurrencyLimit(...)", "legs with --concurrency"),
    (docket.Perpetual(), "Docket dependency, got Perpetual(...)", "call the tool from a scheduler"),
    (docket.TaskArgument("isbn"), "Docket dependency, got TaskArgument(...)", "the name of the tool's argument"),
    (docket.Logged(), "Docket dependency, got Logged(...)", "does not log arguments; leave it out"),
    (docket.Logged, "Docket dependency, got Logged(...)", "does not log arguments; leave it out"),
    (docket.Depends(number), "Docket dependency, got Depends(...)", "import Depends from roundtrip"),
    (FastMcpDepends(number), "Docket dependency, got Depends(...)", "import Depends from roundtrip"),
    (
        CurrentContext(),
        "FastMCP dependency, got CurrentContext(...)",
        "annotate the parameter with roundtrip's Context",
    ),
    (FastMcpProgress(), "FastMCP dependency, got Progress(...)", "import Progress from docket"),
]


def test_a_dependency_of_another_library_is_rejected_with_its_cure() -> None:
    wrong: list[str] = []
    for default, named, cure in FOREIGN:

        def order(wait: Any = default) -> None: ...
        def annotated(wait: Annotated[Any, default]) -> None: ...
        def outer(value: Annotated[None, Resolve(order)]) -> None: ...

        for tool, owner in ((order, "order"), (annotated, "annotated"), (outer, "order")):
            with pytest.raises(InvalidSignature) as caught:
                plan_of(tool, reject=reject)
            message = str(caught.value)
            if f"parameter 'wait' of '{owner}'" not in message or named not in message or not message.endswith(cure):
                wrong.append(message)
    assert wrong == []
