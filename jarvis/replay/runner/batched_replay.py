#!/usr/bin/env python3
"""Time the calls of a replay package: python batched_replay.py replay_ir.json [options].

Needs only torch and the standard library. Prints for each call mean and median time in
microseconds, the resulting arithmetic and bytes per second, and the mean times the number of its
calls in the trace; exits with code 1 if a call fails.
"""

import argparse
import json
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found]
from replay_arguments import (  # type: ignore[import-not-found]
    Values,
    arguments,
    described,
    size_bytes,
    tensors,
)
from replay_equivalents import EQUIVALENTS, has_kernel  # type: ignore[import-not-found]

WARM_UP = 50
ITERATIONS = 100
CALL_ERRORS = (
    RuntimeError,
    TypeError,
    ValueError,
    AttributeError,
    LookupError,
    ArithmeticError,
    AssertionError,
    MemoryError,
)
REPLAYED, EQUIVALENT, SKIPPED, FAILED = "replayed", "replayed by an equivalent", "skipped", "failed"


def main(argv: Sequence[str] | None = None) -> int:
    """Replay every selected entry; return the exit code."""
    options = _parser().parse_args(argv)
    if options.device == "cuda" and not torch.cuda.is_available():
        _say("No GPU is available to torch. Use --device cpu to try the calls.", sys.stderr)
        return 1
    entries = json.loads(options.repro_file.read_text(encoding="utf-8"))
    chosen = [entry for entry in entries if options.op_filter in entry["op_name"]]
    chosen = chosen[: options.op_limit]
    if not options.json:
        _say(f"{len(chosen)} of {len(entries)} calls on {_device_name(options.device)}")
        _say(_HEAD)
    results = []
    for entry in chosen:
        results.append(result := replay(entry, options))
        if not options.json:
            _print_result(entry, result, is_verbose=options.verbose)
        if options.stop_on_error and result["status"] == FAILED:
            break
    if options.json:
        device = _device_name(options.device)
        document = {"device": device, "torch": torch.__version__, "calls": results}
        _say(json.dumps(document, indent=2))
    else:
        _print_summary(chosen, results, options.device)
    return 1 if any(result["status"] == FAILED for result in results) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add(
        "repro_file",
        nargs="?",
        type=Path,
        default=Path(__file__).with_name("replay_ir.json"),
        help="list of calls (default: replay_ir.json next to this program)",
    )
    add(
        "--device",
        choices=("cuda", "cpu"),
        default="cuda",
        help="default: cuda, any GPU that torch supports",
    )
    add("--op-filter", default="", help="only operators whose name contains this")
    add("--op-limit", type=int, help="only the first calls")
    add("--warmup", type=int, default=WARM_UP, help=f"calls before timing (default: {WARM_UP})")
    add("--iterations", type=int, default=ITERATIONS, help=f"timed calls (default: {ITERATIONS})")
    add("--memory-limit", type=float, metavar="GB", help="skip calls with larger arguments")
    add("--work-limit", type=float, metavar="GFLOP", help="skip calls with more arithmetic")
    add("--stop-on-error", action="store_true", help="stop at the first failure")
    add("--json", action="store_true", help="print the results as JSON")
    add("-v", "--verbose", action="store_true", help="print arguments and errors")
    return parser


