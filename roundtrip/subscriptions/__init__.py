"""Subscriptions across instances: clients of every instance receive the changes that any instance announces."""

from roundtrip.subscriptions.redis import RedisSubscriptionBus

__all__ = ["RedisSubscriptionBus"]
