"""Fail-on rules of a comparison, such as ``gpu_time > +5%``.

A rule has a metric, an operator (``>``, ``>=``, ``<``, ``<=``) and a threshold in ``%`` or ``ms``
for the change from the reference to the target: ``+5%`` is 5 % more time than on the reference,
``-2 ms`` is 2 ms less. Times are per step if steps are marked on both sides. Metrics are
``gpu_time`` (from the first GPU start to the last GPU end), the parts of the GPU timeline by name
(``busy_time``, ``idle_time``, ...), the keys of the categories (``gemm``, ...) and ``op:NAME``, an
operator by name.
"""

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import polars as pl

from jarvis.comparison import Comparison
from jarvis.core.errors import RuleError
from jarvis.schemas.names import C
from jarvis.text.format import decimal, milliseconds, percent

GPU_TIME, TOTAL_TIME = "gpu_time", "total_time"
OPERATOR = "op:"

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_RULE = re.compile(
    rf"\s*(?P<metric>\S.*?)\s*(?P<sign>{'|'.join(_COMPARISONS)})\s*"
    r"(?P<threshold>[+-]?\s*(?:\d+(?:\.\d*)?|\.\d+))\s*(?P<unit>%|ms)\s*"
)
_MAX_OPERATORS_SHOWN = 10

Times = dict[str, tuple[float, float]]
"""The time of each metric on the reference and on the target, in ms."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A limit on the change of ``metric``; ``threshold`` is in percent or ms, by ``unit``."""

    text: str
    metric: str
    sign: str
    threshold: float
    unit: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a rule; raise RuleError if it is malformed."""
        match = _RULE.fullmatch(text)
        if match is None:
            raise RuleError(
                text, "write a metric, one of > >= < <=, and a number in % or ms: gpu_time > +5%"
            )
        threshold = float(match["threshold"].replace(" ", ""))
        return cls(text.strip(), match["metric"], match["sign"], threshold, match["unit"])

    def applied(self, times: Times, *, is_per_step: bool = False) -> "RuleResult":
        """Apply the rule to the result of ``metrics``; raise RuleError for an unknown metric."""
        if self.metric not in times:
            raise RuleError(self.text, f"there is no metric {self.metric!r}; {_known(times)}")
        reference_ms, target_ms = times[self.metric]
        change = target_ms - reference_ms
        if self.unit == "%":
            change = _percent(change, reference_ms)
        is_met = _COMPARISONS[self.sign](change, self.threshold)
        return RuleResult(self, reference_ms, target_ms, change, is_met, is_per_step)


@dataclass(frozen=True, slots=True)
class RuleResult:
    """Result of a rule; ``change`` is in its unit, and infinite if the reference time is 0.

    ``is_met``: the rule applies, so the build should fail.
    """

    rule: Rule
    reference_ms: float
    target_ms: float
    change: float
    is_met: bool
    is_per_step: bool = False

    def __str__(self) -> str:
        if math.isinf(self.change):
            by = "from nothing"
        else:
            in_unit = percent if self.rule.unit == "%" else milliseconds
            size = in_unit(abs(self.change))
            by = f"{'+' if self.change >= 0 else '-'}{size}"
        base = " per step" if self.is_per_step else ""
        verdict = "applies" if self.is_met else "does not apply"
        return (
            f"{self.rule.text}: {verdict} ({milliseconds(self.reference_ms)} on the reference, "
            f"{milliseconds(self.target_ms)} on the target{base}, {by})"
        )


def _percent(change: float, reference_ms: float) -> float:
    if reference_ms:
        return 100 * change / reference_ms
    return math.copysign(math.inf, change) if change else 0.0


def metrics(comparison: Comparison) -> Times:
    """Return the metrics of a comparison, per step if it ``has_steps``; missing work takes 0 ms."""
    columns = (C.reference_ms, C.target_ms)
    parts = {
        kind: (before or 0.0, after or 0.0)
        for kind, before, after in comparison.totals.select(C.type, *columns).iter_rows()
    }
    gpu = {GPU_TIME: parts[TOTAL_TIME]} if TOTAL_TIME in parts else {}
    categories = {
        key: (before or 0.0, after or 0.0)
        for key, before, after in comparison.categories.select(C.category, *columns).iter_rows()
    }
    times = {**gpu, **parts, **categories, **_operators(comparison)}
    steps = 1 if comparison.is_per_step else comparison.target.steps or 1
    if steps == 1 or not comparison.has_steps:
        return times
    return {name: (before / steps, after / steps) for name, (before, after) in times.items()}


def _operators(comparison: Comparison) -> Times:
    reference, target = (
        dict(
            side.rows("operations")
            .group_by(C.name)
            .agg(pl.col(C.kernel_time_us).sum() / 1e3)
            .iter_rows()
        )
        for side in (comparison.reference, comparison.target)
    )
    return {
        f"{OPERATOR}{name}": (reference.get(name, 0.0), target.get(name, 0.0))
        for name in {**reference, **target}
    }


def _known(times: Times) -> str:
    """Return a list of the metrics as text, with the operators that take most time."""
    operators = [name for name in times if name.startswith(OPERATOR)]
    operators.sort(key=lambda name: (-max(times[name]), name))
    others = [name for name in times if not name.startswith(OPERATOR)]
    rest = len(operators) - _MAX_OPERATORS_SHOWN
    more = f" and {decimal(rest)} more operators" if rest > 0 else ""
    return f"there are {', '.join([*others, *operators[:_MAX_OPERATORS_SHOWN]])}{more}"
