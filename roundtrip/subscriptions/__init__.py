"""Subscriptions across instances: what changes on one is told to the clients of all."""

from roundtrip.subscriptions.redis import RedisSubscriptionBus

__all__ = ["RedisSubscriptionBus"]
