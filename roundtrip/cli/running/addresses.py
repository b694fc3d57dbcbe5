"""Page addresses from the command line."""

from urllib.parse import SplitResult, urlsplit

from roundtrip.channels.local.loopback_peers import is_loopback
from roundtrip.cli.command import CommandFailed


def read_address(text: str, *, name: str, example: str) -> SplitResult:
    """Parse the address of pages to which browsers or programs send tokens.

    Raises:
        CommandFailed: The address is invalid, or tokens would cross a network in clear text.
    """
    rule = f"{name} must be an address such as {example}"
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise CommandFailed(f"{rule} ({error})") from error
    if parts.scheme not in ("http", "https") or not host or parts.username or parts.query or parts.fragment:
        raise CommandFailed(rule)
    if parts.scheme == "http" and not is_loopback(host):
        raise CommandFailed(f"{name} must begin with https://, because tokens must not cross a network in clear text")
    return parts
