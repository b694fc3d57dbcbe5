"""`RedisLedger`: for a fleet, on Redis or Valkey."""

import importlib
from collections.abc import Sequence
from typing import Any, Final, Protocol, cast

import anyio
from anyio.lowlevel import RunVar

from roundtrip.ledger.contract import Claim, LedgerDown, Reach, Standing
from roundtrip.ledger.waiting import wait_for

__all__ = ["RedisLedger"]

# A script is atomic, and reads the clock of the one server that all instances share.
_NOW: Final = "local t = redis.call('TIME') local now = t[1] * 1000 + math.floor(t[2] / 1000)\n"
_SEEN: Final = """
local function seen(key)
  local e = redis.call('HMGET', key, 'standing', 'terms', 'result', 'lapses', 'holder')
  if not e[1] or e[1] == 'free' then return nil end
  if e[1] == 'running' and tonumber(e[4]) <= now then e[1] = 'unknown' end
  return e
end
"""
_CLAIM: Final = (
    _NOW
    + _SEEN
    + """
local e = seen(KEYS[1])
if e and not (e[1] == 'running' and e[5] == ARGV[2]) and not (ARGV[5] == '1' and e[1] == 'unknown') then
  return {e[1], e[2], e[3]}
end
local notes = redis.call('HGETALL', KEYS[1])
redis.call('HSET', KEYS[1], 'standing', 'running', 'terms', ARGV[1], 'holder', ARGV[2], 'lapses', now + ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return {'granted', ARGV[1], false, notes}
"""
)
_RENEW: Final = (
    _NOW
    + """
local e = redis.call('HMGET', KEYS[1], 'standing', 'holder')
if e[1] ~= 'running' or e[2] ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'lapses', now + ARGV[2])
return 1
"""
)
_SETTLE: Final = """
local e = redis.call('HMGET', KEYS[1], 'standing', 'holder')
if not e[1] or e[1] == 'settled' or e[2] ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'standing', ARGV[2])
if ARGV[2] == 'settled' then redis.call('HSET', KEYS[1], 'result', ARGV[3]) end
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
"""
# Notes are the fields of an entry whose names begin with a colon; an entry has five others.
_NOTE: Final = """
local e = redis.call('HMGET', KEYS[1], 'standing', 'holder')
if e[1] ~= 'running' or e[2] ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], ':' .. ARGV[2], ARGV[3])
return 1
"""
_RELEASE: Final = """
local e = redis.call('HMGET', KEYS[1], 'standing', 'holder')
if e[1] ~= 'running' or e[2] ~= ARGV[1] then return 0 end
if redis.call('HLEN', KEYS[1]) <= 4 then return redis.call('DEL', KEYS[1]) end
return redis.call('HSET', KEYS[1], 'standing', 'free')
"""
_LOOK: Final = (
    _NOW
    + _SEEN
    + """
local e = seen(KEYS[1])
if not e then return false end
return {e[1], e[2], e[3]}
"""
)


class _Script(Protocol):
    async def __call__(self, *, keys: Sequence[str], args: Sequence[Any]) -> Any: ...


class RedisLedger:
    """Keeps what was done in Redis or Valkey, for all instances that reach it.

    The server must not evict entries (`maxmemory-policy noeviction`), and its copies must not lag behind in a failover
    that matters: what Redis has lost, it cannot prevent.

    Args:
        url: Such as `redis://redis.internal:6379/0`, `rediss://…` or `unix://…`.
        prefix: Begins all keys, which have the form `PREFIX:{CALL}`: all of one call are in one slot of a cluster.
        timeout: Seconds that one request may take, and connecting as well.
        **options: Those of `redis.asyncio.Redis.from_url`.

    Raises:
        ImportError: redis-py is not installed.
    """

    def __init__(self, url: str, *, prefix: str = "roundtrip", timeout: float = 2.0, **options: Any) -> None:
        _imported()
        self._url = url
        self._prefix = prefix
        self._timeout = timeout
        self._options = options
        # Connections belong to an event loop.
        self._clients: RunVar[_Client] = RunVar(f"roundtrip_ledger_{id(self)}")

    @property
    def reach(self) -> Reach:
        """As the contract says."""
        return Reach.FLEET

    async def claim(
        self, key: str, terms: str, *, holder: str, lease: float, keep: float, although_unknown: bool = False
    ) -> Claim:
        """As the contract says."""
        args = [terms, holder, _ms(lease), _ms(keep), "1" if although_unknown else "0"]
        return _claim(await self._run("claim", key, args)) or Claim(Standing.UNKNOWN)

    async def renew(self, key: str, *, holder: str, lease: float) -> bool:
        """As the contract says."""
        return bool(await self._run("renew", key, [holder, _ms(lease)]))

    async def settle(self, key: str, *, holder: str, result: str | None, keep: float) -> bool:
        """As the contract says."""
        standing = Standing.UNKNOWN if result is None else Standing.SETTLED
        return bool(await self._run("settle", key, [holder, standing.value, result or "", _ms(keep)]))

    async def note(self, key: str, name: str, value: str, *, holder: str) -> bool:
        """As the contract says."""
        return bool(await self._run("note", key, [holder, name, value]))

    async def release(self, key: str, *, holder: str) -> None:
        """As the contract says."""
        await self._run("release", key, [holder])

    async def wait(self, key: str, *, patience: float) -> Claim | None:
        """As the contract says."""

        async def look() -> Claim | None:
            return _claim(await self._run("look", key, []))

        return await wait_for(look, patience=patience)

    async def aclose(self) -> None:
        """Close the connections of this event loop."""
        client = self._clients.get(None)
        if client is not None:
            await client.redis.aclose()

    async def _run(self, script: str, key: str, args: Sequence[Any]) -> Any:
        try:
            client = self._clients.get()
        except LookupError:
            client = _Client(self._url, self._timeout, self._options)
            self._clients.set(client)
        call, _, part = key.partition("/")
        name = f"{self._prefix}:{{{call}}}{f'/{part}' if part else ''}"
        try:
            with anyio.fail_after(self._timeout * 2):
                return await client.scripts[script](keys=[name], args=args)
        except (_imported().RedisError, OSError, TimeoutError) as error:
            told = str(error) or type(error).__name__
            raise LedgerDown(f"the ledger on Redis cannot be used: {told}") from error


class _Client:
    """The connections of one event loop, and the scripts that run through them."""

    def __init__(self, url: str, timeout: float, options: dict[str, Any]) -> None:
        given = {"socket_timeout": timeout, "socket_connect_timeout": timeout, "decode_responses": True, **options}
        self.redis: Any = _imported().Redis.from_url(url, **given)
        scripts = {
            "claim": _CLAIM,
            "renew": _RENEW,
            "settle": _SETTLE,
            "note": _NOTE,
            "release": _RELEASE,
            "look": _LOOK,
        }
        self.scripts = {name: cast("_Script", self.redis.register_script(text)) for name, text in scripts.items()}


def _imported() -> Any:
    try:
        return importlib.import_module("redis.asyncio")
    except ImportError as error:
        raise ImportError("RedisLedger needs redis-py: pip install 'roundtrip[redis]'") from error


def _claim(answer: Any) -> Claim | None:
    if not answer:
        return None
    standing, terms, result, *more = answer
    fields = iter(more[0] if more else ())
    notes: dict[str, str] = {
        name[1:]: value for name, value in zip(fields, fields, strict=True) if name.startswith(":")
    }
    return Claim(Standing(standing), terms, result, notes)


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
