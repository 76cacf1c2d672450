"""Measure the simulation of steps: building the graph, replays, and a change of the slider.

python -m benchmarks.simulation [--page FILE] [--hta PYTHON]

Traces are simulated training steps. Building includes all tables of the simulation, and is compared
with the whole analysis; replays are medians of RUNS. The last row repeats the graph of the largest
trace up to a million nodes. With the Python of an environment that has HolisticTraceAnalysis (and
pandas below 2.2), its critical path of one step of the same traces is measured beside.
"""

import argparse
import json
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np

from benchmarks.page import table, write_part
from benchmarks.pipeline import machine
from jarvis.changes import COMPUTE, AtRoofline, Work
from jarvis.pipeline import analyze
from jarvis.run import Run
from jarvis.sample import write_sample
from jarvis.simulation.changed_weights import Index
from jarvis.simulation.graph import Graph
from jarvis.simulation.path import replayed
from jarvis.simulation.simulation import Simulation
from jarvis.simulation.stored import simulation_tables
from jarvis.trace import read_trace

STEPS = (2, 30, 100)
RUNS = 50
MAX_NS_PER_NODE, MAX_CHANGE_MS = 15.0, 50.0
MAX_BUILD_US, MAX_BUILD_PCT = 1.5, 10.0
LARGE_NODES, MILLION = 5_000, 1_000_000


@dataclass(frozen=True)
class Measured:
    """The figures of one trace; times in seconds."""

    events: int
    nodes: int
    edges: int
    analysis_s: float
    tables_s: float
    replay_s: float
    change_s: float


def measure(steps: int, folder: Path) -> tuple[Measured, Graph]:
    """Return the figures of a simulated trace of some steps, and its graph."""
    path = write_sample(folder / f"{steps}.json.gz", steps=steps, world_size=1, scale="small")
    begin = perf_counter()
    analyze(path, output_dir=folder / f"run-{steps}")
    analysis_s = perf_counter() - begin
    trace = read_trace(path)
    _ = trace.call_tree, trace.launches
    simulation = Run.load(folder / f"run-{steps}").simulation
    graph = simulation.graph
    measured = Measured(
        events=trace.event_count,
        nodes=graph.time.size,
        edges=graph.src.size,
        analysis_s=analysis_s,
        tables_s=_timed(lambda: simulation_tables(trace), 3),
        replay_s=_timed(lambda: replayed(graph, graph.weight), RUNS),
        change_s=_change_s(simulation),
    )
    return measured, graph


def _change_s(simulation: Simulation) -> float:
    """Return the time of a new target of all operations, as a slider sets it."""
    targets = iter(np.linspace(50, 99, RUNS))

    def change() -> object:
        at_target = AtRoofline(work=Work(category=COMPUTE), target_pct=float(next(targets)))
        return simulation.saved_ns([at_target])

    return _timed(change, RUNS)


