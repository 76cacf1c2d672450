"""The registry of analyses: a file in the folder of a tier is an analysis, its name the key.

Third parties add theirs through the entry point group ``jarvis.analyses`` (name = key).
"""

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import get_args

from jarvis.analyses import compute, fusion, system
from jarvis.analyses.base import Analysis
from jarvis.errors import RegistrationError
from jarvis.findings import Tier

ENTRY_POINT_GROUP = "jarvis.analyses"
CHECK_PARTS = ("Symptom:", "Rule:", "Threshold:")
_FOLDERS: Mapping[Tier, ModuleType] = {"compute": compute, "fusion": fusion, "system": system}


@dataclass(frozen=True)
class Registry:
    """All analyses by key, in page order; and why third-party ones could not be loaded."""

    analyses: Mapping[str, Analysis]
    failures: Mapping[str, str] = field(default_factory=dict)


@cache
def load_registry() -> Registry:
    """Load every analysis; a broken one of ours raises RegistrationError, others are reported."""
    found: dict[str, Analysis] = {}
    for tier, package in _FOLDERS.items():
        for module in pkgutil.iter_modules(package.__path__):
            source = importlib.import_module(f"{package.__name__}.{module.name}")
            _add(found, module.name, tier, getattr(source, "ANALYSIS", None), source.__name__)
    failures: dict[str, str] = {}
    for point in entry_points(group=ENTRY_POINT_GROUP):
        try:
            _add_entry_point(found, point)
        except Exception as error:  # noqa: BLE001 - a stranger's package must not stop the app
            failures[point.name] = f"{type(error).__name__}: {error}"
    return Registry(_in_page_order(found), failures)


def load_analyses() -> Mapping[str, Analysis]:
    """All analyses by key: compute categories by title with the rest last, then the other tiers."""
    return load_registry().analyses


def _add_entry_point(found: dict[str, Analysis], point: EntryPoint) -> None:
    analysis = point.load()
    tier: Tier = "compute" if getattr(analysis, "claim", None) else "system"
    _add(found, point.name, tier, analysis, point.value)


def _add(found: dict[str, Analysis], key: str, tier: Tier, analysis: object, source: str) -> None:
    if not isinstance(analysis, Analysis):
        raise RegistrationError(f"{source} holds no ANALYSIS.")
    if key in found:
        raise RegistrationError(f"{source}: an analysis named {key} is registered already.")
    _check_spec(analysis, tier, source)
    candidate = replace(analysis, key=key, tier=tier)
    _check_claim(found.values(), candidate, source)
    found[key] = candidate


def _check_spec(analysis: Analysis, tier: Tier, source: str) -> None:
    if not analysis.title or not analysis.icon.startswith(":material/"):
        raise RegistrationError(f"{source}: an analysis needs a title and a :material/ icon.")
    if (analysis.claim is not None) != (tier == "compute"):
        raise RegistrationError(
            f"{source}: an analysis of the compute tier claims operations, one of another tier "
            "does not."
        )
    if not analysis.checks:
        raise RegistrationError(f"{source}: an analysis needs at least one check.")
    for check in analysis.all_checks:
        missing = [part for part in CHECK_PARTS if part not in (check.__doc__ or "")]
        if missing:
            raise RegistrationError(
                f"{source}: the docstring of check {check.__name__} lacks {', '.join(missing)}"
            )


def _check_claim(others: Iterable[Analysis], candidate: Analysis, source: str) -> None:
    if (claim := candidate.claim) is None:
        return
    for other in others:
        if other.claim is None:
            continue
        both = set(claim.op_categories) & set(other.claim.op_categories)
        if both or (claim.rest and other.claim.rest):
            what = ", ".join(sorted(both)) or "the rest"
            raise RegistrationError(f"{source}: {what} is claimed by {other.key} already.")


def _in_page_order(found: Mapping[str, Analysis]) -> dict[str, Analysis]:
    def order(analysis: Analysis) -> tuple[int, bool, str]:
        is_rest = analysis.claim is not None and analysis.claim.rest
        return get_args(Tier).index(analysis.tier), is_rest, analysis.title

    return {analysis.key: analysis for analysis in sorted(found.values(), key=order)}
