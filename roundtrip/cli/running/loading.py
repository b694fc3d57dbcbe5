"""Server lookup for the command line: `MODULE:SERVER`, `FILE.py:SERVER`, or a file with one server.

If the named module fails, the error shows traceback frames only from the user's files.
"""

import importlib
import importlib.util
import inspect
import logging
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple, cast, get_type_hints

from mcp.server import MCPServer

import roundtrip
from roundtrip.adapters import marked
from roundtrip.adapters.finding import attached, functions_of, is_fastmcp, is_server, server_classes
from roundtrip.cli.command import CommandFailed, report_errors
from roundtrip.errors import InvalidSignature
from roundtrip.ledger.contract import Reach
from roundtrip.server.attach import Attached
from roundtrip.server.server import Server
from roundtrip.serving.foreign_servers import ForeignServer, adapt_server
from roundtrip.switches import OWN, RUN_TASKS_VARIABLE
from roundtrip.text import printable, suggestion

_TARGETS: Final = "write MODULE:SERVER, such as shop.app:server or shop.py:server, or a file with one server, shop.py"
_FILE_PREFIX: Final = "roundtrip_target_"
_MAX_CAUSES: Final = 5
_MAX_LISTED_FILES: Final = 5


@contextmanager
def running_own_tasks() -> Generator[None]:
    """Prevent the servers loaded in this block from running the tasks of other processes that share their store."""
    if RUN_TASKS_VARIABLE in os.environ:
        yield
        return
    os.environ[RUN_TASKS_VARIABLE] = OWN
    try:
        yield
    finally:
        del os.environ[RUN_TASKS_VARIABLE]


@contextmanager
def without_log() -> Generator[None]:
    """Disable logging while the block runs a server in this process."""
    logging.disable()
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


class _NamedServer(NamedTuple):
    text: str
    module: str
    attribute: str | None
    """The server's name; None if the file must have only one server."""


class FoundServer(NamedTuple):
    """A server and its location."""

    server: Any
    module: ModuleType
    attribute: str
    """The server's name, or the name of a function that makes it."""


def names_server(text: str) -> bool:
    """Return True if a text looks like a server's name, and not like a command or an address."""
    target = _parse_target(text)
    if target is None:
        return False
    if target.module.endswith(".py"):
        # A text with a space, such as `python server.py`, is a command, unless a file has that name.
        return not any(map(str.isspace, target.module)) or os.path.isfile(target.module)
    return all(part.isidentifier() for part in target.module.split("."))


@dataclass(frozen=True, slots=True)
class _ServerKind:
    """A kind of server that a command can use."""

    kind: str
    fits: Callable[[object], bool]
    hint: Callable[[object], str] = lambda found: ""
    """Function that returns advice for a server of another kind, or an empty text."""


def load_served(target: str) -> Server[Any] | ForeignServer:
    """Load a server of any kind for `roundtrip serve`; see `load_attached`.

    Raises:
        CommandFailed: The module or server is missing or fails.
    """
    return adapt_server(load_any_server(target))


def load_attached(target: str) -> Attached:
    """Load the server that a text names, and return its roundtrip integration. If the text names a function, call the
    function to make the server.

    Raises:
        CommandFailed: The module or server is missing or fails, or the server does not use roundtrip.
    """
    server_kind = _ServerKind("server with roundtrip", lambda value: attached(value) is not None, _hint_for_unattached)
    return cast("Attached", attached(_load(target, server_kind).server))


def require_shared_ledger(server: Attached) -> None:
    """Check that other processes can use the server's ledger."""
    if server.ledger.reach is Reach.PROCESS:
        raise CommandFailed(
            "the server must share its ledger with other processes, got a MemoryLedger; give the server a "
            "SqliteLedger, a RedisLedger or a PostgresLedger"
        )


def load_any_server(target: str) -> Any:
    """Load a roundtrip, SDK or FastMCP server. See `load_attached`.

    Raises:
        CommandFailed: The module or server is missing or fails.
    """
    return find_any_server(target).server


def find_any_server(target: str) -> FoundServer:
    """Load a server as `load_any_server` does, and return it with its location.

    Raises:
        CommandFailed: The module or server is missing or fails.
    """
    found = _load(target, _ServerKind("server", is_server))
    with report_errors(InvalidSignature, about=f"{target}: "):
        _require_installed(found.server)
    return found


