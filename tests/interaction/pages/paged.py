"""Servers whose users are asked on pages: a header names the user of a client, a cookie that of a browser."""

from typing import Any

from roundtrip import Pages, Server
from tests.kit.page_users import BASE, KEY, reader, user_of

__all__ = ["paged"]


def paged(name: str, *, wait: float = 20, **options: Any) -> Server[Any]:
    given: dict[str, Any] = {"keys": [KEY], "principal": user_of, **options}
    return Server[Any](name, pages=Pages(base_url=BASE, authenticate=reader, wait=wait), **given)
