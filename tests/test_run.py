"""Run directories: written whole, replaced carefully, read lazily."""

import json
import shutil
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from pydantic.dataclasses import dataclass

from jarvis.core.errors import (
    MissingTableError,
    NotARunError,
    OutdatedRunError,
    OutputFolderError,
    RunVersionError,
)
from jarvis.core.workspace import RUN_ENTRIES, RunPaths
from jarvis.findings import Status
from jarvis.pipeline import analyze
from jarvis.run import (
    SCHEMA_VERSION,
    Options,
    Run,
    analysis_id,
    check_output_folder,
    read_manifest,
    staged,
)
from jarvis.run.store import write_parquet
from jarvis.run.tree_data import main_uids
from tests.analyses.rows import category, operation
from tests.builders import trace


def write_trace(path: Path, kernel_us: float = 50.0) -> Path:
    return (
        trace("NVIDIA H200")
        .python("train.py(3): step")
        .python("nn.Module: Block_0")
        .child("aten::mm", [[512, 512], [512, 512]])
        .launches("nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT", us=kernel_us)
        .write(path)
    )


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    analyze(write_trace(folder / "trace.json"), output_dir=folder / "run")
    return folder / "run"


def test_load_gives_manifest_results_and_tables(root: Path) -> None:
    run = Run.load(root)
    assert run.manifest.trace.file_name == "trace.json"
    assert list(run.results) == [category.key for category in run.manifest.categories]
    assert run.results["gemm"].row_count == 1
    for name in run.manifest.tables:
        assert isinstance(run.table(name), pl.DataFrame)
    with pytest.raises(MissingTableError):
        run.table("../manifest")


def test_tables_are_read_lazily_and_once(root: Path) -> None:
    run = Run.load(root)
    first = run.table("operations")
    assert run.table("operations") is first
    assert "category" in first.columns


