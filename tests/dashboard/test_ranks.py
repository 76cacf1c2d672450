"""The ranks page: a stored distributed run, and the ranks' own pages beside it."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
from streamlit.testing.v1 import AppTest

from jarvis.cli import main
from jarvis.core.workspace import RunPaths, analyses_dir
from jarvis.dashboard.pages.compare.sides import candidates
from jarvis.dashboard.pages.ranks import lateness
from jarvis.dashboard.pages.runs.rows import RunRow, run_rows
from jarvis.dashboard.pages.runs.trend import groups_of
from jarvis.ranks.delays import delays, with_causes
from jarvis.ranks.join import join
from jarvis.ranks.per_step import ranks_per_step
from jarvis.ranks.rows import MAX_ROWS
from jarvis.ranks.run import DistributedRun
from jarvis.run import Run
from jarvis.sample import Faults, Job, write_job
from jarvis.sample.faults import Late
from jarvis.schemas.names import C
from jarvis.server.database import database
from jarvis.server.storage.catalog import analysis_root, read_catalog
from jarvis.text.format import milliseconds
from tests.dashboard.conftest import Draw
from tests.dashboard.inline_jobs import do_jobs_at_once
from tests.dashboard.table_widths import CARD_PX, used_px
from tests.ranks.built import US, job, members

RANKS, LATE_RANK = 3, 1
SAVED = "Step time saved by P1"


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The traces of a job whose rank 1 waits for its data in the third step; rank 2 has none."""
    folder = tmp_path_factory.mktemp("job")
    faults = Faults(late=(Late(LATE_RANK, 8.0, "loader", 2),), skipped=frozenset({2}), is_even=True)
    job = Job(4, RANKS, scale="tiny", faults=faults)
    write_job(job, {rank: folder / f"rank{rank}.json" for rank in range(RANKS)})
    return folder


