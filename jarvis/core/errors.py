"""Every error that Jarvis raises on purpose; each message says what happened and what to do.

JarvisError
├── TraceError          UnreadableTraceError · NotAProfilerTraceError · EmptyTraceError
│                       UnknownCallError · TooDeepError · TooManyOverlapsError
├── HardwareError       UnknownHardwareError · HardwareFileError
├── RegistrationError   a bad or duplicate analysis or perf model, raised at load
├── ExtensionFileError
├── RunError            NotARunError · UnknownRunError · UnknownReferenceError · RunVersionError
│                       MissingTableError · OutdatedRunError · OutputFolderError
├── UnreadableReportError · NotAReportError
├── NotComparableError · RuleError
└── ReplayError
"""

from collections.abc import Iterable
from pathlib import Path


class JarvisError(Exception):
    """What happened and what to do about it, in one sentence or two."""


class TraceError(JarvisError):
    """The trace cannot be used."""


class UnreadableTraceError(TraceError):
    """The file cannot be read or decoded."""

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(
            f"{path} cannot be read: {reason}. "
            "Give a Kineto trace of the PyTorch profiler as .json, .json.gz or .zip."
        )


class NotAProfilerTraceError(TraceError):
    """The file is something else than a trace of the PyTorch profiler."""

    def __init__(self, path: Path | str, found: str) -> None:
        super().__init__(
            f"{path} is not a trace of the PyTorch profiler: {found}. "
            "Export one with `prof.export_chrome_trace('trace.json.gz')`."
        )


class EmptyTraceError(TraceError):
    """The trace holds no event that could be analyzed."""

    def __init__(self, path: Path | str, *, is_cut: bool = False) -> None:
        if is_cut:
            super().__init__(
                f"{path} ends before the first event that could be analyzed. "
                "Copy or export the trace again, whole."
            )
            return
        super().__init__(
            f"{path} holds no GPU work and no CPU operators. Record it with "
            "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] around at least one step."
        )


class UnknownCallError(TraceError):
    """The trace has no such call."""

    def __init__(self, uid: int, file_name: str) -> None:
        super().__init__(
            f"{file_name} has no call {uid}: no host call and no GPU work has this uid. Take one "
            "from a column ex_UID or uid of the report, or look for a call by its name."
        )


class TooDeepError(TraceError):
    """Calls are nested so deep that the GPU work below each does not fit into memory."""

    def __init__(self, pairs: int) -> None:
        super().__init__(
            f"The calls of the trace are nested too deep: {pairs:,} pairs of a call and GPU work "
            "below it, many times more than a recording has. Record it again."
        )


class TooManyOverlapsError(TraceError):
    """So many GPU events run at the same time that their pairs do not fit into memory."""

    def __init__(self, pairs: int) -> None:
        super().__init__(
            f"{pairs:,} pairs of GPU events of the trace run at the same time, more than a report "
            "can list. Leave the overlap information out (--include-overlap-info)."
        )


class HardwareError(JarvisError):
    """The hardware description cannot be used."""


class UnknownHardwareError(HardwareError):
    """No entry of hardware.toml has this name."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        names = tuple(known)
        near = ", ".join(other for other in names if name.lower() in other.lower())
        super().__init__(
            f"No GPU named {name!r} is described. {f'Did you mean {near}? ' if near else ''}"
            f"Known: {', '.join(names)}. Add an entry to hardware.toml or choose one of these."
        )


class HardwareFileError(HardwareError):
    """An entry of a hardware file is malformed."""

    def __init__(self, entry: str, reason: str) -> None:
        super().__init__(f"Hardware entry {entry}: {reason}. Mend the entry and try again.")


class RegistrationError(JarvisError):
    """An analysis or a perf model is malformed or registered twice."""


class ExtensionFileError(JarvisError):
    """An extension file cannot be read at all."""

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(
            f"The extension file {path} cannot be read: {reason}. Give the path of a Python file."
        )


class RunError(JarvisError):
    """A run directory cannot be used."""


class NotARunError(RunError):
    """The folder is not a run directory."""

    def __init__(self, path: Path | str) -> None:
        super().__init__(
            f"{path} is not a run directory of Jarvis (it has no readable manifest.json). "
            "Make one with `jarvis analyze TRACE --output-dir DIR`."
        )


class UnknownRunError(RunError):
    """No run directory has this path, and no stored analysis this id."""

    def __init__(self, given: str) -> None:
        super().__init__(
            f"There is no analysis {given[:200]!r}: it is neither a run directory nor the id of a "
            "stored analysis. Make one with `jarvis analyze TRACE`, or with `--id` to keep it."
        )


class UnknownReferenceError(RunError):
    """The analysis to compare with is not there."""

    def __init__(self, given: str) -> None:
        super().__init__(
            f"There is no reference {given[:200]!r}: it was removed, comes from another server, or "
            "is no folder. Load it (`jarvis archive load FILE`), or analyze the trace with another "
            "reference or with none."
        )


class RunVersionError(RunError):
    """The run directory was written in another layout."""

    def __init__(self, found: int, expected: int) -> None:
        super().__init__(
            f"This analysis was written with layout {found}, this Jarvis reads layout {expected}. "
            "Analyze the trace again: links to it stay as they are."
        )


class NotReprojectableError(RunError):
    """A stored run cannot be judged against other hardware or another target without its trace."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"This analysis cannot be judged anew from what it stores: {reason}. Analyze the trace "
            "again, with the other hardware or target."
        )


class MissingTableError(RunError):
    """The run has no such table."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"The analysis has no table {name!r}: {why}.")


class OutdatedRunError(RunError):
    """The run lacks a table or column that runs of this version have."""

    def __init__(self, lacks: str, made_by: str) -> None:
        super().__init__(
            f"This analysis was made by an earlier Jarvis ({made_by}) and does not hold {lacks}. "
            "Analyze the trace again: links to it stay as they are."
        )


class OutputFolderError(RunError):
    """The output folder holds something that must not be overwritten."""

    def __init__(self, path: Path | str, holds: str) -> None:
        super().__init__(
            f"{path} already holds {holds}. Choose another folder (--output-dir on the command "
            "line), or remove it."
        )


class UnreadableReportError(JarvisError):
    """A performance report cannot be read back."""

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(
            f"{path} is not a readable report: {reason}. "
            "Give a workbook (.xlsx), or CSV files in a folder or a zip, as `jarvis report` or "
            "TraceLens write them."
        )


class NotAReportError(JarvisError):
    """The sheets are not those of a performance report."""

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(
            f"{path} is not a performance report of a PyTorch trace: {reason}. Give the workbook "
            "or the folder of CSV files that `jarvis report` or TraceLens wrote for one trace."
        )


class NotComparableError(JarvisError):
    """Reports cannot be set side by side as asked."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"The reports cannot be compared: {reason}.")


class RuleError(JarvisError):
    """A rule to fail on is not understood, or is about something that is not there."""

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(f"The rule {rule!r} cannot be applied: {reason}.")


class ReplayError(JarvisError):
    """An operation cannot be packaged for replay."""
