"""Imports on demand: public names and rarely needed modules are imported on first use."""

import sys
import threading
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final

# All imports share one lock. The SDK has import cycles, and two threads that enter a cycle at different modules would
# deadlock.
_IMPORTING: Final = threading.RLock()


def load_public_name(
    package: str, name: str, homes: Mapping[str, Sequence[str]], *, modules: Sequence[str] = ()
) -> Any:
    """Return a package's public name. The package's `__getattr__` calls this function.

    Hide `__getattr__` from type checkers and editors, which would otherwise accept every attribute without a type. For
    these tools, repeat the imports under `if TYPE_CHECKING`.

    Args:
        package: The package's name.
        name: The attribute.
        homes: Each module's public names, keyed by module. A module in the package may be written as `.module`.
        modules: The package's modules that are also its attributes.

    Raises:
        AttributeError: The package has no such name.
        ImportError: The package has no such name, but one of its modules does.
    """
    if name in modules:
        with _IMPORTING:
            return import_module(f"{package}.{name}")
    for home, names in homes.items():
        if name in names:
            with _IMPORTING:
                value = getattr(import_module(home, package), name)
            # Set the attribute, so that Python does not call `__getattr__` for this name again.
            setattr(sys.modules[package], name, value)
            return value
    # Skip private names. Inspection tools request names such as `__wrapped__`, which must not cause an import of the
    # testing kit.
    for module in modules if not name.startswith("_") else ():
        if name in import_module(f"{package}.{module}").__all__:
            # Raise ImportError, because `from ... import` would discard the text of an AttributeError.
            raise ImportError(f"{package} has no {name!r}; write: from {package}.{module} import {name}")
    raise AttributeError(f"module {package!r} has no attribute {name!r}")


def load_on_use(importer: dict[str, Any], *modules: str) -> None:
    """Bind module names in a module's globals, and import each module when its first attribute is read.

    Repeat the imports under `if TYPE_CHECKING`, for type checkers, import contracts and readers.

    Args:
        importer: The importing module's globals.
        modules: Dotted module names. Each name is bound under its last component.
    """
    for module in modules:
        name = module.rpartition(".")[2]
        importer[name] = _NotLoaded(importer, name, module)


class _NotLoaded:
    """Placeholder that replaces itself with the module when an attribute is read."""

    def __init__(self, importer: dict[str, Any], name: str, module: str) -> None:
        self._importer = importer
        self._name = name
        self._module = module

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            # Inspection tools read dunder names from every object. Such a read must not import the module, which may be
            # missing.
            raise AttributeError(attribute)
        module = self._importer[self._name] = import_module(self._module)
        return getattr(module, attribute)
