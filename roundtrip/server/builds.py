"""Which build of the application this is: a digest of the source of the functions a tool is made of.

It only has to differ between two versions that serve at the same time, so that a question that changes because
another build asks it is not mistaken for one that changes every time.
"""

import functools
import hashlib
import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from types import CodeType
from typing import Any, cast

__all__ = ["build_of"]


def build_of(functions: Iterable[Callable[..., Any]]) -> str:
    """A short digest of the modules that define some functions."""
    digests = sorted({_digest_of(function) for function in functions})
    return hashlib.sha256("".join(digests).encode()).hexdigest()[:6]


def _digest_of(function: Callable[..., Any]) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    target: Any = inspect.unwrap(function)
    code = getattr(target, "__code__", None)
    is_defined = code is not None or inspect.isclass(target)
    defining: Any = target if is_defined else cast("object", target).__class__
    try:
        path = inspect.getsourcefile(defining)
    except TypeError:  # built in
        path = None
    if path is not None and (digest := _digest_of_file(path)) is not None:
        return digest
    return _digest_of_code(code) if isinstance(code, CodeType) else str(getattr(target, "__qualname__", defining))


@functools.lru_cache(maxsize=256)
def _digest_of_file(path: str) -> str | None:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:  # typed into an interpreter, or run from an archive
        return None


def _digest_of_code(code: CodeType) -> str:
    digest = hashlib.sha256(code.co_code)
    digest.update(repr((code.co_names, code.co_varnames)).encode())
    for constant in code.co_consts:
        # A nested function's repr holds its address.
        digest.update(_digest_of_code(constant).encode() if isinstance(constant, CodeType) else repr(constant).encode())
    return digest.hexdigest()
