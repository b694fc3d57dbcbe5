"""Import the public names of a package when they are first used."""

import sys
import threading
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final

__all__ = ["load_public_name"]

# Modules of the SDK import each other in circles: two threads that begin at different ones would deadlock.
_IMPORTING: Final = threading.RLock()


def load_public_name(
    package: str, name: str, homes: Mapping[str, Sequence[str]], *, modules: Sequence[str] = ()
) -> Any:
    """Return a public name of a package, for the package's `__getattr__`.

    Hide that `__getattr__` from type checkers and editors, which would then accept every attribute and infer no type.
    They read the same imports under `if TYPE_CHECKING`.

    Args:
        package: The package's name.
        name: The attribute.
        homes: The public names of each module.
        modules: The package's modules that are attributes of it.

    Raises:
        AttributeError: The package has no such name.
        ImportError: One of the modules has it.
    """
    if name in modules:
        with _IMPORTING:
            return import_module(f"{package}.{name}")
    for home, names in homes.items():
        if name in names:
            with _IMPORTING:
                value = getattr(import_module(home), name)
            # The next use finds the attribute and does not come here.
            setattr(sys.modules[package], name, value)
            return value
    # Tools ask each module for private names, such as `__wrapped__`, and must not load the testing kit.
    for module in modules if not name.startswith("_") else ():
        if name in import_module(f"{package}.{module}").__all__:
            # `from ... import` would drop the text of an AttributeError.
            raise ImportError(f"{package} has no {name!r}; write: from {package}.{module} import {name}")
    raise AttributeError(f"module {package!r} has no attribute {name!r}")
