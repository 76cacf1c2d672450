"""Exceptions that Jarvis raises deliberately; each message states the problem and the remedy.

JarvisError
├── TraceError          UnreadableTraceError · NotAProfilerTraceError · EmptyTraceError
│                       UnknownCallError · TooDeepError · TooManyOverlapsError
├── HardwareError       UnknownHardwareError · HardwareFileError
├── TargetsError
├── RegistrationError   a bad or duplicate analysis or perf model, raised at load
├── ExtensionFileError
├── RunError            NotARunError · UnknownRunError · UnknownReferenceError · RunVersionError
│                       NotReprojectableError · MissingTableError · OutdatedRunError
│                       NotSimulatedError · OtherTraceError · OutputFolderError
├── ChangeError
├── UnreadableReportError · NotAReportError
├── NotComparableError · RuleError
└── ReplayError
"""

from collections.abc import Iterable
from pathlib import Path


class JarvisError(Exception):
    """Base class; the message says in one or two sentences what happened and what to do."""


class TraceError(JarvisError):
    """The trace cannot be used."""


class UnreadableTraceError(TraceError):
    """The file cannot be read or decoded."""

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(
            f"{path} cannot be read: {reason}. "
            "Use a Kineto trace of the PyTorch profiler as .json, .json.gz or .zip."
        )


class NotAProfilerTraceError(TraceError):
    """The file is not a trace of the PyTorch profiler."""

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(
            f"{path} is not a trace of the PyTorch profiler: {reason}. "
            "Export one with `prof.export_chrome_trace('trace.json.gz')`."
        )


class EmptyTraceError(TraceError):
    """The trace contains no event that can be analyzed."""

    def __init__(self, path: Path | str, *, is_cut: bool = False) -> None:
        if is_cut:
            super().__init__(
                f"{path} ends before the first event that can be analyzed. "
                "Copy or export the complete trace again."
            )
            return
        super().__init__(
            f"{path} contains no GPU work and no CPU operators. Record it with "
            "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] around at least one step."
        )


class UnknownCallError(TraceError):
    """The trace has no call with this uid."""

    def __init__(self, uid: int, file_name: str) -> None:
        super().__init__(
            f"{file_name} has no call {uid}: no host call and no GPU work has this uid. Use a uid "
            "from a column ex_UID or uid of the report, or search for a call by name."
        )


class TooDeepError(TraceError):
    """Calls are nested so deeply that the pairs of a call and its GPU work exceed memory."""

    def __init__(self, pairs: int) -> None:
        super().__init__(
            f"The calls of the trace are nested too deeply: {pairs:,} pairs of a call and GPU work "
            "below it, many times more than real recordings have. Record the trace again."
        )


class TooManyOverlapsError(TraceError):
    """So many GPU events overlap that their pairs exceed memory."""

    def __init__(self, pairs: int) -> None:
        super().__init__(
            f"{pairs:,} pairs of GPU events in the trace overlap, more than a report can list. "
            "Omit the overlap information (--include-overlap-info)."
        )


class HardwareError(JarvisError):
    """The hardware description cannot be used."""


class UnknownHardwareError(HardwareError):
    """No entry of hardware.toml has this name."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        names = tuple(known)
        near = ", ".join(other for other in names if name.lower() in other.lower())
        super().__init__(
            f"Unknown GPU {name!r}. {f'Did you mean {near}? ' if near else ''}"
            f"Known: {', '.join(names)}. Add an entry to hardware.toml or choose one of these."
        )


class HardwareFileError(HardwareError):
    """An entry of a hardware file is malformed."""

    def __init__(self, entry: str, reason: str) -> None:
        super().__init__(f"Hardware entry {entry}: {reason}. Fix the entry and try again.")


class TargetsError(JarvisError):
    """The targets of categories cannot be read."""

    def __init__(self, why: str) -> None:
        super().__init__(f"Cannot use these targets of categories: {why}.")


class ModelConfigError(JarvisError):
    """The ``config.json`` of a model cannot be used."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"The model configuration cannot be used: {reason}. Give the config.json of a "
            "transformer in the format of Hugging Face."
        )


class StepSelectionError(JarvisError):
    """Inference steps cannot be selected."""

    def __init__(self, why: str) -> None:
        super().__init__(f"Cannot select these steps: {why}.")


class RegistrationError(JarvisError):
    """An analysis or a perf model is malformed or registered twice."""


class ExtensionFileError(JarvisError):
    """An extension file cannot be read."""

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(
            f"The extension file {path} cannot be read: {reason}. Pass the path of a Python file."
        )


class RunError(JarvisError):
    """A run directory cannot be used."""


