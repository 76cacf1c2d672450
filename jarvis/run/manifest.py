"""The manifest of a run: input, hardware, options and outcome."""

import hashlib
from dataclasses import fields
from typing import Annotated, Any, Self

import orjson
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    model_serializer,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass

from jarvis.analyses.base import AnalysisManifest
from jarvis.core.request import PERCENTAGE, AnalysisOptions
from jarvis.core.workspace import SCHEMA_VERSION
from jarvis.findings import Finding, Priority, Status, Tier
from jarvis.hardware import HardwareSpec
from jarvis.perf_report import Totals
from jarvis.simulation.stored import SimulationInfo
from jarvis.text.messages import to_text
from jarvis.trace import TraceInfo

ID_LENGTH = 12
ID_STEP = 4

TargetPct = Annotated[float, Field(**PERCENTAGE)]
"""A target efficiency, in percent of the roofline."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


@pydantic_dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Options(AnalysisOptions):
    """The options of a run, files by name and digest.

    ``gpu_arch_sha256`` is the digest of a GPU's description. Without a description file, it
    separates analyses with other figures under the same names. Defaults other than None are
    omitted, so manifests and ids of runs with defaults equal those of releases without the option.
    """

    extension_file: str | None = None
    extension_sha256: str | None = None
    gpu_arch_file: str | None = None
    gpu_arch_sha256: str | None = None
    captures_name: str = ""
    captures_sha256: str = ""
    served_model_name: str = ""
    served_model_sha256: str = ""
    tensor_parallel: int = 1
    expert_parallel: int = 1

    @model_serializer(mode="wrap")
    def _without_defaults(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = serialize(self)
        defaults = {f.name: f.default for f in fields(Options)}
        return {k: v for k, v in written.items() if v is None or v != defaults.get(k)}


class TopOperation(_Frozen):
    """One of the launching operators with most GPU time, across all categories.

    ``uid`` is its heaviest row of the operations table, ``operation_uids`` are all of them; the
    fields from ``category`` on are None or empty if no row could be joined.
    """

    rank: int
    name: str
    time_ms: float
    count: int
    percent_of_compute: float | None
    percent_of_total: float | None
    category: str | None = None
    bound: str | None = None
    efficiency_pct: float | None = None
    flops_per_byte: float | None = None
    has_perf_model: bool | None = None
    uid: int | None = None
    operation_uids: tuple[int, ...] = ()


class CategorySummary(_Frozen):
    """Summary of one analysis."""

    key: str
    title: str
    tier: Tier
    status: Status
    row_count: int
    gpu_time_ms: float
    percent_of_compute: float | None
    efficiency_pct: float | None
    finding_count: int


class TopFinding(_Frozen):
    """The finding that saves most: its category, its title as text, and the step time saved."""

    category: str
    title: str
    priority: Priority
    gain_ms: float | None

    @classmethod
    def of(cls, finding: Finding) -> Self:
        """Return what a manifest has of a finding."""
        return cls(
            category=finding.category,
            title=to_text(finding.title),
            priority=finding.priority,
            gain_ms=None if finding.impact is None else finding.impact.gain_ms,
        )


class PerfModelFailure(_Frozen):
    """An operation whose perf model raised an error."""

    name: str
    input_dims: str | None
    reason: str


class Manifest(_Frozen):
    """Everything about a run except its tables and findings.

    ``created`` is UTC in ISO format, ``sheets`` the report's sheets in order, ``tables`` every
    stored table. ``platform_warning`` says that the chosen GPU is not the trace's, that it was
    recognized by its properties only, or that none is known; ``load_failures`` why analyses of
    other packages are missing. ``extension_notes`` and ``extension_failures`` are sentences about
    effects and errors of extensions; ``added_analyses`` describe third-party analyses.
    ``absent_tables`` are those without rows because the input lacks their data, with the missing
    information. ``simulation`` is None in runs from before step times were simulated, and
    ``top_finding`` in runs without findings and in those from before it was stored. ``main_module``
    is the outermost module with most of the GPU time, if the trace has modules.
    """

    schema_version: int = SCHEMA_VERSION
    jarvis_version: str
    created: str
    analysis_id: str
    model_name: str | None
    trace: TraceInfo
    hardware: HardwareSpec | None
    platform_warning: str | None
    options: Options
    reference: str | None
    totals: Totals
    top_operations: tuple[TopOperation, ...]
    categories: tuple[CategorySummary, ...]
    perf_model_failures: tuple[PerfModelFailure, ...] = ()
    load_failures: dict[str, str] = {}
    extension_notes: tuple[str, ...] = ()
    extension_failures: tuple[str, ...] = ()
    added_analyses: tuple[AnalysisManifest, ...] = ()
    sheets: tuple[str, ...]
    tables: tuple[str, ...]
    absent_tables: dict[str, str] = {}
    simulation: SimulationInfo | None = None
    top_finding: TopFinding | None = None
    main_module: str | None = None


def analysis_id(trace_sha256: str, options: Options) -> str:
    """Return the short id, equal for equal traces and options."""
    return analysis_ids(trace_sha256, options)[0]


def analysis_ids(trace_sha256: str, options: Options) -> tuple[str, ...]:
    """Return the possible ids of an analysis, the short one first.

    Longer ones are for collisions. Only explicit options count: an option added by a later version
    must not change the ids in links.
    """
    written = TypeAdapter(type(options)).dump_python(options, exclude_none=True)
    chosen = orjson.dumps(written, option=orjson.OPT_SORT_KEYS)
    digest = hashlib.sha256(trace_sha256.encode() + chosen).hexdigest()
    return tuple(digest[:length] for length in range(ID_LENGTH, len(digest) + 1, ID_STEP))
