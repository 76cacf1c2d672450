#!/usr/bin/env python3
"""Time the calls of a replay package: python batched_replay.py replay_ir.json [options].

Needs torch and the standard library, nothing else. Prints mean and median time in microseconds of
each call and the mean times the number of its calls in the trace; exits 1 where a call fails.
"""

import argparse
import json
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found]

WARM_UP = 50
ITERATIONS = 100
CALL_ERRORS = (RuntimeError, TypeError, ValueError, AttributeError, KeyError, MemoryError)


def main(argv: Sequence[str] | None = None) -> int:
    """Replay every chosen entry; the exit code."""
    options = _parser().parse_args(argv)
    if options.device == "cuda" and not torch.cuda.is_available():
        _say("No GPU is available to torch. Use --device cpu to try the calls.", sys.stderr)
        return 1
    entries = json.loads(options.repro_file.read_text(encoding="utf-8"))
    chosen = [entry for entry in entries if options.op_filter in entry["op_name"]]
    chosen = chosen[: options.op_limit]
    _say(f"{len(chosen)} of {len(entries)} calls on {options.device}")
    _say(f"{'mean µs':>12} {'median µs':>12} {'calls':>8} {'all calls ms':>13}  operator")
    total_ms, failures = 0.0, 0
    for entry in chosen:
        try:
            times_us = replay(entry, options.device)
        except CALL_ERRORS as error:
            failures += 1
            _say(f"failed: {_described(entry)}: {type(error).__name__}: {error}", sys.stderr)
            if options.verbose:
                traceback.print_exc()
            if options.stop_on_error:
                break
            continue
        total_ms += _report(entry, times_us, is_verbose=options.verbose)
    done = len(chosen) - failures
    _say(f"{done} calls replayed, {failures} failed; all calls of the trace: {total_ms:.3f} ms")
    return 1 if failures else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "repro_file",
        nargs="?",
        type=Path,
        default=Path(__file__).with_name("replay_ir.json"),
        help="list of calls (default: replay_ir.json beside this program)",
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="default: cuda")
    parser.add_argument("--op-filter", default="", help="only operators whose name contains this")
    parser.add_argument("--op-limit", type=int, help="only the first calls")
    parser.add_argument("--stop-on-error", action="store_true", help="stop at the first failure")
    parser.add_argument("-v", "--verbose", action="store_true", help="print arguments and errors")
    return parser


def replay(entry: dict[str, Any], device: str) -> list[float]:
    """Times of ITERATIONS calls of an entry in microseconds, after WARM_UP calls."""
    ir = entry["replay_ir"]
    args = [_argument(item, device) for item in ir["list_pos_args"]]
    kwargs = {item["arg_name"]: _argument(item, device) for item in ir["list_kwargs"]}
    operator = _operator(entry["op_name"])
    with torch.no_grad():
        for _ in range(WARM_UP):
            operator(*args, **kwargs)

        def call() -> None:
            operator(*args, **kwargs)

        return _on_gpu(call) if device == "cuda" else _on_cpu(call)


def _operator(name: str) -> Any:
    namespace, _, local = name.partition("::")
    return getattr(getattr(torch.ops, namespace), local)


def _argument(item: dict[str, Any], device: str) -> Any:
    value = item["value"]
    if isinstance(value, dict):
        return tensor(value, device)
    return float(value) if isinstance(value, str) else value  # infinity, which JSON lacks


def tensor(config: dict[str, Any], device: str) -> Any:
    """A tensor of the recorded shape, dtype and strides, also where elements share memory."""
    dtype = getattr(torch, config["dtype"])
    shape, strides = config["shape"], config["strides"]
    size = 0
    if all(shape):
        size = 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    return torch.as_strided(_filled(size, dtype, config, device), shape, strides)


def _filled(size: int, dtype: Any, config: dict[str, Any], device: str) -> Any:
    if config["init"] is None:
        return torch.empty(size, dtype=dtype, device=device)
    if config["init"] == "integers":
        return torch.randint(0, config["high"], (size,), device=device).to(dtype)
    if config["dtype"].startswith("complex"):
        return torch.randn(size, dtype=dtype, device=device)
    return torch.randn(size, dtype=torch.float32, device=device).to(dtype)


def _on_gpu(call: Callable[[], None]) -> list[float]:
    events = []
    torch.cuda.synchronize()
    for _ in range(ITERATIONS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        events.append((begin, end))
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) * 1000 for begin, end in events]


def _on_cpu(call: Callable[[], None]) -> list[float]:
    times_us = []
    for _ in range(ITERATIONS):
        begin = time.perf_counter_ns()
        call()
        times_us.append((time.perf_counter_ns() - begin) / 1000)
    return times_us


def _report(entry: dict[str, Any], times_us: list[float], *, is_verbose: bool) -> float:
    mean_us, count = statistics.fmean(times_us), int(entry.get("count", 1))
    all_ms = mean_us * count / 1000
    median_us = statistics.median(times_us)
    _say(f"{mean_us:12.2f} {median_us:12.2f} {count:8d} {all_ms:13.3f}  {_described(entry)}")
    if is_verbose:
        ir = entry["replay_ir"]
        for item in ir["list_pos_args"] + ir["list_kwargs"]:
            _say(f"{'':14}{item['arg_type']} {item['arg_name']} = {item['value']}")
    return all_ms


def _described(entry: dict[str, Any]) -> str:
    values = (item["value"] for item in entry["replay_ir"]["list_pos_args"])
    shapes = [str(value["shape"]) for value in values if isinstance(value, dict)]
    return f"{entry['op_name']} {' '.join(shapes)}"


def _say(line: str, stream: Any = None) -> None:
    (stream or sys.stdout).write(f"{line}\n")


if __name__ == "__main__":
    raise SystemExit(main())
