"""Where things are: the parts of a run directory, the analyses kept on this server, app resources.

The only module that spells an output path.
"""

import os
import re
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
"""Bytes of a name; file systems take 255, and an ending is put behind it."""

_PACKAGE = Path(__file__).parents[1]
_COMPILED = "compiled"


def resource(name: str) -> Path:
    """A file that belongs to the app (``hardware.toml``, ``app.py``): of a checkout or a wheel."""
    bundled = _PACKAGE / "_app" / name
    return bundled if bundled.exists() else _PACKAGE.parent / name


def home() -> Path:
    """The folder that keeps this user's or server's analyses: ``JARVIS_HOME``, else ~/.jarvis."""
    return Path(os.environ.get(HOME_VARIABLE) or Path.home() / ".jarvis")


def close_home() -> None:
    """Make the home one that other users cannot read; groups keep their rights.

    A home that is not there is created for its owner alone. In a folder that also holds other
    things, only what Jarvis wrote is closed; what belongs to another user stays as it is.
    """
    root = home()
    with suppress(OSError):
        root.parent.mkdir(parents=True, exist_ok=True)
        root.mkdir(mode=0o700, exist_ok=True)
        found = list(root.iterdir())
        own = [path for path in found if path.name in _home_names() or _is_of_database(path)]
        is_shared = len(own) < len(found) or root.stat().st_mode & S_ISVTX
        for path in own if is_shared else [root]:
            mode = path.lstat().st_mode
            if mode & S_IRWXO and not S_ISLNK(mode):
                path.chmod(S_IMODE(mode) & ~S_IRWXO)


def _home_names() -> frozenset[str]:
    """What Jarvis writes into the home."""
    folders = (analyses_dir(), exports_dir(), pins_dir(), custom_hardware_dir(), uploads_dir())
    files = (database_file(), secret_file())
    caches = (trace_cache_dir().parent, home() / _COMPILED)
    return frozenset(path.name for path in (*folders, partial_uploads_dir(), *files, *caches))


def _is_of_database(path: Path) -> bool:
    """Whether SQLite puts this file beside its database (``jarvis.db-wal``)."""
    return path.name.startswith(f"{database_file().name}-")


def analyses_dir() -> Path:
    """Where analyses are kept, one folder per analysis id."""
    return home() / "analyses"


def stored_run_dir(given: str) -> Path | None:
    """The folder of a stored analysis that ``given`` is the id of; None where it is none."""
    root = analyses_dir() / given
    is_name = Path(given).name == given and given not in ("", ".", "..")
    return root if is_name and root.is_dir() else None


def database_file() -> Path:
    """Where jobs are kept, unless another database is named."""
    return home() / "jarvis.db"


def exports_dir() -> Path:
    """Where files are kept that jobs made to be taken home, one folder per job."""
    return home() / "exports"


def pins_dir() -> Path:
    """Which analyses are pinned: an empty file for each, named by its id."""
    return home() / "pinned"


def archive_name(analysis_id: str) -> str:
    """The name of the file that an analysis travels in."""
    return f"{analysis_id}.jarvis.zip"


def custom_hardware_dir() -> Path:
    """Where descriptions of GPUs are kept that users gave, one file each."""
    return home() / "hardware"


def uploads_dir() -> Path:
    """Where uploaded and sample traces are kept."""
    return home() / "traces"


def partial_uploads_dir() -> Path:
    """Where uploads grow until they are whole, one folder each."""
    return home() / "arriving"


def secret_file() -> Path:
    """What the tickets of this server are signed with."""
    return home() / "secret"


def trace_cache_dir() -> Path:
    """Where traces that were read are kept as Arrow files, to be opened again at once."""
    return home() / "cache" / "traces"


def shared_copies_dir() -> Path:
    """Where it is noted which files of ``home`` are copies of what an artifact root holds."""
    return home() / "cache" / "shared"


def compiled_templates_dir() -> Path:
    """Where compiled report templates are kept."""
    return home() / "cache" / "templates"


def compiled_dirs() -> tuple[Path, ...]:
    """Where compiled kernels may be kept, best first; an installation may be read-only."""
    if chosen := os.environ.get("NUMBA_CACHE_DIR"):
        return (Path(chosen),)
    return _PACKAGE / "trace" / "__pycache__", home() / _COMPILED


def default_output_dir(trace: Path) -> Path:
    """Where ``jarvis analyze`` writes when no folder is given."""
    return trace.parent / "analysis_output"


