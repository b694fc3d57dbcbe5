"""Consent: the tools that ask their users before they run, although their authors wrote no confirmation.

A tool's hints decide. By the protocol's defaults, a tool without hints may destroy something.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, Literal, get_args

from mcp_types import Tool

from roundtrip.errors import InvalidSignature
from roundtrip.resolvers.signatures import is_async
from roundtrip.tools.options import ToolSpec

logger = logging.getLogger("roundtrip")

ConsentRule = Literal["destructive", "marked"] | Callable[[Tool], bool]
"""Which tools ask: `destructive`, all tools except those with `readOnlyHint=True` or `destructiveHint=False`; `marked`,
only tools with `destructiveHint=True`; or a function that decides for each tool.
"""

_RULES: Final = get_args(get_args(ConsentRule)[0])
CONFIRMED: Final = "with confirm="
"""Reason of a tool whose author wrote a confirmation."""
_NO_HINTS: Final = "without hints"
_MARKED: Final = "with destructiveHint=True"
_CHOSEN: Final = "chosen by the consent= function"


class ConsentPolicy:
    """One server's rule about consent.

    Args:
        rule: Which tools ask.
        trusts_hints: True to believe the hints of tools from other servers.

    Raises:
        TypeError: The rule is neither the name of a rule nor a plain function.
    """

    def __init__(self, rule: ConsentRule, *, trusts_hints: bool = False) -> None:
        if rule not in _RULES and (not callable(rule) or is_async(rule)):
            raise TypeError(
                f"consent= must be 'destructive', 'marked', or a plain function that takes a tool, got {rule!r}"
            )
        self.rule = rule
        self._trusts_hints = trusts_hints

    @classmethod
    def of(cls, rule: ConsentRule | Literal[False] | None, *, trust_hints: bool = False) -> ConsentPolicy | None:
        """Return the consent in a server's options; None if tools do not ask.

        Raises:
            TypeError: The rule is neither the name of a rule nor a plain function, or `trust_hints` has no effect.
        """
        if rule is not None and rule is not False:
            return cls(rule, trusts_hints=trust_hints)
        if trust_hints:
            raise TypeError("trust_hints= must be given together with consent=; add consent='destructive'")
        return None

    def reason_of(self, spec: ToolSpec, listing: Tool) -> str | None:
        """Return why a registered tool asks, given its options; None if the tool does not ask."""
        if "confirm" in spec:
            return CONFIRMED
        return (self.reason(listing) or "with consent=True") if spec.get("consent") else None

    def reason(self, tool: Tool, *, is_foreign: bool = False) -> str | None:
        """Return why a tool asks; None if the tool does not ask.

        Args:
            tool: The tool.
            is_foreign: True if the tool comes from another server. Its hints then count only if they make the tool
                ask, unless the author trusts them.

        Raises:
            InvalidSignature: The author's function returned something other than True or False.
        """
        hints = tool.annotations
        distrusts = is_foreign and not self._trusts_hints
        if callable(self.rule):
            if distrusts and hints is not None:
                tool = tool.model_copy(update={"annotations": None})
            asks: object = self.rule(tool)
            if not isinstance(asks, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidSignature(
                    f"consent= must return True or False for tool {tool.name!r}, got {type(asks).__name__}"
                )
            return _CHOSEN if asks else None
        if hints is not None and hints.destructive_hint and (self.rule == "marked" or not hints.read_only_hint):
            return _MARKED
        if self.rule == "marked":
            return None
        is_safe = hints is not None and (hints.read_only_hint is True or hints.destructive_hint is False)
        return None if is_safe and not distrusts else _NO_HINTS


class ConsentReport:
    """Log line that tells, when a server starts, how many of its tools ask, and why.

    Args:
        server: The server's name.
        reasons: Yields each tool's name and reason to ask; the reason of a tool that does not ask is None.
        others: Returns the number of providers whose tools are known only when a client calls them.
    """

    def __init__(
        self, server: str, reasons: Callable[[], Iterable[tuple[str, str | None]]], *, others: Callable[[], int] = int
    ) -> None:
        self._server = server
        self._reasons = reasons
        self._others = others
        self._is_logged = False

    def start(self) -> None:
        """Log the line, unless it has been logged."""
        if self._is_logged:
            return
        self._is_logged = True
        reasons, others = list(self._reasons()), self._others()
        asking = [(name, reason) for name, reason in reasons if reason is not None]
        counts = Counter(reason for _, reason in asking)
        why = ", ".join(f"{count} {reason}" for reason, count in counts.most_common())
        more = f"{others} other {'provider' if others == 1 else 'providers'}"
        logger.info(
            "consent: on server %r, %d of %d tools ask their users before they run%s%s",
            self._server,
            len(asking),
            len(reasons),
            f" ({why})" if why else "",
            f"; tools of {more} are checked when a client calls them" if others else "",
        )
        names = ", ".join(name for name, _ in asking) or "none"
        logger.debug("consent: on server %r, these tools ask: %s", self._server, names)

    async def stop(self) -> None:
        """Do nothing."""
