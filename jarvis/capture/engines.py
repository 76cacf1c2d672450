"""Inference engines: how to recognize them in a trace, and how to record their graph captures."""

from dataclasses import dataclass

import polars as pl


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine, and how it records captures and steps (Markdown).

    ``folder`` is part of the paths of its Python files.
    """

    name: str
    folder: str
    capture: str
    step: str


ENGINES = (
    Engine(
        "vLLM",
        "vllm",
        "`--profiler-config.capture_torch_profiler True` at start; the folder is `capture_traces` "
        "in the profiler's folder",
        "`--profiler-config.profiler torch`, with `torch_profiler_record_shapes` and "
        "`detailed_trace_annotation`",
    ),
    Engine(
        "SGLang",
        "sglang",
        "`--enable-profile-cuda-graph` at start, from 0.5.13 on with "
        "`SGLANG_GRAPH_BATCH_CAPTURE=1` in the environment",
        "a profile request with `detailed_annotations=True`",
    ),
    Engine(
        "ATOM",
        "atom",
        "`--mark-trace` at start; the folder is `capture_traces`",
        "`--torch-profiler-dir DIR`, with `ATOM_PROFILER_MORE=1` and "
        "`ATOM_ENABLE_DETAILED_ANNOTATION=1`",
    ),
    Engine("xDiT", "xfuser", "`--profile_capture_phase`", "`--profile`"),
)
OWN_CODE = Engine(
    "own PyTorch code",
    "",
    "`torch.profiler` with `record_shapes` and `with_stack` around `torch.cuda.graph(...)`",
    "`torch.profiler` around the replays",
)


def engine_of(frames: pl.Series) -> Engine:
    """Return the engine of most of these Python frames; ``OWN_CODE`` if they are of none."""
    counts = {
        engine: frames.str.contains(f"/{engine.folder}/", literal=True).sum() for engine in ENGINES
    }
    best = max(ENGINES, key=lambda engine: counts[engine])
    return best if counts[best] else OWN_CODE
