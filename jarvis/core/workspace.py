"""Paths of run directories, of the home folder and of app resources.

All output paths are defined here.
"""

import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_IMODE, S_IRWXO, S_ISLNK, S_ISVTX

SCHEMA_VERSION = 3
"""Layout of a run directory. Increase it when older run directories can no longer be read."""

HOME_VARIABLE = "JARVIS_HOME"
CONFIG_VARIABLE = "JARVIS_CONFIG"
ARTIFACT_ROOT_VARIABLE = "JARVIS_ARTIFACT_ROOT"
MAX_FILE_NAME_LENGTH = 200
"""Maximum length in bytes; file systems allow 255, and a suffix is added."""

PUSHES_DAYS = 7
"""Age of the records of uploads that are deleted."""

_PACKAGE = Path(__file__).parents[1]
_COMPILED = "compiled"

SAMPLE_WORLD_SIZE = 8
"""Training processes of a simulated job of which one trace is written."""

TRUTH_NAME = "truth.json"
"""File beside the traces of a simulated job (``jarvis sample --ranks``), which is no trace."""


def resource(name: str) -> Path:
    """Return the path of an app file (``hardware.toml``, ``app.py``), in a checkout or a wheel."""
    bundled = _PACKAGE / "_app" / name
    return bundled if bundled.exists() else _PACKAGE.parent / name


def home() -> Path:
    """Return the data folder of this user or server: ``JARVIS_HOME``, else ~/.jarvis."""
    return Path(os.environ.get(HOME_VARIABLE) or Path.home() / ".jarvis")


def close_home() -> None:
    """Revoke access of other users to the home; group permissions are unchanged.

    A missing home is created with mode 0700. In a folder with unrelated files only Jarvis's own
    files are restricted; files of another user are unchanged.
    """
    root = home()
    with suppress(OSError):
        root.parent.mkdir(parents=True, exist_ok=True)
        root.mkdir(mode=0o700, exist_ok=True)
        entries = list(root.iterdir())
        own = [path for path in entries if path.name in _home_names() or _is_of_database(path)]
        is_shared = len(own) < len(entries) or root.stat().st_mode & S_ISVTX
        for path in own if is_shared else [root]:
            mode = path.lstat().st_mode
            if mode & S_IRWXO and not S_ISLNK(mode):
                path.chmod(S_IMODE(mode) & ~S_IRWXO)


def _home_names() -> frozenset[str]:
    """Return the names of Jarvis's entries in the home."""
    folders = (analyses_dir(), exports_dir(), pins_dir(), custom_hardware_dir(), uploads_dir())
    files = (database_file(), secret_file())
    caches = (trace_cache_dir().parent, home() / _COMPILED)
    return frozenset(path.name for path in (*folders, partial_uploads_dir(), *files, *caches))


def _is_of_database(path: Path) -> bool:
    """Return whether this is an auxiliary file of the SQLite database (``jarvis.db-wal``)."""
    return path.name.startswith(f"{database_file().name}-")


def analyses_dir() -> Path:
    """Return the folder of stored analyses, with one folder per analysis id."""
    return home() / "analyses"


def stored_run_dir(given: str) -> Path | None:
    """Return the folder of the stored analysis with the id ``given``, or None."""
    root = analyses_dir() / given
    is_name = Path(given).name == given and given not in ("", ".", "..")
    return root if is_name and root.is_dir() else None


def database_file() -> Path:
    """Return the path of the default (SQLite) database."""
    return home() / "jarvis.db"


def exports_dir() -> Path:
    """Return the folder of exports for download, with one folder per job."""
    return home() / "exports"


def pins_dir() -> Path:
    """Return the folder that marks pinned analyses: an empty file for each, named by its id."""
    return home() / "pinned"


def archive_name(analysis_id: str) -> str:
    """Return the file name of an analysis archive."""
    return f"{analysis_id}.jarvis.zip"


def custom_hardware_dir() -> Path:
    """Return the folder of user-defined GPU descriptions, one file each."""
    return home() / "hardware"


def uploads_dir() -> Path:
    """Return the folder of uploaded and sample traces."""
    return home() / "traces"


def partial_uploads_dir() -> Path:
    """Return the folder of incomplete uploads, with one folder each."""
    return home() / "arriving"


def secret_file() -> Path:
    """Return the path of the key that signs this server's tickets."""
    return home() / "secret"


