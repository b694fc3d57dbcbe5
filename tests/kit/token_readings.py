"""Everything that a client without the key can read in a token."""

import zlib
from base64 import urlsafe_b64decode

__all__ = ["readings"]


def readings(token: str) -> list[bytes]:
    """Return every reading that a client without the key can try on a token."""
    found = [token.encode()]
    for part in token.split("."):
        raw = urlsafe_b64decode(part + "=" * (-len(part) % 4)) if len(part) % 4 != 1 else part.encode()
        found.append(raw)
        # A deflated part can start anywhere.
        for start in range(len(raw)):
            try:
                found.append(zlib.decompressobj(wbits=-15).decompress(raw[start:]))
            except zlib.error:
                continue
    return found
