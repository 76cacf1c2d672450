"""Findings about calls that are slower on the target than the hardware explains."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from jarvis import impact
from jarvis.comparison import basis as names
from jarvis.comparison.basis import FindingInput
from jarvis.comparison.expected import roofline_us
from jarvis.comparison.matching import MatchedBy
from jarvis.comparison.messages import MESSAGES
from jarvis.comparison.outcomes import Outcome
from jarvis.comparison.sides import Role
from jarvis.findings import EvidenceValue, Finding, Impact, OpRef
from jarvis.schemas.names import C
from jarvis.text.format import arguments, quoted
from jarvis.text.markdown import shortened
from jarvis.text.messages import Message

SLOWER_THAN_HARDWARE = "slower_than_hardware"

FUSED_CATEGORIES = ("elementwise", "reduce", "batchnorm")
"""Categories of operators whose memory traffic fusion reduces."""

MIN_EXTRA_LAUNCHES = 0.5
"""Launches of a call that the target has more than the reference: not only in some calls."""

MIN_EXTRA_PART = 0.1
"""Part of the time that is not explained which additional kernels take, to be named."""

ARGUMENTS_LENGTH = 75
"""Characters of the arguments in a title."""


@dataclass(frozen=True)
class Slower:
    """Calls of one operator that are slower than the hardware explains, largest gap first."""

    inputs: FindingInput
    rows: pl.DataFrame

    @cached_property
    def first(self) -> dict[str, Any]:
        return self.rows.row(0, named=True)

    @cached_property
    def time_ms(self) -> float:
        return float(self.rows[C.target_ms].sum())

    @cached_property
    def reference_ms(self) -> float:
        """Time of the reference for as many calls."""
        return float(self.rows.select((pl.col(C.target_ms) / pl.col(C.time_ratio)).sum()).item())

    @cached_property
    def attainable_ms(self) -> float:
        return float(self.rows[C.attainable_ms].sum())

    @cached_property
    def unexplained_ms(self) -> float:
        return float(self.rows[C.unexplained_ms].sum())

    @cached_property
    def gain(self) -> Impact:
        """Savings: at best down to the attainable time, at least down to the tolerated time."""
        rest = pl.col(C.target_ms) - self.inputs.tolerance * pl.col(C.attainable_ms)
        low_ms = float(self.rows.select(rest.clip(lower_bound=0.0).sum()).item())
        return impact.bounded_impact(
            self.time_ms,
            self.unexplained_ms,
            low_ms=low_ms,
            compute_ms=self.inputs.compute_ms,
            total_ms=self.inputs.total_ms,
            efficiency_pct=impact.share_pct(self.attainable_ms, self.time_ms),
        )

    @cached_property
    def arguments(self) -> str | None:
        return arguments(self.first[C.input_dims], self.first[C.input_types])

    @cached_property
    def values(self) -> dict[str, Any]:
        """Values of the messages."""
        first = self.first
        return {
            "subject": self.subject,
            "name": first[C.name],
            "reference_name": first[C.reference_name],
            "kernel": first[C.kernel] or first[C.name],
            "place": self.place,
            "call": MESSAGES("call", arguments=self.arguments)
            if self.arguments
            else MESSAGES("call.at", place=self.place),
            "calls": int(self.rows[C.target_calls].sum()),
            "launches": _whole(first[C.launches_per_call]),
            "reference_launches": _whole(first[C.reference_launches_per_call]),
            "target_us": first[C.target_us_per_call],
            "reference_us": first[C.reference_us_per_call],
            "time_ms": self.time_ms,
            "reference_ms": self.reference_ms,
            "change": _change(self._against_reference(self.time_ms)),
            "dtype": first[C.dtype],
            "reference_dtype": first[C.reference_dtype],
            "attainable_ms": self.attainable_ms,
            "unexplained_ms": self.unexplained_ms,
            "compared": self._compared(),
            "efficiency_pct": first[C.reference_efficiency_pct],
            "extra": self.extra,
        }

    @cached_property
    def extra(self) -> Message | None:
        """Return the kernels besides the longest, if the target launches more than the reference
        for the call with the largest gap."""
        launches = self.first[C.launches_per_call], self.first[C.reference_launches_per_call]
        if None in launches or launches[0] - launches[1] < MIN_EXTRA_LAUNCHES:
            return None
        of_call = (pl.col(C.pair) == self.first[C.pair]) & (pl.col(C.side) == Role.TARGET.value)
        others = self.inputs.lowering.filter(of_call)[1:]
        calls_ms = float(others[C.us_per_call].sum()) * self.first[C.target_calls] / 1e3
        if calls_ms < MIN_EXTRA_PART * self.first[C.unexplained_ms]:
            return None
        return MESSAGES(
            "extra",
            kernels=others[C.kernel].to_list(),
            kernels_us=float(others[C.us_per_call].sum()),
            launches=_whole(launches[0]),
            reference_launches=_whole(launches[1]),
        )

    @cached_property
    def subject(self) -> Message:
        """Return the operator with the arguments that the numbers of the finding cover."""
        first = self.first
        values = {
            "name": first[C.name],
            "place": self.place,
            "arguments": self.arguments and shortened(self.arguments, ARGUMENTS_LENGTH),
            "count": self.rows.height,
            "of": self.inputs.argument_lists.get(first[C.name], 0),
        }
        if first[C.matched_by] != MatchedBy.ARGUMENTS.value:
            key = "subject.place" if first[C.place] else "subject"
        elif self.rows.height == 1:
            key = "subject.arguments" if self.arguments else "subject"
        else:
            key = "subject.all" if values["count"] == values["of"] else "subject.some"
        return MESSAGES.pick(key, values)

    @cached_property
    def place(self) -> str:
        return str(self.first[C.place] or self.first[C.name])

    @property
    def _has_known_bound(self) -> bool:
        bounds = self.first[C.bound], self.first[C.reference_bound]
        return all(bound in ("memory", "compute") for bound in bounds)

    @property
    def _is_tiny(self) -> bool:
        rooflines = (roofline_us(self.first, role) for role in Role)
        return any(us is not None and us < impact.TINY_ROOFLINE_US for us in rooflines)

    @cached_property
    def is_much(self) -> bool:
        return bool((self.rows[C.outcome] == Outcome.MUCH_SLOWER.value).any())

    @property
    def is_one_gpu(self) -> bool:
        """Whether both sides ran on the same GPU, so that it explains nothing."""
        ratios = self.inputs.paired.ratios
        return ratios is not None and ratios.is_same

    @property
    def check(self) -> str:
        return SLOWER_THAN_HARDWARE

    @property
    def kind(self) -> str:
        """Last part of its message keys."""
        return "slower"

    @property
    def title(self) -> Message:
        key = "title.much_slower" if self.is_much else "title.slower"
        return self._message(f"{key}.one_gpu" if self.is_one_gpu else key)

    def _message(self, key: str) -> Message:
        return MESSAGES.pick(key, self.values)

    def finding(self) -> Finding:
        first = self.first
        uids = sorted({uid for row in self.rows[C.uids] for uid in row})
        described = self.rows.unique(C.uid, keep="first", maintain_order=True)
        chosen = tuple(
            OpRef(
                uid=row[C.uid],
                name=row[C.name],
                input_dims=row[C.input_dims],
                operation_count=row[C.target_calls],
            )
            for row in described.iter_rows(named=True)
        )
        heaviest = {reference.uid for reference in chosen}
        return Finding(
            check=self.check,
            category=first[C.category] or "",
            title=self.title,
            operations=chosen,
            shared_uids=tuple(uid for uid in uids if uid not in heaviest),
            evidence=self._evidence(),
            issue=self._issue(),
            algorithmic=self._algorithmic(),
            kernel=self._kernel(),
            impact=self.gain,
            hypothesis=self._hypothesis(),
            caveat=self._caveat(),
            verify=self._message("verify.slower"),
            capture=self._capture(),
            **self.inputs.priorities(
                first[C.category],
                self.gain,
                set(uids),
                efficiency_pct=self.gain.efficiency_pct,
            ),
        )

    def _issue(self) -> Message:
        is_in_subject = self.kind == "slower" and self.subject.id == MESSAGES.id(
            "subject.arguments"
        )
        return self._message("issue.slower.one" if is_in_subject else f"issue.{self.kind}")

    def _algorithmic(self) -> Message:
        if self.extra is not None:
            values = {**self.values, **self.extra.values}
            return MESSAGES.pick("algorithmic.extra_kernels", values)
        is_fusible = self.first[C.category] in FUSED_CATEGORIES
        return self._message("algorithmic.fusible" if is_fusible else "algorithmic.slower")

    def _capture(self) -> Message:
        is_one_name = self.first[C.name] == self.first[C.reference_name]
        is_elsewhere = self.kind == "slower" and not is_one_name
        return self._message("capture.slower.place" if is_elsewhere else f"capture.{self.kind}")

    def _evidence(self) -> dict[str, EvidenceValue | None]:
        return {
            names.CALLS: int(self.rows[C.target_calls].sum()),
            "gpu_time_ms": self.time_ms,
            names.REFERENCE_TIME: self.reference_ms,
            names.SLOWER_PCT: self._against_reference(self.time_ms),
            names.EXPECTED_PCT: self._against_reference(self.attainable_ms),
            names.ATTAINABLE_TIME: self.attainable_ms,
            names.UNEXPLAINED_TIME: self.unexplained_ms,
            names.SHARE_PCT: impact.share_pct(self.time_ms, self.inputs.compute_ms),
            names.ARGUMENTS: self.arguments,
            names.LAUNCHES: self.first[C.launches_per_call],
            names.REFERENCE_LAUNCHES: self.first[C.reference_launches_per_call],
            names.KERNEL: self.first[C.kernel],
            names.REFERENCE_KERNEL: self.first[C.reference_kernel],
        }

    def _against_reference(self, time_ms: float) -> float:
        return 100 * (time_ms - self.reference_ms) / self.reference_ms

    def _compared(self) -> Message:
        return MESSAGES(
            "compared",
            change=_change(self._against_reference(self.time_ms)),
            reference_ms=self.reference_ms,
            explained=self._explained(),
        )

    def _explained(self) -> Message | None:
        if self.first[C.expected_ratio_most] is None:
            return None
        if self.is_one_gpu:
            return MESSAGES("explained.one_gpu")
        if math.isclose(self.attainable_ms, self.reference_ms):
            return MESSAGES("explained.nothing")
        change = _change(self._against_reference(self.attainable_ms))
        return MESSAGES("explained", attainable_ms=self.attainable_ms, change=change)

    def _kernel(self) -> Message:
        kernel, reference = self.first[C.kernel], self.first[C.reference_kernel]
        if kernel is None:
            return self._message("kernel.unknown")
        other = None
        if kernel == reference:
            other = MESSAGES("kernel.same")
        elif reference is not None:
            key = "kernel.variant" if quoted(kernel) == quoted(reference) else "kernel.other"
            other = MESSAGES.pick(key, {"kernel": reference})
        return MESSAGES("kernel.slower", call=self.values["call"], kernel=kernel, reference=other)

    def _hypothesis(self) -> Message | None:
        if self.first[C.same_kernels]:
            return MESSAGES("hypothesis.same_kernels")
        return MESSAGES("hypothesis.much_slower" if self.is_much else "hypothesis.slower")

    def _caveat(self) -> list[Message]:
        first = self.first
        keys = []
        if first[C.matched_by] != MatchedBy.ARGUMENTS.value:
            keys.append("caveat.by_place" if first[C.place] else "caveat.by_dimensions")
        is_short = first[C.expected_ratio] is None and self._has_known_bound
        is_one_type = first[C.reference_dtype] in (None, first[C.dtype])
        if first[C.expected_ratio_most] is None:
            keys.append("caveat.nothing_expected" if is_one_type else "caveat.other_type")
        elif self._is_tiny and not self.is_one_gpu:
            keys.append("caveat.tiny")
        elif is_short:
            keys.append("caveat.launching")
        elif first[C.expected_ratio] is None:
            keys.append("caveat.bound_unknown")
        if first[C.is_roofline_capped]:
            keys.append("caveat.roofline")
        reached = first[C.reference_efficiency_pct]
        is_bound = not (is_short or self._is_tiny or self.is_one_gpu)
        if is_bound and reached is not None and reached < impact.BOTTLENECK_EFFICIENCY_PCT:
            keys.append("caveat.reference_low")
        return [self._message(key) for key in keys]


def _whole(launches: float | None) -> float | None:
    """Return launches per call with one decimal, as an integer if they are whole."""
    rounded = None if launches is None else round(launches, 1)
    return int(rounded) if rounded is not None and rounded.is_integer() else rounded


def _change(change_pct: float) -> Message:
    """Return the message ``12.3% longer`` or ``12.3% shorter``."""
    key = "change.longer" if change_pct > 0 else "change.shorter"
    return MESSAGES(key, change_pct=abs(change_pct))