def trace_cache_dir() -> Path:
    """Return the cache folder of parsed traces (Arrow files)."""
    return home() / "cache" / "traces"


def pushes_dir() -> Path:
    """Return the folder that records which files this user has begun to upload to a server."""
    return home() / "cache" / "pushes"


def sweep_pushes() -> None:
    """Delete the records of uploads that were begun more than PUSHES_DAYS ago; a server has deleted
    those that did not end."""
    before = time.time() - PUSHES_DAYS * 86_400
    folder = pushes_dir()
    for record in folder.iterdir() if folder.is_dir() else ():
        with suppress(OSError):  # another process deletes it
            if record.stat().st_mtime < before:
                record.unlink()


def shared_copies_dir() -> Path:
    """Return the folder that records which files of ``home`` are copies from an artifact root."""
    return home() / "cache" / "shared"


def compiled_templates_dir() -> Path:
    """Return the cache folder of compiled report templates."""
    return home() / "cache" / "templates"


def compiled_dirs() -> tuple[Path, ...]:
    """Return the candidate cache folders of compiled kernels in order of preference.

    An installation may be read-only.
    """
    if chosen := os.environ.get("NUMBA_CACHE_DIR"):
        return (Path(chosen),)
    return _PACKAGE / "trace" / "__pycache__", home() / _COMPILED


def default_output_dir(trace: Path) -> Path:
    """Return the default output folder of ``jarvis analyze``."""
    return trace.parent / "analysis_output"


def safe_name(text: str) -> str:
    """Return ``text`` as a file name of letters, digits and ``._-``, not empty or hidden."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text).strip("._")[:100] or "unnamed"


def is_file_name(text: str) -> bool:
    """Return whether ``text`` is a valid file name without path separators, short enough for a
    suffix."""
    return (
        text.isprintable()
        and not re.search(r"[/\\:]", text)
        and text.strip(" .") != ""
        and len(text.encode()) <= MAX_FILE_NAME_LENGTH
    )


@dataclass(frozen=True, slots=True)
class RunPaths:
    """Layout of a run directory; all paths inside it are defined here."""

    root: Path

    @property
    def manifest(self) -> Path:
        """Input, options and status of each analysis."""
        return self.root / "manifest.json"

    @property
    def results(self) -> Path:
        """Findings of all analyses."""
        return self.root / "results.json"

    def table(self, name: str) -> Path:
        """A table, as the dashboard reads it."""
        return self.root / "tables" / f"{name}.parquet"

    @property
    def perf_report_xlsx(self) -> Path:
        """The performance report as a workbook."""
        return self.root / "perf_report.xlsx"

    @property
    def perf_report_csvs(self) -> Path:
        """The performance report, one CSV per sheet."""
        return self.root / "perf_report_csvs"

    @property
    def members(self) -> Path:
        """The folder with the run directories of the ranks of a distributed run."""
        return self.root / "members"

    def member(self, rank: int) -> Path:
        """The run directory of a rank in a distributed run."""
        return self.members / f"rank_{rank}"

    @property
    def ranks_report(self) -> Path:
        """The report on several ranks."""
        return self.root / "ranks_analysis_fair.md"

    @property
    def multi_rank_xlsx(self) -> Path:
        """The collective report of several ranks as a workbook."""
        return self.root / "multi_rank_report.xlsx"

    @property
    def category_manifests(self) -> tuple[Path, Path]:
        """The category manifest, and its copy at the root."""
        name = "category_manifest.json"
        return self.root / "category_data" / name, self.root / name

    @property
    def priority_data(self) -> tuple[Path, Path]:
        """The findings by savings, and a copy at the root; tools read either."""
        name = "priority_data.json"
        return self.root / "category_data" / name, self.root / name

    @property
    def model_info(self) -> Path:
        """Facts about the model from the trace."""
        return self.root / "metadata" / "model_info.json"

    def metadata(self, key: str) -> Path:
        """Platform, GPU utilization and options for one analysis."""
        return self.root / "metadata" / f"{key}_metadata.json"

    def operations_csv(self, key: str) -> Path:
        """The rows of one category."""
        return self.root / "category_data" / f"{key}_ops.csv"

    def tree_data(self, key: str) -> Path:
        """Parent chains and subtrees of one category's operations."""
        return self.root / "category_data" / f"{key}_tree_data.json"

    def metrics(self, key: str) -> Path:
        """The metrics of one analysis."""
        return self.root / "category_data" / f"{key}_metrics.json"

    def system_data(self, key: str) -> Path:
        """The prepared input of a system analysis."""
        return self.root / "category_data" / f"{key}_data.json"

    def findings(self, key: str, tier: str) -> Path:
        """The findings of one analysis as Markdown.

        A ``tier`` other than ``compute`` is system-wide.
        """
        folder = "category_findings" if tier == "compute" else "system_findings"
        return self.root / folder / f"{key}_findings.md"

    def standalone_report(self, kind: str) -> Path:
        """The ``fair`` or the ``rough`` report."""
        return self.root / f"standalone_analysis_{kind}.md"

    @property
    def standalone_html(self) -> Path:
        """The fair report as one HTML file with charts, if it was written."""
        return self.root / "standalone_analysis.html"

    @property
    def analysis_report(self) -> Path:
        """The report in the layout of other tools."""
        return self.root / "analysis.md"

    @property
    def perf_plot(self) -> Path:
        """The chart of that report."""
        return self.root / "perf_improvement.png"

    def comparative_report(self, kind: str) -> Path:
        """The ``fair`` or the ``rough`` report of a comparison."""
        return self.root / f"comparative_analysis_{kind}.md"

    @property
    def comparison(self) -> Path:
        """Both sides, the findings and the texts of a comparison."""
        return self.root / "comparison_data" / "comparison.json"

    def comparison_table(self, name: str) -> Path:
        """A table of a comparison as CSV."""
        return self.comparison.with_name(f"{name}.csv")

    @property
    def replay_packages(self) -> Path:
        """Packages that replay single operations."""
        return self.root / "replay_packages"

    @property
    def replay_index(self) -> Path:
        """Index of the replay packages, with the reason for each operation without one."""
        return self.replay_packages / "packages.json"

    def replay_package(self, operation: str) -> Path:
        """The package that replays one operation."""
        return self.replay_packages / f"{safe_name(operation)}_replay_package.zip"

    def replay_ir(self, operation: str) -> Path:
        """The calls of that package, readable without unpacking."""
        return self.replay_packages / f"{safe_name(operation)}_replay_ir.json"


