"""The decision if a browser of the user can open a page of this process."""

import pytest

from roundtrip.server.desktop_browser import obstacle_to_browser

X11 = {"DISPLAY": ":0"}


@pytest.mark.parametrize(
    ("environment", "platform"),
    [
        (X11, "linux"),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux"),
        (X11, "freebsd14"),
        ({}, "darwin"),
        ({}, "win32"),
        ({**X11, "SSH_AUTH_SOCK": "/run/user/1000/keyring/ssh", "SSH_TTY": ""}, "linux"),
    ],
)
def test_browser_opens_on_a_desktop(environment: dict[str, str], platform: str) -> None:
    assert obstacle_to_browser(environment, platform, lambda path: False) is None


@pytest.mark.parametrize(
    ("environment", "platform", "words"),
    [
        ({}, "linux", "no display"),
        ({"DISPLAY": "", "TERM": "xterm", "BROWSER": "w3m"}, "linux", "no display"),
        ({**X11, "SSH_CONNECTION": "10.0.0.2 50022 10.0.0.1 22"}, "linux", "over SSH"),
        ({"SSH_TTY": "/dev/ttys001"}, "darwin", "over SSH"),
        ({"SSH_CLIENT": "10.0.0.2 50022 22"}, "win32", "over SSH"),
        ({**X11, "container": "podman"}, "linux", "in a container"),
        ({**X11, "KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "linux", "in a container"),
    ],
)
def test_obstacle_is_named(environment: dict[str, str], platform: str, words: str) -> None:
    assert words in str(obstacle_to_browser(environment, platform, lambda path: False))


@pytest.mark.parametrize("path", ["/.dockerenv", "/run/.containerenv"])
def test_container_is_known_by_its_file(path: str) -> None:
    assert "in a container" in str(obstacle_to_browser(X11, "linux", lambda each: each == path))


def test_frozen_program_opens_no_browser() -> None:
    assert "frozen" in str(obstacle_to_browser({}, "darwin", lambda path: False, is_frozen=True))
