"""Subscriptions across instances: the clients of every instance receive each instance's changes."""

from roundtrip.subscriptions.redis import RedisSubscriptionBus

__all__ = ["RedisSubscriptionBus"]
