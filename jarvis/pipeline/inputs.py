"""The input of an analysis (a trace, a report or a stored run) and what the user chose for it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Protocol

import polars as pl

from jarvis.analyses import load_analyses
from jarvis.capture import captures_sha256
from jarvis.capture.tables import graph_tables
from jarvis.core.errors import HardwareFileError, NotReprojectableError, UnknownHardwareError
from jarvis.core.request import AnalysisRequest, Targets
from jarvis.extensions import Extensions, content_sha256
from jarvis.hardware import HardwareSpec, load_hardware
from jarvis.perf_models.model_config import read_model_config
from jarvis.perf_models.transformer import ServedModel
from jarvis.perf_report import CallPath
from jarvis.perf_report.serving.layer_operations import with_figures
from jarvis.perf_report.serving.rates import inference_phases
from jarvis.perf_report.serving.steps import with_bandwidth_of
from jarvis.pipeline.steps import IMPORT_STEPS, REPROJECTION_STEPS, STEPS
from jarvis.run import (
    Options,
    Run,
    main_call_paths,
)
from jarvis.schemas import conform
from jarvis.schemas.serving import CAPTURES
from jarvis.schemas.serving import TABLES as INFERENCE
from jarvis.simulation.stored import TABLES, SimulationInfo, not_simulated
from jarvis.text.format import counted, listed
from jarvis.trace import TraceInfo
from jarvis.trace_health import TABLE as HEALTH
from jarvis.trace_health import report_health, trace_health
from jarvis.tracelens.imported import ImportedReport
from jarvis.tracelens.report import TraceLensReport
from jarvis.tracelens.sheets import sheet_names
from jarvis.tracelens.stored_report import NEEDED, StoredReport


def read_arch_json(path: Path) -> HardwareSpec:
    """Return the GPU of a TraceLens architecture file; raise HardwareFileError if it is invalid."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise HardwareFileError(path.name, f"the file cannot be read ({error})") from error
    return HardwareSpec.parse_arch_json(content, path.name)


def chosen_options(request: AnalysisRequest, figures_sha256: str | None = None) -> Options:
    """Return the options of a run as stored, files by name and digest.

    Args:
        figures_sha256: Digest of the GPU's figures, if the id should depend on them.

    Raises:
        ValueError: The target is not a percentage above 0.
        CaptureError: ``capture_folder`` does not exist.
        ModelConfigError: ``served_model`` cannot be read.
        TargetsError: The targets of categories cannot be read, or one names an unknown category.
    """
    extension, arch = request.extension_file, request.arch_json
    captures, model = request.capture_folder, request.served_model
    targets = Targets.parse(request.target_pct, request.category_targets)
    if extension is None:
        targets.check([a.key for a in load_analyses().values() if a.tier == "compute"])
    return Options.of(
        request,
        extension_file=None if extension is None else extension.name,
        extension_sha256=None if extension is None else content_sha256(extension),
        gpu_arch_file=None if arch is None else arch.name,
        gpu_arch_sha256=figures_sha256 if arch is None else read_arch_json(arch).sha256,
        captures_name="" if captures is None else captures.name,
        captures_sha256="" if captures is None else captures_sha256([captures]),
        served_model_name="" if model is None else model.name,
        served_model_sha256="" if model is None else read_model_config(model).sha256,
    )


def read_served_model(
    path: Path | None, tensor_parallel: int, expert_parallel: int
) -> ServedModel | None:
    """Return the model of a ``config.json``; None without one.

    Raises:
        ModelConfigError: The file cannot be read.
    """
    if path is None:
        return None
    return ServedModel(read_model_config(path), tensor_parallel, expert_parallel)


def choose_hardware(
    info: TraceInfo,
    platform: str | None,
    preset: str | None,
    given: HardwareSpec | None = None,
) -> tuple[HardwareSpec | None, str | None]:
    """Return the hardware, and a warning unless it is that of the GPU that the trace names.

    Args:
        given: A description that needs no choice.

    Raises:
        UnknownHardwareError: The platform is unknown, or a preset is given without a GPU.
    """
    hardware = load_hardware()
    candidates = [spec.name for spec in hardware.candidates(info)]
    if platform is None and given is None:
        if len(candidates) != 1:
            if preset is not None:
                raise UnknownHardwareError(info.device_name or "(none)", hardware.names())
            return None, _unknown_gpu(info, candidates)
        chosen = hardware.get(candidates[0], preset)
        is_named = info.device_name is not None and hardware.match(info.device_name) is not None
        return chosen, None if is_named else _recognized_gpu(info, chosen)
    chosen = given or hardware.get(platform or "", preset)
    if chosen.name not in candidates and (candidates or info.device_name):
        device = (
            repr(info.device_name) if info.device_name else f"a GPU with {gpu_properties(info)}"
        )
        return chosen, (
            f"The trace was recorded on {device}, but the analysis uses the peaks of "
            f"{chosen.title}."
        )
    return chosen, None


