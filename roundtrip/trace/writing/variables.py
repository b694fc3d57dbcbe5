"""What the environment can say about recording: the names of its variables, without what reads them."""

from typing import Final

__all__ = ["REVEAL_VARIABLE", "TRACE_VARIABLE"]

TRACE_VARIABLE: Final = "ROUNDTRIP_TRACE"
REVEAL_VARIABLE: Final = "ROUNDTRIP_TRACE_REVEAL"
