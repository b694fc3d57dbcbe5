"""Store calls on servers of other classes: for question pages, models that answer, approvals and tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roundtrip.server import features

if TYPE_CHECKING:
    from roundtrip.adapters.installation import Installation, InstallOptions
    from roundtrip.channels.stored_calls import StoredCalls
    from roundtrip.stored.desk import ToolHost

_OPTIONS = ("pages", "channels", "approvals")


def wants_stored_calls(options: InstallOptions) -> list[str]:
    """Return the options of `install` that need stored calls."""
    return [name for name in _OPTIONS if options.get(name) is not None]


def install_stored_calls(
    installation: Installation[Any], options: InstallOptions, host: ToolHost, *, has_auth: bool
) -> StoredCalls | None:
    """Give a server of another class what its options need; see `features.install_stored_calls`."""
    installation.stored_calls = features.install_stored_calls(
        host,
        installation.storage,
        channels=options.get("channels"),
        pages=options.get("pages"),
        approvals=options.get("approvals"),
        has_auth=has_auth,
    )
    return installation.stored_calls
