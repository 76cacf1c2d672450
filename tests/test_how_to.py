"""The pages in docs/how-to that add something to Jarvis, run as written.

Each test applies the code blocks of a page to a copy of the checkout, runs the page's commands in
it, and looks at the result.
"""

import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import optional
from tests.builders import TraceBuilder, trace

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "docs" / "how-to"
NOT_COPIED = shutil.ignore_patterns(
    ".*_cache", ".git", ".venv*", ".hypothesis", "pictures", "_build"
)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: str, language: str) -> list[str]:
    """Return the code blocks of a how-to in one language."""
    text = (PAGES / page).read_text(encoding="utf-8")
    return [code for found, code in BLOCK.findall(text) if found == language]


@dataclass(frozen=True)
class Checkout:
    """A copy of the checkout with the programs of a maintainer."""

    root: Path

    def write(self, path: str, text: str) -> None:
        """Create a file."""
        (self.root / path).write_text(text, encoding="utf-8")

    def append(self, path: str, text: str) -> None:
        """Add ``text`` to the end of a file."""
        with (self.root / path).open("a", encoding="utf-8") as file:
            file.write(f"\n{text}")

    def insert(self, path: str, before: str, text: str) -> None:
        """Write ``text`` in front of the only line of a file that begins with ``before``."""
        self.replace(path, before, text, is_kept=True)

    def replace(self, path: str, start: str, text: str, *, is_kept: bool = False) -> None:
        """Write ``text`` in the place of the only line of a file that begins with ``start``."""
        lines = (self.root / path).read_text(encoding="utf-8").splitlines(keepends=True)
        (place,) = (n for n, line in enumerate(lines) if line.startswith(start))
        lines[place] = text + (lines[place] if is_kept else "")
        self.write(path, "".join(lines))

    def run(self, script: str, folder: Path | None = None) -> str:
        """Run shell commands in ``folder`` (default: the checkout); return what they print."""
        environment = {
            **os.environ,
            "PATH": f"{self.root / 'programs'}:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(self.root), str(self.root / "packages")]),
            "JARVIS_HOME": str(self.root / "home"),
            "NUMBA_CACHE_DIR": str(self.root.parent / "compiled"),
            optional.WITHOUT: "1",  # the suite itself runs those tests
        }
        environment.pop("JARVIS_TEST_REQUIRE_ALL", None)
        ended = subprocess.run(
            ["bash", "-e", "-c", script],
            cwd=folder or self.root,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, f"{script}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout


@pytest.fixture
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """The copy has the same path in every test, so that kernels are compiled once."""
    root = tmp_path_factory.getbasetemp() / "how-to" / "checkout"
    shutil.copytree(ROOT, root, ignore=NOT_COPIED)
    programs = {
        "python": f'"{sys.executable}" "$@"',
        "jarvis": f'"{sys.executable}" -m jarvis.cli "$@"',
        # Without `setup`, which would install a second environment.
        "make": f'env PATH={os.defpath} make -o setup BIN="{root / "programs"}" PYTEST_ARGS= "$@"',
    }
    (root / "programs").mkdir()
    for name, command in programs.items():
        program = root / "programs" / name
        program.write_text(f"#!/bin/sh\nexec {command}\n", encoding="utf-8")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    yield Checkout(root)
    shutil.rmtree(root)


@pytest.mark.parametrize("page", sorted(path.name for path in PAGES.glob("add-*.md")))
def test_code_of_a_page_passes_the_checks(page: str) -> None:
    for code in blocks(page, "python"):
        for check in (("check", "--quiet"), ("format", "--check", "--quiet")):
            command = [
                sys.executable,
                "-m",
                "ruff",
                *check,
                "--stdin-filename",
                "jarvis/new.py",
                "-",
            ]
            ended = subprocess.run(
                command, cwd=ROOT, input=code, capture_output=True, text=True, check=False
            )
            assert ended.returncode == 0, ended.stdout


def activations(operator: str = "mylib::swiglu") -> TraceBuilder:
    """A call of mylib's operator that runs two kernels in operators below it."""
    built = trace(device="AMD Instinct MI300X")
    built.op(operator, [[64, 128], [64, 128]])
    built.child("aten::silu", [[64, 128]]).launches("silu_kernel", us=20).up()
    built.child("aten::mul", [[64, 128], [64, 128]]).launches("mul_kernel", us=10)
    built.op(operator, [[4096, 4096], [4096, 4096]]).launches("swiglu_kernel", us=200)
    return built.op(f"{operator}_backward", [[4096, 4096]]).launches("swiglu_back", us=50)


def test_a_perf_model_prices_its_op_and_changes_no_row_of_tracelens(
    checkout: Checkout, tmp_path: Path
) -> None:
    source = activations("mylib::reglu").write(tmp_path / "trace.json")

    def sheets(models: str) -> dict[str, str]:
        out = tmp_path / "csvs"
        checkout.run(f"jarvis report {source} --models {models} --output_csvs_dir {out}")
        found = {file.name: file.read_text(encoding="utf-8") for file in out.iterdir()}
        shutil.rmtree(out)
        return found

    before, all_before = sheets("tracelens"), sheets("all")
    model, test = blocks("add-a-perf-model.md", "python")
    checkout.write("jarvis/perf_models/mylib.py", model)
    checkout.write("tests/perf_models/test_mylib_models.py", test)
    assert sheets("tracelens") == before
    all_after = sheets("all")
    assert all_after != all_before
    assert all_after.keys() == all_before.keys()
    (commands,) = blocks("add-a-perf-model.md", "sh")
    checkout.run(commands)


def test_a_gpu_of_the_file_passes_the_test_that_the_page_names(checkout: Checkout) -> None:
    (entry,) = blocks("add-a-gpu.md", "toml")
    checkout.append("hardware.toml", entry)
    checkout.run(blocks("add-a-gpu.md", "sh")[0])
    assert "Z100" in checkout.run("jarvis hardware show Z100")


def test_a_gpu_of_one_server_needs_no_entry(checkout: Checkout, tmp_path: Path) -> None:
    (description,) = blocks("add-a-gpu.md", "json")
    (tmp_path / "z100.json").write_text(description, encoding="utf-8")
    activations().write(tmp_path / "trace.json")
    checkout.run("gzip trace.json", tmp_path)
    checkout.run(blocks("add-a-gpu.md", "sh")[1], tmp_path)
    for run in ("out", "out2", "again"):
        assert '"Z100"' in (tmp_path / run / "manifest.json").read_text(encoding="utf-8")


def test_a_category_is_one_file(checkout: Checkout) -> None:
    category, test = blocks("add-a-category.md", "python")
    checkout.write("jarvis/analyses/compute/rope.py", category)
    checkout.write("tests/analyses/test_rope.py", test)
    (commands,) = blocks("add-a-category.md", "sh")
    checkout.run(commands)
    checks = (checkout.root / "docs" / "checks.md").read_text(encoding="utf-8")
    assert "## Rotary embedding (`rope`)" in checks
    golden = checkout.root / "tests" / "golden" / "training-step"
    assert list(golden.rglob("rope*"))


def test_a_panel_is_a_line_and_a_new_kind_is_in_three_places(checkout: Checkout) -> None:
    (drawing,) = blocks("add-a-panel.md", "python")
    of_existing, kinds, imported, functions, entry, of_new = blocks("add-a-panel.md", "text")
    reduce, table = "jarvis/analyses/compute/reduce.py", "jarvis/dashboard/widgets/panel_kinds.py"
    panels = f"    panels=(\n        *SHARED_PANELS,\n{of_existing}{of_new}    ),\n"
    checkout.replace(reduce, "    panels=SHARED_PANELS,", panels)
    imports = "from jarvis.analyses.base import "
    checkout.insert(reduce, imports, f"{imports}Panel\n")
    checkout.write("jarvis/charts/strip.py", drawing)
    checkout.replace("jarvis/analyses/base.py", "PanelKind = ", kinds)
    checkout.insert(table, "from jarvis.impact import", imported)
    checkout.insert(table, "KINDS: ", f"{functions}\n\n")
    checkout.replace(table, "}", f"{entry}}}\n")
    (tests,) = blocks("add-a-panel.md", "sh")
    checkout.run(tests)
    a_page = "'analysis_has_a_page and reduce'"
    checkout.run(f"python -m pytest tests/dashboard/test_pages.py -k {a_page}")


def test_a_message_is_one_template(checkout: Checkout) -> None:
    before, after, _ = blocks("change-a-message.md", "text")
    find, tests = blocks("change-a-message.md", "sh")
    assert "small_calls.py" in checkout.run(find)
    checkout.replace("jarvis/analyses/small_calls.py", before.rstrip("\n"), after)
    checkout.run(tests)


def test_a_page_is_a_file_a_folder_and_a_line_of_the_menu(checkout: Checkout) -> None:
    script, package, page, test = blocks("add-a-page.md", "python")
    (line,) = blocks("add-a-page.md", "text")
    folder = "jarvis/dashboard/pages/copies"
    (checkout.root / folder).mkdir()
    checkout.write("pages/copies.py", script)
    checkout.write(f"{folder}/__init__.py", package)
    checkout.write(f"{folder}/page.py", page)
    checkout.insert("jarvis/dashboard/menu.py", '            _file_page("report"', line)
    checkout.write("tests/dashboard/test_copies.py", test)
    links = next((checkout.root / "tests" / "dashboard" / "links").glob("*.toml"))
    stored = set(links.read_text(encoding="utf-8").splitlines())
    (commands,) = blocks("add-a-page.md", "sh")
    checkout.run(commands)
    added = set(links.read_text(encoding="utf-8").splitlines()) - stored
    assert [line.partition(" ")[0] for line in added] == ["copies"]


def test_a_report_format_is_one_file(checkout: Checkout, tmp_path: Path) -> None:
    (reporter,) = blocks("add-a-report-format.md", "python")
    checkout.write("jarvis/reports/titles.py", reporter)
    source = activations().write(tmp_path / "trace.json")
    checkout.run(f"jarvis analyze {source} --output-dir {tmp_path / 'RUN'}")
    export, tests = blocks("add-a-report-format.md", "sh")
    checkout.run(export, tmp_path)
    titles = (tmp_path / "titles.txt").read_text(encoding="utf-8").splitlines()
    assert titles
    assert not [title for title in titles if "Message(" in title]
    checkout.run(tests)


def test_an_extension_is_one_file(checkout: Checkout, tmp_path: Path) -> None:
    (tmp_path / "swiglu.py").write_text("\n".join(blocks("write-an-extension.md", "python")))
    activations().write(tmp_path / "trace.json")
    checkout.run("gzip trace.json", tmp_path)
    commands, package = blocks("write-an-extension.md", "sh")
    checkout.run(commands, tmp_path)
    (analysis,) = (checkout.root / "home" / "analyses").iterdir()
    assert "Gated activations" in (analysis / "manifest.json").read_text(encoding="utf-8")

    packages = checkout.root / "packages"
    (packages / "mylib").mkdir(parents=True)
    (packages / "mylib" / "__init__.py").touch()
    shutil.copy(tmp_path / "swiglu.py", packages / "mylib" / "jarvis_models.py")
    (reporter,) = blocks("add-a-report-format.md", "python")
    (packages / "mylib" / "jarvis_slides.py").write_text(reporter.replace('"titles"', '"slides"'))
    (points,) = blocks("write-an-extension.md", "toml")
    groups = tomllib.loads(points)["project"]["entry-points"]
    (packages / "mylib-1.dist-info").mkdir()
    (packages / "mylib-1.dist-info" / "entry_points.txt").write_text(
        "".join(
            f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
            for group, entries in groups.items()
        )
    )
    checkout.run(f"jarvis analyze trace.json.gz --output-dir RUN\n{package}", tmp_path)
    assert "swiglu" in (tmp_path / "slides.txt").read_text(encoding="utf-8")