def compute_units(info: TraceInfo, hardware: HardwareSpec | None) -> int | None:
    """Return the number of compute units of the GPU that ran the kernels, or None.

    By preference the recorded number, that of the recognized GPU, that of the chosen one.
    """
    if info.compute_units is not None:
        return info.compute_units
    known = load_hardware().recognize(info) or hardware
    return known.compute_units if known else None


def gpu_properties(info: TraceInfo) -> str:
    """Return the recorded compute units and memory of a GPU as text."""
    return (
        f"{counted(info.compute_units or 0, 'compute unit')} and "
        f"{(info.memory_bytes or 0) / 2**30:.0f} GB of memory"
    )


def _unrecognized_name(info: TraceInfo) -> str:
    if info.device_name:
        return f"No GPU named {info.device_name!r} is described"
    return f"The {info.form} does not name its GPU"


def _unknown_gpu(info: TraceInfo, candidates: list[str]) -> str:
    reason = _unrecognized_name(info)
    if not candidates:
        return f"{reason}, so no peaks are available. Name a GPU to get efficiencies."
    return (
        f"{reason}, and several known GPUs have {gpu_properties(info)}: "
        f"{listed(candidates, len(candidates))}. Name one of them to get efficiencies."
    )


def _recognized_gpu(info: TraceInfo, chosen: HardwareSpec) -> str:
    return (
        f"{_unrecognized_name(info)}. The analysis uses the peaks of {chosen.title}, the only "
        f"known GPU with {gpu_properties(info)}."
    )


def reprojected_options(
    run: Run,
    platform: str | None,
    preset: str | None,
    arch_json: Path | None = None,
    figures_sha256: str | None = None,
    target_pct: float | None = None,
    category_targets: str | None = None,
) -> Options:
    """Return the options of a run with other hardware, or with other targets.

    Targets alone leave the hardware unchanged; without them those of the run apply.
    ``figures_sha256`` as in ``chosen_options``.

    Raises:
        RunError: The run lacks tables of this version, or used a file with perf models, which a run
            does not store.
        ValueError: The target is not a percentage above 0.
    """
    manifest = run.manifest
    if manifest.options.extension_file is not None:
        raise NotReprojectableError(
            f"it was made with the perf models of {manifest.options.extension_file}, which it "
            "does not store"
        )
    if missing := [name for name in NEEDED if name not in manifest.tables]:
        raise NotReprojectableError(f"an older version made it, without {' and '.join(missing)}")
    target = manifest.options.target_pct if target_pct is None else target_pct
    own = manifest.options.category_targets if category_targets is None else category_targets
    if is_target_only(platform, preset, arch_json, target_pct, category_targets):
        return replace(manifest.options, target_pct=target, category_targets=own)
    request = AnalysisRequest.of(
        manifest.options,
        platform=platform,
        preset=preset,
        arch_json=arch_json,
        target_pct=target,
        category_targets=own,
    )
    return replace(
        chosen_options(request, figures_sha256),
        captures_name=manifest.options.captures_name,
        captures_sha256=manifest.options.captures_sha256,
        served_model_name=manifest.options.served_model_name,
        served_model_sha256=manifest.options.served_model_sha256,
    )


def is_target_only(
    platform: str | None,
    preset: str | None,
    arch_json: Path | None,
    target_pct: float | None,
    category_targets: str | None,
) -> bool:
    """Return whether only targets of a run change, not its hardware."""
    has_targets = target_pct is not None or category_targets is not None
    return has_targets and platform is None and preset is None and arch_json is None


Paths = Mapping[str, Mapping[int, CallPath]]
"""Call paths of the main operations, by category and uid."""


