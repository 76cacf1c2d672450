"""The documentation names what there is, and its links lead somewhere."""

import re
from pathlib import Path

import pytest

import jarvis.cli
from jarvis.analyses import load_analyses

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_readme_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    with pytest.raises(SystemExit):
        jarvis.cli.main(["--help"])
    commands = re.findall(r"^    ([a-z]+) {2,}", capsys.readouterr().out, re.MULTILINE)
    assert {"analyze", "report", "serve", "sample"} <= set(commands)
    for command in commands:
        assert f"jarvis {command}" in readme


def test_checks_page_names_every_analysis() -> None:
    page = (ROOT / "docs" / "checks.md").read_text(encoding="utf-8")
    for key, analysis in load_analyses().items():
        assert f"{analysis.title} (`{key}`)" in page


def test_make_targets_that_the_pages_name_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for page in PAGES:
        for target in re.findall(r"`make ([a-z]+)\b", page.read_text(encoding="utf-8")):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page.name}: {target}"
