"""Uploads from a real browser: broken off, gone on with, cancelled, dropped, by the keyboard."""

import json
import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, Request, Route, expect

from tests.browser.conftest import START_SECONDS, Server, settled
from tests.builders import trace

SLOW = {"timeout": 1000 * START_SECONDS}
PIECES = "**/api/uploads/*"
FIRST_PIECE = 1 << 20
"""The size of it; later ones are as large as the connection is fast."""


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    yield page
    page.close()


@pytest.fixture
def opened(server: Server, page: Page) -> Page:
    page.goto(f"{server.url}/ingest")
    settled(page)
    return page


def built_trace(folder: Path, name: str, filler_bytes: int = 0) -> Path:
    path = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm", us=12).write(folder / name)
    document = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**document, "filler": "x" * filler_bytes}), encoding="utf-8")
    return path


def choose(page: Page, file: Path) -> None:
    page.locator("input[type=file]").first.set_input_files(file)


def lost(page: Page) -> Locator:
    """The text shown while the connection is lost."""
    return page.locator(".figures").filter(has_text="no connection, retrying")


def lose_after(page: Page, pieces: int) -> None:
    """Let so many pieces through, and then nothing that goes to an upload but its end."""
    passed = 0

    def decide(route: Route) -> None:
        nonlocal passed
        passed += route.request.method == "PATCH"
        if passed <= pieces or route.request.method == "DELETE":
            route.continue_()
        else:
            route.abort("connectionreset")

    page.route(PIECES, decide)


def test_an_upload_goes_on_after_a_lost_connection_and_a_reload(
    opened: Page, server: Server, tmp_path: Path
) -> None:
    page, file = opened, built_trace(tmp_path, "large.json", 6 * FIRST_PIECE)
    lose_after(page, 1)
    choose(page, file)
    expect(lost(page)).to_be_visible(**SLOW)
    expect(page.get_by_role("progressbar", name="Upload")).to_be_visible()
    page.reload()
    settled(page)
    page.unroute(PIECES)
    offsets: list[int] = []

    def note(request: Request) -> None:
        if request.method == "PATCH":
            offsets.append(int(request.headers["upload-offset"]))

    page.on("request", note)
    choose(page, file)
    page.get_by_text("Detected in the trace").wait_for(**SLOW)
    assert offsets[0] == FIRST_PIECE
    (stored,) = server.home.glob("traces/*/large.json")
    assert stored.read_bytes() == file.read_bytes()
    page.wait_for_url("**ingest_upload=*")
    page.reload()
    page.get_by_text("Detected in the trace").wait_for(**SLOW)


def test_an_upload_goes_on_by_itself_and_a_cancelled_one_leaves_nothing(
    opened: Page, server: Server, tmp_path: Path
) -> None:
    file = built_trace(tmp_path, "back.json", 3 * FIRST_PIECE)
    lose_after(opened, 1)
    choose(opened, file)
    expect(lost(opened)).to_be_visible(**SLOW)
    opened.unroute(PIECES)
    opened.get_by_text("Detected in the trace").wait_for(**SLOW)
    (stored,) = server.home.glob("traces/*/back.json")
    assert stored.read_bytes() == file.read_bytes()
    before = set(server.home.glob("arriving/*"))
    lose_after(opened, 1)
    choose(opened, built_trace(tmp_path, "never.json", 3 * FIRST_PIECE))
    expect(lost(opened)).to_be_visible(**SLOW)
    with opened.expect_response(lambda answer: answer.request.method == "DELETE"):
        opened.get_by_role("button", name="Cancel").first.click()
    expect(opened.get_by_role("button", name="Choose another file").first).to_be_visible()
    assert set(server.home.glob("arriving/*")) == before
    assert not list(server.home.glob("traces/*/never.json"))


def test_what_is_no_trace_is_reported_and_the_keyboard_and_a_dropped_file_do_as_well(
    opened: Page, tmp_path: Path
) -> None:
    button = opened.get_by_role("button", name="Choose a file").first
    expect(opened.get_by_text("Analyses on this server")).to_be_visible()  # all is drawn above it
    button.focus()
    expect(button).to_be_focused()
    with opened.expect_file_chooser() as chooser:
        button.press("Enter")
    (tmp_path / "model.pt").write_bytes(b"x")
    chooser.value.set_files(tmp_path / "model.pt")
    expect(
        opened.get_by_role("alert").filter(has_text="model.pt is not a supported trace file")
    ).to_be_visible()
    content = built_trace(tmp_path, "dropped.json").read_text(encoding="utf-8")
    opened.locator(".upload").first.evaluate(
        """(box, content) => {
            const dataTransfer = new DataTransfer()
            dataTransfer.items.add(new File([content], "dropped.json"))
            box.dispatchEvent(new DragEvent("drop", { dataTransfer, cancelable: true }))
        }""",
        content,
    )
    opened.get_by_text("Detected in the trace").wait_for(**SLOW)
    expect(opened.get_by_text("dropped.json").first).to_be_visible()