class NotARunError(RunError):
    """The folder is not a run directory."""

    def __init__(self, path: Path | str) -> None:
        super().__init__(
            f"{path} is not a run directory of Jarvis (it has no readable manifest.json). "
            "Create one with `jarvis analyze TRACE --output-dir DIR`."
        )


class DistributedRunError(RunError):
    """The folder is a distributed run, where the run of one rank is needed."""

    def __init__(self, path: Path | str) -> None:
        super().__init__(
            f"{path} is a distributed run. Name the run of one of its ranks, such as "
            f"{Path(path) / 'members' / 'rank_0'}."
        )


class NotDistributedError(RunError):
    """The folder is the run of one trace, where a distributed run is needed."""

    def __init__(self, path: Path | str) -> None:
        super().__init__(
            f"{path} is the analysis of one trace. Analyze the traces of several ranks together: "
            "`jarvis analyze FOLDER`."
        )


class UnknownRunError(RunError):
    """There is neither a run directory at this path nor a stored analysis with this id."""

    def __init__(self, given: str) -> None:
        super().__init__(
            f"There is no analysis {given[:200]!r}: it is neither a run directory nor the id of a "
            "stored analysis. Create one with `jarvis analyze TRACE`; add `--id` to store it."
        )


class UnknownReferenceError(RunError):
    """The reference analysis does not exist."""

    def __init__(self, given: str) -> None:
        super().__init__(
            f"There is no reference {given[:200]!r}: it was removed, comes from another server, or "
            "is not a folder. Load it (`jarvis archive load FILE`), or analyze the trace with "
            "another reference or without one."
        )


class RunVersionError(RunError):
    """The run directory has another layout version."""

    def __init__(self, version: int, expected: int) -> None:
        super().__init__(
            f"This analysis has layout {version}, but this Jarvis reads layout {expected}. "
            "Analyze the trace again; existing links stay valid."
        )


class NotReprojectableError(RunError):
    """A stored run cannot be re-projected onto other hardware or another target."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"This analysis cannot be re-projected from its stored data: {reason}. Analyze the "
            "trace again with the other hardware or target."
        )


class MissingTableError(RunError):
    """The run has no table of this name."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"The analysis has no table {name!r}: {why}.")


class OutdatedRunError(RunError):
    """The run lacks a table or column that runs of this version have."""

    def __init__(self, missing: str, made_by: str) -> None:
        super().__init__(
            f"This analysis was made by an earlier Jarvis ({made_by}) and lacks {missing}. "
            "Analyze the trace again; existing links stay valid."
        )


class NotSimulatedError(RunError):
    """The step times of a run cannot be simulated."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"Step time not simulated: {reason}.")


class RemovedRanksError(RunError):
    """The analyses of ranks of a distributed run were removed."""

    def __init__(self, ranks: str) -> None:
        super().__init__(
            f"The analyses of these ranks were removed: {ranks}. Analyze their traces again."
        )


class ChangeError(JarvisError):
    """A change of a step is unknown or not possible in this trace."""


class OtherTraceError(RunError):
    """A given trace is not the one that a run was made from."""

    def __init__(self, path: Path | str, recorded: str) -> None:
        super().__init__(
            f"{path} is not the trace of this analysis, which was made from {recorded}. Give that "
            "file, or leave it out."
        )


class RankChoiceError(RunError):
    """A chosen rank is not one that can be shown."""


class TooLargeTraceError(RunError):
    """The trace of several ranks is too large to be opened."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(
            f"The trace of these ranks has more than {max_bytes / 1e6:,.0f} MB. Choose fewer ranks."
        )


class OutputFolderError(RunError):
    """The output folder contains something that must not be overwritten."""

    def __init__(self, path: Path | str, content: str) -> None:
        super().__init__(
            f"{path} already contains {content}. Choose another folder (--output-dir on the "
            "command line), or remove it."
        )


class UnreadableReportError(JarvisError):
    """A performance report cannot be read."""

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(
            f"{path} is not a readable report: {reason}. "
            "Use a workbook (.xlsx), or CSV files in a folder or a zip, as `jarvis report` or "
            "TraceLens write them."
        )


class NotAReportError(JarvisError):
    """The sheets are not those of a performance report."""

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(
            f"{path} is not a performance report of a PyTorch trace: {reason}. Use the workbook "
            "or the folder of CSV files that `jarvis report` or TraceLens wrote for one trace."
        )


class NotComparableError(JarvisError):
    """The reports cannot be compared."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"The reports cannot be compared: {reason}.")


class RuleError(JarvisError):
    """A fail-on rule is malformed or refers to something unknown."""

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(f"The rule {rule!r} cannot be applied: {reason}.")


class ReplayError(JarvisError):
    """An operation cannot be packaged for replay."""
