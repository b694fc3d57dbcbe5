"""What goes wrong on the way to a server: said in short, and not by the SDK's log."""

import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import cast

__all__ = ["innermost", "quiet"]


def innermost(error: Exception) -> Exception:
    """The first failure inside a group of them."""
    while isinstance(error, ExceptionGroup):
        error = cast("ExceptionGroup[Exception]", error).exceptions[0]
    return error


@contextmanager
def quiet() -> Generator[None]:
    """Keep what the SDK logs off the terminal: it quotes the server, and nobody has made it safe."""
    swallow = logging.NullHandler()
    loggers = [logging.getLogger(name) for name in ("mcp", "httpx2", "httpcore2", "client")]
    for logger in loggers:
        logger.addHandler(swallow)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(swallow)
