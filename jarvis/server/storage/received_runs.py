"""Checks of a run directory that came from outside: an archive, or the result of another machine.

To be called in the process of a job, which has a memory limit. What is accepted can be opened,
validated, exported and compared: that is tried here, so that no later page or command has to
distrust it.
"""

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

from jarvis.core.errors import JarvisError
from jarvis.core.workspace import RunPaths
from jarvis.pipeline import compare
from jarvis.reports import reporter
from jarvis.run import Manifest, Run, category_table, read_manifest
from jarvis.schemas import SHEETS, TABLES, Column
from jarvis.server.storage.run_limits import (
    MAX_DECODED_BYTES,
    MAX_TABLES,
    RunLimitError,
    check_file_sizes,
    check_json,
    read_table,
)
from jarvis.text.markdown import one_line, shortened
from jarvis.tracelens.compare_report import NamedReport, compare_reports
from jarvis.validation import Verdict, validate

log = logging.getLogger(__name__)

_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
"""A table or an analysis, as a part of the names of its files."""

_SHOWN_LETTERS = 200


class ReceivedRunError(JarvisError):
    """A run directory from outside is not accepted; the message is the reason."""


def check_received_run(root: Path) -> Manifest:
    """Check every file of a run directory, and give its manifest.

    Raises ReceivedRunError where a file is too large or malformed, where `jarvis validate` fails,
    and where the run cannot be exported or compared.
    """
    try:
        return _checked(root)
    except RunLimitError as error:
        raise ReceivedRunError(str(error)) from error
    except ReceivedRunError:
        raise
    except (Exception, pl.exceptions.PanicException) as error:  # forged content may raise anything
        log.info("a received run cannot be used", exc_info=error)
        reason = _shown(f"{type(error).__name__}: {error}")
        raise ReceivedRunError(f"its files contradict each other ({reason})") from error


def _checked(root: Path) -> Manifest:
    files = sorted(path for path in root.rglob("*") if path.is_file())
    check_file_sizes((path.relative_to(root).as_posix(), path.stat().st_size) for path in files)
    for path in files:
        if path.suffix == ".json":
            check_json(path, path.relative_to(root).as_posix())
    try:
        manifest = read_manifest(root)
    except JarvisError as error:
        raise ReceivedRunError("its manifest cannot be read") from error
    run = Run.load(root)
    _check_names(run)
    _check_tables(run)
    for outcome in validate(root):
        if outcome.verdict is Verdict.FAIL:
            reason = _shown(str(outcome.problems[0]))
            raise ReceivedRunError(f"it contradicts itself ({outcome.check.name}: {reason})")
    _check_use(run)
    return manifest


def _shown(text: str) -> str:
    return shortened(one_line(text), _SHOWN_LETTERS)


def _check_names(run: Run) -> None:
    """Raise ReceivedRunError where a name of a table or of an analysis is no part of a path."""
    manifest = run.manifest
    if len(manifest.tables) > MAX_TABLES or len(set(manifest.tables)) != len(manifest.tables):
        raise ReceivedRunError("its list of tables cannot be right")
    if missing := set(manifest.sheets) - set(manifest.tables):
        raise ReceivedRunError(f"the table {min(missing)[:80]!r} is missing")
    cards = (card.key for card in manifest.added_analyses)
    summaries = [summary.key for summary in manifest.categories]
    for name in (*manifest.tables, *run.results, *summaries, *cards):
        if not _KEY.fullmatch(name):
            raise ReceivedRunError(f"a table or an analysis in it has the name {name[:80]!r}")
    if set(summaries) != set(run.results) or any(k != r.key for k, r in run.results.items()):
        raise ReceivedRunError("its manifest and its results name other analyses")


def _check_tables(run: Run) -> None:
    """Read every table within the limits."""
    paths, left = RunPaths(run.root or Path()), MAX_DECODED_BYTES
    for name in run.manifest.tables:
        _, size = read_table(paths.table(name), name, tuple(_columns(run, name)), left)
        left -= size


def _columns(run: Run, name: str) -> Iterator[Column]:
    """The columns that a table must have, as far as that is known."""
    categories = {category_table(key): key for key in run.results}
    if name in TABLES:
        yield from TABLES[name]
    elif name in run.manifest.sheets:
        yield from SHEETS["roofline"]
    elif name in categories:
        yield from TABLES["operations"]
        if (analysis := run.analyses.get(categories[name])) is not None:
            yield from analysis.details


def _check_use(run: Run) -> None:
    """Do with a run what pages and commands do; whatever that raises is a reason to refuse it."""
    for key, result in run.results.items():
        run.call_paths(key)
        if result.tier == "compute":
            run.category_operations(key)
    with TemporaryDirectory() as folder:
        for name in ("json", "html"):
            reporter(name).render(run, Path(folder) / name)
    compare(run, run)
    report = NamedReport("this", run.sheets())
    compare_reports([report, NamedReport("other", run.sheets())])