def test_a_table_is_not_read_to_see_whether_it_is_there(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run.load(root)
    monkeypatch.setattr(pl, "read_parquet", None)
    assert "operations" in run.tables
    assert {"operations", "gpu_work"} <= run.tables.keys()
    assert "manifest" not in run.tables


def test_category_rows_have_the_columns_of_their_category(root: Path) -> None:
    run = Run.load(root)
    rows = run.category_operations("gemm")
    assert rows["m"].to_list() == [512]
    assert rows["tile"].to_list() == ["128x256"]
    assert run.category_operations("convolution").is_empty()
    with pytest.raises(MissingTableError):
        run.category_operations("multi_kernel")


def test_call_paths_come_from_the_tree(root: Path) -> None:
    run = Run.load(root)
    (path,) = run.call_paths("gemm").values()
    assert path.op_name == "aten::mm"
    assert path.nn_module_chain == ("Block_0",)
    assert [kernel.name for kernel in path.kernels] == ["nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT"]
    assert run.call_paths("convolution") == {}


def test_sheets_are_those_of_the_report(root: Path) -> None:
    run = Run.load(root)
    sheets = run.sheets()
    assert list(sheets) == list(run.manifest.sheets)
    assert "Kernel Time (µs)_sum" in sheets["unified_perf_summary"].columns
    written = pl.read_csv(RunPaths(root).perf_report_csvs / "gpu_timeline.csv")
    assert_frame_equal(written, sheets["gpu_timeline"])


def test_a_run_contains_no_foreign_file(root: Path) -> None:
    assert {entry.name for entry in root.iterdir()} <= RUN_ENTRIES
    assert not list(root.parent.glob(".*"))


def test_a_run_can_be_moved(root: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    with staged(moved, "any") as fresh:
        for source in root.rglob("*"):
            target = fresh / source.relative_to(root)
            target.mkdir(parents=True) if source.is_dir() else target.write_bytes(
                source.read_bytes()
            )
    assert Run.load(moved).results == Run.load(root).results


@pytest.mark.parametrize(
    "spoil",
    [
        lambda paths: paths.manifest.unlink(),
        lambda paths: paths.manifest.write_text("not json"),
        lambda paths: paths.manifest.write_text("[]"),
        lambda paths: paths.manifest.write_text(f'{{"schema_version": {SCHEMA_VERSION}}}'),
        lambda paths: paths.results.write_text("{"),
    ],
    ids=["no manifest", "no JSON", "a list", "half a manifest", "half the results"],
)
def test_an_invalid_run_is_rejected(tmp_path: Path, spoil) -> None:
    folder = tmp_path / "run"
    analyze(write_trace(tmp_path / "trace.json"), output_dir=folder)
    spoil(RunPaths(folder))
    with pytest.raises(NotARunError):
        Run.load(folder)


def test_a_run_deleted_while_open_is_reported(tmp_path: Path) -> None:
    run = analyze(write_trace(tmp_path / "trace.json"), output_dir=tmp_path / "run")
    opened = Run.load(tmp_path / "run")
    assert run.table("operations").equals(opened.table("operations"))
    shutil.rmtree(tmp_path / "run")
    assert opened.table("operations").height == 1
    with pytest.raises(MissingTableError, match="removed"):
        opened.table("gpu_timeline")


def test_another_layout_is_rejected_with_both_versions(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"schema_version": 99}')
    with pytest.raises(RunVersionError, match="99"):
        read_manifest(tmp_path)
    with pytest.raises(OutputFolderError):
        check_output_folder(tmp_path, "abc")


def test_a_run_without_a_newer_table_or_column_is_reported(root: Path, tmp_path: Path) -> None:
    older = tmp_path / "older"
    shutil.copytree(root, older)
    paths = RunPaths(older)
    pl.read_parquet(paths.table("idle_gaps")).drop("cause").write_parquet(paths.table("idle_gaps"))
    manifest = json.loads(paths.manifest.read_text())
    manifest["tables"].remove("call_tree")
    paths.manifest.write_text(json.dumps(manifest))
    run = Run.load(older)
    with pytest.raises(OutdatedRunError, match=r"columns cause of the table idle_gaps.*again"):
        run.table("idle_gaps")
    with pytest.raises(OutdatedRunError, match=r"the table call_tree\. Analyze the trace again"):
        run.table("call_tree")


def test_a_trace_of_the_gpu_alone_has_every_table_that_it_names(tmp_path: Path) -> None:
    path = trace("NVIDIA H200").unlinked("gemm_kernel", us=20).write(tmp_path / "trace.json")
    run = analyze(path, output_dir=tmp_path / "run")
    assert all(run.table(name) is not None for name in run.manifest.tables)


def test_default_options_do_not_change_the_id_of_an_analysis() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class LaterOptions(Options):
        precision: str | None = None

    chosen = {"platform": "MI300X", "model_name": "Llama"}
    assert analysis_id("ab", LaterOptions(**chosen)) == analysis_id("ab", Options(**chosen))
    assert analysis_id("ab", Options()) != analysis_id("ab", Options(**chosen))


def test_the_same_trace_replaces_its_own_run(tmp_path: Path) -> None:
    path, folder = write_trace(tmp_path / "trace.json"), tmp_path / "run"
    analyze(path, output_dir=folder)
    again = analyze(path, output_dir=folder, platform="MI300X")
    assert again.manifest.hardware.name == "MI300X"
    assert Run.load(folder).manifest.hardware.name == "MI300X"
    assert {entry.name for entry in tmp_path.iterdir()} == {"trace.json", "run"}


def test_a_run_of_another_trace_is_not_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    analyze(write_trace(tmp_path / "first.json"), output_dir=folder)
    before = (folder / "manifest.json").read_bytes()
    with pytest.raises(OutputFolderError, match=r"first\.json.*--output-dir"):
        analyze(write_trace(tmp_path / "second.json", kernel_us=60.0), output_dir=folder)
    assert (folder / "manifest.json").read_bytes() == before


def test_files_of_others_are_never_overwritten(tmp_path: Path) -> None:
    path, folder = write_trace(tmp_path / "trace.json"), tmp_path / "run"
    analyze(path, output_dir=folder)
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(OutputFolderError, match=r"notes\.txt"):
        analyze(path, output_dir=folder)
    with pytest.raises(OutputFolderError):
        analyze(path, output_dir=tmp_path)
    with pytest.raises(OutputFolderError, match="a file"):
        analyze(path, output_dir=path)


def test_an_empty_folder_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    analyze(write_trace(tmp_path / "trace.json"), output_dir=tmp_path / "run")
    assert Run.load(tmp_path / "run").results["gemm"].status is Status.OK


def test_an_error_while_writing_leaves_the_old_run(tmp_path: Path) -> None:
    path, folder = write_trace(tmp_path / "trace.json"), tmp_path / "run"
    run = analyze(path, output_dir=folder)
    before = sorted(p.relative_to(folder) for p in folder.rglob("*"))

    def fail() -> None:
        with staged(folder, run.manifest.trace.sha256) as fresh:
            (fresh / "half").write_text("a run")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk"):
        fail()
    assert sorted(p.relative_to(folder) for p in folder.rglob("*")) == before
    assert not list(tmp_path.glob(".*"))


def test_two_runs_differ_only_in_when_they_were_made(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "trace.json")
    first, second = tmp_path / "a", tmp_path / "b"
    for folder in (first, second):
        analyze(path, output_dir=folder)
    for file in sorted(first.rglob("*")):
        if file.is_dir() or file.suffix == ".xlsx":
            continue
        one, other = file.read_bytes(), (second / file.relative_to(first)).read_bytes()
        if file.name == "manifest.json":
            one, other = (json.loads(text) | {"created": ""} for text in (one, other))
        assert one == other, file.name


def test_only_the_main_operations_get_call_paths() -> None:
    def main(*times_us: float, top: set[int] | None = None) -> list[int]:
        rows = (operation("aten::add", time_us=us) for us in times_us)
        return main_uids(category("elementwise", *rows, top=top).operations)

    assert main(*[1.0] * 20) == [1, 2, 3, 4, 5], "none above 10 %: the first five"
    assert main(*[1.0] * 20, top={7, 8, 9, 10, 11, 12}) == [7, 8, 9, 10, 11, 12]
    assert main(50.0, 20.0, *[5.0] * 8) == [1, 2, 3, 4, 5], "two above 10 %: five all the same"
    assert main(*[20.0] * 6) == [1, 2, 3, 4, 5, 6]


def test_the_category_manifest_says_how_host_and_gpu_time_compare(tmp_path: Path) -> None:
    path = (
        trace("NVIDIA H200")
        .op("aten::mm", [[512, 512], [512, 512]], us=3_000.0)
        .launches("k", us=50.0)
        .write(tmp_path / "trace.json")
    )
    analyze(path, output_dir=tmp_path / "run")
    manifest = json.loads((tmp_path / "run" / "category_manifest.json").read_text())
    (gemm,) = [entry for entry in manifest["categories"] if entry["name"] == "gemm"]
    assert gemm["gpu_kernel_time_ms"] == pytest.approx(0.05)
    assert gemm["sync_time_ms"] == pytest.approx(gemm["cpu_duration_ms"] - 0.05)
    assert gemm["sync_ops_count"] == 1
    assert gemm["has_sync_bottleneck"] is True
    metadata = json.loads((tmp_path / "run" / "metadata" / "gemm_metadata.json").read_text())
    assert "not proof" in metadata["time_breakdown"].pop("note")
    assert metadata["time_breakdown"].items() <= gemm.items()


def test_the_bytes_of_a_table_do_not_depend_on_its_chunks(tmp_path: Path) -> None:
    rows = pl.DataFrame({"number": range(300_000)}).with_columns(
        (pl.col("number") % 7).cast(pl.String).alias("text")
    )
    parts = pl.concat(list(rows.iter_slices(16_384)), rechunk=False)
    assert parts.n_chunks() > rows.n_chunks()
    for name, frame in (("whole", rows), ("parts", parts)):
        write_parquet(frame.lazy(), tmp_path / name)
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "parts").read_bytes()
