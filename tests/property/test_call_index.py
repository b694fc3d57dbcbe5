"""The index of transcripts shows what reading all of their lines shows, whatever happens to the files."""

import json
import shutil
from pathlib import Path
from tempfile import mkdtemp

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from roundtrip.trace.index.filters import CallFilter
from roundtrip.trace.index.index import CallIndex, index_path
from roundtrip.trace.index.rows import Row, row_of
from roundtrip.trace.reading.calls import Traced
from roundtrip.trace.reading.joining import join
from roundtrip.trace.reading.transcripts import NoTranscript, files_of, read_files
from tests.kit.tiers import examples
from tests.unit.trace.tales import Tale, question

_INSTANCES = ("ash", "birch", "cedar")
_KEPT = 2
_FILTERS = (
    CallFilter({"state": ["completed"]}),
    CallFilter({"state": ["failed", "awaiting_input"]}),
    CallFilter({"tool": ["order*"], "instance": ["birch"]}),
    CallFilter({"reason": ["reworded", "expired"], "state": ["awaiting_input"]}),
    CallFilter({"failure": ["ToolTimedOut"]}),
    CallFilter({"rounds": ["1"]}, since=1_790_000_003.0),
    CallFilter(since=1_790_000_002.0, before=1_790_000_004.0),
    CallFilter(start="call-1"),
)


def _tale(number: int, kind: int) -> Tale:
    tale = Tale(f"call-{number}", tool=("order", "order-all", "pay")[number % 3])
    tale.began(1, _INSTANCES[number % 3]).asked(question("a"))
    if kind == 0:
        return tale
    tale.began(2, _INSTANCES[kind % 3]).asked(question("a", "reworded"), question("b"))
    if kind == 1:
        return tale.rejected("expired", _INSTANCES[number % 2])
    tale.began(3, "ash")
    if kind == 2:
        return tale.ended("failed", error={"type": "ToolTimedOut", "text": {"digest": "x", "bytes": 64}})
    return tale.ended()


class Files(RuleBasedStateMachine):
    """Recorders that write, files that are rotated, deleted and written again, and readers that come and go."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(mkdtemp(prefix="roundtrip-index-"))
        self.ahead: dict[str, list[tuple[str, str]]] = {}
        self.begun = 0
        self.index = self.open()

    def open(self) -> CallIndex:
        return CallIndex([self.folder], index_path([self.folder]))

    def path(self, instance: str) -> Path:
        return self.folder / f"{instance}.jsonl"

    @rule(kind=st.integers(0, 3))
    def call(self, kind: int) -> None:
        self.begun += 1
        tale = _tale(self.begun, kind)
        self.ahead[f"call-{self.begun}"] = [
            (line.instance, line.model_dump_json(exclude_unset=True)) for line in tale.lines
        ]

    @rule(data=st.data(), number=st.integers(1, 5))
    def write(self, data: st.DataObject, number: int) -> None:
        for _ in range(number):
            calls = [id for id, lines in self.ahead.items() if lines]
            if calls:
                instance, text = self.ahead[data.draw(st.sampled_from(calls))].pop(0)
                self.append(instance, f"{text}\n")

    @rule(instance=st.sampled_from(_INSTANCES), text=st.sampled_from(["nonsense\n", "\n", '{"v": 9}\n', "{}\n"]))
    def damage(self, instance: str, text: str) -> None:
        self.append(instance, text)

    def append(self, instance: str, text: str) -> None:
        with self.path(instance).open("a") as file:
            file.write(text)

    @rule(instance=st.sampled_from(_INSTANCES))
    def rotate(self, instance: str) -> None:
        path = self.path(instance)
        if path.exists() and path.stat().st_size:
            for number in range(_KEPT, 0, -1):
                older = path.with_name(f"{path.name}.{number}")
                newer = path.with_name(f"{path.name}.{number - 1}") if number > 1 else path
                if newer.exists():
                    newer.replace(older)

    @rule(instance=st.sampled_from(_INSTANCES))
    def delete(self, instance: str) -> None:
        self.path(instance).unlink(missing_ok=True)

    @rule(instance=st.sampled_from(_INSTANCES))
    def truncate(self, instance: str) -> None:
        if self.path(instance).exists():
            self.path(instance).write_text("")

    @rule()
    def reopen(self) -> None:
        self.index.close()
        self.index = self.open()

    @rule()
    def begin_again(self) -> None:
        self.index.close()
        for file in self.folder.glob("index.sqlite3*"):
            file.unlink()
        self.index = self.open()

    @rule()
    def read_in_another_process(self) -> None:
        other = self.open()
        other.refresh()
        other.close()

    def truth(self) -> tuple[Traced, int]:
        try:
            reading = read_files(files_of([self.folder]))
        except NoTranscript:
            return Traced({}, []), 0
        return join(reading.lines), reading.lost

    @rule()
    def compare(self) -> None:
        self.index.refresh()
        traced, lost = self.truth()
        wanted = {call.id: _plain(row_of(call)) for call in traced.calls.values()}
        found = list(self.index.rows(CallFilter()))
        assert {row["call"]: row for row in found} == wanted
        assert len(found) == len(wanted) == self.index.count()
        assert [row["started_at"] for row in found] == sorted((row["started_at"] for row in found), reverse=True)
        assert sum(self.index.unreadable()) == lost
        for filter in _FILTERS:
            passing = sorted(row["call"] for row in filter.passing(wanted.values()))
            assert sorted(row["call"] for row in self.index.rows(filter)) == passing
            assert sorted(row["call"] for row in self._in_pages(filter)) == passing
        for id, call in traced.calls.items():
            again = self.index.find(id)
            assert again is not None
            assert [serving.lines for serving in again.servings] == [serving.lines for serving in call.servings]
        counts: dict[str, int] = {}
        for row in wanted.values():
            counts[row["state"]] = counts.get(row["state"], 0) + 1
        assert dict(self.index.choices("state", 10)) == counts
        rejected = self.index.listed_lines("rejected", limit=1000)
        assert len(rejected) == sum(len(call.rejections) for call in traced.calls.values())

    def _in_pages(self, filter: CallFilter) -> list[Row]:
        rows: list[Row] = []
        after = None
        while True:
            page = self.index.page(filter, limit=2, after=after)
            rows += page.rows
            after = page.following
            if after is None:
                return rows

    def teardown(self) -> None:
        self.compare()
        self.index.close()
        shutil.rmtree(self.folder)


def _plain(row: Row) -> Row:
    """Return a row as JSON gives it back."""
    return json.loads(json.dumps(row))


TestFiles = Files.TestCase
TestFiles.settings = settings(max_examples=examples(15), stateful_step_count=40, deadline=None)