class AnalysisInput(Protocol):
    """A report with the chosen hardware, and the other data that a run stores.

    ``steps`` are those of the whole analysis. The properties are computed lazily.
    """

    steps: ClassVar[tuple[str, ...]]

    @property
    def report(self) -> TraceLensReport | StoredReport | ImportedReport:
        """Return the tables."""

    @property
    def info(self) -> TraceInfo:
        """Return the information that the trace, or the report in its place, has about itself."""

    @property
    def extensions(self) -> Extensions:
        """Return the analyses to run, and the notes and failures of extensions."""

    @property
    def sheets(self) -> tuple[str, ...]:
        """Return the names of the report's sheets, in order."""

    @property
    def health(self) -> pl.DataFrame:
        """Return the table of facts about the input."""

    @property
    def inference(self) -> Mapping[str, pl.DataFrame]:
        """Return the tables of inference: steps, phases, layers; replayed graphs with captures."""

    @property
    def simulated(self) -> Mapping[str, pl.DataFrame]:
        """Return the tables of the dependency graph."""

    @property
    def simulation(self) -> SimulationInfo | None:
        """Return what is known about the graph; None for a run of an earlier release."""

    def call_paths(self, classified: Mapping[str, pl.DataFrame]) -> Paths:
        """Return the call paths for the operations of each category."""


@dataclass(frozen=True, slots=True)
class TraceInput:
    """A trace that was just read."""

    report: TraceLensReport
    info: TraceInfo
    extensions: Extensions
    simulated: Mapping[str, pl.DataFrame]
    simulation: SimulationInfo | None
    steps: ClassVar[tuple[str, ...]] = STEPS

    @property
    def sheets(self) -> tuple[str, ...]:
        return tuple(sheet_names(self.report.sheet_tables()))

    @property
    def health(self) -> pl.DataFrame:
        return trace_health(self.report.trace)

    @property
    def inference(self) -> Mapping[str, pl.DataFrame]:
        """Return the tables of inference, if engines mark steps or graphs are replayed."""
        if not self.report.is_inference:
            return {}
        steps = {name: getattr(self.report, name) for name in INFERENCE}
        return {**steps, **graph_tables(self.report.trace, self.report.layers.events)}

    def call_paths(self, classified: Mapping[str, pl.DataFrame]) -> Paths:
        return main_call_paths(self.report, classified)


@dataclass(frozen=True, slots=True)
class ReportInput:
    """A performance report instead of a trace; it has no call paths."""

    report: ImportedReport
    info: TraceInfo
    extensions: Extensions
    steps: ClassVar[tuple[str, ...]] = IMPORT_STEPS

    @property
    def sheets(self) -> tuple[str, ...]:
        return tuple(sheet_names(self.report.sheets))

    @property
    def inference(self) -> Mapping[str, pl.DataFrame]:
        return {}

    @property
    def simulated(self) -> Mapping[str, pl.DataFrame]:
        return {}

    @property
    def simulation(self) -> SimulationInfo | None:
        return not_simulated("the input is a report, which has no events")

    @property
    def health(self) -> pl.DataFrame:
        return report_health(self.report)

    def call_paths(self, classified: Mapping[str, pl.DataFrame]) -> Paths:
        return {}


@dataclass(frozen=True, slots=True)
class StoredInput:
    """A stored run; everything independent of the hardware is used as stored."""

    report: StoredReport | ImportedReport
    run: Run
    extensions: Extensions
    steps: ClassVar[tuple[str, ...]] = REPROJECTION_STEPS

    @property
    def info(self) -> TraceInfo:
        return self.run.manifest.trace

    @property
    def sheets(self) -> tuple[str, ...]:
        return self.run.manifest.sheets

    @property
    def inference(self) -> Mapping[str, pl.DataFrame]:
        """Return the stored tables, with the rates for the peaks of the hardware."""
        stored = self.run.tables
        tables = {name: self.run.table(name) for name in (*INFERENCE, *CAPTURES) if name in stored}
        hardware = self.report.hardware
        if "inference_steps" in tables and hardware != self.run.manifest.hardware:
            steps = with_bandwidth_of(tables["inference_steps"], hardware)
            layers = with_figures(tables["inference_layers"], self.report.table("operations"))
            tables["inference_layers"] = conform(layers, "inference_layers")
            phases = inference_phases(steps, tables["inference_layers"])
            tables["inference_steps"] = steps
            tables["inference_phases"] = conform(phases, "inference_phases")
        return tables

    @property
    def simulated(self) -> Mapping[str, pl.DataFrame]:
        return {name: self.run.table(name) for name in TABLES if name in self.run.tables}

    @property
    def simulation(self) -> SimulationInfo | None:
        return self.run.manifest.simulation

    @property
    def health(self) -> pl.DataFrame:
        return self.run.table(HEALTH)

    def call_paths(self, classified: Mapping[str, pl.DataFrame]) -> Paths:
        return self.run.paths_by_category
