"""The way of a newcomer through the dashboard, as the README shows it."""

from pathlib import Path

from playwright.sync_api import Browser, Page

from docs.newcomer import PICTURES, walk
from docs.picture import MAX_BYTES
from tests.browser.conftest import Server

README = Path(__file__).parents[2] / "README.md"


def test_the_way_in_the_readme_can_be_gone(own_server: Server, browser: Browser) -> None:
    seen: list[str] = []

    def note(page: Page, name: str) -> None:
        assert page.get_by_test_id("stException").count() == 0
        seen.append(name)

    walk(browser, own_server, note)
    text = README.read_text(encoding="utf-8")
    assert {name for name in seen if f"docs/pictures/{name}.png" in text} == set(seen)
    assert {picture.stem for picture in PICTURES.glob("*.png")} == set(seen)


def test_pictures_are_small() -> None:
    assert all(picture.stat().st_size <= MAX_BYTES for picture in PICTURES.glob("*.png"))
