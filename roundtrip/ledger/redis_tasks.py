"""Task store on Redis or Valkey, next to the entries of a `RedisLedger`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from roundtrip.connections.redis import RedisConnections, RedisDown, RedisScript, Word, redis_text
from roundtrip.ledger.contract import LedgerDown
from roundtrip.ledger.listeners import ChangeListeners
from roundtrip.ledger.machines import TASK_MACHINE, StoredState
from roundtrip.ledger.tasks import TASK_FIELDS, CallEntry, EntrySummary, entry_of, stored_summary, values_of
from roundtrip.system import System

_WRITE_BYTES: Final = 8
_FIELDS: Final = (*TASK_FIELDS, "labels")
_TIMES: Final = frozenset({"created", "updated", "due", "expires"})
_NUMBERS: Final = frozenset({"epoch", "runs_once", "has_begun", "tries", "deaths", "version"})

_IS_FINAL: Final = " or ".join(f"state == '{state.value}'" for state in sorted(TASK_MACHINE.final))


def _argument(name: str) -> str:
    """Return the Lua expression that reads a field from the script's arguments."""
    return f"ARGV[{6 + _FIELDS.index(name)}]"


# All keys begin with `KEYS[1]`, so they are in the same cluster slot. `:t:CALL` is the task's hash, and `:n:CALL` is
# the list of its notes. The other keys are sorted sets: `:due` is sorted by due time, `:calls` by call (for scans),
# `:s:STATE` by last change, and `:l:LABEL` by creation time.
_BASE: Final = f"""
local base = KEYS[1]
local fields = {{{",".join(f"'{name}'" for name in _FIELDS)}}}
local function time()
  local t = redis.call('TIME')
  return string.format('%d.%06d', t[1], t[2])
end
local function split(text)
  local words = {{}}
  for word in string.gmatch(text or '', '%S+') do words[#words + 1] = word end
  return words
end
local function summary(call)
  return redis.call('HMGET', base .. ':t:' .. call, {",".join(f"'{name}'" for name in EntrySummary._fields)})
end
local function put(call, drops)
  -- ARGV: call, version or '', channel, drops notes, write, the fields, the notes.
  local values = {{}}
  local of = {{}}
  for place, name in ipairs(fields) do
    values[#values + 1] = name
    values[#values + 1] = ARGV[5 + place]
    of[name] = ARGV[5 + place]
  end
  -- Before all other writes: Redis with full memory rejects it only as the first write of a script.
  redis.call('HSET', base .. ':t:' .. call, 'write', ARGV[5], unpack(values))
  if drops then redis.call('DEL', base .. ':n:' .. call) end
  for place = 6 + #fields, #ARGV do redis.call('RPUSH', base .. ':n:' .. call, ARGV[place]) end
  redis.call('ZADD', base .. ':due', of.due, call)
  redis.call('ZADD', base .. ':calls', 0, call)
  redis.call('ZADD', base .. ':s:' .. of.state, of.updated, call)
  for _, label in ipairs(split(of.labels)) do redis.call('ZADD', base .. ':l:' .. label, of.created, call) end
  redis.call('PUBLISH', ARGV[3], call)
end
"""
_ADD: Final = RedisScript(
    _BASE
    + """
local call = ARGV[1]
local before = redis.call('HMGET', base .. ':t:' .. call, 'version', 'write')
if before[1] then return before[2] == ARGV[5] and 1 or 0 end
put(call, false)
return 1
"""
)
_SAVE: Final = RedisScript(
    _BASE
    + f"""
local call = ARGV[1]
local before = redis.call('HMGET', base .. ':t:' .. call, 'version', 'write', 'state', 'labels')
-- A connection that broke may have sent the same write before.
if before[2] == ARGV[5] then return 1 end
if before[1] ~= ARGV[2] then return 0 end
local state, expires = {_argument("state")}, {_argument("expires")}
if ({_IS_FINAL}) and tonumber(time()) >= tonumber(expires) then
  redis.call('ZREM', base .. ':s:' .. before[3], call)
  for _, label in ipairs(split(before[4])) do redis.call('ZREM', base .. ':l:' .. label, call) end
  redis.call('DEL', base .. ':t:' .. call, base .. ':n:' .. call)
  redis.call('ZREM', base .. ':due', call)
  redis.call('ZREM', base .. ':calls', call)
  redis.call('PUBLISH', ARGV[3], call)
  return 1
end
put(call, ARGV[4] == '1')
if before[3] ~= state then redis.call('ZREM', base .. ':s:' .. before[3], call) end
local kept = {{}}
for _, label in ipairs(split({_argument("labels")})) do kept[label] = true end
for _, label in ipairs(split(before[4])) do
  if not kept[label] then redis.call('ZREM', base .. ':l:' .. label, call) end
end
return 1
"""
)
_LOAD: Final = RedisScript(
    _BASE
    + """
local call = ARGV[1]
local values = redis.call('HMGET', base .. ':t:' .. call, unpack(fields))
if not values[1] then return {time()} end
return {time(), values, redis.call('LRANGE', base .. ':n:' .. call, 0, -1)}
"""
)
_DUE: Final = RedisScript(
    _BASE
    + """
local now = time()
local found = redis.call('ZRANGEBYSCORE', base .. ':due', '-inf', now, 'LIMIT', 0, ARGV[1])
local first = redis.call('ZRANGE', base .. ':due', 0, 0, 'WITHSCORES')
return {now, found, first[2] or false}
"""
)
_LIST: Final = RedisScript(
    _BASE
    + """
local found = {}
for place = 2, #ARGV do
  for _, call in ipairs(redis.call('ZREVRANGE', base .. ':s:' .. ARGV[place], 0, ARGV[1] - 1)) do
    found[#found + 1] = summary(call)
  end
end
return found
"""
)
_LABELLED: Final = RedisScript(
    _BASE
    + """
local label, limit, created, after = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local found, offset = {}, 0
while #found < limit do
  local page = redis.call(
    'ZRANGEBYSCORE', base .. ':l:' .. label, created, '+inf', 'WITHSCORES', 'LIMIT', offset, limit)
  if #page == 0 then break end
  for place = 1, #page, 2 do
    local is_same = created ~= '-inf' and tonumber(page[place + 1]) == tonumber(created)
    if #found < limit and not (is_same and page[place] <= after) then found[#found + 1] = summary(page[place]) end
  end
  offset = offset + #page / 2
end
return found
"""
)
_SCAN: Final = RedisScript(
    _BASE
    + """
local from = ARGV[1] == '' and '-' or '(' .. ARGV[1]
local found = {}
for _, call in ipairs(redis.call('ZRANGEBYLEX', base .. ':calls', from, '+', 'LIMIT', 0, ARGV[2])) do
  local values = redis.call('HMGET', base .. ':t:' .. call, unpack(fields))
  found[#found + 1] = {values, redis.call('LRANGE', base .. ':n:' .. call, 0, -1)}
end
return found
"""
)


