"""`RedisLedger`: for a fleet, on Redis or Valkey."""

from collections.abc import Sequence
from typing import Any, Final

from roundtrip.ledger.contract import Claim, EntryState, LedgerDown, Reach
from roundtrip.ledger.waiting import Waiting
from roundtrip.redis_connections import RedisConnections, RedisDown, RedisScript, Word

__all__ = ["RedisLedger"]

# A script is atomic, and reads the clock of the one server that all instances share.
_NOW: Final = "local t = redis.call('TIME') local now = t[1] * 1000 + math.floor(t[2] / 1000)\n"
_SEEN: Final = """
local function seen(key)
  local e = redis.call('HMGET', key, 'standing', 'terms', 'result', 'lapses', 'holder')
  if not e[1] or e[1] == 'free' then return nil end
  if e[1] == 'held' then
    if tonumber(e[4]) <= now then return nil end
    e[1] = 'running'
  end
  if e[1] == 'running' and tonumber(e[4]) <= now then e[1] = 'unknown' end
  return e
end
"""
_CLAIM: Final = RedisScript(
    _NOW
    + _SEEN
    + """
local before = redis.call('HMGET', KEYS[1], 'standing', 'holder')
local e = seen(KEYS[1])
if e and not (e[1] == 'running' and e[5] == ARGV[2]) and not (ARGV[5] == '1' and e[1] == 'unknown') then
  return {e[1], e[2], e[3]}
end
local notes = redis.call('HGETALL', KEYS[1])
local standing = (before[1] == 'running' and before[2] == ARGV[2]) and 'running' or ARGV[6]
redis.call('HSET', KEYS[1], 'standing', standing, 'terms', ARGV[1], 'holder', ARGV[2], 'lapses', now + ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return {'granted', ARGV[1], false, notes}
"""
)
_RENEW: Final = RedisScript(
    _NOW
    + """
local e = redis.call('HMGET', KEYS[1], 'standing', 'holder')
if (e[1] ~= 'running' and e[1] ~= 'held') or e[2] ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'lapses', now + ARGV[2])
return 1
"""
)
_SETTLE: Final = RedisScript("""
local e = redis.call('HMGET', KEYS[1], 'standing', 'holder', 'result')
if not e[1] or e[2] ~= ARGV[1] then return 0 end
if e[1] == 'settled' then return (ARGV[2] == 'settled' and e[3] == ARGV[3]) and 1 or 0 end
redis.call('HSET', KEYS[1], 'standing', ARGV[2])
if ARGV[2] == 'settled' then redis.call('HSET', KEYS[1], 'result', ARGV[3]) end
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
""")
# Notes are the fields of an entry whose names begin with a colon; an entry has five others.
_NOTE: Final = RedisScript("""
local e = redis.call('HMGET', KEYS[1], 'standing', 'holder')
if (e[1] ~= 'running' and e[1] ~= 'held') or e[2] ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], ':' .. ARGV[2], ARGV[3])
return 1
""")
_COUNT: Final = RedisScript("""
if redis.call('SISMEMBER', KEYS[1], ARGV[1]) == 1 then return 1 end
if redis.call('SCARD', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
redis.call('SADD', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
""")
_RELEASE: Final = RedisScript("""
local e = redis.call('HMGET', KEYS[1], 'standing', 'holder')
if (e[1] ~= 'running' and e[1] ~= 'held') or e[2] ~= ARGV[1] then return 0 end
if redis.call('HLEN', KEYS[1]) <= 4 then return redis.call('DEL', KEYS[1]) end
return redis.call('HSET', KEYS[1], 'standing', 'free')
""")
_LOOK: Final = RedisScript(
    _NOW
    + _SEEN
    + """
local e = seen(KEYS[1])
if not e then return false end
return {e[1], e[2], e[3]}
"""
)


