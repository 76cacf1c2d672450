"""The replay page, and replay packages on category pages."""

import io
import json
import zipfile
from math import isnan
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from jarvis.replay import replay_candidates, select
from jarvis.run import Run
from jarvis.server.storage.catalog import analysis_root
from jarvis.server.submission import Submission, submit
from jarvis.text.markdown import escape
from jarvis.text.short_names import short_operation_name
from tests.builders import trace
from tests.dashboard.conftest import Draw
from tests.dashboard.inline_jobs import do_jobs_at_once


def words(page: AppTest) -> str:
    """Return all plain text of a page."""
    elements = [*page.markdown, *page.warning, *page.info, *page.caption]
    return "\n".join(element.value for element in elements)


def operators(page: AppTest) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = page.dataframe[0].value.to_dict("records")
    return rows


def test_every_operator_is_in_the_table(filed: Draw, sample_id: str, sample_run: Run) -> None:
    page = filed("replay", analysis=sample_id)
    assert not page.exception
    page.session_state["_is_wide"] = True  # names are whole
    page.run()
    found = replay_candidates(sample_run)
    rows = operators(page)
    assert [row["op_name"] for row in rows] == [
        short_operation_name(offer.op_name) for offer in found
    ]
    assert [row["calls"] for row in rows] == [offer.calls for offer in found]
    times = [row["time_ms"] for row in rows]
    assert times == sorted(times, reverse=True), "the longest operator comes first"
    assert {row["package"] for row in rows} >= {"recommended", "on demand", "none"}
    reasons = {offer.reason for offer in found if offer.reason}
    assert reasons
    assert all(escape(reason) in words(page) for reason in reasons)
    shown = page.metric[1]
    packaged = sum(1 for offer in found if offer.distinct_calls)
    assert shown.value == f"{packaged} of {len(found)}"
    assert "Select operators in the table" in words(page)
    shares = [row["percent_of_compute"] for row in rows]
    assert [isnan(share) for share in shares] == [not offer.percent_of_compute for offer in found]


def test_a_link_selects_operators_and_a_job_packages_them(
    filed: Draw, sample_id: str, sample_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    do_jobs_at_once(monkeypatch)
    product = next(o for o in replay_candidates(sample_run) if o.op_name == "aten::mm")
    roots = next(o for o in replay_candidates(sample_run) if o.op_name == "aten::_foreach_sqrt")
    asked = f"{product.uids[-1]}-{roots.uids[0]}"
    page = filed("replay", analysis=sample_id, replay_ops=asked)
    assert not page.exception
    page.button(key="replay_make_Replay package").click().run()
    assert not page.exception
    (link,) = page.get("link_button")
    assert link.proto.label.startswith("Sample_model_aten_mm_replay_package.zip (")
    assert "aten_mm_replay_package.zip replay" in page.code[0].value
    assert "`aten::_foreach_sqrt`" in page.warning[-1].value
    calls = page.dataframe[1].value
    assert len(calls) == product.distinct_calls
    assert int(calls["count"].sum()) == product.calls
    shown = json.loads(page.json[0].value)
    assert shown == select(sample_run, product.uids).entries[0]
    # The link always has the operator's first row.
    assert page.query_params["replay_ops"] == f"{product.uids[0]}-{roots.uids[0]}"


def test_filters_keep_what_is_selected(filed: Draw, sample_id: str, sample_run: Run) -> None:
    product = next(o for o in replay_candidates(sample_run) if o.op_name == "aten::mm")
    page = filed(
        "replay", analysis=sample_id, replay_ops=str(product.uids[0]), replay_show="cannot"
    )
    assert {row["package"] for row in operators(page)} == {"none"}
    assert "aten_mm_replay_package" in page.code[0].value
    page = filed("replay", analysis=sample_id, replay_search="foreach_sqrt")
    assert [row["op_name"] for row in operators(page)] == ["_foreach_sqrt"]
    page = filed("replay", analysis=sample_id, replay_search="no such operator")
    assert "No operator passes the filters" in words(page)


def test_a_link_to_other_operators_says_so(filed: Draw, sample_id: str) -> None:
    page = filed("replay", analysis=sample_id, replay_ops="99999999-x")
    assert not page.exception
    assert "operators that this analysis does not have" in words(page)


def test_a_trace_without_arguments_says_how_to_record_them(
    filed: Draw, reference_root: Path
) -> None:
    entry = submit(Submission(reference_root / "traces" / "mi210-gpu-only.json.gz"))
    page = filed("replay", analysis=entry.id)
    assert not page.exception
    assert page.metric[0].value == "0.0%"
    assert "record_shapes=True" in words(page)


@pytest.fixture
def small_id(tmp_path: Path, home: Path) -> str:
    """Return a product that can be replayed and one of an unknown dtype."""
    builder = trace(device="AMD Instinct MI300X")
    builder.op("aten::mm", [[4096, 1024], [1024, 4096]]).launches("slow", us=900.0)
    builder.op("aten::mm", [[64, 64], [64, 64]], types=["c10::Mystery"] * 2)
    builder.launches("gemm", us=800.0)
    return submit(Submission(builder.write(tmp_path / "small.json"))).id


def test_an_operation_offers_its_own_package(registered: Draw, small_id: str) -> None:
    run = Run.load(analysis_root(small_id))
    by_type = dict(run.table("operations").select("input_types", "uid").rows())
    known = next(uid for types, uid in by_type.items() if "Mystery" not in types)
    page = registered("gemm", analysis=small_id, gemm_op=str(known))
    assert not page.exception
    assert [b.label for b in page.get("download_button")] == ["Replay package"]
    with zipfile.ZipFile(io.BytesIO(select(run, [known]).package())) as archive:
        assert len(json.loads(archive.read("replay_ir.json"))) == 1
    unknown = next(uid for types, uid in by_type.items() if "Mystery" in types)
    page = registered("gemm", analysis=small_id, gemm_op=str(unknown))
    assert not page.get("download_button")
    assert "No replay package: its recorded arguments fit no known signature." in words(page)


def test_operators_of_the_same_short_name_differ(filed: Draw, tmp_path: Path) -> None:
    built = trace(device="AMD Instinct MI300X")
    for warps in (16, 64):
        built = built.op(f"void add_norm<float, {warps}>(float*)", []).launches("norm", us=10.0)
    path = built.write(tmp_path / "norms.json")
    page = filed("replay", analysis=submit(Submission(path)).id)
    assert not page.exception
    assert sorted(page.dataframe[0].value["op_name"]) == ["add_norm <16>", "add_norm <64>"]
