"""A forged analysis file: bounded, checked, marked, and never the answer to an honest request."""

import hashlib
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from sqlalchemy import Engine, text

from jarvis.cli import main
from jarvis.core.workspace import analyses_dir
from jarvis.run import read_manifest
from jarvis.server.database import database, writing
from jarvis.server.errors import ArchiveError, ReceivedRunError
from jarvis.server.jobs.kinds import JobOutput
from jarvis.server.jobs.kinds.analyses import Load
from jarvis.server.jobs.processes.job_child import MEMORY_VARIABLE
from jarvis.server.storage import analysis_rows, run_limits
from jarvis.server.storage.analysis_rows import made_on, stored_for, stored_rows
from jarvis.server.storage.archive import load_archive, save_archive
from jarvis.server.storage.catalog import analysis_root, read_catalog
from jarvis.server.storage.run_limits import check_received_run
from jarvis.server.submission import Submission, import_run, resubmit, submit
from tests.builders import trace

FORGED_MS = 1.0
Change = Callable[[Path], None]


def small_trace(folder: Path) -> Path:
    built = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=12)
    return built.write(folder / "small.json")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return small_trace(tmp_path)


@pytest.fixture(scope="module")
def made_there(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory of another server; do not change it."""
    folder = tmp_path_factory.mktemp("there")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JARVIS_HOME", str(folder))
        return submit(Submission(small_trace(folder))).root


@pytest.fixture
def run(made_there: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, for a test to change."""
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "here"))
    root = tmp_path / "there" / analyses_dir().name / made_there.name
    return Path(shutil.copytree(made_there, root))


def packed(root: Path) -> Path:
    out = root.parent.parent / "forged.jarvis.zip"
    save_archive(root, out)
    return out


def edit_json(path: Path, **values: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values, indent=2))


def forge(root: Path) -> Path:
    """An archive that validates, with another total and name than the trace gives."""
    manifest = root / "manifest.json"
    totals = json.loads(manifest.read_text())["totals"] | {"total_memcpy_time_ms": FORGED_MS}
    edit_json(manifest, totals=totals)
    return packed(root)


def table(root: Path, name: str) -> Path:
    return root / "tables" / f"{name}.parquet"


def repeat(path: Path, times: int) -> None:
    """Write the first row of a table repeatedly."""
    row = pl.read_parquet(path).head(1)
    row.select(pl.all().repeat_by(times).explode()).write_parquet(path)


def total_ms(analysis: str) -> float:
    return read_manifest(analysis_root(analysis)).totals.total_memcpy_time_ms


# What is refused


