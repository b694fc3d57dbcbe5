"""Sign tokens and verify their signatures. Imported with the first token: most tools never make one."""

import hmac
from collections.abc import Sequence
from typing import Final

from itsdangerous import Signer
from itsdangerous.signer import SigningAlgorithm

# 128 bits, as RFC 2104 allows and AES-GCM has.
_SIGNATURE_BYTES: Final = 16


class ShortHmac(SigningAlgorithm):
    """First half of HMAC-SHA-256. An `hmac` object for each signature would take three times as long."""

    def get_signature(self, key: bytes, value: bytes) -> bytes:
        """Return the signature of a value."""
        return hmac.digest(key, value, "sha256")[:_SIGNATURE_BYTES]


def signer_of(subkeys: Sequence[bytes]) -> Signer:
    """Return the signer of some keys, newest first."""
    # itsdangerous signs with the last key of its list; ours has the newest first.
    return Signer(list(reversed(subkeys)), key_derivation="none", algorithm=ShortHmac(), sep=".")
