"""Open an address in the browser of the user at this machine, and tell beforehand if that can work."""

import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Final

__all__ = ["LOCAL_PAGES_VARIABLE", "obstacle_to_browser", "open_in_browser"]

LOCAL_PAGES_VARIABLE: Final = "ROUNDTRIP_LOCAL_PAGES"
"""Decides about pages of this machine, whatever their obstacles: 1 or 0."""

_CONTAINER_FILES: Final = ("/.dockerenv", "/run/.containerenv")
_CONTAINER_VARIABLES: Final = ("container", "KUBERNETES_SERVICE_HOST")
_SSH_VARIABLES: Final = ("SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY")
_DISPLAY_VARIABLES: Final = ("DISPLAY", "WAYLAND_DISPLAY")
_OWN_SCREEN: Final = ("darwin", "win32", "cygwin")
"""Platforms on which a program needs no variable to find the screen."""
_OPEN: Final = "import sys, webbrowser; sys.exit(not webbrowser.open(sys.argv[1]))"


def obstacle_to_browser(
    environment: Mapping[str, str], platform: str, exists: Callable[[str], bool], *, is_frozen: bool = False
) -> str | None:
    """Return the reason for which no browser of this machine's user can open a page of this process; None if one can.

    Args:
        environment: The variables of the process.
        platform: The platform, as `sys.platform` names it.
        exists: Returns True if there is a file of this path.
        is_frozen: True if the process runs no Python of its own, but one program with everything in it.
    """
    if any(environment.get(name) for name in _SSH_VARIABLES):
        return "the server runs over SSH, and its user's browser is on another machine"
    if any(exists(path) for path in _CONTAINER_FILES) or any(environment.get(name) for name in _CONTAINER_VARIABLES):
        return "the server runs in a container, and its user's browser is outside"
    if platform not in _OWN_SCREEN and not any(environment.get(name) for name in _DISPLAY_VARIABLES):
        return "there is no display: neither DISPLAY nor WAYLAND_DISPLAY is set"
    if is_frozen:
        return "a frozen program cannot open a browser apart from its own streams"
    return None


def open_in_browser(url: str) -> bool:
    """Open an address as Python's `webbrowser` does, with its choice of a browser; return False if that failed.

    A browser writes to the streams that it inherits, and on stdio they carry the protocol. So it runs in a process of
    its own with null streams. It may stay in the foreground, and this returns when it has ended.
    """
    if not sys.executable or getattr(sys, "frozen", False):
        return False
    # Isolated: no module of the working folder takes the place of one of the standard library.
    command = [sys.executable, "-I", "-c", _OPEN, url]
    null = subprocess.DEVNULL
    done = subprocess.run(  # noqa: S603 - no shell
        command,
        stdin=null,
        stdout=null,
        stderr=null,
        check=False,
        # The user's interrupt of the server must not end the browser, nor a console open on Windows.
        start_new_session=True,
        creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
    )
    return done.returncode == 0
