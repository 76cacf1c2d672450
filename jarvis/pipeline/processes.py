"""Run a function for many arguments in a few processes that are reused."""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from jarvis.core.errors import JarvisError

Argument = TypeVar("Argument")
Result = TypeVar("Result")

THREADS_VARIABLE = "POLARS_MAX_THREADS"
_DIED = "Its process ended unexpectedly, perhaps for lack of memory. Try again with fewer --jobs."


@dataclass(frozen=True)
class Failure:
    """Why there is no result, as a sentence."""

    reason: str
    is_cancelled: bool = False


def outcomes(
    function: Callable[[Argument], Result], arguments: Sequence[Argument], jobs: int
) -> Iterator[Result | Failure]:
    """Yield the result of each argument, in order, or why there is none.

    If a process dies, the arguments without a result are retried, each in a process of its own;
    only those whose own process dies fail.

    Args:
        function: A function of a module, so that other processes can import it.
        jobs: Processes; with one, everything runs in this process.
    """
    protected = partial(_protected, function)
    jobs = min(jobs, len(arguments))
    if jobs <= 1:
        yield from map(protected, arguments)
        return
    with _pool(jobs) as pool:
        futures = [_submitted(pool, protected, argument) for argument in arguments]
        for argument, future in zip(arguments, futures, strict=True):
            outcome = _outcome(future)
            if outcome is None:
                with _pool(1) as own:
                    outcome = _outcome(own.submit(protected, argument))
            yield Failure(_DIED) if outcome is None else outcome


def _protected(function: Callable[[Argument], Result], argument: Argument) -> Result | Failure:
    try:
        return function(argument)
    except (JarvisError, OSError) as error:
        return Failure(str(error))
    except Exception as error:  # noqa: BLE001 - the other arguments must not fail with it
        return Failure(f"{type(error).__name__}: {error}")


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of processes that divide the cores among their Polars threads."""
    before = os.environ.get(THREADS_VARIABLE)
    if before is None:
        os.environ[THREADS_VARIABLE] = str(max(1, (os.cpu_count() or 1) // workers))
    try:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, mp_context=context) as pool:
            yield pool
    finally:
        if before is None:
            del os.environ[THREADS_VARIABLE]


def _submitted(
    pool: ProcessPoolExecutor, function: Callable[[Argument], Result], argument: Argument
) -> Future[Result]:
    try:
        return pool.submit(function, argument)
    except BrokenProcessPool as error:
        failed: Future[Result] = Future()
        failed.set_exception(error)
        return failed


def _outcome(future: Future[Result]) -> Result | None:
    """Return the result; None if the process died."""
    try:
        return future.result()
    except BrokenProcessPool:
        return None
