"""The GPU catalog: figures, sources, presets and the match from device names."""

import gzip
import hashlib
import itertools
import json
import math
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from jarvis.core.errors import HardwareError, HardwareFileError, UnknownHardwareError
from jarvis.hardware import (
    COMPUTE_KEYS,
    DEFAULT_PRESET,
    Hardware,
    HardwareSpec,
    load_hardware,
    peak_label,
)

ARCH_KEYS = {"name", "mem_bw_gbps", "memory_gb", "max_achievable_tflops"}
"""Keys of TraceLens's ``--gpu_arch_json_path``."""

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
    assert hardware.get("MI300X").model_dump(include=ARCH_KEYS) == {
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
        ("Tesla V100-PCIE-32GB", "V100 PCIe 32GB"),
        ("A100-PG509-200", "A100 SXM 40GB"),
        ("NVIDIA A100-PG509-200", "A100 SXM 40GB"),
        ("NVIDIA PG509-210", "A100"),
        ("NVIDIA A800-SXM4-80GB", "A800 SXM 80GB"),
        ("NVIDIA A800 80GB PCIe", "A800 PCIe 80GB"),
        ("NVIDIA H800", "H800 SXM"),
        ("NVIDIA H800 PCIe", "H800 PCIe"),
        ("NVIDIA H20", "H20"),
        ("NVIDIA GH200 480GB", "GH200 96GB"),
        ("NVIDIA GH200 144G HBM3e", "GH200 144GB"),
        ("NVIDIA L40S", "L40S"),
        ("AMD Instinct MI308X", "MI308X"),
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
        "NVIDIA H20-3e",
        "NVIDIA A100-SXM-64GB",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "AMD Instinct MI300X HF",
        "AMD Radeon Graphics",
    ],
)
def test_another_device_has_no_peaks(hardware: Hardware, device: str) -> None:
    assert hardware.match(device) is None


def test_parts_for_some_markets_have_their_own_figures(hardware: Hardware) -> None:
    h800, h100 = hardware.get("H800 SXM"), hardware.get("H100 SXM", "datasheet")
    assert (h800.peak_tflops("vector_fp64"), h100.peak_tflops("vector_fp64")) == (1, 33.5)
    assert hardware.get("H20").peak_tflops("matrix_bf16") == 148
    assert hardware.get("MI308X").compute_units == 80
    assert hardware.get("MI308X").max_achievable_tflops == {}, "AMD publishes none"


def test_every_released_gpu_has_its_properties(hardware: Hardware) -> None:
    for spec in hardware:
        if spec.name == "MI400":
            assert spec.compute_units is None
            continue
        assert spec.compute_units, spec.title
        assert spec.architecture, spec.title
        default = hardware.get(spec.name)
        assert spec.compute_units == default.compute_units, spec.title
        assert spec.architecture == default.architecture, spec.title


GIB = 2**30


@dataclass(frozen=True)
class Device:
    """The recorded properties of a GPU; by default those of the MI300X of a reference trace."""

    device_name: str | None = None
    compute_units: int | None = 304
    memory_bytes: int | None = 206141652992
    warp_size: int | None = 64
    compute_capability: tuple[int, int] | None = (9, 4)


H100 = Device("NVIDIA H100 80GB HBM3", 132, 85018279936, 32, (9, 0))
T4 = Device(None, 40, 15655829504, 32, (7, 5))


