"""The GPU catalog: figures, sources, presets and the match from device names."""

import gzip
import itertools
import json
import math
from pathlib import Path

import pytest

from jarvis.core.errors import HardwareError, HardwareFileError, UnknownHardwareError
from jarvis.hardware import COMPUTE_KEYS, DEFAULT_PRESET, Hardware, HardwareSpec, load_hardware

ENTRY = """
[[gpu]]
name = "X1"
memory_gb = 16
mem_bw_gbps = 1000
max_achievable_tflops = { matrix_bf16 = 100 }
sources = { default = "a datasheet" }
"""


@pytest.fixture(scope="module")
def hardware() -> Hardware:
    return load_hardware()


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "gpus.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "gb_per_s", "bf16_tflops", "memory_gb"),
    [
        ("MI300X", 5300, 708, 192),
        ("MI325X", 6000, 708, 256),
        ("MI355X", 6500, 850, 288),
        ("MI400", 7000, 1000, 320),
        ("A100", 2000, 312, 80),
        ("H100 SXM", 3350, 990, 80),
        ("H200 SXM", 4800, 990, 141),
    ],
)
def test_the_default_preset_has_the_figures_of_the_reference_table(
    hardware: Hardware, name: str, gb_per_s: float, bf16_tflops: float, memory_gb: float
) -> None:
    spec = hardware.get(name)
    assert spec.preset == DEFAULT_PRESET
    assert spec.mem_bw_gbps == gb_per_s
    assert spec.peak_tflops("matrix_bf16") == bf16_tflops
    assert spec.memory_gb == memory_gb
    assert len(hardware.presets(name)) > 1, "the better-sourced figures are a second preset"


def test_mi300x_is_the_platform_that_tracelens_bundles(hardware: Hardware) -> None:
    assert hardware.get("MI300X").to_arch_json() == {
        "name": "MI300X",
        "mem_bw_gbps": 5300,
        "memory_gb": 192,
        "max_achievable_tflops": {
            "matrix_fp16": 654,
            "matrix_bf16": 708,
            "matrix_fp32": 163,
            "matrix_fp64": 81,
            "matrix_fp8": 1273,
            "matrix_int8": 2600,
            "vector_fp16": 163,
            "vector_bf16": 163,
            "vector_fp32": 81,
            "vector_fp64": 40,
        },
    }


def test_every_figure_has_a_source_and_default_presets_come_first(hardware: Hardware) -> None:
    for spec in hardware:
        assert set(spec.max_achievable_tflops) <= COMPUTE_KEYS
        for figure in spec.figures:
            assert spec.source_of(figure), f"{spec.title} {figure}"
    for name in hardware.names():
        assert hardware.presets(name)[0] == DEFAULT_PRESET
        assert len(hardware.get(name).aliases) >= 1, f"{name} has no device name"


def test_each_matrix_precision_is_a_multiple_of_the_wider_one(hardware: Hardware) -> None:
    """Detects sparse figures, swapped digits and rows of another GPU."""
    for spec in hardware:
        if spec.preset not in ("datasheet", DEFAULT_PRESET) or "MI3" in spec.name:
            continue
        ladder = ["matrix_tf32", "matrix_bf16", "matrix_fp8", "matrix_fp4"]
        peaks = [p for p in map(spec.peak_tflops, ladder) if p is not None]
        for slower, faster in itertools.pairwise(peaks):
            assert math.isclose(faster / slower, round(faster / slower), rel_tol=0.02), spec.title


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("AMD Instinct MI300X", "MI300X"),
        ("AMD Instinct MI300X VF", "MI300X"),
        ("AMD Instinct MI300X OAM", "MI300X"),
        ("AMD Instinct MI210", "MI210"),
        ("AMD Instinct MI250X", "MI250X"),
        ("AMD Instinct MI250X / MI250", "MI250"),
        ("AMD Instinct MI250X/MI250", "MI250"),
        ("AMD Instinct MI325X", "MI325X"),
        ("AMD Instinct MI355X", "MI355X"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H100 NVL", "H100 NVL"),
        ("NVIDIA H200", "H200 SXM"),
        ("NVIDIA H200 NVL", "H200 NVL"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A100-SXM4-40GB", "A100 SXM 40GB"),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe 80GB"),
        ("A100-SXM4-80GB", "A100"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA GB200", "GB200"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("Tesla V100-SXM2-32GB", "V100 SXM2 32GB"),
    ],
)
def test_device_names_of_traces_are_matched(hardware: Hardware, device: str, name: str) -> None:
    spec = hardware.match(device)
    assert spec is not None
    assert (spec.name, spec.preset) == (name, DEFAULT_PRESET)


@pytest.mark.parametrize(
    "device",
    [
        "",
        "NVIDIA",
        "NVIDIA H100",
        "NVIDIA GH200 480GB",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "AMD Instinct MI300X HF",
        "AMD Radeon Graphics",
    ],
)
def test_another_device_has_no_peaks(hardware: Hardware, device: str) -> None:
    assert hardware.match(device) is None