def choose_folder(page: Page, folder: Path) -> None:
    page.locator("input[webkitdirectory]").first.set_input_files(folder)


def drop_folder(page: Page, folder: Path, place: int = 0) -> None:
    """Drop a folder as a file manager does; a script of a page cannot make such an event."""
    box = page.locator(".upload").nth(place).bounding_box()
    assert box is not None
    at = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
    dragged = {"items": [], "files": [str(folder)], "dragOperationsMask": 1}
    session = page.context.new_cdp_session(page)
    for event in ("dragEnter", "dragOver", "drop"):
        session.send("Input.dispatchDragEvent", {"type": event, **at, "data": dragged})


@pytest.mark.parametrize("take", [choose_folder, drop_folder])
def test_the_traces_below_a_folder_are_uploaded_with_its_folders_in_their_names(
    take: Callable[[Page, Path], None], opened: Page, server: Server, tmp_path: Path
) -> None:
    expect(opened.get_by_text("Analyses on this server")).to_be_visible()  # all is drawn above it
    name = f"{take.__name__}.json"
    job, files = tmp_path / "job", {}
    for rank in range(2):  # of the same name, size and time
        (job / f"rank{rank}").mkdir(parents=True)
        file = job / f"rank{rank}" / name
        content = built_trace(tmp_path, "any.json", len(name)).read_bytes()
        file.write_bytes(content.ljust(100_000, b" \n"[rank : rank + 1]))
        os.utime(file, (1e9, 1e9))
        files[f"rank{rank}_{name}"] = file.read_bytes()
    (job / ".git").mkdir()
    for other in ("notes.txt", "truth.json", ".git/config.json"):
        (job / other).write_text("{}", encoding="utf-8")
    take(opened, job)
    expect(opened.get_by_text("2 ranks, each with an analysis of its own")).to_be_visible(**SLOW)
    stored = {path.name: path.read_bytes() for path in server.home.glob(f"traces/*/rank?_{name}")}
    assert stored == files
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.txt").touch()
    take(opened, tmp_path / "empty")
    expect(opened.get_by_text("There is no trace in this folder")).to_be_visible()
    expect(opened.get_by_role("button", name="Choose a folder")).to_have_count(1)


def test_several_captures_are_one_archive(opened: Page, server: Server, tmp_path: Path) -> None:
    opened.goto(f"{server.url}/ingest?ingest_captures_source=upload")
    settled(opened)
    opened.get_by_text("Captures of GPU graphs").click()
    files = [built_trace(tmp_path, f"bs_{batch}.json") for batch in (1, 8)]
    wrong = tmp_path / "notes.txt"
    wrong.write_text("no trace", encoding="utf-8")
    several = opened.locator("input[type=file][multiple]").last
    several.set_input_files([*files, wrong])
    problem = opened.get_by_role("alert").filter(has_text="notes.txt: notes.txt is not a supported")
    expect(problem).to_be_visible(**SLOW)
    expect(opened.get_by_role("button", name="Resume")).to_be_visible(**SLOW)  # others are sent
    several.set_input_files(files)
    expect(opened.get_by_text("bs_1.json, bs_8.json")).to_be_visible(**SLOW)
    expect(opened.get_by_text("2 files", exact=True)).to_be_visible()
    opened.wait_for_url("**ingest_captures_upload=*")
    (archive,) = server.home.glob("traces/*/captures.zip")
    with zipfile.ZipFile(archive) as opened_archive:
        contents = {name: opened_archive.read(name) for name in opened_archive.namelist()}
    assert contents == {file.name: file.read_bytes() for file in files}
    opened.reload()
    settled(opened)
    opened.get_by_text("Captures of GPU graphs").click()
    expect(opened.get_by_text("2 files", exact=True)).to_be_visible(**SLOW)
