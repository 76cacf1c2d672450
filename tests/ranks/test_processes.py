"""Work in several processes, of which one may die."""

import os
import signal

import pytest

from jarvis.core.errors import JarvisError
from jarvis.pipeline.processes import Failure, outcomes


class OddError(JarvisError):
    """An error that cannot be sent to another process."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"{number} is odd: {reason}.")


def halved(number: int) -> int:
    if number == 13:
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 5:
        raise OddError(number, "more than one argument")
    if number % 2:
        raise ValueError(f"{number} is odd")
    return number // 2


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_and_errors_in_order(jobs: int) -> None:
    found = list(outcomes(halved, [2, 3, 4, 5], jobs))
    assert found == [
        1,
        Failure("ValueError: 3 is odd"),
        2,
        Failure("5 is odd: more than one argument."),
    ]


def test_a_process_that_dies_costs_its_own_argument_only() -> None:
    found = list(outcomes(halved, [2, 13, 4, 6], 2))
    assert [found[0], found[2], found[3]] == [1, 2, 3]
    assert isinstance(found[1], Failure)
    assert "ended unexpectedly" in found[1].reason
