"""Validation of untrusted run directories from archives or other machines.

Call this only in a job's process, which has a memory limit. The checks open, validate, export and
compare the run, so that pages and commands can trust it later.
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
"""Name of a table or an analysis, which is part of file names."""

_MAX_SHOWN_CHARS = 200


class ReceivedRunError(JarvisError):
    """An untrusted run directory is rejected; the message is the reason."""


def check_received_run(root: Path) -> Manifest:
    """Check all files of a run directory, and return its manifest.

    Raises:
        ReceivedRunError: a file is too large or malformed, `jarvis validate` fails, or the run
            cannot be exported or compared.
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
        raise ReceivedRunError(f"its files are inconsistent ({reason})") from error


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
            raise ReceivedRunError(f"it is inconsistent ({outcome.check.name}: {reason})")
    _check_use(run)
    return manifest


def _shown(text: str) -> str:
    return shortened(one_line(text), _MAX_SHOWN_CHARS)


def _check_names(run: Run) -> None:
    """Raise ReceivedRunError for names of tables or analyses that are unsafe in paths."""
    manifest = run.manifest
    if len(manifest.tables) > MAX_TABLES or len(set(manifest.tables)) != len(manifest.tables):
        raise ReceivedRunError("its list of tables is too long or has duplicates")
    if missing := set(manifest.sheets) - set(manifest.tables):
        raise ReceivedRunError(f"the table {min(missing)[:80]!r} is missing")
    cards = (card.key for card in manifest.added_analyses)
    summaries = [summary.key for summary in manifest.categories]
    for name in (*manifest.tables, *run.results, *summaries, *cards):
        if not _KEY.fullmatch(name):
            raise ReceivedRunError(f"the name {name[:80]!r} of a table or analysis is not valid")
    if set(summaries) != set(run.results) or any(k != r.key for k, r in run.results.items()):
        raise ReceivedRunError("its manifest and its results list different analyses")


def _check_tables(run: Run) -> None:
    """Read all tables within the limits."""
    paths, left = RunPaths(run.root or Path()), MAX_DECODED_BYTES
    for name in run.manifest.tables:
        _, size = read_table(paths.table(name), name, tuple(_columns(run, name)), left)
        left -= size


def _columns(run: Run, name: str) -> Iterator[Column]:
    """Yield the known required columns of a table."""
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
    """Use a run as pages and commands do; any error is a reason to reject it."""
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
