"""One server's stored calls. Most servers store no calls, and do not load the other modules in this package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from roundtrip.on_demand import load_on_use

if TYPE_CHECKING:
    from roundtrip.stored import book, service
    from roundtrip.stored.content import CallFeature
    from roundtrip.stored.desk import DeskFeature, ToolHost
    from roundtrip.stored.service import CallService
    from roundtrip.stored.worker import DistributedEngine

load_on_use(globals(), "roundtrip.stored.book", "roundtrip.stored.service")


@dataclass(slots=True, eq=False, repr=False)
class Storage:
    """The part of a server that stores calls. Its service is created on first use."""

    features: Callable[[], list[CallFeature]]
    """Returns the features that take part in stored calls."""
    around: Callable[[CallService], DeskFeature]
    """Makes the feature around all others at the desk."""
    engine: DistributedEngine | None = None
    """Delivers stored calls to workers, so that workers need not poll the store. If it is None, workers poll."""
    runs_tasks: bool | str = True
    """False if other processes run the stored calls; "own" if this process runs only its own clients' calls."""
    tasks: CallService | None = None
    """The service; None until an option or a tool needs it."""

    def require(self, host: ToolHost, needed_by: str = "task=") -> CallService:
        """Return the service that stores the server's calls. The first option that needs the service creates it.

        Raises:
            InvalidSignature: The ledger cannot store calls.
        """
        if self.tasks is None:
            call_book = book.CallBook(host.legs.parts, host.low_level.name, needed_by, self.features())
            created = service.CallService(host, call_book, engine=self.engine, runs=self.runs_tasks)
            self.tasks = created
            host.desk.around = self.around(created)
            host.begin_storing()
            host.legs.workers.append(created)
        return self.tasks