def test_devices_of_the_reference_traces_are_known(
    hardware: Hardware, reference_root: Path
) -> None:
    devices = set()
    for path in reference_root.glob("traces/*.json.gz"):
        trace = json.loads(gzip.decompress(path.read_bytes()))
        devices |= {device["name"] for device in trace["deviceProperties"]}
    assert devices
    assert all(hardware.match(device) for device in devices)


def test_names_aliases_and_presets_are_found_in_any_case(hardware: Hardware) -> None:
    assert hardware.get("mi300x") is hardware.get("AMD Instinct MI300X") is hardware.get("MI300X")
    better = hardware.get("mi325x", "achievable")
    assert (better.title, better.peak_tflops("matrix_bf16")) == ("MI325X (achievable)", 843)
    assert hardware.get("MI325X").title == "MI325X"


def test_unknown_names_and_presets_list_what_is_known(hardware: Hardware) -> None:
    with pytest.raises(UnknownHardwareError, match=r"Did you mean H100 SXM, H100 PCIe, H100 NVL\?"):
        load_hardware().get("h100")
    with pytest.raises(UnknownHardwareError, match=r"Unknown GPU 'MI9000'. Known: .*MI300X"):
        hardware.get("MI9000")
    with pytest.raises(UnknownHardwareError, match=r"A100 \(fast\).*Known: A100, A100 \(data"):
        hardware.get("A100", "fast")
    with pytest.raises(UnknownHardwareError):
        hardware.presets("MI9000")


def test_peaks_and_ridge_point(hardware: Hardware) -> None:
    spec = hardware.get("MI300X")
    assert spec.tb_per_s == pytest.approx(5.3)
    assert spec.ridge("matrix_bf16") == pytest.approx(133.58, abs=0.01)
    assert spec.peak_tflops("matrix_fp4") is None, "no precision stands in for another"
    assert spec.ridge("matrix_fp4") is None
    assert spec.source_of("matrix_fp4") is None
    assert "ROCm blog" in (spec.source_of("matrix_bf16") or "")


def test_arch_json_round_trip(hardware: Hardware) -> None:
    arch = json.loads(json.dumps(hardware.get("MI325X").to_arch_json()))
    spec = HardwareSpec.from_arch_json(arch)
    assert spec.to_arch_json() == arch
    assert spec.title == "MI325X (custom)"
    assert spec.source_of("mem_bw_gbps")


def test_an_invalid_arch_json_is_rejected() -> None:
    with pytest.raises(HardwareFileError, match="mem_bw_gbps"):
        HardwareSpec.from_arch_json({"name": "X1", "memory_gb": 1, "max_achievable_tflops": {}})


def test_a_gpu_may_lack_peaks(tmp_path: Path) -> None:
    text = ENTRY.replace("{ matrix_bf16 = 100 }", "{}")
    spec = load_hardware(written(tmp_path, text)).get("X1")
    assert spec.peak_tflops("matrix_bf16") is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (ENTRY + "mem_bandwidth = 3\n", "X1.*mem_bandwidth"),
        (ENTRY.replace("memory_gb", "memory_gib"), "X1.*memory_gib"),
        (ENTRY.replace("matrix_bf16", "matrix_bf61"), "X1.*matrix_bf61"),
        (ENTRY.replace("= 100 ", "= -1 "), "X1.*matrix_bf16"),
        (ENTRY.replace("= 100 ", "= nan "), "X1.*matrix_bf16"),
        (ENTRY.replace("default =", "matrix_bf16 ="), "X1.*no source for memory_gb"),
        (ENTRY.replace("default =", "default = 'a', matrix_fp4 ="), "X1.*matrix_fp4"),
        (ENTRY.replace('name = "X1"', ""), "without a name"),
        (ENTRY + ENTRY, "X1.*twice"),
        (ENTRY + ENTRY.replace('"X1"', '"X2"\naliases = ["x1"]'), "X2.*x1"),
        ("[[gpus]]\n", "gpus.toml"),
        ("not toml", "gpus.toml"),
    ],
)
def test_an_invalid_file_is_rejected_with_the_name_of_the_entry(
    tmp_path: Path, text: str, reason: str
) -> None:
    with pytest.raises(HardwareFileError, match=reason):
        load_hardware(written(tmp_path, text))


def test_a_missing_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(HardwareError, match=r"none\.toml"):
        load_hardware(tmp_path / "none.toml")


@pytest.mark.parametrize("key", ["name", "preset", "aliases", "sources"])
def test_an_unpaired_surrogate_is_rejected(key: str) -> None:
    half = {"aliases": ["\ud800"], "sources": {"default": "\ud800"}}.get(key, "\ud800")
    entry = {"name": "X100", "mem_bw_gbps": 3900.0, "memory_gb": 96, "max_achievable_tflops": {}}
    with pytest.raises(HardwareFileError):
        HardwareSpec.parse({**entry, "preset": "x", "sources": {"default": "y"}, key: half})