@dataclass(frozen=True, slots=True)
class ComparisonPaths:
    """Layout of the output folder of a comparison."""

    root: Path

    @property
    def workbook(self) -> Path:
        """The reports of both sides, side by side."""
        return self.root / "comparison.xlsx"

    def perf_report(self, role: str) -> Path:
        """The performance report of the ``reference`` or of the ``target``."""
        return self.root / f"{role}_perf_report.xlsx"

    def report(self, kind: str) -> Path:
        """The ``fair`` or the ``rough`` report, as in a run directory."""
        return RunPaths(self.root).comparative_report(kind)

    @property
    def data(self) -> Path:
        """The folder of tables and findings, as in a run directory."""
        return RunPaths(self.root).comparison.parent


def is_comparison(root: Path) -> bool:
    """Return whether ``root`` is a comparison folder, not an analysis with a reference."""
    paths = RunPaths(root)
    return paths.comparison.is_file() and not paths.manifest.is_file()


def _entries() -> frozenset[str]:
    paths = RunPaths(Path())
    entries = (
        paths.manifest,
        paths.results,
        paths.table("any"),
        paths.perf_report_xlsx,
        paths.perf_report_csvs,
        *paths.category_manifests,
        *paths.priority_data,
        paths.analysis_report,
        paths.perf_plot,
        paths.metadata("any"),
        paths.findings("any", "compute"),
        paths.findings("any", "system"),
        *(paths.standalone_report(kind) for kind in ("fair", "rough")),
        *(paths.comparative_report(kind) for kind in ("fair", "rough")),
        paths.comparison,
        paths.replay_packages,
    )
    return frozenset(entry.parts[0] for entry in entries)


RUN_ENTRIES = _entries()
"""Top-level names of a run directory; other entries were not written by Jarvis."""


def _distributed_entries() -> frozenset[str]:
    paths = RunPaths(Path())
    written = (
        paths.manifest,
        paths.table("any"),
        paths.perf_report_csvs,
        paths.multi_rank_xlsx,
        paths.results,
        paths.ranks_report,
        paths.member(0),
    )
    return frozenset(path.parts[0] for path in written)


DISTRIBUTED_ENTRIES = _distributed_entries()
"""Top-level names of the directory of a distributed run."""
