"""Program of a worker of `roundtrip serve`: TARGET SETTINGS CHANNEL SOCKET, the last two being descriptors."""

import socket
import sys

from roundtrip.cli.loading import load_server
from roundtrip.serving.settings import ServeSettings
from roundtrip.serving.worker import work

__all__ = ["main"]


def main() -> int:
    """Run the worker that the command line describes, and return its exit code."""
    target, settings, channel, listening = sys.argv[1:]
    return work(
        lambda: load_server(target),
        ServeSettings.model_validate_json(settings),
        listening=socket.socket(fileno=int(listening)),
        channel=socket.socket(fileno=int(channel)),
    )


if __name__ == "__main__":
    sys.exit(main())
