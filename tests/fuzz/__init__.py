"""Fuzzers of every kind of input, as ``make fuzz`` runs them."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.fuzz import archives, hardware, reading, reports, traces


class Kind(NamedTuple):
    """A kind of input: its fuzzer, and the number of inputs of a long run and of a test.

    ``at_once`` inputs are one share of the work; a failure names the seed of its share.
    """

    fuzz: Callable[[int, int, Path], Counter[str]]
    count: int
    in_tests: int
    at_once: int = 1


KINDS = {
    "reading": Kind(reading.fuzz, 30_000, 300, at_once=500),
    "traces": Kind(traces.fuzz, 450, 6),
    "csvs": Kind(reports.fuzz_csvs, 300, 6),
    "workbooks": Kind(reports.fuzz_workbooks, 200, 4),
    "archives": Kind(archives.fuzz, 500, 24, at_once=25),
    "hardware": Kind(hardware.fuzz, 1_000, 20, at_once=20),
}
