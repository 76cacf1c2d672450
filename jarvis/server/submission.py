"""Analyze traces and store the results under their ids; stored results are reused."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path

from jarvis.core.errors import RunError
from jarvis.core.labels import NO_LABELS
from jarvis.core.request import AnalysisRequest
from jarvis.core.staging import scratch_folder, staged_folder
from jarvis.core.workspace import RunPaths, analyses_dir
from jarvis.hardware import HardwareSpec
from jarvis.pipeline import (
    Progress,
    analyze,
    choose_hardware,
    chosen_options,
    reproject,
    reprojected_options,
)
from jarvis.pipeline.distributed import TooFewRanksError
from jarvis.ranks.run import DistributedRun
from jarvis.reports.reading import content_sha256
from jarvis.run import (
    Manifest,
    Options,
    Run,
    analysis_ids,
    check_output_folder,
    read_manifest,
    staged,
)
from jarvis.server.database import database
from jarvis.server.errors import CopyError, OthersAnalysisError
from jarvis.server.storage.analysis_rows import (
    add_labels,
    check_joinable,
    derived_from,
    labeled,
    may_answer,
    may_replace,
    reserved,
    stored_rows,
)
from jarvis.server.storage.artifacts import store_analysis
from jarvis.server.storage.catalog import analysis_root, is_stored
from jarvis.server.storage.storage_keys import FilePath


@dataclass(frozen=True, slots=True)
class Submission(AnalysisRequest):
    """A request with its trace; ``copy_to`` is a folder to which the run is copied."""

    trace: FilePath
    _: KW_ONLY
    copy_to: Path | None = None
    extension_file: FilePath | None = None
    arch_json: FilePath | None = None
    capture_folder: FilePath | None = None
    served_model: FilePath | None = None


@dataclass(frozen=True, slots=True)
class StoredAnalysis:
    """A stored analysis; ``is_reused`` if it was already stored."""

    id: str
    root: Path
    is_reused: bool


def submit(
    submission: Submission,
    progress: Progress | None = None,
    *,
    again: bool = False,
    opened: Path | None = None,
) -> StoredAnalysis:
    """Analyze a trace and store the result, or reuse a stored one with the same options.

    Either gets the labels of the context (``labeled``).

    Args:
        again: run the analysis even if its result is stored.
        opened: path to read the trace from, if it differs from ``submission.trace``.

    Raises:
        PrivateAnalysisError, OthersAnalysisError: the result exists and belongs to another person.
        OutputFolderError: ``copy_to`` has other content.
        CopyError: ``copy_to`` cannot be written.
        JarvisError: as ``analyze`` raises.
    """
    trace = opened or submission.trace
    sha256 = content_sha256(trace)
    if submission.reference is not None:
        is_stored(submission.reference)
    if submission.copy_to is not None:
        check_output_folder(submission.copy_to, sha256)
    options = chosen_options(submission)
    with derived_from([options.reference]):
        stored = _store(
            sha256,
            options,
            lambda root, options: analyze(
                trace,
                submission,
                figures_sha256=options.gpu_arch_sha256,
                recorded_path=submission.trace if opened else None,
                output_dir=root,
                identifier=root.name,
                progress=progress,
            ),
            again=again,
        )
    add_labels(database(), stored.id)
    if submission.copy_to is not None:
        _copy(stored.root, submission.copy_to, sha256)
    return stored


def resubmit(
    analysis: str,
    platform: str | None,
    preset: str | None,
    progress: Progress | None = None,
) -> StoredAnalysis:
    """Re-project a stored analysis onto other hardware, and store the result with its labels.

    Raises:
        UnknownAnalysisError: there is no such analysis.
        JarvisError: as ``reproject`` raises.
    """
    base = analysis_root(analysis)
    run = Run.load(base)
    options = reprojected_options(run, platform, preset)
    if options.reference is not None:
        is_stored(options.reference)
    source = stored_rows(database()).get(analysis)
    labels = NO_LABELS if source is None else source.labels
    with derived_from([analysis, options.reference]), labeled(labels):
        return _store(
            run.manifest.trace.sha256,
            options,
            lambda root, options: reproject(
                base,
                platform=platform,
                preset=preset,
                figures_sha256=options.gpu_arch_sha256,
                output_dir=root,
                identifier=root.name,
                progress=progress,
            ),
        )


def import_run(folder: Path) -> StoredAnalysis:
    """Store a run directory of another machine, or reuse the stored one.

    Raises:
        OthersAnalysisError: another person's analysis with other GPU figures is stored.
    """
    manifest = read_manifest(folder)

    def place(root: Path, options: Options) -> None:
        if options != manifest.options:
            raise OthersAnalysisError(manifest.analysis_id)
        with staged_folder(root) as target:
            shutil.copytree(folder, target, dirs_exist_ok=True)
            copy = manifest.model_copy(update={"analysis_id": root.name})
            RunPaths(target).manifest.write_text(copy.model_dump_json(indent=2), encoding="utf-8")

    stored = _store(manifest.trace.sha256, manifest.options, place)
    add_labels(database(), stored.id)
    return stored


def store_ranks(make: Callable[[Path], Sequence[DistributedRun]]) -> list[DistributedRun]:
    """Store the distributed runs that ``make`` writes to a folder, and the runs of ranks in them.

    Analyses of ranks that are stored already stay as they are, and so does a distributed run that
    the owner of the context may not replace: it joins the same analyses.

    Raises:
        PrivateAnalysisError: it exists and is private to another person.
        TooFewRanksError: as ``make`` raises; the only run that it keeps is stored.
    """
    with scratch_folder(analyses_dir(), "ranks") as scratch:
        try:
            return [_stored_ranks(made) for made in make(scratch / "run")]
        except TooFewRanksError as error:
            if error.single_run is not None:
                identifier = read_manifest(error.single_run).analysis_id
                if not is_stored(identifier):
                    _store_folder(error.single_run, identifier)
                error.single_run = analysis_root(identifier)
            raise


def _stored_ranks(run: DistributedRun) -> DistributedRun:
    made, manifest = RunPaths(run.root), run.manifest
    for entry in manifest.usable:
        member = made.member(entry.rank or 0)
        if member.is_dir() and not is_stored(str(entry.analysis_id)):
            _store_folder(member, str(entry.analysis_id))
    shutil.rmtree(made.members, ignore_errors=True)
    row = stored_rows(database()).get(manifest.distributed_id)
    check_joinable(row)
    if row is None or may_replace(row):
        _store_folder(made.root, manifest.distributed_id)
    return DistributedRun.load(analysis_root(manifest.distributed_id))


def _store_folder(written: Path, identifier: str) -> None:
    def place(root: Path) -> None:
        with staged_folder(root) as folder:
            written.rename(folder)

    with reserved(database(), identifier):
        store_analysis(identifier, place)


def _store(
    sha256: str, options: Options, make: Callable[[Path, Options], object], *, again: bool = False
) -> StoredAnalysis:
    """Return the stored analysis with these options and GPU figures, or create it with ``make``.

    Analyses of other persons are not replaced: with other figures, the new one has another id.

    Raises:
        PrivateAnalysisError: another person's private analysis has these options.
        OthersAnalysisError: another person's analysis is unreadable, or equal and ``again`` is set.
    """
    identifier = _identifier(sha256, options)
    root = analyses_dir() / identifier
    row = stored_rows(database()).get(identifier)
    check_joinable(row)
    manifest = _manifest(root) if is_stored(identifier) else None
    again = again or (row is not None and not may_answer(row))
    hardware = None if manifest is None else _hardware_now(manifest)
    has_same = manifest is not None and _is_current(hardware, manifest.hardware)
    if has_same and not again:
        return StoredAnalysis(identifier, root, is_reused=True)
    is_unusable = manifest is None and (row is None or row.owner is None)
    if row is not None and not is_unusable and not may_replace(row):
        if manifest is None or has_same or options.gpu_arch_sha256 is not None:
            raise OthersAnalysisError(identifier)
        figures = _NOT_DESCRIBED if hardware is None else hardware.sha256
        own = replace(options, gpu_arch_sha256=figures)
        return _store(sha256, own, make, again=again)
    if root.exists() and manifest is None:
        shutil.rmtree(root)  # damaged, or of another layout
    with reserved(database(), identifier):
        store_analysis(identifier, lambda root: make(root, options))
    return StoredAnalysis(identifier, root, is_reused=False)


def _identifier(sha256: str, options: Options) -> str:
    """Return the id of an analysis, stored or new.

    Imported analyses are never reused for the analysis of a trace. They are replaced if the person
    may change them; otherwise the new analysis has the next longer id. The same applies to an
    analysis of another trace whose digest has the same prefix.
    """
    rows = stored_rows(database())
    ids = analysis_ids(sha256, options)
    for identifier in ids:
        row = rows.get(identifier)
        if row is None:
            return identifier
        if not may_answer(row):
            if may_replace(row):
                return identifier
            continue
        manifest = _manifest(analyses_dir() / identifier) if is_stored(identifier) else None
        if manifest is None or (manifest.trace.sha256, manifest.options) == (sha256, options):
            return identifier
    return ids[-1]


_NOT_DESCRIBED = "none"
"""Placeholder for the digest of the figures of an unknown GPU."""


def _is_current(hardware: HardwareSpec | None, stored: HardwareSpec | None) -> bool:
    if hardware is None or stored is None:
        return hardware is stored
    return hardware.is_current(stored)


def _hardware_now(manifest: Manifest) -> HardwareSpec | None:
    """Return the current description of an analysis's GPU; a file's digest is part of the id."""
    options = manifest.options
    if options.gpu_arch_file is not None:
        return manifest.hardware
    return choose_hardware(manifest.trace, options.platform, options.preset)[0]


def _copy(root: Path, target: Path, sha256: str) -> None:
    try:
        with staged(target, sha256) as folder:
            shutil.copytree(root, folder, dirs_exist_ok=True)
    except OSError as error:
        raise CopyError(target, error) from error


def _manifest(root: Path) -> Manifest | None:
    try:
        return read_manifest(root)
    except RunError:
        return None
