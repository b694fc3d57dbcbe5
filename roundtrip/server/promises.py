"""Check the promises of tools: answers that a user gets again, tasks, and bodies that run once."""

import logging

from roundtrip.server.parts import Parts
from roundtrip.server.tools.registered import RegisteredTool

__all__ = ["check_promises"]

logger = logging.getLogger("roundtrip")


def check_promises(tool: RegisteredTool, parts: Parts, *, may_forget: bool) -> None:
    """Check that the server can keep the promises of a tool, and warn if it may not.

    Args:
        tool: The tool.
        parts: The keys of the server.
        may_forget: True if the ledger forgets calls that other processes may continue.

    Raises:
        ValueError: The server can never keep one.
    """
    protection = parts.protection
    if tool.function.limits.recover and protection.policy.bind_principal is None:
        raise ValueError(
            f"tool {tool.name!r}: recover= shows a user their former answers, so the server has to know its "
            "users; leave recover= out, or principal=False"
        )
    if tool.function.task is not None and may_forget:
        logger.warning(
            "tool %r runs as a task, and other processes may have the keys of its calls; give all of them one "
            "ledger= (SqliteLedger, RedisLedger or PostgresLedger), or ledger=MemoryLedger() if there is only one "
            "process",
            tool.name,
        )
    if tool.spec.exactly_once and may_forget:
        logger.warning(
            "tool %r has to run exactly once, and other processes may have the keys of its calls; give all of them "
            "one ledger= (a SqliteLedger or a RedisLedger), or ledger=MemoryLedger() if there is only one process",
            tool.name,
        )
