"""Mutated GPU descriptions: JSON, TOML in the home, and the form."""

import copy
import json
import os
import random
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from jarvis.core.errors import HardwareError
from jarvis.core.workspace import HOME_VARIABLE
from jarvis.hardware import HardwareSpec, load_hardware
from tests.fuzz.commands import run, run_well
from tests.fuzz.reading import mutated
from tests.fuzz.traces import seeds, write_trace
from tests.fuzz.values import change

TRACED_EVERY = 20
"""Every n-th usable description also analyzes a trace."""

ARCH = {
    "name": "X100",
    "mem_bw_gbps": 3900.0,
    "memory_gb": 96,
    "compute_units": 128,
    "architecture": "gfx942",
    "max_achievable_tflops": {"matrix_bf16": 708.5, "matrix_fp8": 1200, "vector_fp32": 60.0},
}
ENTRY = {**ARCH, "preset": "custom", "aliases": ["X100 OAM"], "sources": {"default": "datasheet"}}


def fuzz(count: int, seed: int, folder: Path) -> Counter[str]:
    """Pass ``count`` mutated descriptions by each way; accepted ones must be usable."""
    outcomes: Counter[str] = Counter()
    for number in range(seed, seed + count):
        draw, place = random.Random(number), folder / str(number)
        (place / "hardware").mkdir(parents=True)
        with patch.dict(os.environ, {HOME_VARIABLE: str(place)}):
            outcomes[_by_file(draw, place, is_traced=number % TRACED_EVERY == 0)] += 1
            outcomes[_by_form(draw, place)] += 1
            _by_toml(draw, place)
    return outcomes


def _changed(description: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    changed = copy.deepcopy(description)
    for _ in range(draw.choice((1, 1, 2, 4))):
        change(changed, draw)
    return changed


def _by_file(draw: random.Random, folder: Path, *, is_traced: bool) -> str:
    file = folder / "gpu.json"
    text = json.dumps(_changed(ARCH, draw)).encode()
    file.write_bytes(mutated(text, draw) if draw.random() < 0.3 else text)
    if run("hardware", "check", file).code:
        assert run("hardware", "add", file).code
        return "file: refused with a sentence"
    if run("hardware", "add", file).code:
        return "file: refused with a sentence"
    _check_stored(folder)
    if is_traced:
        trace, root = write_trace(seeds()[0], folder / "trace.json"), folder / "run"
        run_well("analyze", trace, "--gpu-arch-json-path", file, "--output-dir", root)
        run_well("validate", root)
    for stored in (folder / "hardware").iterdir():
        stored.unlink()
    return "file: taken"


def _check_stored(folder: Path) -> None:
    """Check that a stored description is read without a warning, shown and removed."""
    hardware = load_hardware()
    assert not hardware.failures, hardware.failures
    (spec,) = [s for s in hardware if hardware.custom_file(s) is not None]
    assert [p.parent for p in (folder / "hardware").iterdir()] == [folder / "hardware"]
    run_well("hardware", "show", f"--preset={spec.preset}", "--", spec.name)


def _by_form(draw: random.Random, folder: Path) -> str:
    try:
        spec = HardwareSpec.parse(_changed(ENTRY, draw))
    except HardwareError:
        return "form: refused with a sentence"
    (folder / "hardware" / "form.toml").write_text(spec.to_toml(), encoding="utf-8")
    hardware = load_hardware()
    with suppress(HardwareError):
        load_hardware().check_new(spec)
        assert spec.sha256 in [other.sha256 for other in hardware], hardware.failures
    (folder / "hardware" / "form.toml").unlink()
    return "form: taken"


def _by_toml(draw: random.Random, folder: Path) -> None:
    """Check that a damaged file in the home gives a warning and ends no command."""
    text = HardwareSpec.parse(ENTRY).to_toml().encode()
    (folder / "hardware" / "x.toml").write_bytes(mutated(text, draw))
    run_well("hardware", "list")
