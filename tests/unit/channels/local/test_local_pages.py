"""The decision if a browser of the user can open a page of this process."""

from roundtrip.channels.local.local_pages import obstacle_to_browser
from tests.kit.tables import check_each

X11 = {"DISPLAY": ":0"}


def test_browser_opens_on_a_desktop() -> None:
    def check(environment: dict[str, str], platform: str) -> None:
        assert obstacle_to_browser(environment, platform, lambda path: False) is None

    desktops: list[tuple[dict[str, str], str]] = [
        (X11, "linux"),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux"),
        (X11, "freebsd14"),
        ({}, "darwin"),
        ({}, "win32"),
        ({**X11, "SSH_AUTH_SOCK": "/run/user/1000/keyring/ssh", "SSH_TTY": ""}, "linux"),
    ]
    check_each(desktops, check)


def test_obstacle_is_named() -> None:
    def check(environment: dict[str, str], platform: str, words: str) -> None:
        assert words in str(obstacle_to_browser(environment, platform, lambda path: False))

    obstacles: list[tuple[dict[str, str], str, str]] = [
        ({}, "linux", "no display"),
        ({"DISPLAY": "", "TERM": "xterm", "BROWSER": "w3m"}, "linux", "no display"),
        ({**X11, "SSH_CONNECTION": "10.0.0.2 50022 10.0.0.1 22"}, "linux", "over SSH"),
        ({"SSH_TTY": "/dev/ttys001"}, "darwin", "over SSH"),
        ({"SSH_CLIENT": "10.0.0.2 50022 22"}, "win32", "over SSH"),
        ({**X11, "container": "podman"}, "linux", "in a container"),
        ({**X11, "KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "linux", "in a container"),
    ]
    check_each(obstacles, check)


def test_container_and_frozen_program_open_no_browser() -> None:
    for path in ("/.dockerenv", "/run/.containerenv"):
        assert "in a container" in str(obstacle_to_browser(X11, "linux", path.__eq__))
    assert "frozen" in str(obstacle_to_browser({}, "darwin", lambda path: False, is_frozen=True))
