"""Description of a peer for the harness."""

from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import ASGIApp

from benchmarks.workloads import Workload


@dataclass(frozen=True, slots=True)
class Variant:
    """One peer."""

    name: str
    title: str
    imports: str
    """The statement a user of it starts with."""
    note: str
    """What a reader of its figures must know."""
    build: Callable[[Workload], ASGIApp | None]
    """Make a server that has the workload's tool; `None` where the peer has no such feature."""
    help: tuple[str, ...] = ()
    """What Python is given to show the help of its command line, if it has one."""
    program: str = ""
    """The module `shop` of a server with one tool."""
    serve: tuple[str, ...] = ()
    """What Python is given to serve that module, before the port."""
