"""``jarvis hardware``, ``jarvis reproject``, and ``jarvis analyze`` with a GPU description."""

import json
from pathlib import Path

import pytest

from jarvis.cli import main
from jarvis.hardware import HardwareSpec, load_hardware
from jarvis.run import Run
from tests.builders import trace

ARCH = {
    "name": "X100",
    "mem_bw_gbps": 3900,
    "memory_gb": 96,
    "max_achievable_tflops": {"matrix_bf16": 500},
}


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


@pytest.fixture(autouse=True)
def arch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file with a GPU description; sets an empty home."""
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "home"))
    path = tmp_path / "x100.json"
    path.write_text(json.dumps(ARCH))
    return path


@pytest.fixture
def mm(tmp_path: Path) -> Path:
    built = trace().op("aten::mm", [[512, 512], [512, 512]]).launches("gemm", us=40.0)
    return built.write(tmp_path / "mm.json")


def test_a_gpu_is_shown_with_sources_and_doubts(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("hardware", "show", "mi325x", "--preset", "achievable") == 0
    out = capsys.readouterr().out
    assert "MI325X (achievable)" in out
    assert "  compute_units       304" in out
    assert "ROCm blog" in out
    assert "[uncertain: estimated from the MI300X, not measured]" in out
    assert "Other presets: reference, datasheet" in out


def test_a_description_is_checked_added_used_and_removed(
    arch: Path, mm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("hardware", "check", arch) == 0
    assert "X100 (custom): 3 figures" in capsys.readouterr().out
    assert run("hardware", "add", arch) == 0
    assert run("hardware", "list") == 0
    assert "X100" in capsys.readouterr().out
    assert run("analyze", mm, "--platform", "X100", "--output-dir", tmp_path / "run") == 0
    assert Run.load(tmp_path / "run").manifest.hardware == load_hardware().get("X100")
    assert run("hardware", "check", arch) == 1
    assert "twice" in capsys.readouterr().err
    assert run("hardware", "remove", "X100") == 0
    assert "X100" not in load_hardware().names()


def test_builtin_gpus_are_neither_replaced_nor_removed(
    arch: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arch.write_text(json.dumps({**ARCH, "name": "MI300X", "preset": "reference"}))
    assert run("hardware", "add", arch) == 1
    assert "already described by Jarvis" in capsys.readouterr().err
    assert run("hardware", "remove", "MI300X") == 1
    assert "built into Jarvis" in capsys.readouterr().err
    assert load_hardware().get("MI300X").mem_bw_gbps == 5300


def test_user_presets_come_after_those_of_the_gpu(arch: Path) -> None:
    arch.write_text(json.dumps({**ARCH, "name": "MI300X", "preset": "measured"}))
    assert run("hardware", "add", arch) == 0
    assert load_hardware().presets("MI300X") == ["reference", "datasheet", "measured"]
    assert load_hardware().match("AMD Instinct MI300X").preset == "reference"


def test_a_stored_gpu_is_read_back_unchanged(arch: Path, tmp_path: Path) -> None:
    sources = {"default": 'a "measured" figure\twith µ and \\', "matrix_bf16": "𝄞"}
    spec = HardwareSpec.parse({**ARCH, "sources": sources, "aliases": ["Acme X100", "Acme X1"]})
    path = tmp_path / "kept.toml"
    path.write_text(spec.to_toml(), encoding="utf-8")
    assert load_hardware(path).get("X100") == spec


def test_analyze_accepts_a_gpu_description(arch: Path, mm: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert run("analyze", mm, "--gpu_arch_json_path", arch, "--output-dir", out) == 0
    manifest = Run.load(out).manifest
    assert manifest.hardware == HardwareSpec.from_arch_json(ARCH)
    assert manifest.options.gpu_arch_file == "x100.json"
    assert manifest.options.gpu_arch_sha256 == manifest.hardware.sha256
    assert "uses the peaks of X100 (custom)" in manifest.platform_warning
    rough = (out / "standalone_analysis_rough.md").read_text()
    assert "--gpu_arch_json_path x100.json" in rough


def test_two_descriptions_are_two_analyses(
    arch: Path, mm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = []
    for bandwidth in (3900, 3900, 4000):
        arch.write_text(json.dumps({**ARCH, "mem_bw_gbps": bandwidth}))
        assert run("analyze", mm, "--gpu-arch-json-path", arch, "--id") == 0
        ids.append(capsys.readouterr().out.splitlines()[0])
    assert ids[1] == f"{ids[0]} (already stored)"
    assert ids[2] != ids[0]


@pytest.mark.parametrize("command", ["analyze", "reproject"])
@pytest.mark.parametrize("other", ["--preset", "--platform"])
def test_a_gpu_description_excludes_other_gpu_options(
    arch: Path, mm: Path, command: str, other: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(command, mm, "--gpu_arch_json_path", arch, other, "MI300X", "--output-dir", "x")
    assert ended.value.code == 2


def test_a_run_is_reprojected(mm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("analyze", mm, "--output-dir", tmp_path / "base") == 0
    out = tmp_path / "again"
    assert run("reproject", tmp_path / "base", "--platform", "MI355X", "--output-dir", out) == 0
    assert str(out) in capsys.readouterr().out
    assert Run.load(out).manifest.hardware.title == "MI355X"
