"""The way of a new user: drop the traces of all ranks, see who is late, send the link."""

import base64
from pathlib import Path

from playwright.sync_api import Page, expect

from jarvis.sample import Faults, Job, write_job
from jarvis.sample.faults import Late
from tests.browser.conftest import START_SECONDS, Server, copied_link, settled

RANKS, STEPS, LATE_RANK, LATE_MS = 8, 4, 3, 6.0
JOB_MS = {"timeout": 8 * 1000 * START_SECONDS}
"""Limit of the analyses of all ranks, one after the other on a busy machine."""

DROP = """(box, files) => {
    const dataTransfer = new DataTransfer()
    for (const [name, content] of files) {
        const bytes = Uint8Array.from(atob(content), letter => letter.charCodeAt(0))
        dataTransfer.items.add(new File([bytes], name))
    }
    box.dispatchEvent(new DragEvent("drop", { dataTransfer, cancelable: true }))
}"""


def rank_files(folder: Path) -> list[Path]:
    """The traces of a job whose rank 3 waits for its data in each step."""
    late = tuple(Late(LATE_RANK, LATE_MS, "loader", step) for step in range(STEPS))
    files = {rank: folder / f"rank{rank}.json.gz" for rank in range(RANKS)}
    write_job(Job(STEPS, RANKS, scale="tiny", faults=Faults(late=late, is_even=True)), files)
    return list(files.values())


def test_dropped_ranks_are_joined_and_the_page_names_the_late_one(
    own_server: Server, page: Page, tmp_path: Path
) -> None:
    contents = [
        (file.name, base64.b64encode(file.read_bytes()).decode()) for file in rank_files(tmp_path)
    ]
    page.goto(f"{own_server.url}/ingest")
    settled(page)
    page.locator(".upload").first.evaluate(DROP, contents)
    chosen = page.get_by_text(f"{RANKS} ranks, each with an analysis of its own")
    expect(chosen).to_be_visible(**JOB_MS)
    page.get_by_role("button", name="Analyze", exact=True).click()
    expect(page.get_by_text(f"of {RANKS} ranks").first).to_be_visible(**JOB_MS)
    page.wait_for_url("**/ranks?**", **JOB_MS)
    settled(page)
    expect(page.get_by_text(f"{RANKS} of {RANKS} ranks (0-7)").first).to_be_visible()
    finding = page.get_by_text(f"Rank {LATE_RANK} is late in")
    expect(finding.first).to_be_visible()

    link = copied_link(page)
    page.goto(f"{own_server.url}/jobs")
    settled(page)
    assert page.get_by_text("No active jobs.").is_visible()
    page.goto(link)
    settled(page)
    expect(finding.first).to_be_visible()
