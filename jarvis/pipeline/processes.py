"""Run a function for many arguments in a few processes that are reused."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

Argument = TypeVar("Argument")
Result = TypeVar("Result")


def outcomes(
    function: Callable[[Argument], Result], arguments: Sequence[Argument], jobs: int
) -> Iterator[Result | Exception]:
    """Yield the result of each argument, in order, or the exception that it ended with.

    A process that dies costs only its own argument: those that it took along are tried again,
    each in a process of its own.

    Args:
        function: A function of a module, so that other processes can import it.
        arguments: What it is called with.
        jobs: Processes; with one, everything runs in this process.
    """
    if min(jobs, len(arguments)) <= 1:
        yield from (_outcome_here(function, argument) for argument in arguments)
        return
    with _pool(min(jobs, len(arguments))) as pool:
        futures = [_submitted(pool, function, argument) for argument in arguments]
        for argument, future in zip(arguments, futures, strict=True):
            outcome = _outcome(future)
            if isinstance(outcome, BrokenProcessPool):
                with _pool(1) as own:
                    outcome = _outcome(own.submit(function, argument))
            yield outcome


def _pool(workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))


def _submitted(
    pool: ProcessPoolExecutor, function: Callable[[Argument], Result], argument: Argument
) -> Future[Result]:
    try:
        return pool.submit(function, argument)
    except BrokenProcessPool as error:
        failed: Future[Result] = Future()
        failed.set_exception(error)
        return failed


def _outcome(future: Future[Result]) -> Result | Exception:
    return future.exception() or future.result()  # type: ignore[return-value]


def _outcome_here(function: Callable[[Argument], Result], argument: Argument) -> Result | Exception:
    try:
        return function(argument)
    except Exception as error:  # noqa: BLE001 - the caller decides
        return error