def safe_name(text: str) -> str:
    """``text`` as a file name: letters, digits, ``._-`` only, never empty or hidden."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text).strip("._")[:100] or "unnamed"


def is_file_name(text: str) -> bool:
    """Whether a file can have this name, with an ending, and lies where it is put."""
    return (
        text.isprintable()
        and not re.search(r"[/\\:]", text)
        and text.strip(" .") != ""
        and len(text.encode()) <= MAX_FILE_NAME_LENGTH
    )


@dataclass(frozen=True, slots=True)
class RunPaths:
    """The layout of a run directory; every path inside it is spelled here and nowhere else."""

    root: Path

    @property
    def manifest(self) -> Path:
        """What was analyzed, with which options, and how each analysis ended."""
        return self.root / "manifest.json"

    @property
    def results(self) -> Path:
        """What every analysis found."""
        return self.root / "results.json"

    def table(self, name: str) -> Path:
        """A table as the dashboard reads it."""
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
    def category_manifests(self) -> tuple[Path, Path]:
        """The category manifest, and its copy at the root."""
        name = "category_manifest.json"
        return self.root / "category_data" / name, self.root / name

    @property
    def priority_data(self) -> tuple[Path, Path]:
        """The findings by what they would save, and a copy at the root: tools look in both."""
        name = "priority_data.json"
        return self.root / "category_data" / name, self.root / name

    @property
    def model_info(self) -> Path:
        """What the trace says about the model."""
        return self.root / "metadata" / "model_info.json"

    def metadata(self, key: str) -> Path:
        """Platform, GPU utilisation and options as one analysis sees them."""
        return self.root / "metadata" / f"{key}_metadata.json"

    def operations_csv(self, key: str) -> Path:
        """The rows of one category."""
        return self.root / "category_data" / f"{key}_ops.csv"

    def tree_data(self, key: str) -> Path:
        """Parent chains and subtrees of one category's operations."""
        return self.root / "category_data" / f"{key}_tree_data.json"

    def metrics(self, key: str) -> Path:
        """What one analysis measured."""
        return self.root / "category_data" / f"{key}_metrics.json"

    def system_data(self, key: str) -> Path:
        """The prepared input of a system analysis."""
        return self.root / "category_data" / f"{key}_data.json"

    def findings(self, key: str, tier: str) -> Path:
        """The findings of one analysis as Markdown; a ``tier`` other than ``compute`` is about
        more than one category."""
        folder = "category_findings" if tier == "compute" else "system_findings"
        return self.root / folder / f"{key}_findings.md"

    def standalone_report(self, kind: str) -> Path:
        """The ``fair`` or the ``rough`` report."""
        return self.root / f"standalone_analysis_{kind}.md"

    @property
    def standalone_html(self) -> Path:
        """The fair report as one HTML file with drawings, where it was written here."""
        return self.root / "standalone_analysis.html"

    @property
    def analysis_report(self) -> Path:
        """The report in the layout that other tools read."""
        return self.root / "analysis.md"

    @property
    def perf_plot(self) -> Path:
        """The drawing of that report."""
        return self.root / "perf_improvement.png"

    def comparative_report(self, kind: str) -> Path:
        """The ``fair`` or the ``rough`` report of a comparison."""
        return self.root / f"comparative_analysis_{kind}.md"

    @property
    def comparison(self) -> Path:
        """Both sides, the findings and the words of a comparison."""
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
        """Which operations have a package, and why others have none."""
        return self.replay_packages / "packages.json"

    def replay_package(self, operation: str) -> Path:
        """The package that replays one operation."""
        return self.replay_packages / f"{safe_name(operation)}_replay_package.zip"

    def replay_ir(self, operation: str) -> Path:
        """The calls of that package, readable without unpacking it."""
        return self.replay_packages / f"{safe_name(operation)}_replay_ir.json"


@dataclass(frozen=True, slots=True)
class ComparisonPaths:
    """What a comparison of two sides writes into a folder of its own."""

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
        """The folder with the tables and the findings, as in a run directory."""
        return RunPaths(self.root).comparison.parent


def is_comparison(root: Path) -> bool:
    """Whether ``root`` is the folder of a comparison, and not of an analysis with a reference."""
    paths = RunPaths(root)
    return paths.comparison.is_file() and not paths.manifest.is_file()


def _entries() -> frozenset[str]:
    paths = RunPaths(Path())
    places = (
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
    return frozenset(place.parts[0] for place in places)


RUN_ENTRIES = _entries()
"""What may stand at the top of a run directory; anything else was put there by somebody else."""