def repeated(graph: Graph, nodes: int) -> Graph:
    """Return copies of a graph one after the other, with at least that many nodes."""
    copies = -(-nodes // graph.time.size)
    number = np.arange(copies)
    offset = np.repeat(number, graph.src.size) * graph.time.size
    start_ns = np.repeat(number, graph.time.size) * (int(graph.time[-1]) + 1)
    kept = ("what", "uid", "thread", "device", "stream", "kind", "weight", "nominal")
    return replace(
        graph,
        time=np.tile(graph.time, copies) + start_ns,
        src=(np.tile(graph.src, copies) + offset).astype(np.int32),
        dst=(np.tile(graph.dst, copies) + offset).astype(np.int32),
        binding=np.tile(graph.binding, copies),
        inferred=np.tile(graph.inferred, copies),
        **{name: np.tile(getattr(graph, name), copies) for name in kept},
    )


def million(graph: Graph) -> tuple[int, float, float]:
    """Return the nodes of a repeated graph, and the seconds of a replay and of a change."""
    large = repeated(graph, MILLION)
    edges = Index(large).gpu_edge[1]

    def change() -> object:
        weights = large.weight.copy()
        weights[edges] = np.rint(weights[edges] * 0.5).astype(np.int64)
        return replayed(large, weights)

    replay_s = _timed(lambda: replayed(large, large.weight), 10)
    return large.time.size, replay_s, _timed(change, 10)


def _timed(action: Callable[[], object], runs: int) -> float:
    times = []
    for _ in range(runs):
        begin = perf_counter()
        action()
        times.append(perf_counter() - begin)
    return median(times)


def rows(steps: Sequence[int], folder: Path) -> list[list[str]]:
    """Return the rows of the table."""
    found = []
    graph = None
    for count in steps:
        measured, graph = measure(count, folder)
        building_pct = 100 * measured.tables_s / measured.analysis_s
        found.append(
            [
                f"{count} steps",
                f"{measured.events:,}",
                f"{measured.nodes:,}",
                f"{1e6 * measured.tables_s / measured.events:.2f}",
                f"{building_pct:.1f}",
                f"{1e3 * measured.replay_s:.2f}",
                f"{1e9 * measured.replay_s / measured.nodes:.1f}",
                f"{1e3 * measured.change_s:.1f}",
                _required(measured, building_pct),
            ]
        )
    if graph is not None:
        nodes, replay_s, change_s = million(graph)
        ok = "ok" if 1e3 * change_s <= MAX_CHANGE_MS else "missed"
        found.append(
            [
                "repeated",
                "",
                f"{nodes:,}",
                "",
                "",
                f"{1e3 * replay_s:.2f}",
                f"{1e9 * replay_s / nodes:.1f}",
                f"{1e3 * change_s:.1f}",
                f"change <= {MAX_CHANGE_MS:g} ms: {ok}",
            ]
        )
    return found


def _required(measured: Measured, building_pct: float) -> str:
    building_us = 1e6 * measured.tables_s / measured.events
    checks = {f"building <= {MAX_BUILD_PCT:g}% of the analysis": building_pct <= MAX_BUILD_PCT}
    if measured.nodes >= LARGE_NODES:
        checks[f"<= {MAX_BUILD_US} us an event"] = building_us <= MAX_BUILD_US
        ns_per_node = 1e9 * measured.replay_s / measured.nodes
        checks[f"replay <= {MAX_NS_PER_NODE:g} ns a node"] = ns_per_node <= MAX_NS_PER_NODE
    return ", ".join(f"{name}: {'ok' if ok else 'missed'}" for name, ok in checks.items())


HTA = """
import json, sys, time
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]})
begin = time.perf_counter()
graph, _ = analysis.critical_path_analysis(0, "ProfilerStep", 0)
built = time.perf_counter()
graph.critical_path()
print(json.dumps([graph.number_of_nodes(), built - begin, time.perf_counter() - built]))
"""
HTA_HEAD = ("trace, one step", "nodes", "building s", "path ms", "us a node")


def hta_rows(python: Path, steps: Sequence[int], folder: Path) -> list[list[str]]:
    """Return the figures of HolisticTraceAnalysis for one step of each trace."""
    found = []
    for count in steps:
        command = [python, "-c", HTA, folder / f"{count}.json.gz"]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        nodes, build_s, path_s = json.loads(output.splitlines()[-1])
        per_node = f"{1e6 * path_s / nodes:.1f}"
        found.append(
            [f"{count} steps", f"{nodes:,}", f"{build_s:.2f}", f"{1e3 * path_s:.1f}", per_node]
        )
    return found


HEAD = (
    "trace",
    "events",
    "nodes",
    "building us an event",
    "building, % of the analysis",
    "replay ms",
    "ns a node",
    "new target ms",
    "required",
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table, and write it to the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, help="write the table to this page")
    parser.add_argument("--steps", default=",".join(map(str, STEPS)))
    parser.add_argument("--hta", type=Path, help="Python with HolisticTraceAnalysis")
    given = parser.parse_args(arguments)
    steps = [int(count) for count in given.steps.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        parts = [table(HEAD, rows(steps, Path(folder)))]
        if given.hta:
            hta = hta_rows(given.hta, steps, Path(folder))
            parts.append(f"HolisticTraceAnalysis, in the same run:\n\n{table(HTA_HEAD, hta)}")
    part = "\n\n".join([*parts, machine()])
    print(part)
    if given.page:
        write_part(given.page, "simulation", part)


if __name__ == "__main__":
    main()
