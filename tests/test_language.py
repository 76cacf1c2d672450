"""The wording of messages: vendor neutral, no unsupported claims, no tags of the specs.

Names of a trace are in backticks and excluded.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from jarvis.analyses import load_analyses
from jarvis.pipeline import analyze
from jarvis.sample import write_sample
from tests.layout.wording import CLAIMS, RANKING, VENDOR_WORDS

ROOT = Path(__file__).parent.parent / "jarvis"
SPEAKING = sorted(
    [
        *(ROOT / "analyses").rglob("*.py"),
        *(ROOT / "comparison").glob("*.py"),
        *(ROOT / "reports").glob("*.py"),
    ]
)
TEMPLATES = sorted((ROOT / "reports" / "templates").glob("*.j2"))

CAUSES = re.compile(r"root cause", re.IGNORECASE)
TAGS = re.compile(r"(?<![\w=.])(?:[RQSV]\d{1,3}|[CET]\d{1,2})(?![\w.])")
QUOTED = re.compile(r"```.*?```|(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)


def own_words(text: str) -> str:
    return QUOTED.sub("", text)


def sentences(path: Path) -> Iterator[str]:
    """Yield string literals of several words, except docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    statements = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or id(node) in statements:
            continue
        if isinstance(node.value, str) and len(node.value.split()) > 2:
            yield node.value


def assert_neutral(text: str, where: str) -> None:
    words = own_words(text)
    for pattern in (VENDOR_WORDS, CLAIMS, RANKING, CAUSES, TAGS):
        found = pattern.search(words)
        assert found is None, f"{where}: {words[max(0, found.start() - 60) : found.end() + 30]!r}"


@pytest.mark.parametrize("path", SPEAKING, ids=lambda p: str(p.relative_to(ROOT)))
def test_sentences_in_the_code(path: Path) -> None:
    for sentence in sentences(path):
        assert_neutral(sentence, path.name)


def test_the_lists_are_not_empty() -> None:
    assert sum(len(list(sentences(path))) for path in SPEAKING) > 200
    assert len(TEMPLATES) >= 5


def class_names() -> set[str]:
    """Names like ``JobOutput`` of all classes of the package."""
    nodes = (node for path in ROOT.rglob("*.py") for node in ast.walk(ast.parse(path.read_text())))
    names = {node.name for node in nodes if isinstance(node, ast.ClassDef)}
    return {name for name in names if re.search(r"[a-z][A-Z]", name)}


def labels(path: Path) -> Iterator[str]:
    """Return the texts that a module gives to calls."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            for given in (*node.args, *(keyword.value for keyword in node.keywords)):
                if isinstance(given, ast.Constant) and isinstance(given.value, str):
                    yield given.value


def test_no_label_of_a_page_is_the_name_of_a_class() -> None:
    pages = sorted((ROOT / "dashboard").rglob("*.py"))
    shown = {label: path.name for path in pages for label in labels(path)}
    assert len(shown) > 500
    assert {label: shown[label] for label in class_names() & set(shown)} == {}


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda p: p.name)
def test_templates(path: Path) -> None:
    text = re.sub(r"\{\{.*?\}\}|\{%.*?%\}", " ", path.read_text(encoding="utf-8"))
    assert_neutral(text, path.name)


@pytest.mark.parametrize("key", load_analyses())
def test_titles_and_advice(key: str) -> None:
    analysis = load_analyses()[key]
    assert_neutral(analysis.title, key)
    for advice in analysis.advice.values():
        for text in (advice.rule, advice.reason, advice.algorithmic, advice.kernel):
            assert_neutral(text, key)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("language")
    analyze(write_sample(folder / "sample.json", scale="tiny"), output_dir=folder / "run")
    return {path.name: path.read_text(encoding="utf-8") for path in folder.rglob("*.md")}


def test_generated_reports(reports: dict[str, str]) -> None:
    assert {"standalone_analysis_fair.md", "gemm_findings.md"} <= set(reports)
    for name, text in reports.items():
        # Sources of peaks and device names are quoted unchanged.
        without_sources = re.sub(r"### Hardware Reference.*?\n### ", "", text, flags=re.DOTALL)
        without_device = without_sources.replace("AMD Instinct MI300X", "")
        assert_neutral(without_device, name)


@pytest.mark.parametrize(
    "text",
    ["uses the CUDA runtime", "better occupancy", "see R12", "as C4 says", "an nsight run"],
)
def test_the_patterns_find_forbidden_words(text: str) -> None:
    with pytest.raises(AssertionError):
        assert_neutral(text, "here")


@pytest.mark.parametrize("text", ["`ncclDevKernel` took 3 ms", "M=8, N=16", "P1 of B200", "(3x3)"])
def test_the_patterns_leave_names_alone(text: str) -> None:
    assert_neutral(text, "here")
