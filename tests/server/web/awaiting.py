"""Coroutines in tests that are none: browsers of other tests keep a loop in the main thread."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Answer = TypeVar("Answer")


def awaited(coroutine: Coroutine[Any, Any, Answer]) -> Answer:
    """What a coroutine gives, in a loop and a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()
