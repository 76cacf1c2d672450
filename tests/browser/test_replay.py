"""A replay package, chosen with the mouse, downloaded and opened."""

import io
import json
import zipfile

import pytest
from playwright.sync_api import Browser

from jarvis.replay import replay_candidates
from jarvis.run import Run
from jarvis.server.ingest.intake import sample_trace
from jarvis.server.submission import Submission, submit
from tests.browser.conftest import Server, saved_from_link, settled


def test_a_selection_is_downloaded_as_one_package(browser: Browser, server: Server) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JARVIS_HOME", str(server.home))
        entry = submit(Submission(sample_trace(), model_name="Sample model"))
    first, second = replay_candidates(Run.load(entry.root))[:2]
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(f"{server.url}/replay?analysis={entry.id}&replay_ops={second.uids[0]}")
    settled(page)
    table = page.get_by_test_id("stDataFrame").first
    table.click(position={"x": 16, "y": 52})  # the box of the first row
    page.wait_for_url(f"**replay_ops={first.uids[0]}-{second.uids[0]}")
    settled(page)
    page.get_by_role("button", name="Replay package …", exact=True).click()
    link = page.get_by_role("link", name="2_operators_replay_package.zip")
    name, content = saved_from_link(page, link)
    assert name == "Sample_model_2_operators_replay_package.zip"
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = json.loads(archive.read("replay_ir.json"))
        assert "batched_replay.py" in archive.namelist()
    assert {one["op_name"] for one in entries} == {first.op_name, second.op_name}
    assert sum(one["count"] for one in entries) == first.calls + second.calls
