"""The ingest page: traces from URLs, and traces analyzed on another machine."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from jarvis.dashboard.pages.runs.rows import SOURCE
from jarvis.run import SCHEMA_VERSION
from jarvis.server.storage.archive import save_archive
from jarvis.server.storage.catalog import read_catalog
from tests.builders import trace
from tests.dashboard.conftest import Draw
from tests.dashboard.copied import copied_url
from tests.dashboard.inline_jobs import do_jobs_at_once
from tests.ranks.test_distributed import rank_trace
from tests.server.file_server import FileServer, file_server

SSH = '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nexec sh -c "$3"\n'
"""Fake ssh that runs the command on this machine. Other tests use the real one."""

JARVIS = f"""\
#!/bin/sh
case "$1" in
--version) echo "jarvis 0.1.0, layout {SCHEMA_VERSION}" ;;
analyze) echo "$@" > "$0.asked" ;;
archive) cp "$0.zip" "$5" ;;
esac
"""
"""Fake remote Jarvis that returns the analyzed sample."""


@pytest.fixture(autouse=True)
def _fresh_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "home"))
    do_jobs_at_once(monkeypatch)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    built = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=12)
    return built.write(tmp_path / "small.json")


@pytest.fixture
def server(small: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    with file_server(small.read_bytes()) as running:
        for variable in ("JARVIS_INGEST_HOSTS", "JARVIS_INGEST_PRIVATE_HOSTS"):
            monkeypatch.setenv(variable, f"127.0.0.1:{running.port}")
        yield running


def press(page: AppTest, label: str) -> AppTest:
    return next(button for button in page.button if button.label == label).click().run()


def test_sources_without_settings_are_not_shown(
    filed: Draw, monkeypatch: pytest.MonkeyPatch
) -> None:
    for source in ("address", "remote"):
        page = filed("ingest", ingest_source=source)
        assert page.segmented_control(key="ingest_source").value == "upload"
        assert source in page.warning[0].value
    control = page.segmented_control(key="ingest_source")
    assert control.options == ["upload", "server path", "sample"]
    assert "JARVIS_INGEST_HOSTS" in control.help
    assert "JARVIS_TARGETS" in control.help
    monkeypatch.setenv("JARVIS_INGEST_HOSTS", "traces.example.org")
    monkeypatch.setenv("JARVIS_TARGETS", json.dumps({"lab": {"host": "lab.example.org"}}))
    options = filed("ingest").segmented_control(key="ingest_source").options
    assert options == ["upload", "server path", "URL", "remote", "sample"]


def test_people_read_url_and_links_say_address(
    filed: Draw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JARVIS_INGEST_HOSTS", "traces.example.org")
    page = filed("ingest")
    source = page.segmented_control(key="ingest_source")
    assert "URL" in source.options
    assert "address" not in source.options
    source.set_value("address").run()
    assert page.query_params["ingest_source"] == "address"
    linked = filed("ingest", ingest_source="address")
    assert linked.segmented_control(key="ingest_source").value == "address"
    assert not linked.warning
    assert "ingest_source=address" in copied_url(linked)
    wrong = filed("ingest", ingest_source="nowhere")
    assert wrong.segmented_control(key="ingest_source").value == "upload"
    assert "ingest_source" not in wrong.query_params


def test_a_trace_of_an_address_is_described_and_analyzed(filed: Draw, server: FileServer) -> None:
    page = filed("ingest", ingest_source="address")
    typed = f"http://127.0.0.1:{server.port}/small.json"
    assert page.text_input(key="ingest_url").label == "URL"
    page.text_input(key="ingest_url").set_value(f"{typed}?token=secret").run()
    page = press(page, "Fetch")
    assert not page.error
    assert server.asked[0][0] == "/small.json?token=secret"
    assert any("small.json" in caption.value for caption in page.main.caption)
    assert page.query_params["ingest_url"] == typed
    assert "secret" not in str(page.query_params)
    job = page.query_params["ingest_fetch_job"]
    page = press(page, "Analyze")
    (entry,) = read_catalog().entries
    assert entry.manifest.trace.file_name == "small.json"
    linked = filed("ingest", ingest_source="address", ingest_url=typed, ingest_fetch_job=job)
    assert linked.text_input(key="ingest_url").value == typed
    assert linked.selectbox(key="ingest_platform").value
    assert len(server.asked) == 1


def test_the_traces_of_a_folder_are_analyzed_as_ranks(filed: Draw, server: FileServer) -> None:
    names = [f"rank{rank}.json" for rank in range(3)]
    links = "".join(f'<a href="{name}">{name}</a>' for name in [*names, "lost.json"])
    server.files = {f"/job/{name}": content_of(rank) for rank, name in enumerate(names)}
    server.files["/job/"] = links.encode()
    typed = f"http://127.0.0.1:{server.port}/job/"
    page = press(filed("ingest", ingest_source="address", ingest_url=typed), "Fetch")
    assert not page.error
    assert page.warning[0].value.startswith("lost.json: ")
    assert any("3 ranks, each with an analysis" in caption.value for caption in page.main.caption)
    press(page, "Analyze")
    (run,) = read_catalog().distributed
    assert run.manifest.title == "3 of 3 ranks (0-2)"
    page = filed("ingest", ingest_reference_source="address", ingest_reference_url=typed)
    button = next(each for each in page.button if each.key == "_ingest_reference_fetch")
    assert button.click().run().error[0].value == "Give the URL of one trace."


def content_of(rank: int) -> bytes:
    return json.dumps(rank_trace(rank).document()).encode()


def test_the_page_of_jobs_leads_on_from_a_fetched_trace(filed: Draw, server: FileServer) -> None:
    address = f"http://127.0.0.1:{server.port}/small.json"
    page = press(filed("ingest", ingest_source="address", ingest_url=address), "Fetch")
    page = filed("jobs", job=page.query_params["ingest_fetch_job"])
    assert not page.exception
    assert "Analyze the trace" in [link.proto.label for link in page.get("page_link")]


def test_an_address_that_is_not_allowed_is_refused_with_a_sentence(
    filed: Draw, server: FileServer
) -> None:
    address = "http://169.254.169.254/latest/meta-data/a.json"
    page = press(filed("ingest", ingest_source="address", ingest_url=address), "Fetch")
    assert "are not allowed" in page.error[0].value
    assert page.text_input(key="ingest_url").value == address
    server.status = 404
    page.text_input(key="ingest_url").set_value(f"http://127.0.0.1:{server.port}/a.json").run()
    page = press(page, "Fetch")
    assert "404" in page.error[0].value
    assert any(button.label == "Retry" for button in page.button)


def test_a_trace_is_analyzed_on_another_machine(
    filed: Draw, home: Path, sample_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_archive(home / "analyses" / sample_id, tmp_path / "jarvis.zip")
    for name, program in (("ssh", SSH), ("jarvis", JARVIS)):
        (tmp_path / name).write_text(program)
        (tmp_path / name).chmod(0o755)
    jarvis, ssh = str(tmp_path / "jarvis"), str(tmp_path / "ssh")
    lab = {"host": "lab.example.org", "command": [jarvis], "ssh": [ssh], "roots": [str(tmp_path)]}
    monkeypatch.setenv("JARVIS_TARGETS", json.dumps({"other": lab, "lab": lab}))
    (tmp_path / "far.json").touch()
    page = filed(
        "ingest",
        ingest_source="remote",
        ingest_target="lab",
        ingest_remote_path=str(tmp_path / "far.json"),
        ingest_remote_platform="MI325X",
        ingest_model="Far away",
    )
    assert page.selectbox(key="ingest_target").value == "lab"
    assert page.selectbox(key="ingest_remote_platform").value == "MI325X"
    page = press(page, "Analyze")
    assert not page.error
    asked = (tmp_path / "jarvis.asked").read_text()
    assert "--platform=MI325X --preset=reference --model=Far away" in asked
    assert f" {tmp_path}/far.json " in asked
    assert [entry.id for entry in read_catalog().entries] == [sample_id]
    assert "on lab" in page.success[0].value
    assert filed("runs").dataframe[0].value[SOURCE].to_list() == ["lab"]
    page = filed(
        "ingest",
        ingest_source="remote",
        ingest_target="lab",
        ingest_remote_path="/etc/shadow.json",
    )
    page = press(page, "Analyze")
    assert "in the allowed folders of lab" in page.error[0].value
