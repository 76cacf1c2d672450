"""Perf models, op categories and categories from a user's file or from other packages.

Each load creates a new registry. A faulty extension is reported, and the report is written without
it.
"""

import hashlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

from jarvis.analyses import Registry as Analyses
from jarvis.analyses import load_registry
from jarvis.analyses.base import Analysis
from jarvis.core.errors import ExtensionFileError, RegistrationError
from jarvis.core.extension_log import Log, reason_of
from jarvis.extensions.guard import sandboxed_analysis, sandboxed_registry
from jarvis.perf_models import BUILTIN, Registry
from jarvis.tracelens.extension_files import HOOKS, register_hooks

ENTRY_POINT_GROUP = "jarvis.perf_models"
"""Entry point group of packages that define ``register(registry)``."""

REGISTER, ANALYSES = "register", "ANALYSES"
"""The names that an extension file defines: a function for models, and a dict of categories by
key."""

_NAMES_SHOWN = 5


@dataclass(frozen=True)
class Extensions:
    """The registries of one analysis, and the messages about its extensions."""

    registry: Registry
    log: Log
    with_file: Analyses | None = None
    """All analyses, if an extension file can have added some."""

    @cached_property
    def analyses(self) -> Analyses:
        """All analyses; a report, which has none, does not load them."""
        return self.with_file or _of_packages()

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what to know about the extensions, a sentence each."""
        return tuple(self.log.notes)

    @property
    def failures(self) -> tuple[str, ...]:
        """Return what could not be used, a sentence each; formula errors appear after a report used
        them."""
        return (*self.log.failures, *self.log.faults.values())


def content_sha256(file: Path) -> str:
    """Return the digest of an extension file; raise ExtensionFileError if it cannot be read."""
    return hashlib.sha256(_content(file)).hexdigest()


def load_extensions(file: Path | None = None) -> Extensions:
    """Load the models and analyses of all packages that define some, and those of ``file``.

    Models of the file take precedence over packages, and these over Jarvis. Raise
    ExtensionFileError if the file cannot be read; every other fault is logged.
    """
    log = Log()
    registry = BUILTIN
    for point in entry_points(group=ENTRY_POINT_GROUP):
        try:
            register = point.load()
        except (Exception, SystemExit) as error:
            log.failures.append(f"{reason_of(error, point.name)}. It could not be loaded.")
            continue
        own = Registry()
        _run(register, own, point.name, log)
        registry = _extended(registry, own, point.name, log)
    if file is None:
        return Extensions(registry, log)
    content = _names_in(file, log)
    registry = _extended(registry, _models_in(content, file.name, log), file.name, log)
    analyses = _with_analyses(_of_packages(), content.get(ANALYSES, {}), file.name, log)
    return Extensions(registry, log, analyses)


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ExtensionFileError(file, error.strerror or str(error)) from error


def _names_in(file: Path, log: Log) -> Mapping[str, Any]:
    """Return the names that the file defines; empty if it cannot be run."""
    source = _content(file)
    try:
        content = vars(_executed(file, source))
    except (Exception, SystemExit) as error:
        hint = _hint(error)
        log.failures.append(f"{reason_of(error, file.name)}. The file is ignored{hint}.")
        return {}
    if not content.keys() & {REGISTER, ANALYSES, *HOOKS}:
        log.failures.append(
            f"{file.name} adds nothing: it has neither a function register(registry) nor "
            f"{ANALYSES} nor one of {', '.join(HOOKS)}."
        )
    return content


def _models_in(content: Mapping[str, Any], source: str, log: Log) -> Registry:
    registry = Registry()
    if REGISTER in content:
        _run(content[REGISTER], registry, source, log)
    register_hooks(content, registry, source, log)
    return registry


def _of_packages() -> Analyses:
    """Return all analyses, those of packages wrapped."""
    registry = load_registry()
    added = {
        key: sandboxed_analysis(registry.analyses[key], key, key) for key in registry.manifests
    }
    return replace(registry, analyses={**registry.analyses, **added})


def _with_analyses(analyses: Analyses, added: object, source: str, log: Log) -> Analyses:
    """Return ``analyses`` with the valid ones of ``added``."""
    if not isinstance(added, Mapping):
        log.failures.append(f"{ANALYSES} of {source} is {type(added).__name__}, not a dict.")
        return analyses
    for key, analysis in added.items():
        try:
            if isinstance(analysis, Analysis):
                analyses = analyses.extended_with(
                    key, sandboxed_analysis(analysis, key, source), source
                )
            else:
                raise RegistrationError(
                    f"{source}: {key} is {type(analysis).__name__}, not an Analysis."
                )
            if analysis.target is not None:
                log.notes.append(f"The slider of {key} in {source} is ignored: it would need code.")
        except RegistrationError as error:
            log.failures.append(f"{error} {key!r} is ignored.")
        except (Exception, SystemExit) as error:
            log.failures.append(f"{reason_of(error, source)}. {key!r} is ignored.")
    return analyses


def _executed(file: Path, source: bytes) -> ModuleType:
    """Return the module of ``source``; never from cached bytecode of an earlier content."""
    name = f"jarvis_extension_{uuid4().hex}"  # two analyses can load one file at the same time
    module = ModuleType(name)
    module.__file__ = str(file)
    sys.modules[name] = module  # dataclasses of the file look up their module there
    try:
        exec(compile(source, str(file), "exec"), vars(module))
    finally:
        del sys.modules[name]
    return module


def _hint(error: BaseException) -> str:
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing and missing.split(".")[0] == "TraceLens":
        return "; it uses TraceLens's classes, which Jarvis does not provide"
    return ""


def _run(register: Callable[[Registry], object], registry: Registry, source: str, log: Log) -> None:
    try:
        register(registry)
    except (Exception, SystemExit) as error:
        log.failures.append(
            f"{reason_of(error, source)}. Only the registrations before the error apply."
        )


def _extended(registry: Registry, own: Registry, source: str, log: Log) -> Registry:
    """Return ``registry`` with ``own`` in front of it; ``log`` records what that replaces."""
    replaced = sorted(registry.names() & own.names())
    if replaced:
        shown = ", ".join(f"`{name}`" for name in replaced[:_NAMES_SHOWN])
        more = len(replaced) - _NAMES_SHOWN
        ending = f" and {more} more" if more > 0 else ""
        log.notes.append(f"{source} overrides the built-in models of {shown}{ending}.")
    own.freeze()
    return registry.extended_with(sandboxed_registry(own, source, log))
