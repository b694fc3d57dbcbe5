"""Sign and verify tokens. This module is imported when the server makes its first token, because most tools never make
one.
"""

import hmac
from collections.abc import Sequence
from typing import Final

from itsdangerous import Signer
from itsdangerous.signer import SigningAlgorithm

# 128 bits: RFC 2104 allows this length, and AES-GCM tags have it.
_SIGNATURE_BYTES: Final = 16


class ShortHmac(SigningAlgorithm):
    """The first half of an HMAC-SHA-256. Making an `hmac` object for each signature would take three times as long."""

    def get_signature(self, key: bytes, value: bytes) -> bytes:
        """Return a value's signature."""
        return hmac.digest(key, value, "sha256")[:_SIGNATURE_BYTES]


def signer_of(subkeys: Sequence[bytes]) -> Signer:
    """Return a signer for keys listed newest first."""
    # itsdangerous signs with the last key in its list, but our newest key comes first.
    return Signer(list(reversed(subkeys)), key_derivation="none", algorithm=ShortHmac(), sep=".")