@pytest.fixture(scope="module")
def analyzed(traces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the home in which the job is analyzed; do not change it."""
    home = tmp_path_factory.mktemp("analyzed") / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JARVIS_HOME", str(home))
        assert main(["analyze", str(traces), "--id", "--jobs", "1"]) == 0
        database().dispose()
    return home


@pytest.fixture
def run(analyzed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DistributedRun:
    """Return the run in a copy of that home."""
    home = Path(shutil.copytree(analyzed, tmp_path / "home"))
    monkeypatch.setenv("JARVIS_HOME", str(home))
    (entry,) = read_catalog().distributed
    return DistributedRun.load(entry.root)


def texts(page: AppTest) -> str:
    kinds = (page.markdown, page.caption, page.warning, page.info)
    return " ".join(str(element.value) for kind in kinds for element in kind)


def datasets(page: AppTest) -> dict[str, pl.DataFrame]:
    """Return the data of the charts by name, those of cells with what they show."""
    of_marks = {
        "shown_ms": "arrivals",
        "beyond_pct": "steps",
        "mb": "pairs",
        "part": "lanes",
        "cause": "blame",
    }
    of_missing = {"instance_id": "arrivals", "step": "steps"}
    found = {}
    for element in page.main.get("vega_lite_chart"):
        for dataset in element.proto.datasets:
            frame = pl.read_ipc_stream(dataset.data.data)
            fields = of_missing if dataset.name == "missing" else of_marks
            kinds = [name for field, name in fields.items() if field in frame.columns][:1]
            found[" of ".join([dataset.name, *kinds])] = frame
        assert json.loads(element.proto.spec)["layer"]
    return found


def test_ranks_are_analyses_and_the_run_joins_them(run: DistributedRun) -> None:
    catalog = read_catalog()
    members = {entry.analysis_id for entry in run.manifest.usable}
    assert {entry.id for entry in catalog.entries} == members
    assert len(members) == RANKS - 1
    assert catalog.broken == ()
    assert [entry.id for entry in catalog.distributed] == [run.manifest.distributed_id]
    names = {path.name for path in analyses_dir().iterdir()}
    assert names == members | {run.manifest.distributed_id}


def test_the_page_shows_who_is_late_and_why(run: DistributedRun, filed: Draw) -> None:
    page = filed("ranks")
    assert not page.exception
    metrics = {metric.label: metric.value for metric in page.metric}
    labels = ("Median step", "Exposed waiting", "Exposed transfer", SAVED, "Slowest rank")
    assert tuple(metrics) == labels
    assert metrics[SAVED] == metrics["Slowest rank"] == "—"
    assert "1 rank of 3 is not recorded" in texts(page)
    assert "Missing ranks: 2" in texts(page)
    assert used_px(page.dataframe[0], "where") <= CARD_PX
    late = page.dataframe[0].value
    assert late["rank"].to_list()[0] == LATE_RANK
    assert late["cause"].to_list()[0] == "idle: data loading"
    assert late["new_ms"].to_list()[0] == pytest.approx(8, abs=0.5)
    larger = run.manifest.model_copy(
        update={
            "distributed_id": "larger",
            "members": (
                *run.manifest.members,
                run.manifest.usable[0].model_copy(update={"rank": 2, "sha256": "2"}),
            ),
        }
    )
    (analyses_dir() / "larger").mkdir()
    manifest = RunPaths(analyses_dir() / "larger").manifest
    manifest.write_text(larger.model_dump_json(), encoding="utf-8")
    charts = datasets(page)
    assert charts["missing of arrivals"]["row"].to_list() == ["2"] * run.tables["instances"].height
    assert charts["ranks"]["row"].to_list() == [str(LATE_RANK)]
    causes = charts["cells of blame"]
    assert causes.filter(cause="idle: data loading")["ms"].item() == pytest.approx(8 / 4, abs=0.2)
    waited = run.tables["instances"].filter(~pl.col("is_edge")).sort("exposed_wait_us")[-1]
    assert page.number_input(key="ranks_collective").value == waited["instance_id"].item()
    assert f"rank {LATE_RANK} is last, 7." in texts(page)
    parameters = {"ranks_step": "12", "ranks_measure": "Idle (ms)"}
    parameters |= {"ranks_ranks": "0, 2", "ranks_comm": run.tables["communicators"]["comm_id"][0]}
    in_step = filed("ranks", ranks_run=run.manifest.distributed_id, **parameters)
    assert not in_step.exception
    assert in_step.selectbox(key="ranks_measure").value == "Idle (ms)"
    shown = datasets(in_step)
    assert set(shown["cells of arrivals"]["row"]) == {"0"}
    assert set(shown["missing of arrivals"]["row"]) == {"2"}
    assert shown["cells of arrivals"]["step"].unique().to_list() == [12]
    assert "collectives on one clock · step 12" in texts(in_step).lower()
    chosen = {"ranks_run": run.manifest.distributed_id}
    assert "No rank of 0-2 is chosen" in texts(filed("ranks", ranks_ranks="7-9", **chosen))
    assert "2 of 3 ranks; a version with 3 is stored." in texts(in_step)


def test_a_collective_at_the_edge_says_how_far_apart_the_steps_begin(
    run: DistributedRun, filed: Draw
) -> None:
    (first,) = run.tables["instances"].head(1).iter_rows(named=True)
    assert first["is_edge"]
    begins_ns = pl.col("start_ns") - pl.when(pl.col("rank") == 1).then(500 * US).otherwise(0)
    steps = run.tables["rank_steps"].with_columns(begins_ns)
    steps.write_parquet(RunPaths(run.root).table("rank_steps"))
    assert (
        f"Step {first['step']} begins up to 0.500 ms apart, on rank 0 last. From there to the "
        "collective, rank 1 takes longest, 0.500 ms more than rank 0."
    ) in texts(filed("ranks", ranks_collective="0"))


def test_the_page_shows_what_the_step_gains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filed: Draw, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "home"))
    late = tuple(Late(LATE_RANK, 8.0, "loader", step) for step in range(4))
    job = Job(4, RANKS, scale="tiny", faults=Faults(late=late, is_even=True))
    write_job(job, {rank: tmp_path / "job" / f"rank{rank}.json" for rank in range(RANKS)})
    assert main(["analyze", str(tmp_path / "job"), "--id", "--jobs", "1"]) == 0
    title = f"Rank {LATE_RANK} is late in 3 of 3 steps: 7.99 ms of a"
    assert title in capsys.readouterr().out
    page = filed("ranks")
    assert not page.exception
    assert title in page.expander[0].label
    assert "Speed up its data loading" in texts(page)
    cards = {metric.label: metric.value for metric in page.metric}
    assert (cards[SAVED], cards["Slowest rank"]) == ("7.99 ms", "none")


def test_the_page_shows_places_and_what_ranks_send(run: DistributedRun, filed: Draw) -> None:
    sent = {"src": [0, 1], "dst": [1, 0], "bytes": [9_000_000, 3_000_000], "count": [6, 3]}
    pairs = pl.DataFrame(sent | {"transfer_us": [1.0, None]}, schema=run.tables["pairs"].schema)
    pairs.write_parquet(RunPaths(run.root).table("pairs"))
    ranks = run.tables["ranks"].with_columns(pp=pl.col("rank"), gain_ms="gain_low_ms")
    ranks.write_parquet(RunPaths(run.root).table("ranks"))
    page = filed("ranks")
    assert not page.exception
    rows = datasets(page)["cells of pairs"].sort("src")
    steps = run.tables["rank_steps"]["step"].n_unique()
    assert rows["mb"].to_list() == pytest.approx([9 / steps, 3 / steps])
    assert rows["count"].to_list() == pytest.approx([6 / steps, 3 / steps])
    tables = [frame for frame in page.dataframe if "place" in frame.value.columns]
    assert tables[0].value["place"].to_list() == ["dp0, pp0", "dp1, pp1"]
    assert used_px(tables[0], C.times_last) <= CARD_PX
    (groups,) = [frame for frame in page.dataframe if "role" in frame.value.columns]
    assert groups.value["role"].to_list() == ["dp"]
    assert used_px(groups) <= CARD_PX


def test_times_of_ranks_are_those_of_a_step(run: DistributedRun, filed: Draw) -> None:
    steps = run.tables["rank_steps"]
    rows = ranks_per_step(run.tables)
    for name in ("compute_ms", "idle_ms", "exposed_wait_ms"):
        means = [steps.filter(pl.col("rank") == rank)[name].mean() for rank in rows["rank"]]
        assert rows[name].to_list() == pytest.approx(means)
    waited = run.tables["ranks"]["caused_exposed_wait_ms"][LATE_RANK]
    count = steps["step"].n_unique()
    assert rows["caused_exposed_wait_ms"][LATE_RANK] == pytest.approx(waited / count)
    page = filed("ranks")
    cards = {metric.label: metric.value for metric in page.metric}
    assert cards["Exposed waiting"] == milliseconds(rows["exposed_wait_ms"].median())
    tables = [frame.value for frame in page.dataframe]
    (shown,) = [table for table in tables if "caused_exposed_wait_ms" in table.columns]
    assert shown["compute_ms"].to_list() == pytest.approx(rows["compute_ms"].to_list())
    assert page.selectbox(key="ranks_measure").value == "Step time without waiting (ms)"
    inner = run.tables["instances"].filter(~pl.col("is_edge"))
    kernels = run.tables["instance_ranks"].join(inner, on="instance_id", how="semi")
    comm_ns = kernels["end_ns"].sum() - kernels["start_ns"].sum()
    (groups,) = [table for table in tables if "comm_id" in table.columns]
    assert groups["comm_ms"].sum() == pytest.approx(comm_ns / 1e6 / (RANKS - 1) / count)
    edges = run.tables["instances"].height - inner.height
    assert f"Times exclude {edges:,} of {run.tables['instances'].height} coll" in texts(page)


def test_a_page_of_many_ranks_sends_few_rows_and_explains_only_those_it_shows(
    run: DistributedRun, filed: Draw, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks, collectives, shown = 1024, 12, 5
    arrivals = [
        [at * 1000 * US + (500 * US if rank == 7 * at else rank % 5 * US) for rank in range(ranks)]
        for at in range(collectives)
    ]
    joined = join(members(job(arrivals)), ranks)
    paths = RunPaths(run.root)
    for name in joined.tables:
        joined.tables.write(name, paths.table(name))
    manifest = json.loads(paths.manifest.read_bytes())
    manifest["world_size"]["value"] = ranks
    paths.manifest.write_text(json.dumps(manifest))
    late = delays(joined.tables["lateness"], joined.tables["instances"])
    assert late.height > shown
    explained = []

    def counted(rows: pl.DataFrame, causes: pl.DataFrame) -> pl.DataFrame:
        explained.append(rows.height)
        return with_causes(rows, causes)

    monkeypatch.setattr(lateness, "MAX_ROWS", shown)
    monkeypatch.setattr(lateness, "with_causes", counted)
    page = filed("ranks")
    assert not page.exception
    assert explained == [shown]
    sent = datasets(page)
    cells = next(rows for name, rows in sent.items() if name.endswith("arrivals"))
    assert cells["row"].n_unique() == MAX_ROWS
    assert cells.height == MAX_ROWS * collectives
    assert max(rows.height for rows in sent.values()) == cells.height
    assert "Several ranks share a row" in texts(page)


def test_the_list_of_runs_has_one_row_for_all_ranks(run: DistributedRun, filed: Draw) -> None:
    page = filed("runs")
    assert not page.exception
    (row,) = page.dataframe[0].value.to_dict("records")
    assert row["id"] == run.manifest.distributed_id
    (entry,) = read_catalog().distributed
    assert entry.title == f"{run.manifest.name} · 2 of 3 ranks (0-1) · {entry.id}"
    assert row["run_ms"] == min(RunRow(entry).figures.time_ms for entry in read_catalog().entries)
    assert "A trend needs two runs" in texts(page)
    job = run_rows(read_catalog())[0]
    assert not groups_of([job, RunRow(job.entry)]), "a job and one rank are no trend"
    newest = page.main.get("page_link")[0].proto
    assert (newest.page, newest.query_string.split("&")[-1]) == ("ranks", f"ranks_run={row['id']}")
    every = filed("runs", runs_ranks="each rank")
    rows = every.dataframe[0].value
    assert sorted(rows["rank"].to_list()) == ["2 ranks", "rank 0", "rank 1"]
    assert "A trend needs two runs" in texts(every)


def test_files_of_the_run_are_made_and_downloaded(
    run: DistributedRun, filed: Draw, monkeypatch: pytest.MonkeyPatch
) -> None:
    do_jobs_at_once(monkeypatch)
    page = filed("ranks", ranks_of_trace="7")
    assert page.error[0].value == "Type some of the ranks 0-1, such as 0,4-7."
    page.text_input(key="ranks_of_trace").set_value("1").run()
    button = next(each for each in page.button if each.label == "Trace of the ranks …")
    page = button.click().run()
    assert not page.exception
    links = [link.proto.label for link in page.get("link_button")]
    assert any(label.startswith(run.manifest.distributed_id) for label in links), links
    assert "as perfetto of ranks 1" in texts(page)


def test_a_rank_is_not_compared_with_another_rank_of_its_run_unasked(
    run: DistributedRun, filed: Draw
) -> None:
    first, second = (str(each.analysis_id) for each in run.manifest.usable)
    page = filed("compare", analysis=first)
    assert page.selectbox("compare_reference").value is None
    assert "is stored except the other ranks of this run" in texts(page)
    chosen = filed("compare", analysis=first, reference=second)
    assert chosen.selectbox("compare_reference").value == second
    opened = SimpleNamespace(id=first, run=Run.load(analysis_root(first)))
    catalog = read_catalog()
    assert not any(each.is_alike for each in candidates(opened, catalog))  # type: ignore[arg-type]
    of_other_runs = candidates(opened, replace(catalog, distributed=()))  # type: ignore[arg-type]
    assert [each.is_alike for each in of_other_runs] == [True]


def test_delays_are_named_once(run: DistributedRun) -> None:
    tables = run.tables
    rows = delays(tables["lateness"], tables["instances"])
    assert rows.filter(rows["new_ms"] > 5).height == 1


def test_a_delay_leads_to_its_event_on_the_timeline_of_the_rank(
    run: DistributedRun, filed: Draw
) -> None:
    rows = with_causes(delays(run.tables["lateness"], run.tables["instances"]), run.tables)
    rows = pl.concat([rows.head(1), rows.head(1).with_columns(uid=pl.lit(None, pl.Int64))])
    late, without = lateness.event_addresses(run, rows)
    assert without.startswith("overview?")
    url_path, _, parameters = late.partition("?")
    assert url_path == "timeline"
    page = filed("timeline", **dict(each.split("=") for each in parameters.split("&")))
    assert not page.exception
    assert "**Selected: " in texts(page)


def test_a_rank_is_not_late_from_itself(run: DistributedRun) -> None:
    late = run.tables["lateness"]
    inherited = late.with_columns(
        inherited_ns=pl.col("lateness_ns"),
        own_lateness_ns=pl.lit(0, late.schema["own_lateness_ns"]),
        held_instance=pl.lit(0, late.schema["held_instance"]),
    )
    other = pl.lit(9, late.schema["root_rank"])
    instances = run.tables["instances"]
    for root, cause in ((pl.col("rank"), "late already"), (other, "late already, from rank 9")):
        rows = delays(inherited.with_columns(root_rank=root), instances)
        assert set(with_causes(rows, run.tables)["cause"]) == {cause}


def test_the_page_of_a_rank_leads_to_the_others(run: DistributedRun, filed: Draw) -> None:
    ids = {entry.rank: str(entry.analysis_id) for entry in run.manifest.usable}
    page = filed("overview", analysis=ids[0])
    assert not page.exception
    links = {link.proto.label: link.proto.query_string for link in page.sidebar.get("page_link")}
    assert f"analysis={ids[1]}" in links["▶ rank 1"]
    assert f"ranks_run={run.manifest.distributed_id}" in links["Rank 0 · all 3 ranks"]


def test_pages_of_one_trace_lead_from_a_distributed_run_to_its_ranks(
    run: DistributedRun, filed: Draw
) -> None:
    distributed_id = run.manifest.distributed_id
    ids = {entry.rank: str(entry.analysis_id) for entry in run.manifest.usable}
    for name in ("overview", "report", "timeline", "compare"):
        page = filed(name, analysis=distributed_id)
        assert not page.exception
        assert not page.error
        assert "This is a distributed run of 2 ranks" in texts(page)
        links = {link.proto.label: link.proto for link in page.main.get("page_link")}
        assert f"ranks_run={distributed_id}" in links["**Ranks**"].query_string
        assert f"analysis={ids[1]}" in links["Rank 1"].query_string
        assert links["Rank 1"].page == name


def test_communication_of_a_rank_leads_to_ranks(run: DistributedRun, registered: Draw) -> None:
    page = registered("multi_kernel", analysis=str(run.manifest.usable[1].analysis_id))
    assert not page.exception
    assert "This is rank 1 of 3" in texts(page)
    links = {link.proto.label: link.proto for link in page.main.get("page_link")}
    query = links["Who waits for whom: Ranks"].query_string
    assert f"ranks_run={run.manifest.distributed_id}" in query
    (kernels,) = [each.value for each in page.dataframe if "algo_gbs" in each.value.columns]
    assert (kernels[["bytes", "algo_gbs"]] > 0).all(axis=None)


def test_ranks_of_a_rank_has_the_ranks_beside_it(run: DistributedRun, filed: Draw) -> None:
    ids = {entry.rank: str(entry.analysis_id) for entry in run.manifest.usable}
    for name, is_same_page in (("ranks", False), ("runs", False), ("timeline", True)):
        page = filed(name, analysis=ids[0])
        links = {link.proto.label: link.proto for link in page.sidebar.get("page_link")}
        assert (links["▶ rank 1"].page == name) is is_same_page
        assert f"analysis={ids[1]}" in links["▶ rank 1"].query_string


def test_without_a_distributed_run_the_page_tells_how_to_make_one(filed: Draw) -> None:
    page = filed("ranks")
    assert not page.exception
    assert "No distributed run is stored yet" in texts(page)
    assert page.code[0].value == "jarvis analyze FOLDER_OF_TRACES --id"
    assert "Upload traces" in {link.proto.label for link in page.main.get("page_link")}


def test_the_same_ranks_again_replace_the_run(run: DistributedRun, traces: Path) -> None:
    assert main(["analyze", str(traces), "--id", "--jobs", "1"]) == 0
    assert len(read_catalog().distributed) == 1
    assert len(read_catalog().entries) == RANKS - 1


def test_a_run_of_one_rank_shows_no_findings_of_other_runs(
    run: DistributedRun, filed: Draw
) -> None:
    page = filed("ranks", analysis="0123456789ab")
    assert not page.exception
    assert "The open run is of one rank alone." in texts(page)
    assert not page.metric
    chosen = filed("ranks", analysis="0123456789ab", ranks_run=run.manifest.distributed_id)
    assert chosen.metric
