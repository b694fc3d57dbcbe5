"""The harness's description of a peer."""

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
    """The statement that its users start with."""
    note: str
    """What a reader must know about its figures."""
    build: Callable[[Workload], ASGIApp | None]
    """Builds a server with the workload's tool, or returns `None` if the peer has no such feature."""
    help: tuple[str, ...] = ()
    """Python's arguments for showing its command-line help, or none."""
    program: str = ""
    """The source of a module `shop`, a server with one tool."""
    serve: tuple[str, ...] = ()
    """Python's arguments for serving that module, without the port."""
