"""Find the distributions that an install brings."""

from importlib.metadata import PackageNotFoundError, requires

from packaging.requirements import Requirement

__all__ = ["installed_by"]


def installed_by(name: str, found: set[str]) -> set[str]:
    """Return the distributions that a plain install of one brings."""
    if name in found:
        return found
    found.add(name)
    try:
        needed = [Requirement(one) for one in requires(name) or ()]
    except PackageNotFoundError:
        return found
    for one in needed:
        wanted = [{"extra": extra} for extra in one.extras] or [{"extra": ""}]
        if one.marker is None or any(one.marker.evaluate(each) for each in wanted):
            installed_by(one.name.lower().replace("_", "-"), found)
            for extra in one.extras:
                for more in requires(one.name) or ():
                    marked = Requirement(more)
                    if marked.marker is not None and marked.marker.evaluate({"extra": extra}):
                        installed_by(marked.name.lower().replace("_", "-"), found)
    return found
