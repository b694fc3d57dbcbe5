"""Unguessable words, planted as values, and all output of a process in which to look for them."""

import logging
import secrets
import warnings
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from roundtrip import Telemetry
from roundtrip.questions.wire import TICKET

__all__ = ["CLIENT_LOGGERS", "Markers", "Spans", "everything_logged"]

CLIENT_LOGGERS: Final = ("mcp.client", "client", "httpx", "httpx2", "httpcore", "httpcore2")
"""What clients log of what they send themselves, which is beside a server here by chance."""

_TAIL: Final = 24
"""How much of a token's signature is looked for: no other text has it."""


class Markers:
    """Planted words, by their kind."""

    def __init__(self) -> None:
        self._words: dict[str, str] = {}

    def __call__(self, kind: str) -> str:
        """Return a new word of a kind."""
        # One word in two thousand would have digits alone, and be a number where none may be.
        word = f"w{secrets.token_hex(8)}"
        self._words[word] = kind
        return word

    def note(self, kind: str, texts: Iterable[str | None]) -> None:
        """Remember texts that a server has made: tokens and tickets."""
        for text in texts:
            if text:
                self._words[text[-_TAIL:]] = kind

    def note_tickets(self, text: str) -> None:
        """Remember the tickets in a text."""
        self.note("ticket", TICKET.findall(text))

    def found_in(self, text: str) -> set[str]:
        """Return the kinds of the words in a text."""
        return {kind for word, kind in self._words.items() if word in text}

    def lines_with(self, text: str, *, but: frozenset[str] = frozenset()) -> list[str]:
        """Return the lines of a text that have words, with their kinds, for a readable message."""
        found: list[str] = []
        for line in text.splitlines():
            kinds = self.found_in(line) - but
            if kinds:
                found.append(f"{', '.join(sorted(kinds))}: {line[:400]}")
        return found


class _Everything(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.NOTSET)
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.split(".")[0] in CLIENT_LOGGERS or record.name.startswith("mcp.client"):
            return
        # What other formatters would show of it, too.
        extra = {name: value for name, value in vars(record).items() if name not in ("msg", "args", "exc_info")}
        self.lines.append(f"{self.format(record)}\n{extra!r}\n{record.args!r}")


@contextmanager
def everything_logged(*, without: Callable[[logging.LogRecord], bool] = lambda record: False) -> Generator[list[str]]:
    """Collect the records of every logger but the clients', at any level, and all warnings.

    Args:
        without: Returns True for a record to leave out.
    """
    root, handler = logging.getLogger(), _Everything()
    handler.addFilter(lambda record: not without(record))
    before = root.level
    others = {
        name: one.level for name, one in logging.Logger.manager.loggerDict.items() if isinstance(one, logging.Logger)
    }
    root.setLevel(logging.DEBUG)
    for name in others:
        logging.getLogger(name).setLevel(logging.NOTSET)
    root.addHandler(handler)
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            yield handler.lines
        handler.lines.extend(str(one.message) for one in warned)
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
        for name, level in others.items():
            logging.getLogger(name).setLevel(level)


class Spans:
    """Spans and metrics that one process would send to a collector."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.telemetry = Telemetry(tracer_provider=self.tracers, meter_provider=MeterProvider([self.reader]))

    def text(self) -> str:
        spans = [span.to_json(indent=None) for span in self.exporter.get_finished_spans()]
        metrics: Any = self.reader.get_metrics_data()
        return "\n".join([*spans, metrics.to_json(indent=None) if metrics is not None else ""])


def text_of_files(folder: Path) -> str:
    """Return the text of all files in a folder."""
    return "\n".join(path.read_text() for path in sorted(folder.iterdir()))
