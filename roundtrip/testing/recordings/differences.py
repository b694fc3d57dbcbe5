"""What differs between what was recorded and what came instead, in words."""

import json
from collections.abc import Collection, Mapping
from itertools import zip_longest
from typing import Any, Final, cast

from roundtrip.testing.recordings.document import Json, is_named

__all__ = ["differences", "significant"]

_ABSENT: Final = object()
_SHOWN: Final = 60
_BEFORE: Final = 12


def significant(params: Mapping[str, Any] | None) -> Json:
    """The params of a request without what differs between clients that mean the same."""
    out: Json = {key: value for key, value in (params or {}).items() if key != "_meta" and value not in (None, {})}
    answers = out.get("inputResponses")
    if isinstance(answers, Mapping):
        out["inputResponses"] = {
            key: without_meta(answer) for key, answer in cast("Mapping[str, Any]", answers).items()
        }
    return out


def without_meta(value: Any) -> Any:
    """An object without its `_meta`; anything else as it is."""
    if not isinstance(value, dict):
        return value
    return {key: item for key, item in cast("Json", value).items() if key != "_meta"}


def differences(expected: Any, got: Any, path: tuple[str, ...], redacted: Collection[str]) -> list[str]:
    """Where two values differ, each with what was expected and what came."""
    if path and expected is not _ABSENT and got is not _ABSENT and is_named(path, redacted):
        return []
    if isinstance(expected, Mapping) and isinstance(got, Mapping):
        there, here = cast("Json", expected), cast("Json", got)
        return [
            line
            for key in [*there, *(key for key in here if key not in there)]
            for line in differences(there.get(key, _ABSENT), here.get(key, _ABSENT), (*path, key), redacted)
        ]
    if isinstance(expected, list) and isinstance(got, list):
        items = zip_longest(cast("list[Any]", expected), cast("list[Any]", got), fillvalue=_ABSENT)
        return [
            line
            for place, (one, other) in enumerate(items)
            for line in differences(one, other, (*path, str(place)), redacted)
        ]
    if expected is got or (expected == got and isinstance(expected, bool) == isinstance(got, bool)):
        return []
    start = _first_difference(expected, got)
    return [f"{'.'.join(path)}: expected {_shown(expected, start)}, got {_shown(got, start)}"]


def _first_difference(expected: Any, got: Any) -> int:
    """Where two long texts begin to differ; 0 where they are seen whole anyway."""
    if not isinstance(expected, str) or not isinstance(got, str) or max(len(expected), len(got)) <= _SHOWN:
        return 0
    pairs = enumerate(zip_longest(expected, got))
    return next((place for place, (one, other) in pairs if one != other), 0)


def _shown(value: Any, start: int) -> str:
    if value is _ABSENT:
        return "nothing"
    if isinstance(value, str) and start:
        begin = max(0, start - _BEFORE)
        part = json.dumps(value[begin : begin + _SHOWN])
        return f"{'…' if begin else ''}{part}{'…' if begin + _SHOWN < len(value) else ''} ({len(value)} characters)"
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
