"""Rules of the layout that import-linter cannot state."""

import ast
import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted((ROOT / "jarvis").rglob("*.py"))
PAGES = sorted((ROOT / "pages").glob("*.py"))
TEXT_SUFFIXES = {".py", ".md", ".toml", ".j2", ".txt", ".yml", ".cfg", ""}


def imported_modules(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_pages_import_only_streamlit_and_the_dashboard(page: Path) -> None:
    for name in imported_modules(page):
        assert name == "streamlit" or name.startswith("jarvis.dashboard"), name


def test_there_are_pages() -> None:
    assert {page.stem for page in PAGES} >= {"ingest", "overview", "report"}


def test_only_the_workspace_spells_output_paths() -> None:
    workspace = (ROOT / "jarvis" / "core" / "workspace.py").read_text(encoding="utf-8")
    outputs = set(re.findall(r'"([a-z_]+\.(?:json|xlsx))"', workspace))
    outputs |= {"perf_report_csvs", "category_data", "category_findings", "system_findings"}
    assert {"manifest.json", "perf_report.xlsx"} <= outputs
    for module in MODULES:
        if module.name == "workspace.py":
            continue
        nodes = list(ast.walk(ast.parse(module.read_text(encoding="utf-8"))))
        # A key of the metrics has the name of a folder.
        keys = {id(key) for node in nodes if isinstance(node, ast.Dict) for key in node.keys}
        keys |= {id(node.slice) for node in nodes if isinstance(node, ast.Subscript)}
        literals = {
            node.value
            for node in nodes
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in keys
        }
        assert not outputs & literals, f"{module} spells {outputs & literals}"


def test_files_of_an_analysis_are_written_within_its_limit() -> None:
    folders = ("run", "reports", "replay", "pipeline", "comparison")
    for module in chain(*((ROOT / "jarvis" / folder).rglob("*.py") for folder in folders)):
        text = module.read_text(encoding="utf-8")
        calls = re.findall(r"\.write_(?:bytes|text)\(|open\(\s*\"[wax]", text)
        assert not calls or "runner" in module.parts, f"{module} goes past jarvis.core.output"


def test_every_pinned_version_has_neither_index_nor_local_suffix() -> None:
    for line in (ROOT / ".ci" / "constraints.txt").read_text().splitlines():
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line), line


def test_every_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = {
        line.split("==")[0].lower().replace("_", "-")
        for line in (ROOT / ".ci" / "constraints.txt").read_text().splitlines()
    }
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *chain(*extras.values())]
    unpinned = {project["name"], "gcsfs"}  # ourselves, and what no test can speak to
    for requirement in wanted:
        if re.split(r"[<>=\[ ]", requirement)[0] in unpinned:
            continue
        assert re.split(r"[<>=\[ ]", requirement)[0].lower().replace("_", "-") in pinned


OPTIONAL = ROOT / "tests" / "optional.py"
OUR_SCRIPTS = sorted(
    path
    for folder in ("tests", "docs", "benchmarks")
    for path in (ROOT / folder).rglob("*.py")
    if path != OPTIONAL
)
LOOK_UPS = re.compile(
    r"""shutil\.which|import\ which | ["']setpriv["']      # a program on PATH
    | ["'](?:/usr(?:/local)?)?/s?bin/ | ["']/usr/lib/postgresql  # at a fixed place
    | executable_path=["']
    | ["']JARVIS_(?:REFERENCE|REPLAY_PYTHON)["'] | ["']\.venv-replay
    """,
    re.VERBOSE,
)
"""Ways in which a script could search for something optional itself."""


def looks_up(text: str) -> list[str]:
    """Return the lines of a script that look for something optional."""
    return [line.strip() for line in text.splitlines() if LOOK_UPS.search(line)]


@pytest.mark.parametrize(
    "line",
    [
        'shutil.which("haproxy")',
        "from shutil import which",
        'os.environ["JARVIS_REFERENCE"]',
        'os.environ.get("JARVIS_REFERENCE", "")',
        'Path("/usr/lib/postgresql")',
        'SSHD = "/usr/sbin/sshd"',
        'CHROMIUM = "/usr/bin/chromium"',
        'INITDB = "/usr/local/bin/initdb"',
        'HERE / ".venv-replay"',
    ],
)
def test_a_look_up_is_recognized(line: str) -> None:
    assert looks_up(line)


def test_only_one_module_looks_for_what_is_optional() -> None:
    assert looks_up(OPTIONAL.read_text(encoding="utf-8"))
    this = Path(__file__).resolve()
    found = {
        path.relative_to(ROOT).as_posix(): lines
        for path in OUR_SCRIPTS
        if path.resolve() != this and (lines := looks_up(path.read_text(encoding="utf-8")))
    }
    assert found == {}