def _require_installed(server: object) -> None:
    """Reject a server that does not use roundtrip, if its tools use roundtrip's markers or options. Mounted servers are
    checked as well.

    Raises:
        InvalidSignature: roundtrip is not installed on the server, or on a server that is mounted on it.
    """
    if is_fastmcp(server):
        try:
            from roundtrip import fastmcp
        except ImportError:
            # roundtrip does not support this version of FastMCP, so the server cannot be using roundtrip.
            return
        fastmcp.require_installed(cast("Any", server))
    elif attached(server) is None and isinstance(server, MCPServer):
        for kind, name, fn in functions_of(cast("MCPServer[Any]", server)):
            if marked.uses_roundtrip(fn):
                raise InvalidSignature(
                    f"{kind} {name!r} uses markers or options of roundtrip, which do nothing without "
                    "roundtrip.install.install(server); call it before you register tools"
                )


def _load(text: str, server_kind: _ServerKind) -> FoundServer:
    target = _parse_target(text)
    if target is None:
        raise CommandFailed(f"{text!r} does not name a server; {_TARGETS}")
    # Keep standard output free for the command, which may print JSON or serve over stdio.
    with redirect_stdout(sys.stderr):
        return _find(target, server_kind)


def _find(target: _NamedServer, server_kind: _ServerKind) -> FoundServer:
    text, kind, fits = target.text, server_kind.kind, server_kind.fits
    module = load_module(target.module)
    servers = {name: value for name, value in vars(module).items() if fits(value)}
    if target.attribute is None:
        name = _only_server(target.module, module, servers, server_kind)
        return FoundServer(servers[name], module, name)
    server: object = getattr(module, target.attribute, None)
    if fits(server):
        return FoundServer(server, module, target.attribute)
    is_maker = callable(server) and not isinstance(server, type)
    if is_maker:
        server = _call_maker(text, cast("Callable[[], object]", server))
        if fits(server):
            return FoundServer(server, module, target.attribute)
    choices = [name for name, value in vars(module).items() if fits(value) or _makes_server(value, module)]
    hint = f"; choose from {', '.join(choices)}" if choices else f"; it has no {kind} at module level"
    if server is None and not hasattr(module, target.attribute):
        own = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
        near = suggestion(target.attribute, [*choices, *own])
        raise CommandFailed(f"{target.module!r} has no attribute {target.attribute!r}{near or hint}")
    verb = "returned something" if is_maker else "is"
    hint = server_kind.hint(server) or hint
    raise CommandFailed(f"{text!r} {verb} of type {type(server).__name__}, not a {kind}{hint}")


def _parse_target(text: str) -> _NamedServer | None:
    module, colon, attribute = text.rpartition(":")
    if colon and module and attribute.isidentifier():
        return _NamedServer(text, module, attribute)
    # The text names only a file, and no server. A colon in it may belong to a Windows drive.
    return _NamedServer(text, text, None) if text.endswith(".py") and not text.startswith(":") else None


def _only_server(name: str, module: ModuleType, servers: dict[str, object], server_kind: _ServerKind) -> str:
    """Return the name of a file's only server. A server with several names counts only once."""
    distinct = {id(server): server for server in servers.values()}
    if len(distinct) == 1:
        return next(iter(servers))
    if servers:
        choices = " or ".join(f"{name}:{attribute}" for attribute in servers)
        raise CommandFailed(f"{name!r} has {len(distinct)} servers, {', '.join(servers)}; name one of them: {choices}")
    for attribute, value in vars(module).items():
        if is_server(value):
            kind, hint = type(cast("object", value)).__name__, server_kind.hint(value)
            raise CommandFailed(f"{name!r} has no {server_kind.kind}: {attribute} is of type {kind}{hint}")
    makers = [attribute for attribute, value in vars(module).items() if _makes_server(value, module)]
    if makers:
        choices = " or ".join(f"{name}:{attribute}" for attribute in makers)
        raise CommandFailed(
            f"{name!r} has no server at module level, but it has functions that make one; name the function: {choices}"
        )
    raise CommandFailed(
        f"{name!r} has no server at module level; add server = Server({Path(name).stem!r}), or name a function that "
        f'makes one, {name}:make_server. If the file is a program that serves, give its command: "python {name}"'
    )


def _makes_server(value: object, module: ModuleType) -> bool:
    """Return True if a value is a function of this module whose annotation says that it returns a server."""
    if not inspect.isfunction(value) or value.__module__ != module.__name__:
        return False
    try:
        returned = get_type_hints(value).get("return")
    except Exception:  # noqa: BLE001 - an annotation that cannot be evaluated names no server
        return False
    origin = getattr(returned, "__origin__", returned)
    return isinstance(origin, type) and issubclass(origin, server_classes())


