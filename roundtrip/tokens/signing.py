"""Token signatures. Most tools never make a token, so this module is imported only when the server makes its
first token.
"""

import hmac
from collections.abc import Sequence
from typing import Final

from itsdangerous import Signer
from itsdangerous.signer import SigningAlgorithm

# A signature has 128 bits. RFC 2104 allows this length, and AES-GCM tags also have it.
_SIGNATURE_BYTES: Final = 16


class ShortHmac(SigningAlgorithm):
    """The first half of an HMAC-SHA-256. This code does not create an `hmac` object for each signature, which would
    take three times as long.
    """

    def get_signature(self, key: bytes, value: bytes) -> bytes:
        """Return a value's signature."""
        return hmac.digest(key, value, "sha256")[:_SIGNATURE_BYTES]


def signer_of(subkeys: Sequence[bytes]) -> Signer:
    """Return a signer for the given keys. The newest key comes first."""
    # itsdangerous signs with the last key in its list. Our newest key comes first, so reverse the list.
    return Signer(list(reversed(subkeys)), key_derivation="none", algorithm=ShortHmac(), sep=".")
