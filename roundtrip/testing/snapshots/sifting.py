"""What syrupy's `exclude=`, `include=` and `matcher=` do to plain values: as they do it to JSON snapshots."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

__all__ = ["Sieve"]

_Path = tuple[tuple[Any, Any], ...]


@dataclass(frozen=True, slots=True)
class Sieve:
    """What to leave out, what to keep, and what to put in the place of values; None does nothing."""

    exclude: Callable[..., bool] | None = None
    include: Callable[..., bool] | None = None
    matcher: Callable[..., Any] | None = None

    def over(self, value: Any, path: _Path = ()) -> Any:
        """A value, sifted."""
        if self.matcher is not None:
            value = self.matcher(data=value, path=path)
        if isinstance(value, Mapping):
            items = cast("Mapping[Any, Any]", value).items()
            return {name: self.over(item, _within(path, name, item)) for name, item in items if self._keeps(name, path)}
        if isinstance(value, list):
            return [self.over(item, _within(path, place, item)) for place, item in enumerate(cast("list[Any]", value))]
        return value

    def _keeps(self, name: Any, path: _Path) -> bool:
        if self.exclude is not None and self.exclude(prop=name, path=path):
            return False
        return self.include is None or self.include(prop=name, path=path)


def _within(path: _Path, name: object, value: object) -> _Path:
    return (*path, (name, type(value)))
