"""What stores the calls of one server. Most servers store none, and do not load the rest of this room."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from roundtrip.on_demand import load_on_use

if TYPE_CHECKING:
    from roundtrip.stored import book, service
    from roundtrip.stored.content import CallFeature
    from roundtrip.stored.desk import ToolHost
    from roundtrip.stored.service import CallService
    from roundtrip.stored.worker import DistributedEngine
else:
    load_on_use(globals(), "roundtrip.stored.book", "roundtrip.stored.service")


@dataclass(slots=True, eq=False, repr=False)
class Storage:
    """What stores the calls of one server. Its options and its tools install it."""

    features: Callable[[], list[CallFeature]]
    """Returns the features that take part in stored calls."""
    engine: DistributedEngine | None = None
    """Delivers stored calls to workers, in place of each worker's look at the store."""
    runs_tasks: bool | str = True
    """False if other processes run the stored calls; "own" to run those of own clients only."""
    tasks: CallService | None = None
    """None until an option or a tool needs it."""

    def require(self, host: ToolHost, needed_by: str = "task=") -> CallService:
        """Return the service that stores the calls of a server; the first option that needs it makes it.

        Raises:
            InvalidSignature: The ledger cannot store calls.
        """
        if self.tasks is None:
            kept = book.CallBook(host.legs.parts, host.low_level.name, needed_by, self.features())
            made = service.CallService(host, kept, engine=self.engine, runs=self.runs_tasks)
            self.tasks = made
            host.legs.workers.append(made)
        return self.tasks
