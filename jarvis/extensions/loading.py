"""Find extensions, run what registers their models, and put these in front of ours."""

import hashlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
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
from jarvis.extensions.containment import contained
from jarvis.extensions.guard import guarded
from jarvis.perf_models import BUILTIN, Registry
from jarvis.tracelens.extension_files import HOOKS, adopt

ENTRY_POINT_GROUP = "jarvis.perf_models"
"""Packages name a function ``register(registry)`` under it."""

REGISTER, ANALYSES = "register", "ANALYSES"
"""What an extension file defines: a function for models, and a dict of categories by key."""

_NAMES_SHOWN = 5


@dataclass(frozen=True)
class Extensions:
    """The registries of one analysis, and what there is to say about its extensions."""

    registry: Registry
    analyses: Analyses
    log: Log

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know about the extensions, a sentence each."""
        return tuple(self.log.notes)

    @property
    def failures(self) -> tuple[str, ...]:
        """What could not be used, a sentence each; formulas once a report has asked them."""
        return (*self.log.failures, *self.log.faults.values())


def content_sha256(file: Path) -> str:
    """Digest of an extension file; ExtensionFileError where it cannot be read."""
    return hashlib.sha256(_content(file)).hexdigest()


def load_extensions(file: Path | None = None) -> Extensions:
    """The models and analyses of all packages that have some, and those of ``file``.

    What the file says of an op goes before the packages, and these before Jarvis.
    ExtensionFileError where the file cannot be read; every other fault is in the log.
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
    analyses = _of_packages()
    if file is not None:
        content = _names_in(file, log)
        registry = _extended(registry, _models_in(content, file.name, log), file.name, log)
        analyses = _with_analyses(analyses, content.get(ANALYSES, {}), file.name, log)
    return Extensions(registry, analyses, log)


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ExtensionFileError(file, error.strerror or str(error)) from error


def _names_in(file: Path, log: Log) -> Mapping[str, Any]:
    """What the file defines; nothing where it cannot be run."""
    source = _content(file)
    try:
        content = vars(_executed(file, source))
    except (Exception, SystemExit) as error:
        hint = _hint(error)
        log.failures.append(f"{reason_of(error, file.name)}. The file is left out{hint}.")
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
    adopt(content, registry, source, log)
    return registry


def _of_packages() -> Analyses:
    """All analyses, those of packages contained."""
    registry = load_registry()
    added = {key: contained(registry.analyses[key], key, key) for key in registry.cards}
    return replace(registry, analyses={**registry.analyses, **added})


def _with_analyses(analyses: Analyses, added: object, source: str, log: Log) -> Analyses:
    """``analyses`` with those of ``added`` that are well formed."""
    if not isinstance(added, Mapping):
        log.failures.append(f"{ANALYSES} of {source} is {type(added).__name__}, not a dict.")
        return analyses
    for key, analysis in added.items():
        try:
            if isinstance(analysis, Analysis):
                analyses = analyses.extended_with(key, contained(analysis, key, source), source)
            else:
                raise RegistrationError(
                    f"{source}: {key} is {type(analysis).__name__}, no Analysis."
                )
            if analysis.target is not None:
                log.notes.append(
                    f"The slider of {key} in {source} is left out: it would need code."
                )
        except RegistrationError as error:
            log.failures.append(f"{error} {key!r} is left out.")
        except (Exception, SystemExit) as error:
            log.failures.append(f"{reason_of(error, source)}. {key!r} is left out.")
    return analyses


def _executed(file: Path, source: bytes) -> ModuleType:
    """The module that ``source`` makes; never from compiled code of an earlier content."""
    name = f"jarvis_extension_{uuid4().hex}"  # two analyses can load one file at the same time
    module = ModuleType(name)
    module.__file__ = str(file)
    sys.modules[name] = module  # dataclasses of the file look for their module there
    try:
        exec(compile(source, str(file), "exec"), vars(module))
    finally:
        del sys.modules[name]
    return module


def _hint(error: BaseException) -> str:
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing and missing.split(".")[0] == "TraceLens":
        return "; it builds on TraceLens's own classes, which Jarvis does not have"
    return ""


def _run(register: Callable[[Registry], object], registry: Registry, source: str, log: Log) -> None:
    try:
        register(registry)
    except (Exception, SystemExit) as error:
        log.failures.append(
            f"{reason_of(error, source)}. What register(registry) had not registered before "
            "is missing."
        )


def _extended(registry: Registry, own: Registry, source: str, log: Log) -> Registry:
    """``registry`` with ``own`` in front of it; ``log`` notes what that replaces."""
    replaced = sorted(registry.names() & own.names())
    if replaced:
        shown = ", ".join(f"`{name}`" for name in replaced[:_NAMES_SHOWN])
        more = len(replaced) - _NAMES_SHOWN
        ending = f" and {more} more" if more > 0 else ""
        log.notes.append(
            f"{source} replaces what is known of {shown}{ending}; the extension counts."
        )
    own.freeze()
    return registry.extended_with(guarded(own, source, log))
