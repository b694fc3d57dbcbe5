"""Record a call of each feature, and check the records, with all that it keeps on disk."""

import time
from pathlib import Path
from typing import Any

from roundtrip import Server, Transition
from roundtrip.checking.checking import check_calls
from roundtrip.checking.forking import fork_call
from roundtrip.checking.recorded import recorded_call
from roundtrip.checking.rehearsal import End
from roundtrip.checking.reports import CheckResult
from roundtrip.ledger import SqliteLedger
from roundtrip.testing import Era, User
from roundtrip.trace.writing.recorder import Recorder
from tests.interaction.trace.features import FEATURES, ROOTS, Effect, Feature, Heard, serve
from tests.interaction.trace.transcribed import calls_of
from tests.kit.waiting import WAIT

ADA = "ada"


class Site:
    """Ledger and transcript on disk, which outlive the server's process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls = folder / "calls.jsonl"
        self.effect = Effect()

    def ledger(self) -> SqliteLedger:
        return SqliteLedger(self.folder / "ledger.db")

    def bytes(self) -> dict[str, bytes]:
        """Return the content of all files."""
        return {file.name: file.read_bytes() for file in sorted(self.folder.iterdir())}

    async def record(self, era: Era) -> None:
        """Record a call of each feature."""
        ledger = self.ledger()

        def make() -> Server[Any]:
            return serve(ledger, self.effect, trace=Recorder(self.calls, reveal="all"), principal=_somebody)

        shared = make()
        for name, feature in FEATURES.items():
            # What is fixed once differs from call to call of one server.
            await play(make() if name.startswith("once") else shared, feature, era)
        await ledger.aclose()

    async def check(self, *, forks: int = 0) -> list[CheckResult]:
        """Check all calls with another process of the same code, and fork their rounds; nothing changes."""
        self.effect.closed = True
        ledger, bus, told = self.ledger(), Heard(), list[Transition]()
        server = serve(ledger, self.effect, bus, trace=[Recorder(self.calls, reveal="all"), told.append])
        server.disable(names={"hidden_since"})
        done, files = list(self.effect), self.bytes()
        found = await check_all(server, self.calls)
        # What a body that asks does outside of steps, up to its last question.
        assert set(self.effect[len(done) :]) <= {"body", "all", "mixed", "step body", "review"}
        if forks:
            assert await fork_each(server, self.calls) > forks
        await ledger.aclose()
        assert self.bytes() == files
        assert told == []
        assert bus.events == []
        return found


async def check_all(server: Server[Any], path: Path) -> list[CheckResult]:
    found: list[CheckResult] = []
    await check_calls(server.internals, calls_of(path), found.append, now=time.time())
    return found


async def fork_each(server: Server[Any], path: Path) -> int:
    """Come to each round of each call again, as recorded, and return how many there are."""
    asking = [
        (call, round_.number)
        for call in calls_of(path)
        for round_ in recorded_call(call, whole=True).rounds
        if round_.questions
    ]
    forks = [
        await fork_call(server.internals, call, at=number, replies={}, run=False, now=time.time(), seconds=WAIT)
        for call, number in asking
    ]
    ends = [(forked.differs, forked.end, call.tool) for forked, (call, _) in zip(forks, asking, strict=True)]
    assert [end for end in ends if end[:2] != ("", End.ASKS)] == []
    return len(forks)


def _somebody(ctx: Any) -> str:
    del ctx
    return ADA


async def play(server: Server[Any], feature: Feature, era: Era) -> None:
    user = User(
        server,
        feature.answers,
        era=era,
        missing_capabilities=feature.lacks,  # type: ignore[arg-type]
        roots=ROOTS,
        allow_error=True,
    )
    call = await user.begin(feature.leg)
    assert feature.ends in (call.failure if call.error is not None else str(call.result))
