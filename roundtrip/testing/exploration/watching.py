"""Watches all instances that a call reaches, those included that are made for it."""

import functools
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, cast

from roundtrip.machine.call import Transition
from roundtrip.machine.facts import Watch
from roundtrip.server.server import Server
from roundtrip.testing.networks.fleet import Target, is_crash, makes_servers
from roundtrip.tracing import Beginning, Raised, TokenRejection

__all__ = ["Watching"]


class Watching:
    """A tracer of all instances that a path reaches."""

    def __init__(self) -> None:
        self.told = False
        """Whether any of them is one that tells."""
        self.over = False
        """Whether what is still told is of no interest."""
        self.steps: list[Transition] = []
        self.rejected = False
        """True after a server rejected the call's token."""
        self.crash: BaseException | None = None
        """What ended the call that nobody foresaw."""
        self._stack = ExitStack()

    @contextmanager
    def of(self, target: Target) -> Generator[Target]:
        """The target, whose instances are watched for a while."""
        with self._stack:
            if isinstance(target, Sequence) and not isinstance(target, str):
                for instance in cast("Sequence[object]", target):
                    self._watch(instance)
                yield cast("Target", target)
            elif makes_servers(target):
                yield self._making(target)
            else:
                self._watch(cast("object", target))
                yield cast("Target", target)

    def _making(self, make: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(make)
        def made(*args: Any, **kwargs: Any) -> Any:
            instance = make(*args, **kwargs)
            self._watch(instance)
            return instance

        return made

    def _watch(self, instance: object) -> None:
        if isinstance(instance, Server):
            self.told = True
            self._stack.enter_context(cast("Server[Any]", instance).watched_by(self))

    def begin(self, beginning: Beginning) -> Watch:
        """Watch the call, and not the calls within it."""
        return self._note if beginning.within is None else _ignore

    def reject(self, rejection: TokenRejection) -> None:
        """Note that a server rejected the call's token."""
        del rejection
        self.rejected = True

    def _note(self, fact: object) -> None:
        if self.over:
            return
        if isinstance(fact, Transition):
            self.steps.append(fact)
        elif isinstance(fact, Raised) and is_crash(fact.error):
            self.crash = fact.error


def _ignore(fact: object) -> None:
    del fact
