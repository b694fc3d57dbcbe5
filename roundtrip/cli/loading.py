"""Find the server that a command line names as `MODULE:SERVER`."""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, cast

from roundtrip.cli.command import CommandFailed

if TYPE_CHECKING:
    from roundtrip.server.adapters.installation import Installation
    from roundtrip.server.server import Server

__all__ = ["TARGET_HELP", "load_attached", "load_server"]

TARGET_HELP: Final = (
    "a module by import path or by file, and its server, or a function that makes it: shop.app:server, "
    "examples/shop.py:make_server"
)


def load_server(target: str) -> "Server[Any]":
    """Load the server that `MODULE:SERVER` names: MODULE is an import path or a file, SERVER may be a function.

    Raises:
        CommandFailed: The module or server is missing or fails.
    """
    from roundtrip.server.server import Server

    found = load_attached(target)
    if isinstance(found, Server):
        return found
    raise CommandFailed(
        f"{target!r} has a server of type {type(cast('object', found.host)).__name__}, and this command needs a "
        "roundtrip.Server; start it as its class does (mcp.run(), or its ASGI application), or import the class Server "
        "from roundtrip"
    )


def load_attached(target: str) -> "Server[Any] | Installation[Any]":
    """Load the roundtrip of the server that `MODULE:SERVER` names, which may be of another class.

    Raises:
        CommandFailed: The module or server is missing or fails, or the server has no roundtrip.
    """
    from roundtrip.server.adapters.finding import attached, is_server

    module_name, colon, attribute = target.rpartition(":")
    if not colon or not module_name or not attribute:
        raise CommandFailed(
            f"{target!r} names no server; write MODULE:SERVER, such as shop.app:server or shop.py:server"
        )
    module = _import_file(Path(module_name)) if _is_file(module_name) else _import_module(module_name)
    found: object = getattr(module, attribute, None)
    makes = callable(found) and not isinstance(found, type)
    if makes:
        found = _made(target, cast("Callable[[], object]", found))
    ours = attached(found)
    if ours is not None:
        return ours
    names = [name for name, value in vars(module).items() if attached(value) is not None]
    hint = f"; servers there: {', '.join(names)}" if names else "; it has no roundtrip.Server at module level"
    if found is None and not hasattr(module, attribute):
        raise CommandFailed(f"{module_name!r} has no attribute {attribute!r}{hint}")
    if is_server(found):
        hint = "; import the class from roundtrip, or call install() of roundtrip.install or roundtrip.fastmcp on it"
    verb = "returned something" if makes else "is"
    raise CommandFailed(
        f"{target!r} {verb} of type {type(cast('object', found)).__name__}, not a roundtrip.Server{hint}"
    )


def _made(target: str, make: Callable[[], object]) -> object:
    try:
        inspect.signature(make).bind()
    except (TypeError, ValueError) as error:
        raise CommandFailed(
            f"{target!r} requires arguments; name a server, or a function without parameters"
        ) from error
    if inspect.iscoroutinefunction(make):
        raise CommandFailed(f"{target!r} is an async function; name a server, or a plain function that makes one")
    try:
        return make()
    except (Exception, SystemExit) as error:
        raise CommandFailed(f"{target!r} failed: {_error_text(error)}") from error


def _is_file(name: str) -> bool:
    return name.endswith(".py") or "/" in name or "\\" in name


def _import_module(name: str) -> ModuleType:
    _make_importable(Path.cwd())
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        # A module missing inside the named one is a failure of the named one.
        if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
            raise CommandFailed(f"no module {name!r}; it is searched here and on Python's path") from error
        raise CommandFailed(f"importing {name!r} failed: {_error_text(error)}") from error


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise CommandFailed(f"no file {str(path)!r}")
    name = f"roundtrip_target_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise CommandFailed(f"{str(path)!r} is not a Python file")
    # Neighbors of the file can be imported, as when it runs as a script.
    _make_importable(path.resolve().parent)
    module = importlib.util.module_from_spec(spec)
    # Annotations are evaluated in the module that `sys.modules` has under its name.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise CommandFailed(f"importing {str(path)!r} failed: {_error_text(error)}") from error
    return module


def _make_importable(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
