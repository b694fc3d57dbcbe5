"""The pytest plugin's former place, for environments installed before it moved."""

from roundtrip.pytest_plugin import *  # noqa: F403
