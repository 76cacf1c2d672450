"""Runs coroutines in a thread, because browser tests have a loop in the main thread."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Answer = TypeVar("Answer")


def awaited(coroutine: Coroutine[Any, Any, Answer]) -> Answer:
    """Run a coroutine in its own loop and thread; return its result."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()
