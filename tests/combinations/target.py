"""What `roundtrip check` is pointed at: the server of the row that is being looked at."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from roundtrip import Server
from tests.combinations.environment import Environment

__all__ = ["make", "serving"]

_serving: list[Environment] = []


@contextmanager
def serving(environment: Environment) -> Generator[None]:
    """Have `make` make the servers of this environment."""
    _serving.append(environment)
    try:
        yield
    finally:
        _serving.remove(environment)


def make() -> Server[Any]:
    """An instance of the row's server."""
    return _serving[-1].make()
