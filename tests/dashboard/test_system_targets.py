"""The sliders of the system pages: recovered time in metrics and findings."""

from pathlib import Path
from urllib.parse import parse_qsl

import polars as pl
import pytest

from jarvis.analyses import load_analyses
from jarvis.dashboard.pages.system.cpu_idle import gap_addresses
from jarvis.dashboard.session.state import load_stored
from jarvis.run import Run
from jarvis.run.timeline_events import idle_gaps
from jarvis.server.storage.catalog import analysis_root
from jarvis.server.submission import Submission, submit
from jarvis.text.format import milliseconds
from tests.builders import trace
from tests.dashboard.conftest import Draw, stored_in

MM = [[64, 64], [64, 64]]
TARGETS = {
    key: a.target for key, a in load_analyses().items() if a.tier == "system" and not a.only_with
}


@pytest.fixture(scope="module")
def stalling_id(home: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a trace with 40 µs of compute, 60 µs of exposed communication and a long gap."""
    built = trace(device="AMD Instinct MI300X").op("aten::mm", MM).launches("gemm", us=40)
    built.op("c10d::allreduce_").launches("ncclDevKernel_AllReduce", us=160, stream=9)
    built.waits(900).op("aten::mm", MM).launches("gemm", us=40)
    path = built.write(tmp_path_factory.mktemp("t") / "stalling.json")
    return stored_in(home, Submission(path))


def test_every_system_analysis_of_all_runs_has_a_target() -> None:
    assert all(TARGETS.values())


@pytest.mark.parametrize(("key", "pct"), [("multi_kernel", 40), ("cpu_idle", 60)])
def test_the_slider_moves_figure_and_finding(
    registered: Draw, stalling_id: str, key: str, pct: int
) -> None:
    target = TARGETS[key]
    assert target is not None
    totals = Run.load(analysis_root(stalling_id)).manifest.totals
    expected = {p: milliseconds(target.recovered_ms(totals, p)) for p in (target.default_pct, pct)}
    assert len(set(expected.values())) == 2
    page = registered(key, analysis=stalling_id)
    for chosen in expected:
        page.slider(key=f"{key}_target").set_value(int(chosen)).run()
        assert not page.exception
        figures = {m.label: m.value for m in page.metric}
        assert figures[f"Recovered at {int(chosen)}%"] == expected[chosen]
        if key == "cpu_idle":  # findings of single causes do not depend on the target
            continue
        texts = [*(card.label for card in page.expander), *(m.value for m in page.markdown)]
        assert any(expected[chosen] in text for text in texts)


@pytest.mark.parametrize(("key", "pcts"), [("multi_kernel", (20, 50, 90)), ("cpu_idle", (90, 20))])
def test_the_step_time_saved_is_a_replay_at_the_target(
    registered: Draw, tmp_path: Path, key: str, pcts: tuple[int, ...]
) -> None:
    """The step waits 864 µs for the host, and 124 µs for communication alone."""
    built = trace(device="AMD Instinct MI300X").op("aten::mm", MM).launches("gemm", us=40)
    built.waits(900).op("aten::mm", MM).launches("gemm", us=40)
    built.op("c10d::allreduce_").launches("ncclDevKernel_AllReduce", us=160, stream=9)
    submitted = submit(Submission(built.write(tmp_path / "host-bound.json")))
    page = registered(key, analysis=submitted.id)
    saved = []
    for pct in pcts:
        page.slider(key=f"{key}_target").set_value(pct).run()
        assert not page.exception
        figures = {m.label: m.value for m in page.metric}
        if any(m.value.startswith(f"**The target of {pct}% is reached.**") for m in page.markdown):
            saved.append(milliseconds(0))
            assert f"Recovered at {pct}%" not in figures
        else:
            saved.append(figures[f"Step time saved at {pct}%"])
    # Of 50%: 160 µs of communication may show 80, so 44 µs go.
    expected_us = {"multi_kernel": (0, 44, 108), "cpu_idle": (0, 812.059)}[key]
    assert saved == [milliseconds(us / 1e3) for us in expected_us]


def test_the_slider_promises_no_more_than_the_finding_says_at_most(
    registered: Draw, tmp_path: Path
) -> None:
    """A kernel starts 900 ms after its launch: the GPU may have been busy."""
    built = trace().op("aten::mm", MM).launches("gemm", us=40)
    built.op("aten::mm", MM).launches("gemm", us=40, at_us=900_000).up()
    built.op("aten::item").runtime("cudaStreamSynchronize", us=900_000)
    submitted = submit(Submission(built.write(tmp_path / "stalled.json")))
    page = registered("cpu_idle", analysis=submitted.id)
    figures = {m.label: m.value for m in page.metric}
    assert figures["Recovered at 20%"] == milliseconds(0)


def test_a_target_that_is_met_has_no_figures_of_zero(registered: Draw, stalling_id: str) -> None:
    page = registered("multi_kernel", analysis=stalling_id, multi_kernel_target="10")
    assert any(m.value.startswith("**The target of 10% is reached.**") for m in page.markdown)
    assert not [m.label for m in page.metric if m.label.startswith("Recovered")]


def test_a_link_carries_the_target(registered: Draw, stalling_id: str) -> None:
    page = registered("cpu_idle", analysis=stalling_id, cpu_idle_target="35")
    assert page.slider(key="cpu_idle_target").value == 35


def test_the_idle_page_lists_the_gaps_with_their_cause(registered: Draw, stalling_id: str) -> None:
    page = registered("cpu_idle", analysis=stalling_id)
    assert not page.exception
    gaps = idle_gaps(Run.load(analysis_root(stalling_id)))
    shown = next(table.value for table in page.dataframe if "idle_ms" in table.value)
    listed = gaps.filter(gaps["dur_ns"] >= 1000)
    assert shown["idle_ms"].sum() == pytest.approx(listed["dur_ns"].sum() / 1e6)
    assert shown["cause"].to_list()[0] == "Waiting for communication"
    assert gaps.sort("dur_ns")["cause"].to_list()[-1] == "communication"


def test_a_gap_leads_to_the_timeline_there(registered: Draw, filed: Draw, stalling_id: str) -> None:
    page = registered("cpu_idle", analysis=stalling_id)
    shown = next(table.value for table in page.dataframe if "idle_ms" in table.value)
    gap = Run.load(analysis_root(stalling_id)).table("idle_gaps").sort("dur_ns")[-1]
    address = gap_addresses(load_stored(stalling_id), gap)[0]
    path, _, query = address.partition("?")
    timeline = filed(path, **dict(parse_qsl(query)))
    assert not timeline.warning
    gaps = next(table.value for table in timeline.dataframe if "gap_ms" in table.value)
    assert gaps["gap_ms"][0] == pytest.approx(shown["idle_ms"][0])
    assert timeline.number_input(key="timeline_length").value < 2 * shown["idle_ms"][0]


def test_the_idle_page_has_the_gaps_of_its_findings(
    registered: Draw, filed: Draw, sample_id: str
) -> None:
    """The step begins with the longest gap, outside the GPU window, and has the first finding."""
    run = Run.load(analysis_root(sample_id))
    gaps, bounds = idle_gaps(run), run.manifest.totals.step
    assert bounds is not None
    assert gaps["dur_ns"].sum() / 1e6 == pytest.approx(bounds.idle_ms)
    page = registered("cpu_idle", analysis=sample_id)
    shown = next(table.value for table in page.dataframe if "idle_ms" in table.value)
    assert shown["idle_ms"].max() == pytest.approx(gaps["dur_ns"].max() / 1e6)
    texts = [m.value for m in page.markdown]
    assert any(f"({milliseconds(bounds.idle_ms)} in the 2 steps)" in text for text in texts)
    assert any(text.startswith("**The target of 20% is reached.**") for text in texts)
    assert not any("good" in text for text in texts if "badge" in text)
    overview = filed("overview", analysis=sample_id)
    idle = next(m for m in overview.metric if m.label == "Idle")
    assert idle.delta.startswith("elevated")
    timeline = filed("timeline", analysis=sample_id)
    assert any(f"idle {idle.value}" in m.value for m in timeline.markdown)


def test_unlinked_work_that_hides_communication_is_stated(registered: Draw, tmp_path: Path) -> None:
    """The page of communication shows the figures of TraceLens and of the steps."""
    texts = []
    for unlinked in (False, True):
        built = trace(device="AMD Instinct MI300X").op("aten::mm", MM).launches("gemm", us=40)
        built.op("c10d::allreduce_").launches("ncclDevKernel_AllReduce", us=160, stream=9)
        if unlinked:
            last = built.events[-1]
            kernel = {"ph": "X", "cat": "kernel", "name": "alone", "pid": 0, "tid": 11}
            args = {"device": 0, "stream": 11}
            built.events.append({**kernel, "ts": last["ts"] + 100, "dur": 20.0, "args": args})
        submitted = submit(Submission(built.write(tmp_path / f"{unlinked}.json")))
        page = registered("multi_kernel", analysis=submitted.id)
        assert not page.exception
        texts.append([c.value for c in page.caption if "not linked to its launch" in c.value])
    assert texts[0] == []
    (text,) = texts[1]
    assert text.endswith("In the recording, with all GPU work, 0.104 ms is exposed.")


def test_communication_without_a_recorded_launch_is_named(registered: Draw, tmp_path: Path) -> None:
    built = trace(device="AMD Instinct MI300X").op("aten::mm", MM).launches("gemm", us=40)
    built.op("c10d::allreduce_").launches("ncclDevKernel_AllReduce", us=160, stream=9)
    kernel = {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "pid": 0, "tid": 9}
    args = {"device": 0, "stream": 9}
    after = built.events[-1]["ts"] + 500
    built.events.append({**kernel, "ts": after, "dur": 300.0, "args": args})
    submitted = submit(Submission(built.write(tmp_path / "unlinked.json")))
    page = registered("multi_kernel", analysis=submitted.id)
    assert not page.exception
    words = "Not included: 1 communication kernel whose launch is not recorded, of up to 0.300 ms"
    assert any(words in caption.value for caption in page.caption)
    lines = [text.value for text in page.markdown]
    assert any("**Exposed time**" in line for line in lines)
    assert not any("**Kernel time**" in line for line in lines)


def test_steps_whose_equal_collectives_differ_are_named(
    registered: Draw, filed: Draw, sample_id: str, sample_run: Run
) -> None:
    """The sample waits for other ranks in its second step."""
    collectives, steps = sample_run.table("collectives"), sample_run.table("steps")
    short, long = collectives.group_by("step").agg(pl.col("dur_us").sum()).sort("step")["dur_us"]
    expected = (
        f"15 collectives of equal sizes take {milliseconds(short / 1000)} in {steps['name'][0]} "
        f"and {milliseconds(long / 1000)} in {steps['name'][1]}"
    )
    page = registered("multi_kernel", analysis=sample_id)
    assert any(w.value.startswith(expected) for w in page.warning)
    assert any(m.value.startswith(expected) for m in filed("overview", analysis=sample_id).markdown)
    table = page.dataframe[-1].value
    longest = collectives.sort("dur_us", descending=True).head(10)
    assert set(table["step"]) == {steps["name"][1]}
    expected_gbs = longest["in_bytes"] / longest["dur_us"] / 1e3
    assert table["algo_gbs"].tolist() == pytest.approx(expected_gbs.to_list(), rel=1e-6)
    caption = "Equal in all rows: dtype bf16, process group 0, group size 8, stream 4."
    assert caption in [c.value for c in page.caption]