class RedisCallStore:
    """Task store in a Redis server that all instances share. In a cluster, all tasks with the same prefix are in one
    slot.

    Args:
        connections: The Redis connections.
        prefix: The first part of all keys.
        system: The clock for pauses after failures, and randomness.
    """

    def __init__(self, connections: RedisConnections, prefix: str, system: System) -> None:
        self._connections = connections
        self._key = f"{prefix}:{{tasks}}"
        self._channel = f"{prefix}:tasks"
        self._system = system
        self._listeners = ChangeListeners(lambda announce: connections.hear(self._channel, announce, system.sleep))

    async def add(self, entry: CallEntry) -> bool:
        """Implement `CallStore.add`."""
        words = [entry.call_id, "", self._channel, "", self._write(), *_row(entry), *entry.notes]
        return bool(await self._run(_ADD, words))

    async def load(self, call_id: str) -> tuple[CallEntry | None, float]:
        """Implement `CallStore.load`."""
        now, *stored = await self._run(_LOAD, [call_id])
        return (_entry(*stored) if stored else None), float(now)

    async def save(self, entry: CallEntry, *, version: int) -> bool:
        """Implement `CallStore.save`."""
        drops = "1" if entry.drops_notes else ""
        words = [entry.call_id, version, self._channel, drops, self._write(), *_row(entry), *entry.new_notes]
        return bool(await self._run(_SAVE, words))

    async def due(self, limit: int) -> tuple[list[str], float | None]:
        """Implement `CallStore.due`."""
        now, due_calls, first = await self._run(_DUE, [limit])
        following = float(first) - float(now) if first is not None and not due_calls else None
        return [redis_text(call_id) for call_id in due_calls], following

    async def list(self, *, limit: int, states: Sequence[StoredState] = ()) -> list[EntrySummary]:
        """Implement `CallStore.list`."""
        summaries = [
            _summary(row) for row in await self._run(_LIST, [limit, *(state.value for state in states or StoredState)])
        ]
        return sorted(summaries, key=lambda summary: summary.updated, reverse=True)[:limit]

    async def labelled(
        self, label: str, *, limit: int, after: tuple[float, str] | None = None
    ) -> Sequence[EntrySummary]:
        """Implement `CallStore.labelled`."""
        created, call_id = ("-inf", "") if after is None else (repr(after[0]), after[1])
        return [_summary(row) for row in await self._run(_LABELLED, [label, limit, created, call_id])]

    async def scan(self, *, after: str, limit: int) -> Sequence[CallEntry]:
        """Implement `CallStore.scan`."""
        return [_entry(*row) for row in await self._run(_SCAN, [after, limit])]

    def listen(self, changed: Callable[[str | None], None]) -> Callable[[], None]:
        """Implement `CallStore.listen`. Each event loop listens for announcements on one connection."""
        return self._listeners.listen(changed)

    def _write(self) -> str:
        """Return a random id for a write. Scripts use this id to recognize a repeated write."""
        return self._system.entropy(_WRITE_BYTES).hex()

    async def _run(self, script: RedisScript, words: Sequence[Word]) -> Any:
        try:
            return await self._connections.run(script, self._key, words)
        except RedisDown as error:
            raise LedgerDown(f"the task store on Redis cannot be used: {error}") from error


def _row(entry: CallEntry) -> list[Word]:
    values = (int(value) if isinstance(value, bool) else value for value in values_of(entry))
    return [*values, " ".join(entry.labels)]


def _entry(row: Sequence[bytes | None], notes: Sequence[bytes]) -> CallEntry:
    *values, labels = map(_value, _FIELDS, row)
    return entry_of(values, str(labels).split(), [redis_text(note) for note in notes])


def _summary(row: Sequence[bytes | None]) -> EntrySummary:
    return stored_summary(map(_value, EntrySummary._fields, row))


def _value(name: str, stored: bytes | None) -> str | float:
    # Earlier versions did not store `deaths`.
    text = redis_text(b"0" if stored is None else stored)
    return float(text) if name in _TIMES else int(text) if name in _NUMBERS else text