def test_a_table_of_twenty_million_equal_rows_is_rejected_unread(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = table(run, "trace_health")
    pl.select(key=pl.repeat(7, 20_000_000, dtype=pl.Int8)).write_parquet(place)
    assert place.stat().st_size < 100_000
    read_parquet = pl.read_parquet

    def read(path: Path, **options: object) -> pl.DataFrame:
        assert path != place, "it was read"
        return read_parquet(path, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(pl, "read_parquet", read)
    with pytest.raises(ReceivedRunError, match="the table trace_health has more than 1,000 rows"):
        check_received_run(run)


@pytest.mark.parametrize("name", ["gpu_work", "operations", "gpu_timeline"])
def test_tables_have_a_limit_in_memory_counted_from_the_footer(
    run: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_limits, "MAX_ROWS_OF", {})
    monkeypatch.setattr("jarvis.server.storage.run_limits.MAX_DECODED_BYTES", 1_000_000)
    check_received_run(run)
    repeat(table(run, name), 200_000)
    assert table(run, name).stat().st_size < 500_000
    with pytest.raises(ReceivedRunError, match="tables take more than"):
        check_received_run(run)


def test_one_long_text_in_every_row_counts_in_every_row(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jarvis.server.storage.run_limits.MAX_DECODED_BYTES", 10_000_000)
    place = table(run, "gpu_work")
    row = pl.read_parquet(place).head(1).with_columns(name=pl.lit("x" * 100_000))
    pl.concat([row] * 200).write_parquet(place)
    assert place.stat().st_size < 500_000
    with pytest.raises(ReceivedRunError, match="tables take more than"):
        check_received_run(run)


def test_the_byte_count_of_texts_does_not_overflow() -> None:
    column = pl.concat([pl.Series(["x" * (1 << 20)])] * 5_000)
    assert run_limits.memory_bytes(column, "any") > 5_000 << 20


def drop_column(root: Path) -> None:
    place = table(root, "operations")
    pl.read_parquet(place).drop("kernel_time_us").write_parquet(place)


def other_dtype(root: Path) -> None:
    place = table(root, "gpu_work")
    pl.read_parquet(place).with_columns(pl.col("dur_ns").cast(pl.String)).write_parquet(place)


def no_number(root: Path) -> None:
    place = table(root, "operations")
    frame = pl.read_parquet(place).with_columns(kernel_time_us=pl.lit(float("nan")))
    frame.write_parquet(place)


def unreadable_arguments(root: Path) -> None:
    place = table(root, "operations")
    pl.read_parquet(place).with_columns(input_dims=pl.lit("[(1, 2]")).write_parquet(place)


def nan_in_results(root: Path) -> None:
    (root / "results.json").write_text('{"a": NaN}')


def deep_json(root: Path) -> None:
    (root / "metadata" / "model_info.json").write_text('{"a":' + "[" * 900 + "]" * 900 + "}")


def endless_json(root: Path) -> None:
    (root / "metadata" / "model_info.json").write_text("[" * 100_000)


def huge_number(root: Path) -> None:
    edit_json(root / "metadata" / "model_info.json", batch=10**40)


def large_manifest(root: Path) -> None:
    edit_json(root / "manifest.json", platform_warning="x" * (5 << 20))


def table_elsewhere(root: Path) -> None:
    manifest = json.loads((root / "manifest.json").read_text())
    edit_json(root / "manifest.json", tables=[*manifest["tables"], "../../x/tables/operations"])


def odd_rows(root: Path) -> None:
    """The error of Polars has many lines."""
    (root / "category_data" / "gemm_ops.csv").write_text("|||\n")


def no_report(root: Path) -> None:
    (root / "standalone_analysis_fair.md").unlink()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (drop_column, "the table operations lacks the column kernel_time_us"),
        (other_dtype, "the table gpu_work has a column 'dur_ns' of another type"),
        (no_number, "the table operations has a NaN or a too large number"),
        (unreadable_arguments, "the table operations has unreadable input_dims"),
        (nan_in_results, "results.json is not JSON"),
        (deep_json, "model_info.json has more than 64 levels"),
        (endless_json, "model_info.json is not JSON"),
        (huge_number, r"model_info.json has the number 1e\+40"),
        (large_manifest, "manifest.json is larger than 4 MiB"),
        (table_elsewhere, "the name '../../x/tables/operations'"),
        (odd_rows, "is inconsistent .*ColumnNotFoundError"),
        (no_report, "is inconsistent .reports are there: standalone_analysis_fair.md"),
    ],
)
def test_a_forged_run_is_rejected_with_a_message(run: Path, change: Change, words: str) -> None:
    change(run)
    with pytest.raises(ArchiveError, match=words) as refusal:
        load_archive(packed_or_listed(run))
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 600
    assert not list(analyses_dir().glob("*"))


def packed_or_listed(root: Path) -> Path:
    """Write an archive of a run, also with an unreadable manifest."""
    honest = root / "manifest.json"
    kept = honest.read_bytes()
    if len(kept) < run_limits.MAX_MANIFEST_BYTES:
        return packed(root)
    edit_json(honest, platform_warning=None)
    out = packed(root)
    honest.write_bytes(kept)
    changed = out.with_name("changed.jarvis.zip")
    with zipfile.ZipFile(out) as old, zipfile.ZipFile(changed, "w") as new:
        listed = json.loads(old.read("jarvis-archive.json"))
        with honest.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        listed["files"]["manifest.json"] = {"sha256": digest, "size_bytes": len(kept)}
        for name in old.namelist():
            content = kept if name.endswith("/manifest.json") else old.read(name)
            listing = json.dumps(listed).encode()
            new.writestr(name, listing if name == "jarvis-archive.json" else content)
    return changed


def test_the_command_loads_in_a_process_with_a_memory_limit(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = packed(run)
    monkeypatch.setenv(MEMORY_VARIABLE, "0.03")
    assert main(["archive", "load", str(file)]) == 1
    output = capsys.readouterr().err
    assert output.startswith("jarvis: The job exceeded its memory limit of 0.03 GB")
    assert not list(analyses_dir().glob("*"))
    assert not list(analyses_dir().glob(".*"))


def test_no_command_ends_in_a_traceback_on_a_forged_run_directory(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deep_json(run)
    (run / "category_data" / "category_manifest.json").write_text("[" * 900 + "]" * 900)
    assert main(["validate", str(run)]) == 3
    assert "json is strict" in capsys.readouterr().out


# What a loaded analysis is


def test_a_loaded_analysis_never_answers_a_request(run: Path, small: Path) -> None:
    loaded = load_archive(forge(run))
    assert total_ms(loaded.id) == FORGED_MS
    honest = submit(Submission(small))
    assert (honest.id, honest.is_reused) == (loaded.id, False)
    assert total_ms(honest.id) != FORGED_MS
    row = stored_rows(database())[honest.id]
    assert (row.loaded_by, row.is_from_outside) == (None, False)
    assert submit(Submission(small)).is_reused


def test_the_loaded_analysis_of_another_user_stays_and_the_new_one_gets_another_id(
    run: Path, small: Path
) -> None:
    with stored_for("eve"):
        loaded = load_archive(forge(run))
    with stored_for("bob"):
        honest = submit(Submission(small))
        again = submit(Submission(small))
    assert honest.id.startswith(loaded.id)
    assert honest.id != loaded.id
    assert read_manifest(honest.root).analysis_id == honest.id
    assert (again.id, again.is_reused) == (honest.id, True)
    assert (total_ms(loaded.id), total_ms(honest.id)) == (FORGED_MS, 0.0)
    rows = stored_rows(database())
    assert (rows[loaded.id].owner, rows[loaded.id].loaded_by) == ("eve", "eve")
    assert (rows[honest.id].owner, rows[honest.id].loaded_by) == ("bob", None)


def test_results_made_from_a_loaded_analysis_never_answer_a_request(run: Path, small: Path) -> None:
    with stored_for("eve"):
        loaded = load_archive(forge(run))
        judged = resubmit(loaded.id, "MI300X", None)
        compared = submit(Submission(small, model_name="other", reference=loaded.id))
    rows = stored_rows(database())
    assert {rows[made.id].loaded_by for made in (judged, compared)} == {"eve"}
    with stored_for("bob"):
        assert submit(Submission(small, platform="MI300X")).id.startswith(f"{judged.id}")
        assert not stored_rows(database())[
            submit(Submission(small, platform="MI300X")).id
        ].is_from_outside
    with stored_for("eve"):
        assert resubmit(loaded.id, "MI300X", None).is_reused


def test_a_remote_result_answers_only_for_its_machine(run: Path, small: Path) -> None:
    forge(run)
    with stored_for("eve"), made_on("lab"):
        far = import_run(run)
        assert import_run(run).is_reused
    with stored_for("bob"):
        near = submit(Submission(small))
    assert near.id != far.id
    assert (total_ms(far.id), total_ms(near.id)) == (FORGED_MS, 0.0)
    with stored_for("eve"), made_on("other"):
        assert import_run(run).id == far.id
    assert stored_rows(database())[far.id].made_on == "other"


def test_a_remote_result_and_a_loaded_one_have_different_ids(run: Path) -> None:
    with stored_for("eve"):
        loaded = load_archive(forge(run))
    with stored_for("bob"), made_on("lab"):
        far = import_run(run)
    assert far.id != loaded.id
    assert read_manifest(far.root).analysis_id == far.id


def test_an_analysis_of_another_trace_with_the_same_id_is_not_reused(
    run: Path, small: Path
) -> None:
    """Return two traces with the same short id, which an attacker can compute."""
    stored = shutil.copytree(run, analyses_dir() / run.name)
    manifest = json.loads((stored / "manifest.json").read_text())
    other = manifest["trace"] | {"sha256": "0" * 64}
    edit_json(stored / "manifest.json", trace=other)
    made = submit(Submission(small))
    assert made.id.startswith(run.name)
    assert made.id != run.name
    assert not made.is_reused


def test_a_folder_that_changes_stays_loaded(run: Path, small: Path) -> None:
    loaded = load_archive(forge(run))
    (loaded.root / "manifest.json").touch()
    assert stored_rows(database())[loaded.id].loaded_by == ""


def test_it_is_marked_before_other_users_see_it(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    record = analysis_rows.record

    def look(engine: Engine, *arguments: object) -> object:
        seen.append({row.loaded_by for row in stored_rows(engine).values()})
        return record(engine, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("jarvis.server.storage.artifacts.record", look)
    load_archive(forge(run))
    assert seen == [{""}]


def test_the_list_shows_the_origin_of_an_analysis(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with stored_for("eve"):
        load_archive(forge(run))
    assert main(["list"]) == 0
    assert "(from file, loaded by eve)" in capsys.readouterr().out
    assert main(["list", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["analyses"]
    assert (row["made_on"], row["loaded_by"]) == (None, "eve")


def test_an_upgrade_marks_loaded_analyses_from_the_audit_log(run: Path) -> None:
    """Run the last migration on a database of the previous release."""
    command = [sys.executable, "-m", "jarvis.cli", "archive", "load", str(forge(run))]
    subprocess.run(command, check=True, capture_output=True)
    with writing(database()) as connection:
        for table in ("reports", "report_fields", "report_comments", "job_waits"):
            connection.execute(text(f"DROP TABLE {table}"))
        connection.execute(text("ALTER TABLE jobs DROP COLUMN is_member"))
        connection.execute(text("ALTER TABLE analyses DROP COLUMN loaded_by"))
        connection.execute(text("UPDATE alembic_version SET version_num = '0003'"))
    database().dispose()
    fresh = "from jarvis.server.storage.catalog import read_catalog as r; "
    fresh += "print([e.loaded_by for e in r().entries])"
    ran = subprocess.run([sys.executable, "-c", fresh], check=True, capture_output=True, text=True)
    assert ran.stdout == "['']\n"


def test_the_job_names_the_loaded_analysis(run: Path) -> None:
    made = Load(forge(run)).run(lambda _: None, "a1b2")
    (entry,) = read_catalog().entries
    assert made == JobOutput(entry.id, {"is_reused": False, "was_pinned": False})
