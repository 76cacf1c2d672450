"""Check of a run against the last runs of its project: is it slower than their noise explains?

The noise of a time is NOISE_DEVIATIONS robust standard deviations of the baseline runs: their
median absolute deviation from the median, times DEVIATION_FACTOR, which makes it equal the standard
deviation of normally distributed times (Rousseeuw and Croux, 1993). One outlier among five runs
does not change it much.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from jarvis.impact import RELEVANT_STEP_PCT, share_pct
from jarvis.run.figures import RunFigures
from jarvis.run.manifest import Manifest
from jarvis.text.format import counted

LAST_RUNS = 5
"""Default number of baseline runs."""

MIN_RUNS = 3
"""With fewer baseline runs, the noise is not known: only the threshold applies."""

THRESHOLD_PCT = 5.0
"""Default increase over the median that is tolerated, in percent of the median."""

NOISE_DEVIATIONS = 3.0
DEVIATION_FACTOR = 1.4826

STEP_TIME = "step_time"


@dataclass(frozen=True, slots=True)
class TimeCheck:
    """A time of the run in ms, per step, against those of the baseline.

    ``noise_ms`` is None with fewer than MIN_RUNS baseline runs. ``limit_ms`` is the median plus the
    larger one of the noise and the threshold.
    """

    key: str
    title: str
    time_ms: float
    median_ms: float
    noise_ms: float | None
    limit_ms: float
    is_slower: bool

    @property
    def change_ms(self) -> float:
        """Return how much longer than the median it takes."""
        return self.time_ms - self.median_ms

    @property
    def change_pct(self) -> float | None:
        """Return the change in percent of the median; None if that is 0."""
        return share_pct(self.change_ms, self.median_ms) if self.median_ms else None


@dataclass(frozen=True, slots=True)
class BaselineCheck:
    """The checks of a run: of its step time, and of its categories and other parts."""

    step: TimeCheck
    parts: tuple[TimeCheck, ...]
    threshold_pct: float
    has_noise: bool

    @property
    def is_slower(self) -> bool:
        """Return whether the run is slower than the baseline; only the step time decides."""
        return self.step.is_slower


def check_run(
    run: RunFigures, baseline: Sequence[RunFigures], threshold_pct: float = THRESHOLD_PCT
) -> BaselineCheck:
    """Return the check of a run against at least one baseline run.

    The parts that are slower come first, then by change. A part is slower if it exceeds its limit,
    and its median by RELEVANT_STEP_PCT of the median step time: short parts vary more. A run
    without a category takes no time in it.
    """
    step_ms = [each.time_ms for each in baseline]
    step = _check(STEP_TIME, "Step time", run.time_ms, step_ms, threshold_pct)
    relevant_ms = RELEVANT_STEP_PCT / 100 * step.median_ms
    titles: dict[str, str] = {}
    for each in (*baseline, run):
        titles |= each.titles
    parts = [
        _check(
            key,
            title,
            run.times_ms.get(key, 0.0),
            [each.times_ms.get(key, 0.0) for each in baseline],
            threshold_pct,
            relevant_ms,
        )
        for key, title in titles.items()
    ]
    parts.sort(key=lambda part: (not part.is_slower, -part.change_ms, part.key))
    has_noise = len(baseline) >= MIN_RUNS
    return BaselineCheck(step, tuple(parts), threshold_pct, has_noise)


def _check(
    key: str,
    title: str,
    time_ms: float,
    baseline_ms: Sequence[float],
    threshold_pct: float,
    relevant_ms: float = 0.0,
) -> TimeCheck:
    middle_ms = median(baseline_ms)
    noise_ms = None
    if len(baseline_ms) >= MIN_RUNS:
        deviation_ms = median(abs(each - middle_ms) for each in baseline_ms)
        noise_ms = NOISE_DEVIATIONS * DEVIATION_FACTOR * deviation_ms
    limit_ms = middle_ms + max(noise_ms or 0.0, threshold_pct / 100 * middle_ms)
    is_slower = time_ms > limit_ms and time_ms - middle_ms >= relevant_ms
    return TimeCheck(key, title, time_ms, middle_ms, noise_ms, limit_ms, is_slower)


def incomparable_reason(run: Manifest, other: Manifest) -> str | None:
    """Return why the times of two runs do not compare; None if they do.

    Model names and ranks count only if both runs have them.
    """
    if (difference := next(differences(run, other), None)) is not None:
        return difference
    basis, other_basis = RunFigures.of(run).basis, RunFigures.of(other).basis
    return None if basis is other_basis else f"with the time of a {other_basis.value}"


def differences(run: Manifest, other: Manifest) -> Iterator[str]:
    """Yield how GPU, model and ranks of ``other`` differ, as phrases about it."""
    gpu, other_gpu = RunFigures.of(run).gpu, RunFigures.of(other).gpu
    if gpu != other_gpu:
        yield f"recorded on {other_gpu or 'an unknown GPU'}"
    if run.model_name and other.model_name and run.model_name != other.model_name:
        yield f"of the model {other.model_name}"
    ranks, other_ranks = run.trace.world_size, other.trace.world_size
    if ranks and other_ranks and ranks != other_ranks:
        yield f"of {counted(other_ranks, 'rank')}"