def replay(entry: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Run one call; return its ``status``, its ``reason`` if not plainly replayed, and its times in
    µs."""
    result: dict[str, Any] = {"op_name": entry["op_name"], "shapes": _shapes(entry)}
    if reason := _too_large(entry, options):
        return {**result, "status": SKIPPED, "reason": reason}
    try:
        values = arguments(entry["replay_ir"], options.device)
        call, equivalent = _call(entry, values, options.device)
        with torch.no_grad():
            times_us = _timed(call, options)
    except CALL_ERRORS as error:
        if options.verbose:
            traceback.print_exc()
        return {**result, "status": FAILED, "reason": f"{type(error).__name__}: {error}"}
    if equivalent:
        reason = (
            f"{equivalent} instead: this device has no kernel for the call; times do not compare"
        )
        return {**result, "status": EQUIVALENT, "reason": reason}
    return {**result, "status": REPLAYED, **_figures(entry, times_us, options.device)}


def _too_large(entry: dict[str, Any], options: argparse.Namespace) -> str | None:
    given = described(entry["replay_ir"])
    gigabytes = sum(size_bytes(each) for item in given for each in tensors(item["value"])) / 1e9
    if options.memory_limit is not None and gigabytes > options.memory_limit:
        return f"its arguments take {gigabytes:.2f} GB"
    gigaflops = (entry.get("flops") or 0) / 1e9
    if options.work_limit is not None and gigaflops > options.work_limit:
        return f"it computes {gigaflops:.0f} GFLOP"
    return None


def _call(entry: dict[str, Any], values: Values, device: str) -> tuple[Callable[[], Any], str]:
    """Return what to time, and the name of the equivalent if the operator has no kernel here."""
    ir, name = entry["replay_ir"], entry["op_name"]
    if name in EQUIVALENTS and not has_kernel(name, ir.get("overload", ""), device, values):
        equivalent, function = EQUIVALENTS[name]
        return partial(function, values), equivalent
    positional = [values[item["arg_name"]] for item in ir["list_pos_args"]]
    keywords = {item["arg_name"]: values[item["arg_name"]] for item in ir["list_kwargs"]}
    return partial(_operator(name, ir.get("overload", "")), *positional, **keywords), ""


def _operator(name: str, overload: str) -> Any:
    namespace, _, local = name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), local)
    # Another release may use other overload names; then the arguments decide.
    return getattr(packet, overload or "default", packet)


def _timed(call: Callable[[], Any], options: argparse.Namespace) -> list[float]:
    """Return the microseconds of each timed call."""
    for _ in range(options.warmup):
        call()
    time_calls = _on_gpu if options.device == "cuda" else _on_cpu
    return time_calls(call, max(1, options.iterations))


def _on_gpu(call: Callable[[], Any], iterations: int) -> list[float]:
    events = []
    torch.cuda.synchronize()
    for _ in range(iterations):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        events.append((begin, end))
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) * 1000 for begin, end in events]


def _on_cpu(call: Callable[[], Any], iterations: int) -> list[float]:
    times_us = []
    for _ in range(iterations):
        begin = time.perf_counter_ns()
        call()
        times_us.append((time.perf_counter_ns() - begin) / 1000)
    return times_us


def _figures(entry: dict[str, Any], times_us: list[float], device: str) -> dict[str, Any]:
    """Return times and rates of a call; comparisons with a GPU are null on the CPU."""
    mean_us, count = statistics.fmean(times_us), int(entry.get("count", 1))
    trace_us = entry.get("trace_kernel_time_us") if device == "cuda" else None
    roofline_us = roofline_time_us(entry) if device == "cuda" else None
    return {
        "mean_us": mean_us,
        "median_us": statistics.median(times_us),
        "count": count,
        "all_calls_ms": mean_us * count / 1000,
        "tflops_per_s": _rate(entry.get("flops"), mean_us),
        "tb_per_s": _rate(entry.get("bytes"), mean_us),
        "pct_roofline": 100 * roofline_us / mean_us if roofline_us and mean_us else None,
        "trace_us": trace_us,
        "pct_of_trace": 100 * mean_us / trace_us if trace_us else None,
    }


def roofline_time_us(entry: Mapping[str, Any]) -> float | None:
    """Return the roofline time of a call on the GPU of the trace; None if a peak is not known."""
    flops, moved = entry.get("flops"), entry.get("bytes")
    peak_tflops, peak_tb_per_s = entry.get("peak_tflops"), entry.get("peak_tb_per_s")
    if moved is None or not peak_tb_per_s or (flops and not peak_tflops):
        return None
    compute_us = float(flops / peak_tflops / 1e6) if flops else 0.0
    return max(compute_us, float(moved / peak_tb_per_s / 1e6))


def _rate(quantity: float | None, time_us: float) -> float | None:
    """Return the rate per second in units of 10^12."""
    return quantity / time_us / 1e6 if quantity is not None and time_us else None


_COLUMNS = (
    ("mean_us", "mean µs", 11, ".2f"),
    ("median_us", "median µs", 11, ".2f"),
    ("tflops_per_s", "TFLOP/s", 9, ".2f"),
    ("tb_per_s", "TB/s", 8, ".3f"),
    ("pct_roofline", "roofline", 9, ".1f%"),
    ("trace_us", "trace µs", 11, ".2f"),
    ("pct_of_trace", "of trace", 9, ".0f%"),
    ("count", "calls", 8, "d"),
    ("all_calls_ms", "all calls ms", 13, ".3f"),
)
_HEAD = "".join(f"{label:>{width}}" for _, label, width, _ in _COLUMNS) + "  operator"


def _print_result(entry: dict[str, Any], result: dict[str, Any], *, is_verbose: bool) -> None:
    title = f"{entry['op_name']} {' '.join(map(str, result['shapes']))}"
    if result["status"] == REPLAYED:
        _say("".join(_cells(result)) + f"  {title}")
    else:
        stream = sys.stderr if result["status"] == FAILED else sys.stdout
        _say(f"{result['status']}: {title}: {result['reason']}", stream)
    if is_verbose:
        for item in described(entry["replay_ir"]):
            _say(f"{'':14}{item['arg_type']} {item['arg_name']} = {item['value']}")


def _cells(result: dict[str, Any]) -> Iterator[str]:
    for key, _, width, form in _COLUMNS:
        value = result[key]
        unit = "%" if form.endswith("%") else ""
        text = "-" if value is None else f"{value:{form.removesuffix('%')}}{unit}"
        yield f" {text:>{width - 1}}"


def _print_summary(
    chosen: list[dict[str, Any]], results: list[dict[str, Any]], device: str
) -> None:
    counts = {s: sum(r["status"] == s for r in results) for s in _STATUSES}
    summary = [f"{counts[REPLAYED]} calls replayed", f"{counts[FAILED]} failed"]
    summary += [f"{counts[s]} {s}" for s in (EQUIVALENT, SKIPPED) if counts[s]]
    timed = [result for result in results if result["status"] == REPLAYED]
    total_ms = sum(result["all_calls_ms"] for result in timed)
    _say(f"{', '.join(summary)}; all calls of the trace: {total_ms:.3f} ms")
    compared = [result for result in timed if result["trace_us"]]
    if compared:
        here_ms = sum(result["all_calls_ms"] for result in compared)
        trace_ms = sum(result["trace_us"] * result["count"] / 1000 for result in compared)
        _say(f"Kernels of the same calls in the trace: {trace_ms:.3f} ms; here {here_ms:.3f} ms")
    if device == "cuda" and chosen:
        peaks_of, gpu = (chosen[0].get(key) or "unknown" for key in ("peaks_of", "gpu"))
        _say(f"Roofline of {peaks_of}, trace of {gpu}; this is {_device_name(device)}")


_STATUSES = (REPLAYED, EQUIVALENT, SKIPPED, FAILED)


def _device_name(device: str) -> str:
    return str(torch.cuda.get_device_name()) if device == "cuda" else "the CPU"


def _shapes(entry: dict[str, Any]) -> list[list[int]]:
    given = entry["replay_ir"]["list_pos_args"]
    return [each["shape"] for item in given for each in tensors(item["value"])]


def _say(line: str, stream: Any = None) -> None:
    (stream or sys.stdout).write(f"{line}\n")


if __name__ == "__main__":
    raise SystemExit(main())