def _hint_for_unattached(found: object) -> str:
    if is_server(found):
        return "; import the class from roundtrip, or call install() of roundtrip.install or roundtrip.fastmcp on it"
    return ""


def _call_maker(target: str, make: Callable[[], object]) -> object:
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


def load_module(name: str, *, reuses: bool = False) -> ModuleType:
    """Load a module or a file. With `reuses`, do not run a file again that was loaded before.

    Raises:
        CommandFailed: The module is missing or fails.
    """
    if not _is_file(name):
        return _import_module(name)
    path = str(Path(name).resolve())
    loaded = (module for module in [*sys.modules.values()] if getattr(module, "__file__", None) == path)
    return (next(loaded, None) if reuses else None) or _import_file(Path(name))


def _is_file(name: str) -> bool:
    return name.endswith(".py") or "/" in name or "\\" in name


def _import_module(name: str) -> ModuleType:
    _make_importable(Path.cwd())
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        # If the error names another module, the requested module exists, and an import inside it failed.
        if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
            raise CommandFailed(f"no module named {name!r}; looked in the current folder and on sys.path") from error
        raise CommandFailed(f"importing {name!r} failed: {_error_text(error)}") from error


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        others = sorted(file.name for file in path.parent.glob("*.py"))
        hint = f"{str(path.parent)!r} has {', '.join(map(repr, others[:_MAX_LISTED_FILES]))}" if others else _TARGETS
        near = suggestion(path.name, others, before=str(path.with_name("_"))[:-1])
        raise CommandFailed(f"no file {str(path)!r}{near or f'; {hint}'}")
    name = f"{_FILE_PREFIX}{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise CommandFailed(f"{str(path)!r} is not a Python file")
    # Like Python when it runs a script, make the files in the script's folder importable.
    _make_importable(path.resolve().parent)
    module = importlib.util.module_from_spec(spec)
    # Register the module before it runs, because annotations are evaluated in the module that `sys.modules` contains.
    names = [name, path.stem] if _is_import_of(path.stem, path) else [name]
    sys.modules.update(dict.fromkeys(names, module))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        for name in names:
            sys.modules.pop(name, None)
        raise CommandFailed(f"importing {str(path)!r} failed: {_error_text(error)}") from error
    return module


def _is_import_of(name: str, path: Path) -> bool:
    """Return True if `import name` would run this file. It must then not run again, with a second server."""
    if getattr(sys.modules.get(name), "__name__", "").startswith(_FILE_PREFIX):
        # This process loaded a file with this name before.
        del sys.modules[name]
    if name in sys.modules or not name.isidentifier():
        return False
    found = importlib.util.find_spec(name)
    return found is not None and found.origin is not None and Path(found.origin).resolve() == path.resolve()


def _make_importable(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _error_text(error: BaseException) -> str:
    """Return an error and its causes as text, with the traceback frames from the user's files."""
    lines = [f"{type(error).__name__}: {error}", *_frame_lines(error)]
    cause = _cause(error)
    for _ in range(_MAX_CAUSES):
        if cause is None:
            break
        lines += [f"caused by {type(cause).__name__}: {cause}", *_frame_lines(cause)]
        cause = _cause(cause)
    return printable("\n".join(lines), keep_newlines=True)


def _cause(error: BaseException) -> BaseException | None:
    return error.__cause__ if error.__cause__ is not None or error.__suppress_context__ else error.__context__


def _frame_lines(error: BaseException) -> Iterator[str]:
    trace = traceback.TracebackException.from_exception(error)
    trace.stack = traceback.StackSummary.from_list([frame for frame in trace.stack if _is_user_file(frame.filename)])
    folder = f"{Path.cwd()}{'/' if Path.cwd().parts else ''}"
    lines = [*trace.stack.format()]
    if isinstance(error, SyntaxError):
        # The stack does not contain the position of a syntax error, so add it. The last line is left out, because it
        # repeats the message.
        lines += list(trace.format_exception_only())[:-1]
    for line in lines:
        yield line.rstrip("\n").replace(f'"{folder}', '"')


def _is_user_file(file: str) -> bool:
    if file.startswith("<"):
        return False
    library_folders = (sysconfig.get_path(scheme) for scheme in ("stdlib", "platstdlib", "purelib", "platlib"))
    package = str(Path(roundtrip.__file__).resolve().parent)
    return not any(Path(file).is_relative_to(folder) for folder in (*library_folders, package))
