"""What `Server(trace=...)` and the environment ask for, as tracers."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast

from roundtrip.machine.call import Step
from roundtrip.trace.writing.variables import REVEAL_VARIABLE, TRACE_VARIABLE
from roundtrip.tracing import StepObserver, Tracer, Tracers

__all__ = ["Trace", "tracers_of"]

OneTrace = str | os.PathLike[str] | Tracer | Callable[[Step], None]
Trace = OneTrace | Sequence[OneTrace] | Literal[False] | None


def tracers_of(trace: Trace, *, environment: Mapping[str, str], key: bytes | None) -> Tracers:
    """The tracers that are asked for.

    The environment's recorder is added, unless a transcript is asked for anyway, or `False` forbids it.

    Args:
        trace: What the server was given.
        environment: The variables of the process.
        key: What recorders make digests with; without one, each has a key of its own.

    Raises:
        TypeError: Something is neither a path, nor a tracer, nor a function.
        ValueError: `ROUNDTRIP_TRACE_REVEAL` names something unknown.
    """
    path = environment.get(TRACE_VARIABLE)
    if trace is False or (trace is None and not path):
        return Tracers(())
    # Most servers record nothing.
    from roundtrip.trace.writing.recorder import Recorder

    tracers = [_tracer(one, of_path=Recorder) for one in _given(trace)]
    if path and not any(isinstance(tracer, Recorder) for tracer in tracers):
        tracers.append(Recorder(path, reveal=_revealed(environment.get(REVEAL_VARIABLE, ""))))
    for tracer in tracers:
        if isinstance(tracer, Recorder) and key is not None:
            tracer.use_key(key)
    return Tracers(tracers)


def _given(trace: Any) -> Sequence[Any]:
    if trace is None:
        return ()
    return cast("Sequence[Any]", trace) if isinstance(trace, list | tuple) else (trace,)


def _tracer(given: Any, *, of_path: Callable[[str | os.PathLike[str]], Tracer]) -> Tracer:
    if isinstance(given, str | os.PathLike):
        return of_path(cast("str | os.PathLike[str]", given))
    if isinstance(given, Tracer):
        return given
    if callable(given):
        return StepObserver(cast("Callable[[Step], None]", given))
    raise TypeError(
        f"trace= takes a file's path, a Recorder, another tracer, a function of a Step, or a list of those, "
        f"not {type(given).__name__}"
    )


def _revealed(text: str) -> Any:
    from roundtrip.trace.writing.redaction import read_reveal

    names = [name.strip() for name in text.split(",") if name.strip()]
    try:
        read_reveal(names)  # type: ignore[arg-type]
    except ValueError as error:
        raise ValueError(f"{REVEAL_VARIABLE}: {error}") from error
    return names
