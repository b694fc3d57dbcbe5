"""`RedisLedger`, for a fleet that shares a Redis or Valkey server."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from roundtrip.connections.redis import RedisConnections, RedisDown, RedisScript, Word, redis_text
from roundtrip.ledger.contract import INTENT_PREFIX, STATUS_OF, ClaimAnswer, ClaimStatus, LedgerDown, ListedEntry, Reach
from roundtrip.ledger.entry import settling_event
from roundtrip.ledger.lease import buried_processes
from roundtrip.ledger.machines import ENTRY_MACHINE, EntryEvent, EntryState
from roundtrip.ledger.redis_tasks import RedisCallStore
from roundtrip.ledger.waiting import Waiting
from roundtrip.system import SYSTEM, System

# A script is atomic and reads the Redis server's clock, which all instances share. The script's transitions come from
# `ENTRY_MACHINE`. An entry is a hash with five fields. A settled or declined entry also has a result field. Each note
# is one more field, whose name begins with a colon.
_ENTRY: Final = f"""
local target = {{{",".join(f"['{state} {event}']='{end}'" for (state, event), end in ENTRY_MACHINE.targets.items())}}}
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local e = redis.call('HMGET', KEYS[1], 'state', 'holder', 'epoch', 'lapses', 'digest', 'result')
local state = e[1] or 'free'
if target[state .. ' lapse'] and tonumber(e[4]) <= now then state = target[state .. ' lapse'] end
"""
# `buried` lists the dead processes, separated by spaces.
_BURY: Final = """
local process = string.match(e[2] or '', '^(%x+)%.')
if process and state ~= 'declined' and string.find(' ' .. buried .. ' ', ' ' .. process .. ' ', 1, true) then
  state = target[state .. ' lapse'] or state
end
"""
_CLAIM: Final = RedisScript(
    _ENTRY
    + "local digest, holder, lease, keep, event, rerun, buried, is_bound, voids = unpack(ARGV)"
    + _BURY
    + """
