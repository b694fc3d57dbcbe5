"""Import public names of a package, and modules that few servers need, when they are first used."""

import sys
import threading
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final

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
        homes: The public names of each module; a module of the package may be written as `.module`.
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
                value = getattr(import_module(home, package), name)
            # The next use finds the attribute and does not come here.
            setattr(sys.modules[package], name, value)
            return value
    # Tools ask each module for private names, such as `__wrapped__`, and must not load the testing kit.
    for module in modules if not name.startswith("_") else ():
        if name in import_module(f"{package}.{module}").__all__:
            # `from ... import` would drop the text of an AttributeError.
            raise ImportError(f"{package} has no {name!r}; write: from {package}.{module} import {name}")
    raise AttributeError(f"module {package!r} has no attribute {name!r}")


def load_on_use(importer: dict[str, Any], *modules: str) -> None:
    """Bind modules to their last names in the globals of a module, and import each when its first attribute is read.

    The same imports stand beside it, under `if TYPE_CHECKING`, for type checkers, import contracts and readers.

    Args:
        importer: The globals of the module.
        modules: The full names.
    """
    for module in modules:
        name = module.rpartition(".")[2]
        importer[name] = _NotLoaded(importer, name, module)


class _NotLoaded:
    """Stands for a module, and puts it in its own place when it is needed."""

    def __init__(self, importer: dict[str, Any], name: str, module: str) -> None:
        self._importer = importer
        self._name = name
        self._module = module

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            # Tools that look at every object ask for these, and must not import what may not be installed.
            raise AttributeError(attribute)
        module = self._importer[self._name] = import_module(self._module)
        return getattr(module, attribute)
