"""Commands, options, variables, paths, numbers and links of the documentation exist."""

import argparse
import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest

import jarvis.cli
from jarvis import impact
from jarvis.analyses import load_analyses
from jarvis.perf_models import all_models
from jarvis.server import claims
from jarvis.server.http.web import health, lifespan
from jarvis.server.jobs.dask import jobs as dask_jobs
from jarvis.server.settings import PREFIX
from jarvis.server.settings_shown import known_variables
from jarvis.validation import totals, validation_markdown

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHELL = re.compile(r"^ *```(?:sh|bash|console)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`(?!`)")
COMMAND = re.compile(r"(?:^\s*|[;&|(]\s*|\w=\S+\s+)jarvis (?=([^\n]*))", re.MULTILINE)
STATED = {
    "dask.md": [
        f"after {dask_jobs.SILENT_S:g} s of silence",
        f"finds the jobs after {claims.HEARTBEAT_TIMEOUT_S} s",
    ],
    "operate.md": [
        f"comes within {health.ANSWER_S:g} s",
        f"workers with a heartbeat in the last {claims.HEARTBEAT_TIMEOUT_S} s",
        f"exits at the latest {lifespan.AFTER_REQUESTS_S:g} s after that",
    ],
    "how-it-works.md": [f"An efficiency above {impact.FULL_PCT:g} % means"],
}
"""Phrases of hand-written pages, with constants of the code."""

LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


PATH = re.compile(r"`([\w@.-]+(?:/[\w@.-]+)+\.(?:py|js|toml))`")
EXAMPLES = (
    *("rope.py", "mylib.py", "test_rope.py", "test_mylib_models.py", "titles.py"),
    *("strip.py", "copies.py", "test_copies.py", "copies/__init__.py", "copies/page.py"),
)
"""Files that a how-to page tells a reader to create."""


@pytest.mark.parametrize(
    "page", [ROOT / "SECURITY.md", *PAGES[2:]], ids=lambda p: str(p.relative_to(ROOT))
)
def test_paths_of_code_exist(page: Path) -> None:
    folders = (ROOT, ROOT / "jarvis", page.parent)
    for path in PATH.findall(page.read_text(encoding="utf-8")):
        if (
            not f"/{path}".endswith(tuple(f"/{name}" for name in EXAMPLES))
            and "VERSION" not in path
        ):
            assert any((folder / path).is_file() for folder in folders), path


def test_every_command_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "how-to" / "use-the-command-line.md").read_text(encoding="utf-8")
    with pytest.raises(SystemExit):
        jarvis.cli.main(["--help"])
    commands = re.findall(r"^    ([a-z]+) {2,}", capsys.readouterr().out, re.MULTILINE)
    assert {"analyze", "report", "serve", "sample"} <= set(commands)
    for command in commands:
        assert f"jarvis {command}" in page


def test_the_guide_names_the_module_of_every_family() -> None:
    page = (ROOT / "docs" / "how-to" / "add-a-perf-model.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert set(listed) == {model.cost.__module__.rpartition(".")[2] for model in all_models()}


def test_checks_page_names_every_analysis() -> None:
    page = (ROOT / "docs" / "checks.md").read_text(encoding="utf-8")
    for key, analysis in load_analyses().items():
        assert f"{analysis.title} (`{key}`)" in page


def test_make_targets_that_the_pages_name_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for page in PAGES:
        for target in re.findall(r"`make ([a-z]+)\b", page.read_text(encoding="utf-8")):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page.name}: {target}"


@pytest.mark.parametrize("name", STATED)
def test_numbers_of_pages_are_those_of_the_code(name: str) -> None:
    (page,) = [page for page in PAGES if page.name == name]
    text = " ".join(page.read_text(encoding="utf-8").split())
    assert [sentence for sentence in STATED[name] if sentence not in text] == []


def commands(script: str) -> Iterator[list[str]]:
    """Yield the arguments of each `jarvis` command of a shell script."""
    for match in COMMAND.finditer(script.replace("\\\n", " ")):
        lexer = shlex.shlex(match[1], posix=True, punctuation_chars=";&|<>()")
        lexer.whitespace_split = True
        yield list(takewhile(lambda word: not set(word) <= set(";&|<>()"), lexer))


def unknown_options(words: list[str]) -> list[str]:
    """Return the words of a command that are not subcommands or options."""
    of = jarvis.cli.parser()
    for word in words:
        below = [a for a in of._actions if isinstance(a, argparse._SubParsersAction)]
        if below and not word.startswith("-"):
            if word not in below[0].choices:
                return [word]
            of = below[0].choices[word]
    options = [word.partition("=")[0] for word in words if word.startswith("-") and word != "-"]
    return [option for option in options if option not in of._option_string_actions]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_commands_of_shell_blocks_are_accepted(page: Path) -> None:
    for script in SHELL.findall(page.read_text(encoding="utf-8")):
        for words in commands(script):
            jarvis.cli.parser().parse_args(words)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_commands_within_sentences_exist(page: Path) -> None:
    for code in CODE.findall(page.read_text(encoding="utf-8")):
        if code.startswith("jarvis "):
            words = shlex.split(code)[1:]
            assert not unknown_options(words), code


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_variables_exist(page: Path) -> None:
    named = set(re.findall(rf"\b{PREFIX}[A-Z0-9_]+\b", page.read_text(encoding="utf-8")))
    assert named - known_variables() == set()


def test_each_command_of_a_line_is_found() -> None:
    script = """A=1 jarvis list   # no 'jarvis remove'
eval "$(jarvis pin ID)"; jarvis remove 'a b' | jarvis nonsense --this
"""
    found = [["list"], ["pin", "ID"], ["remove", "a b"], ["nonsense", "--this"]]
    assert list(commands(script)) == found
    assert unknown_options(["nonsense", "--this"]) == ["nonsense"]
    assert unknown_options(["archive", "load", "FILE", "--this=1"]) == ["--this"]


def test_the_page_of_validation_takes_limits_from_the_constants(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(totals, "SUM_TOLERANCE_PCT", 98.5)
    assert "the computation time, within 98.5%" in validation_markdown()