local notes = {}
if is_bound == '1' and e[5] and e[5] ~= digest then
  local fields, has_ended = redis.call('HGETALL', KEYS[1]), state == 'free' or state == 'settled'
  for i = 1, #fields, 2 do
    if string.sub(fields[i], 1, 1) == ':' and fields[i + 1] ~= '' then
      table.insert(notes, fields[i])
      table.insert(notes, '')
    end
  end
  if (state ~= 'free' or #notes > 0) and not (has_ended and e[3] == voids) then
    return {'conflict', e[5], has_ended and e[6], 0, e[3], has_ended and fields or {}}
  end
end
if e[3] == voids then state = target[state .. ' void'] or state end
if rerun == '1' then
  if state == 'lapsed' and e[2] == holder then event = 'start' end
  state = target[state .. ' reopen'] or state
end
local is_free = state == 'free'
local claimed = (is_free or e[2] == holder) and target[state .. ' ' .. event]
if not claimed then return {state, e[5], e[6], e[4] - now, e[3]} end
local epoch = e[3]
if is_free then epoch = string.format('%.0f', math.max((e[3] or 0) + 1, t[1] * 1000000 + t[2])) end
-- Before all other writes: Redis with full memory rejects it only as the first write of a script.
for i = 10, #ARGV do table.insert(notes, ARGV[i]) end
redis.call('HSET', KEYS[1], 'state', claimed, 'holder', holder, 'epoch', epoch, 'digest', digest, 'lapses', now + lease,
  unpack(notes))
if is_free then redis.call('HDEL', KEYS[1], 'result') end
redis.call('PEXPIRE', KEYS[1], keep)
return {'granted', digest, false, 0, epoch, redis.call('HGETALL', KEYS[1])}
"""
)
_WRITE: Final = RedisScript(
    _ENTRY
    + """
local event, holder, epoch, lease, keep, channel, _, value = unpack(ARGV)
local written = target[state .. ' ' .. event]
if not written or e[2] ~= holder or (epoch ~= '' and e[3] ~= epoch) then return 0 end
if (state == 'settled' or state == 'declined') and (e[6] or nil) ~= value then return 0 end
redis.call('HSET', KEYS[1], 'state', written, unpack(ARGV, 7))
if lease ~= '' then redis.call('HSET', KEYS[1], 'lapses', now + lease) end
if keep ~= '' then redis.call('PEXPIRE', KEYS[1], keep) end
if written == 'free' and redis.call('HLEN', KEYS[1]) <= 5 then redis.call('DEL', KEYS[1]) end
if channel ~= '' then redis.pcall('PUBLISH', channel, KEYS[1]) end
return 1
"""
)
_LOOK: Final = RedisScript(
    _ENTRY
    + "local buried = ARGV[1]"
    + _BURY
    + """
if state == 'free' then return false end
return {state, e[5], e[6], e[4] - now, e[3]}
"""
)
_LISTED: Final = RedisScript("return redis.call('HGETALL', KEYS[1])")
_REWRITE: Final = RedisScript(
    _ENTRY
    + "local buried, epoch = ARGV[1], ARGV[2]"
    + _BURY
    + """
if e[3] ~= epoch or state == 'held' or state == 'running' then return 0 end
for i = 3, #ARGV, 3 do
  if redis.call('HGET', KEYS[1], ARGV[i]) ~= ARGV[i + 1] then return 0 end
end
for i = 3, #ARGV, 3 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 2]) end
return 1
"""
)
_COUNT: Final = RedisScript("""
if redis.call('SISMEMBER', KEYS[1], ARGV[1]) == 1 then return 1 end
if redis.call('SCARD', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
redis.call('SADD', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
""")


class RedisLedger:
    """Ledger in a Redis or Valkey server that all instances share.

    Redis must not evict entries (`maxmemory-policy noeviction`). If Redis loses an entry, for example when it fails
    over to a replica that lags behind, the entry's body can run again.

    Args:
        url: A connection URL, for example `redis://redis.internal:6379/0`, `rediss://…` or `unix://…`.
        prefix: The first part of all keys. Keys have the form `PREFIX:{CALL}`, so all keys of a call are in the same
            cluster slot. The ledger announces results and releases on the channel `PREFIX:ledger`.
        timeout: Maximum seconds for one request, including connecting.
        cluster: True if the URL names a node of a Redis cluster.
        system: The clock for pauses after failures.
        **options: Connection options for `redis.asyncio.Redis.from_url`.

    Raises:
        ImportError: redis-py is not installed.
    """

    reach = Reach.FLEET
    """Implement `Ledger.reach`."""

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "roundtrip",
        timeout: float = 2.0,
        cluster: bool = False,
        system: System = SYSTEM,
        **options: Any,
    ) -> None:
        self._prefix = prefix
        self._channel = f"{prefix}:ledger"
        self._connections = RedisConnections(url, timeout=timeout, options=options, cluster=cluster)
        self._waiting = Waiting(lambda announce: self._connections.hear(self._channel, announce, system.sleep))
        self.tasks: Final = RedisCallStore(self._connections, prefix, system)
        """The task store, in the same Redis."""

    async def claim(
        self,
        key: str,
        answers_digest: str,
        *,
        holder: str,
        lease: float,
        keep: float,
        rerun: bool = False,
        tentative: bool = False,
        account: str | None = None,
        is_bound: bool = False,
        notes: Mapping[str, str] | None = None,
        voids: int | None = None,
    ) -> ClaimAnswer:
        """Implement `Ledger.claim`. This ledger ignores `account`, because Redis limits its own memory."""
        event = EntryEvent.HOLD if tentative else EntryEvent.START
        times = [_milliseconds(lease), _milliseconds(keep)]
        options: list[Word] = ["1" if is_bound else "0", "" if voids is None else voids, *_note_fields(notes)]
        args = [answers_digest, holder, *times, event.value, "1" if rerun else "0", _buried_names(), *options]
        return _parse_answer(await self._run(_CLAIM, key, args)) or ClaimAnswer(ClaimStatus.UNKNOWN)

    async def renew(self, key: str, *, holder: str, epoch: int, lease: float) -> bool:
        """Implement `Ledger.renew`."""
        return await self._write(EntryEvent.RENEW, key, holder, epoch, lease=lease)

    async def settle(
        self,
        key: str,
        *,
        holder: str,
        epoch: int,
        result: str | None,
        keep: float,
        declined_for: float | None = None,
    ) -> bool:
        """Implement `Ledger.settle`."""
        event = settling_event(result, declined_for)
        fields = [] if result is None else ["result", result]
        return await self._write(event, key, holder, epoch, *fields, lease=declined_for, keep=keep, is_announced=True)

    async def note(self, key: str, name: str, value: str, *, holder: str, epoch: int) -> bool:
        """Implement `Ledger.note`."""
        return await self._write(EntryEvent.NOTE, key, holder, epoch, f":{name}", value)

    async def count(self, key: str, item: str, *, most: int, keep: float, account: str | None = None) -> bool:
        """Implement `Ledger.count`."""
        return bool(await self._run(_COUNT, key, [item, most, _milliseconds(keep)]))

    async def release(
        self, key: str, *, holder: str, epoch: int | None = None, notes: Mapping[str, str] | None = None
    ) -> None:
        """Implement `Ledger.release`."""
        await self._write(EntryEvent.RELEASE, key, holder, epoch, *_note_fields(notes), is_announced=True)

    async def wait(self, key: str, *, patience: float) -> ClaimAnswer | None:
        """Implement `Ledger.wait`. While legs wait, their event loop listens for announcements on one connection."""

        async def look() -> ClaimAnswer | None:
            return _parse_answer(await self._run(_LOOK, key, [_buried_names()]))

        return await self._waiting.wait(self._name(key), look, patience=patience)

    async def list_entries(self, prefix: str, *, after: str = "", limit: int) -> tuple[Sequence[ListedEntry], str]:
        """Implement `ListsEntries.list_entries`. Redis has no order of keys, so this reads all keys of the database."""
        before = f"{self._prefix}:{{"
        escaped = re.sub(r"([\\*?\[\]])", r"\\\1", before + prefix.partition("/")[0])
        try:
            names, place = await self._connections.scan(f"{escaped}*", after, limit)
        except RedisDown as error:
            raise LedgerDown(f"the ledger on Redis cannot be used: {error}") from error
        keys = [redis_text(name).removeprefix(before).replace("}", "", 1) for name in names]
        found = [(key, _texts_of(await self._run(_LISTED, key, []))) for key in keys if key.startswith(prefix)]
        return [
            ListedEntry(key, one["digest"], int(one["epoch"]), one.get("result"), _notes_of(one))
            for key, one in found
            if one
        ], place

    async def rewrite(self, seen: ListedEntry, *, result: str | None, notes: Mapping[str, str]) -> bool:
        """Implement `ListsEntries.rewrite`."""
        texts = [(f":{name}", seen.notes[name], text) for name, text in notes.items()]
        if seen.result is not None and result is not None:
            texts.append(("result", seen.result, result))
        args: list[Word] = [_buried_names(), seen.epoch, *(word for text in texts for word in text)]
        return bool(await self._run(_REWRITE, seen.key, args))

    async def aclose(self) -> None:
        """Close this event loop's connections; the next operation opens new ones."""
        await self._connections.aclose()

    async def _write(
        self,
        event: EntryEvent,
        key: str,
        holder: str,
        epoch: int | None,
        *fields: str,
        lease: float | None = None,
        keep: float | None = None,
        is_announced: bool = False,
    ) -> bool:
        """Apply an event from the holder, and set fields of the entry: their names and values."""
        times = ["" if seconds is None else _milliseconds(seconds) for seconds in (lease, keep)]
        fence = "" if epoch is None else epoch
        channel = self._channel if is_announced else ""
        return bool(await self._run(_WRITE, key, [event.value, holder, fence, *times, channel, *fields]))

    def _name(self, key: str) -> str:
        # No script needs two intents, so each has a cluster slot of its own.
        call, _, part = (key, "", "") if key.startswith(INTENT_PREFIX) else key.partition("/")
        return f"{self._prefix}:{{{call}}}{f'/{part}' if part else ''}"

    async def _run(self, script: RedisScript, key: str, args: Sequence[Word]) -> Any:
        try:
            return await self._connections.run(script, self._name(key), args)
        except RedisDown as error:
            raise LedgerDown(f"the ledger on Redis cannot be used: {error}") from error


def _parse_answer(answer: Any) -> ClaimAnswer | None:
    if not answer:
        return None
    try:
        state, digest, result, lease, epoch, *noted = answer
        text = None if result is None else redis_text(result)
        if not noted:
            status = STATUS_OF[EntryState(redis_text(state))]
            return ClaimAnswer(status, redis_text(digest), text, epoch=int(epoch), lease=lease / 1000)
        notes = _notes_of(_texts_of(noted[0]))
        return ClaimAnswer(ClaimStatus(redis_text(state)), redis_text(digest), text, notes, int(epoch))
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise LedgerDown("the ledger on Redis cannot be used: an entry has an unknown format") from error


def _notes_of(texts: Mapping[str, str]) -> dict[str, str]:
    """Return an entry's notes from all its fields."""
    return {name[1:]: value for name, value in texts.items() if name.startswith(":")}


def _texts_of(fields: Sequence[bytes]) -> dict[str, str]:
    """Return an entry's fields from a list of alternately a name and a value."""
    return {redis_text(name): redis_text(value) for name, value in zip(fields[::2], fields[1::2], strict=True)}


def _note_fields(notes: Mapping[str, str] | None) -> list[str]:
    """Return the names and values of the fields for notes."""
    return [word for name, value in (notes or {}).items() for word in (f":{name}", value)]


def _buried_names() -> str:
    return " ".join(buried_processes())


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))
