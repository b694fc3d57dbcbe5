"""The target of `roundtrip check`: the server of the present row."""

from collections.abc import Generator
from contextlib import contextmanager

from roundtrip.server.adapters.finding import AnyServer
from tests.combinations.environment import Environment

__all__ = ["make", "serving"]

_serving: list[Environment] = []


@contextmanager
def serving(environment: Environment) -> Generator[None]:
    """Let `make` return servers of this environment."""
    _serving.append(environment)
    try:
        yield
    finally:
        _serving.remove(environment)


def make() -> AnyServer:
    """Make an instance of the row's server."""
    return _serving[-1].make()
