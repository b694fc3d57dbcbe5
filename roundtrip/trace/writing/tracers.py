"""Tracers for a server, built from `Server(trace=...)` and the environment. A tracer's error never ends a call."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

from roundtrip.machine.call import Transition
from roundtrip.on_demand import load_on_use
from roundtrip.trace.writing.names import REVEAL_VARIABLE, TRACE_VARIABLE

logger = logging.getLogger("roundtrip")

if TYPE_CHECKING:
    # Do not import these at runtime: a server without tracers must not load the modules.
    from roundtrip.machine.facts import Watch
    from roundtrip.tracing import Beginning, TokenRejection, Tracer

    TraceFunction = Callable[[Transition], None] | Callable[[Transition | TokenRejection], None]
    OneTrace = str | os.PathLike[str] | Tracer | TraceFunction
    Trace = OneTrace | Sequence[OneTrace] | Literal[False] | None
    from roundtrip import tracing
    from roundtrip.trace.writing import recorder, redaction

load_on_use(globals(), "roundtrip.trace.writing.recorder", "roundtrip.trace.writing.redaction", "roundtrip.tracing")


class FunctionTracer:
    """Tracer that calls a plain function with every `Transition` and every `TokenRejection`."""

    def __init__(self, function: Callable[[Any], None]) -> None:
        self._function = function

    def begin(self, beginning: Beginning) -> Watch:
        """Return a watch that forwards transitions and ignores other facts."""

        def watch(fact: Any) -> None:
            if isinstance(fact, Transition):
                self._function(fact)

        return watch

    def reject(self, rejection: TokenRejection) -> None:
        """Forward a rejected token."""
        self._function(rejection)


class Tracers:
    """All of a server's tracers combined. No tracer's error can end the call."""

    def __init__(self, tracers: Iterable[Tracer]) -> None:
        self.tracers = tuple(tracers)

    def add(self, tracer: Tracer) -> None:
        """Add a tracer, which watches requests that begin from now on."""
        self.tracers = (*self.tracers, tracer)

    def remove(self, tracer: Tracer) -> None:
        """Remove an added tracer."""
        self.tracers = tuple(one for one in self.tracers if one is not tracer)

    def __bool__(self) -> bool:
        return bool(self.tracers)

    def begin(self, beginning: Beginning) -> Watch:
        """Return a watch that forwards each fact to every tracer's watch."""
        watches: list[Watch] = []
        for tracer in self.tracers:
            try:
                watches.append(tracer.begin(beginning))
            except Exception:
                logger.exception("a tracer failed when a call began, and will not see this call")
        if len(self.tracers) == 1 and watches and isinstance(self.tracers[0], tracing.Unfailing):
            # Most recorded servers have only a recorder, so skip the wrapper in that case.
            return watches[0]

        def watch(fact: Any) -> None:
            for each in watches:
                try:
                    each(fact)
                except Exception:
                    logger.exception("a tracer failed on %s; the call is not affected", type(fact).__name__)

        # A token can carry only one `traceparent`.
        linked = next((each for each in watches if isinstance(each, tracing.LinkedWatch)), None)
        return watch if linked is None else tracing.LinkedWatch(watch, linked.traceparent)

    def reject(self, rejection: TokenRejection) -> None:
        """Report a rejected token to all tracers."""
        for tracer in self.tracers:
            try:
                tracer.reject(rejection)
            except Exception:
                logger.exception("a tracer failed on a rejected token")


def tracers_of(trace: Trace, *, environment: Mapping[str, str], key: bytes | None) -> Tracers:
    """Return a server's tracers.

    `ROUNDTRIP_TRACE` adds a recorder, unless `trace` contains a recorder or is `False`. The added recorder, and
    recorders that are created from paths, reveal the values that `ROUNDTRIP_TRACE_REVEAL` lists.

    Args:
        trace: The argument of `Server(trace=...)`.
        environment: The environment variables.
        key: The key for recorders' digests. If None, each recorder uses a random key.

    Raises:
        TypeError: An item of `trace` is not a path, a tracer or a function.
        ValueError: `ROUNDTRIP_TRACE_REVEAL` has an unknown name.
    """
    path = environment.get(TRACE_VARIABLE)
    if trace is False or (trace is None and not path):
        return Tracers(())
    traces = cast("Sequence[Any]", trace) if isinstance(trace, list | tuple) else () if trace is None else (trace,)
    record_to_path = partial(recorder.Recorder, reveal=_reveal_names(environment.get(REVEAL_VARIABLE, "")))
    tracers = [_build_tracer(item, record_to_path=record_to_path) for item in traces]
    if path and not any(isinstance(tracer, recorder.Recorder) for tracer in tracers):
        tracers.append(record_to_path(path))
    for tracer in tracers:
        if isinstance(tracer, recorder.Recorder) and key is not None:
            tracer.use_key(key)
    return Tracers(tracers)


def _build_tracer(item: Any, *, record_to_path: Callable[[str | os.PathLike[str]], tracing.Tracer]) -> tracing.Tracer:
    if isinstance(item, str | os.PathLike):
        return record_to_path(cast("str | os.PathLike[str]", item))
    if isinstance(item, tracing.Tracer):
        return item
    if callable(item):
        return FunctionTracer(cast("Callable[[Any], None]", item))
    raise TypeError(
        f"trace= must be a path, a Recorder, another tracer, a function, or a list of those, got {type(item).__name__}"
    )


def _reveal_names(text: str) -> Any:
    names = [name.strip() for name in text.split(",") if name.strip()]
    try:
        redaction.read_reveal(names)  # type: ignore[arg-type]
    except ValueError as error:
        raise ValueError(f"{REVEAL_VARIABLE}: {error}") from error
    return names
