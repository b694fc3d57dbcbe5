"""Public names of a package that are imported when somebody first asks for them."""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

__all__ = ["on_demand"]


def on_demand(package: str, homes: Mapping[str, Sequence[str]], *, modules: Sequence[str] = ()) -> Callable[[str], Any]:
    """A `__getattr__` for a package.

    Type checkers and editors must not see it: to them every attribute would exist, and none would have a type. They
    read the same imports under `if TYPE_CHECKING`.

    Args:
        package: Its name.
        homes: Modules, and the names that are found in each.
        modules: Its own modules that can be reached as its attributes.
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def load(name: str) -> Any:
        if name in modules:
            return import_module(f"{package}.{name}")
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home_of[name]), name)
        # From now on it is found without coming here.
        setattr(sys.modules[package], name, value)
        return value

    return load
