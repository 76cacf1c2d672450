"""What of a run is offered for replay, chosen and packaged; the command that does so."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from jarvis.cli import main
from jarvis.core.errors import ReplayError
from jarvis.pipeline import analyze
from jarvis.replay import replay_candidates, select
from jarvis.run import Run
from tests.builders import trace

LONG_LIST = "its lists of tensors are too long for the trace to record their shapes"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a product in two shapes, a sum, a list operator and one of another library."""
    folder = tmp_path_factory.mktemp("replay_candidates")
    builder = trace(device="AMD Instinct MI300X")
    for _ in range(3):
        builder.op("aten::mm", [[4096, 4096], [4096, 4096]]).launches("slow", us=2000.0)
    builder.op("aten::mm", [[4096, 1024], [1024, 4096]]).launches("slow", us=900.0)
    builder.op("aten::sum", [[4096, 4096], []], types=["float", ""]).launches("sum", us=50.0)
    builder.op("aten::cat", [[], []], types=["TensorList", "Scalar"]).launches("cat", us=40.0)
    builder.op("vllm::rotary", [[8, 8]]).launches("rotary", us=30.0)
    analyze(builder.write(folder / "t.json"), output_dir=folder / "run")
    return folder / "run"


@pytest.fixture
def run(root: Path) -> Run:
    return Run.load(root)


def entries_of(package: bytes) -> list[dict[str, Any]]:
    with zipfile.ZipFile(io.BytesIO(package)) as archive:
        found: list[dict[str, Any]] = json.loads(archive.read("replay_ir.json"))
    return found


def test_every_operator_is_offered_or_refused_with_a_reason(run: Run) -> None:
    found = {offer.op_name: offer for offer in replay_candidates(run)}
    assert list(found) == ["aten::mm", "aten::sum", "aten::cat", "vllm::rotary"]
    product = found["aten::mm"]
    assert (product.calls, product.distinct_calls, product.packaged_pct) == (4, 2, 100)
    assert (len(product.uids), product.kernel_time_us, product.reason) == (2, 6900.0, None)
    assert product.is_recommended
    assert (found["aten::cat"].packaged_pct, found["aten::cat"].reason) == (0, LONG_LIST)
    assert "the library vllm" in str(found["vllm::rotary"].reason)


def test_what_the_trace_and_the_roofline_say_travels_with_a_call(run: Run) -> None:
    first, second = entries_of(select(run, op_names=["aten::mm"]).package())
    assert (first["gpu"], first["peaks_of"]) == ("AMD Instinct MI300X", "MI300X")
    assert (first["count"], first["trace_kernel_time_us"]) == (3, 2000.0)
    assert (second["count"], second["trace_kernel_time_us"]) == (1, 900.0)
    assert (first["flops"], first["bytes"]) == (2 * 4096**3, 3 * 4096**2 * 2)
    assert (first["compute"], first["peak_tflops"], first["peak_tb_per_s"]) == (
        "matrix_bf16",
        708.0,
        5.3,
    )


def test_a_selection_is_one_package(run: Run) -> None:
    (one, _) = replay_candidates(run)[0].uids
    selection = select(run, [one], ["aten::sum", "aten::cat"])
    assert selection.file_name == "2_operators_replay_package.zip"
    assert [entry["op_name"] for entry in entries_of(selection.package())] == [
        "aten::mm",
        "aten::sum",
    ]
    assert [(r.op_name, r.reason) for r in selection.refusals] == [("aten::cat", LONG_LIST)]


def test_nothing_to_package_says_why(run: Run) -> None:
    with pytest.raises(ReplayError, match=LONG_LIST):
        select(run, op_names=["aten::cat"]).package()
    with pytest.raises(ReplayError, match=r"Did you mean aten::mm\?"):
        select(run, op_names=["MM"])
    with pytest.raises(ReplayError, match="uid 987654"):
        select(run, [987654])


def test_the_command_lists_what_can_be_packaged(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(root)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[-3:] == ["4", "100.0", "aten::mm"]
    assert lines[3].endswith(f"aten::cat ({LONG_LIST})")
    assert main(["replay", str(root), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["operators"]
    assert [one["op_name"] for one in listed][:2] == ["aten::mm", "aten::sum"]
    assert listed[0]["packaged_pct"] == 100


def test_the_command_packages(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "deep" / "two.zip"
    command = ["replay", str(root), "--op", "aten::mm", "aten::cat", "-o", str(path)]
    assert main(command) == 0
    output = capsys.readouterr()
    assert output.out.strip() == str(path)
    assert f"aten::cat is left out in 1 of its rows: {LONG_LIST}" in output.err
    assert len(entries_of(path.read_bytes())) == 2
    assert main([*command, "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert (reported["file"], reported["calls"], len(reported["refused"])) == (str(path), 2, 1)


def test_the_command_fails_where_nothing_can_be_replayed(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "none.zip"
    assert main(["replay", str(root), "--op", "aten::cat", "-o", str(path)]) == 1
    assert LONG_LIST in capsys.readouterr().err
    assert not path.exists()
    with pytest.raises(SystemExit):
        main(["replay", str(root), "-o", str(path)])
