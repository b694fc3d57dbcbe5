"""Identify the build of the application by a digest of the source of a tool's functions.

Builds that serve at the same time must differ. A question that changes between them changes because of the build, and
is not mistaken for one that changes every time.
"""

import functools
import hashlib
import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from types import CodeType
from typing import Any, Final, cast

from roundtrip.threads.loops import is_on_event_loop

_digests: Final[dict[str, str | None]] = {}
"""Digests of files that were read; None for an unreadable file."""


class Build:
    """Build that some functions belong to.

    Files are read at once, as they may be replaced later. On an event loop they are read only by `read`, which may run
    in a thread.
    """

    __slots__ = ("_functions", "text")

    def __init__(self, functions: Iterable[Callable[..., Any]], given: str | None = None) -> None:
        self._functions = tuple(functions)
        self.text = given
        """The digest; None until `read` is called."""
        if given is None and (not is_on_event_loop() or all(map(_is_known, self._functions))):
            self.read()

    def read(self) -> str:
        """Return a short digest of the modules that define the functions."""
        if self.text is None:
            digests = sorted({_digest_of(function) for function in self._functions})
            self.text = hashlib.sha256("".join(digests).encode()).hexdigest()[:6]
        return self.text


def _target_of(function: Callable[..., Any]) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.unwrap(function)


def _defining(target: Any) -> Any:
    """Return the function or class that a file defines."""
    return target if hasattr(target, "__code__") or inspect.isclass(target) else cast("object", target).__class__


def _file_of(defining: Any) -> str | None:
    try:
        return inspect.getfile(defining)
    except (TypeError, OSError):  # built in, or typed into an interpreter
        return None


def _is_known(function: Callable[..., Any]) -> bool:
    file = _file_of(_defining(_target_of(function)))
    return file is None or file in _digests


def _digest_of(function: Callable[..., Any]) -> str:
    target = _target_of(function)
    defining = _defining(target)
    file = _file_of(defining)
    if file is not None:
        if file not in _digests:
            _digests[file] = _digest_of_file(inspect.getsourcefile(defining))
        if (digest := _digests[file]) is not None:
            return digest
    code = getattr(target, "__code__", None)
    return _digest_of_code(code) if isinstance(code, CodeType) else str(getattr(target, "__qualname__", defining))


def _digest_of_file(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:  # run from an archive
        return None


def _digest_of_code(code: CodeType) -> str:
    digest = hashlib.sha256(code.co_code)
    digest.update(repr((code.co_names, code.co_varnames)).encode())
    for constant in code.co_consts:
        # A nested function's repr holds its address.
        digest.update(_digest_of_code(constant).encode() if isinstance(constant, CodeType) else repr(constant).encode())
    return digest.hexdigest()
