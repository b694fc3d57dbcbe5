"""Provide subscriptions across instances: the clients of all receive the changes of one."""

from roundtrip.subscriptions.redis import RedisSubscriptionBus

__all__ = ["RedisSubscriptionBus"]