@pytest.mark.parametrize(
    ("device", "names"),
    [
        (Device(), ["MI300X"]),
        (Device("AMD Instinct MI300X HF"), ["MI300X"]),
        (Device(memory_bytes=205571227648), ["MI300X"]),
        (Device(warp_size=None, compute_capability=None), ["MI300X"]),
        (H100, ["H100 SXM"]),
        (replace(H100, device_name=None), ["H100 SXM", "H800 SXM"]),
        (replace(H100, device_name=None, memory_bytes=99456909312), ["H100 NVL"]),
        (T4, ["T4"]),
        (Device(None, 104, 68702699520, 64, (9, 0)), ["MI210", "MI250"]),
        (Device(memory_bytes=None), []),
        (Device(compute_units=None), []),
        (Device(compute_units=303), []),
        (Device(memory_bytes=96 * GIB), []),
        (Device(memory_bytes=200 * GIB), []),
        (Device(warp_size=32), []),
        (Device(compute_capability=(9, 5)), []),
        (Device("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 16, 10 * GIB, 32, (9, 0)), []),
        (Device(None, None, None, None, None), []),
    ],
)
def test_a_gpu_is_recognized_by_name_or_else_by_its_properties(
    hardware: Hardware, device: Device, names: list[str]
) -> None:
    candidates = hardware.candidates(device)
    assert [spec.name for spec in candidates] == names
    assert all(spec.preset == DEFAULT_PRESET for spec in candidates)
    recognized = hardware.recognize(device)
    assert recognized == (candidates[0] if len(candidates) == 1 else None)


def test_only_other_memory_than_hbm_may_lose_a_tenth(hardware: Hardware) -> None:
    """Error-correcting codes take memory of a T4; 93% of an H100 is another GPU."""
    assert T4.memory_bytes is not None
    assert T4.memory_bytes / GIB / hardware.get("T4").memory_gb == pytest.approx(0.911, abs=1e-3)
    smaller = replace(H100, device_name=None, memory_bytes=74 * GIB)
    assert hardware.candidates(smaller) == ()


def test_a_recognized_gpu_needs_no_option(hardware: Hardware) -> None:
    assert hardware.choice(hardware.get("MI300X"), Device()) == (None, None)
    assert hardware.choice(hardware.get("MI300X", "datasheet"), Device()) == (None, "datasheet")
    assert hardware.choice(hardware.get("H100 SXM"), Device()) == ("H100 SXM", None)
    unnamed = replace(H100, device_name=None)
    assert hardware.choice(hardware.get("H100 SXM"), unnamed) == ("H100 SXM", None)


def test_a_description_of_an_older_version_is_current_and_has_its_digest(
    hardware: Hardware, tmp_path: Path
) -> None:
    spec = hardware.get("MI325X")
    entry = spec.model_dump(exclude={"compute_units", "architecture"})
    entry["aliases"] = ()
    entry["sources"] = {key: text for key, text in spec.sources.items() if key != "compute_units"}
    stored = HardwareSpec.parse(entry)
    assert spec.is_current(stored)
    assert not spec.is_current(HardwareSpec.parse(entry | {"mem_bw_gbps": 5999}))
    assert not spec.is_current(HardwareSpec.parse(entry | {"compute_units": 303}))
    old = load_hardware(written(tmp_path, ENTRY)).get("X1")
    text = json.dumps(old.model_dump(exclude={"compute_units", "architecture"}), sort_keys=True)
    assert old.sha256 == hashlib.sha256(text.encode()).hexdigest()
    assert old.sha256 != HardwareSpec.parse(old.model_dump() | {"compute_units": 9}).sha256


def test_devices_of_the_reference_traces_are_known(
    hardware: Hardware, reference_root: Path
) -> None:
    devices = set()
    for path in reference_root.glob("traces/*.json.gz"):
        trace = json.loads(gzip.decompress(path.read_bytes()))
        devices |= {
            Device(
                device["name"],
                device["numSms"],
                device["totalGlobalMem"],
                device["warpSize"],
                (device["computeMajor"], device["computeMinor"]),
            )
            for device in trace["deviceProperties"]
        }
    assert devices
    for device in devices:
        by_name = hardware.recognize(device)
        assert by_name is not None
        assert by_name in hardware.candidates(replace(device, device_name=None))


@pytest.mark.parametrize(
    ("device", "peaks"),
    [
        ("Tesla V100-SXM2-32GB", {2: None, 8: 150, 16: None}),
        ("NVIDIA A100-SXM4-80GB", {2: 300, 8: 300}),
        ("NVIDIA A100-PCIE-40GB", {2: 300, 4: 31.5}),
        ("NVIDIA H100 80GB HBM3", {1: None, 2: 450, 8: 450}),
        ("NVIDIA H100 PCIe", {2: 300, 4: None}),
        ("NVIDIA L4", {2: 31.5, 8: 31.5}),
        ("AMD Instinct MI300X", {2: 64, 4: 192, 8: 448}),
        ("AMD Instinct MI355X", {2: 76.8, 8: 537.6}),
        ("NVIDIA RTX PRO 6000", {2: None}),
    ],
)
def test_peaks_of_links(hardware: Hardware, device: str, peaks: dict[int, float | None]) -> None:
    link = hardware.link(device)
    assert {ranks: link and link.peak_gbps(ranks) for ranks in peaks} == pytest.approx(peaks)


def test_all_links_of_a_mesh_are_those_of_its_pairs(hardware: Hardware) -> None:
    for name in hardware.names():
        link = hardware.link(name)
        if link is not None and link.kind == "mesh" and link.pair_gbps is not None:
            assert link.peers is not None
            assert link.peers * link.pair_gbps == pytest.approx(link.gbps_per_direction)


@pytest.mark.parametrize("link", ["3", "{}", "{ kind = 'wire', gbps_per_direction = 1 }"])
def test_an_invalid_link_is_rejected(tmp_path: Path, link: str) -> None:
    path = tmp_path / "hardware.toml"
    path.write_text(ENTRY + f"link = {link}\n", encoding="utf-8")
    with pytest.raises(HardwareFileError, match=r"X1.*link"):
        load_hardware(path)


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
    assert spec.peak_tflops("matrix_fp4") is None, "no precision replaces another"
    assert spec.ridge("matrix_fp4") is None
    assert spec.source_of("matrix_fp4") is None
    assert "ROCm blog" in (spec.source_of("matrix_bf16") or "")


def test_arch_json_round_trip(hardware: Hardware) -> None:
    arch = json.loads(json.dumps(hardware.get("MI325X").model_dump(include=ARCH_KEYS)))
    spec = HardwareSpec.from_arch_json(arch)
    assert spec.model_dump(include=ARCH_KEYS) == arch
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
        (ENTRY + "compute_units = 0\n", "X1.*compute_units"),
        (ENTRY + "compute_units = 1.5\n", "X1.*compute_units"),
        (ENTRY + 'architecture = "Hopper"\n', "X1.*architecture"),
        (
            ENTRY.replace("default =", "default = 'a', compute_units ="),
            "X1.*compute_units, which has no figure",
        ),
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


@pytest.mark.parametrize(
    ("key", "words"),
    [("matrix_bf16", "bf16 matrix"), ("vector_fp32", "fp32 vector"), (None, "")],
)
def test_peaks_have_names(key: str | None, words: str) -> None:
    assert peak_label(key) == words