class RedisLedger:
    """Keeps what was done in Redis or Valkey, for all instances that reach it.

    The server must not evict entries (`maxmemory-policy noeviction`), and its copies must not lag behind in a failover
    that matters: what Redis has lost, it cannot prevent.

    Args:
        url: Such as `redis://redis.internal:6379/0`, `rediss://…` or `unix://…`.
        prefix: Begins all keys, which have the form `PREFIX:{CALL}`: all of one call are in one slot of a cluster.
        timeout: Seconds that one request may take, with connecting.
        cluster: Whether the URL is that of any node of a cluster.
        **options: Those of redis-py's connections, as `redis.asyncio.Redis.from_url` takes them.

    Raises:
        ImportError: redis-py is not installed.
    """

    def __init__(
        self, url: str, *, prefix: str = "roundtrip", timeout: float = 2.0, cluster: bool = False, **options: Any
    ) -> None:
        self._prefix = prefix
        self._waiting = Waiting()
        self._connections = RedisConnections(url, timeout=timeout, options=options, cluster=cluster)

    @property
    def reach(self) -> Reach:
        """As the contract says."""
        return Reach.FLEET

    async def claim(
        self,
        key: str,
        terms: str,
        *,
        holder: str,
        lease: float,
        keep: float,
        although_unknown: bool = False,
        tentative: bool = False,
        account: str | None = None,
    ) -> Claim:
        """As the contract says. Accounts need no shares: what it holds is bounded by Redis."""
        del account
        standing = "held" if tentative else EntryState.RUNNING.value
        args = [terms, holder, _ms(lease), _ms(keep), "1" if although_unknown else "0", standing]
        return _claim(await self._run(_CLAIM, key, args)) or Claim(EntryState.UNKNOWN)

    async def renew(self, key: str, *, holder: str, lease: float) -> bool:
        """As the contract says."""
        return bool(await self._run(_RENEW, key, [holder, _ms(lease)]))

    async def settle(self, key: str, *, holder: str, result: str | None, keep: float) -> bool:
        """As the contract says."""
        standing = EntryState.UNKNOWN if result is None else EntryState.SETTLED
        return bool(await self._run(_SETTLE, key, [holder, standing.value, result or "", _ms(keep)]))

    async def note(self, key: str, name: str, value: str, *, holder: str) -> bool:
        """As the contract says."""
        return bool(await self._run(_NOTE, key, [holder, name, value]))

    async def count(self, key: str, item: str, *, most: int, keep: float, account: str | None = None) -> bool:
        """As the contract says."""
        del account
        return bool(await self._run(_COUNT, key, [item, most, _ms(keep)]))

    async def release(self, key: str, *, holder: str) -> None:
        """As the contract says."""
        await self._run(_RELEASE, key, [holder])

    async def wait(self, key: str, *, patience: float) -> Claim | None:
        """As the contract says."""

        async def look() -> Claim | None:
            return _claim(await self._run(_LOOK, key, []))

        return await self._waiting.wait(key, look, patience=patience)

    async def aclose(self) -> None:
        """Close the connections of this event loop. They are opened again when they are needed."""
        await self._connections.aclose()

    async def _run(self, script: RedisScript, key: str, args: Sequence[Word]) -> Any:
        call, _, part = key.partition("/")
        name = f"{self._prefix}:{{{call}}}{f'/{part}' if part else ''}"
        try:
            return await self._connections.run(script, name, args)
        except RedisDown as error:
            raise LedgerDown(f"the ledger on Redis cannot be used: {error}") from error


def _claim(answer: Any) -> Claim | None:
    if not answer:
        return None
    try:
        standing, terms, result, *more = answer
        fields = iter(more[0] if more else ())
        notes = {
            _text(name)[1:]: _text(value) for name, value in zip(fields, fields, strict=True) if name.startswith(b":")
        }
        return Claim(EntryState(_text(standing)), _text(terms), None if result is None else _text(result), notes)
    except (ValueError, TypeError, AttributeError) as error:
        raise LedgerDown("the ledger on Redis cannot be used: it holds an entry that no ledger wrote") from error


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
