"""The registry of analyses: each module in the folder of a tier is one, with its name as the key.

``docs/checks.md`` is made from it and from the docstrings of the checks.
"""

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import entry_points
from types import ModuleType
from typing import Self, get_args

from pydantic import ValidationError

from jarvis.analyses import compute, fusion, system
from jarvis.analyses.advice import register_advice
from jarvis.analyses.base import OF_OPERATIONS, Analysis, AnalysisManifest, Check, Claim, Panel
from jarvis.analyses.operations import DETAILS
from jarvis.core.errors import RegistrationError
from jarvis.core.workspace import resource
from jarvis.findings import Tier
from jarvis.preconditions import FACTS
from jarvis.schemas import TABLES
from jarvis.text.docstrings import filled_docstring

ENTRY_POINT_GROUP = "jarvis.analyses"
CHECK_PARTS = ("Symptom:", "Rule:", "Threshold:")
_FOLDERS: Mapping[Tier, ModuleType] = {"compute": compute, "fusion": fusion, "system": system}
_KEY = re.compile(r"[a-z][a-z0-9_]{0,39}")


@dataclass(frozen=True)
class Registry:
    """All analyses by key, in page order, and why third-party ones could not be loaded.

    ``failures`` has the reasons by entry point, ``manifests`` the third-party analyses by key.
    """

    analyses: Mapping[str, Analysis]
    failures: Mapping[str, str] = field(default_factory=dict)
    manifests: Mapping[str, AnalysisManifest] = field(default_factory=dict)

    def extended_with(self, key: str, analysis: object, source: str) -> Self:
        """Return a registry with one more analysis.

        One with a claim is a category, others are of the system tier.

        Raises:
            RegistrationError: It is malformed or uses the key or claim of another one.
        """
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            raise RegistrationError(
                f"{source}: {key!r} is not a valid key: use up to 40 lowercase letters, digits "
                "and '_'."
            )
        if resource(f"pages/{key}.py").exists():
            raise RegistrationError(f"{source}: {key} is a page of Jarvis; choose another key.")
        if not isinstance(analysis, Analysis):
            raise RegistrationError(f"{source}: {key} is not an Analysis.")
        tier: Tier = "system" if analysis.claim is None else "compute"
        manifest = _manifest(replace(analysis, key=key, tier=tier), source)
        found = dict(self.analyses)
        _add(found, key, tier, analysis, source)
        manifests = {**self.manifests, key: manifest}
        return replace(self, analyses=in_page_order(found), manifests=manifests)


@cache
def load_registry() -> Registry:
    """Load every analysis; raise RegistrationError for a broken built-in one, report third-party
    ones."""
    found: dict[str, Analysis] = {}
    for tier, package in _FOLDERS.items():
        for module in pkgutil.iter_modules(package.__path__):
            source = importlib.import_module(f"{package.__name__}.{module.name}")
            _add(found, module.name, tier, getattr(source, "ANALYSIS", None), source.__name__)
    registry = Registry(in_page_order(found))
    for point in entry_points(group=ENTRY_POINT_GROUP):
        try:
            registry = registry.extended_with(point.name, point.load(), point.value)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a third-party package
            failures = {**registry.failures, point.name: f"{type(error).__name__}: {error}"}
            registry = replace(registry, failures=failures)
    return registry


def load_analyses() -> Mapping[str, Analysis]:
    """Return all analyses by key: compute categories by title with the rest last, then other
    tiers."""
    return load_registry().analyses


def _add(found: dict[str, Analysis], key: str, tier: Tier, analysis: object, source: str) -> None:
    if not isinstance(analysis, Analysis):
        raise RegistrationError(f"{source} does not define ANALYSIS.")
    if key in found:
        raise RegistrationError(f"{source}: an analysis named {key} is already registered.")
    _check_spec(analysis, tier, source)
    candidate = replace(analysis, key=key, tier=tier)
    _check_claim(found.values(), candidate, source)
    found[key] = candidate
    register_advice(key, candidate.advice)


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
        both |= set(claim.blocks) & set(other.claim.blocks)
        both |= set(claim.kernel_kinds) & set(other.claim.kernel_kinds)
        if both or (claim.rest and other.claim.rest):
            what = ", ".join(sorted(both)) or "the rest"
            raise RegistrationError(f"{source}: {what} is already claimed by {other.key}.")


def _manifest(analysis: Analysis, source: str) -> AnalysisManifest:
    """Return the manifest of a third-party analysis; raise RegistrationError if a field is
    wrong."""
    try:
        manifest = AnalysisManifest.of(analysis)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise RegistrationError(f"{source}: {place}: {first['msg']}") from error
    for panel in manifest.panels:
        _check_panel(panel, manifest, source)
    return manifest


def _check_panel(panel: Panel, manifest: AnalysisManifest, source: str) -> None:
    """Raise RegistrationError if the page cannot render a panel."""
    where = f"{source}: the panel {panel.title!r}"
    is_of_operations = panel.source == "operations" and manifest.tier == "compute"
    if panel.kind in OF_OPERATIONS:
        if not is_of_operations:
            raise RegistrationError(f"{where} is only for operations of a category.")
        return
    if not is_of_operations and panel.source not in manifest.needs:
        raise RegistrationError(f"{where} shows {panel.source}, which is not among the needs.")
    own = (*DETAILS, *(detail.column() for detail in manifest.details)) if is_of_operations else ()
    names = {column.name for column in (*TABLES.get(panel.source, ()), *own)}
    for name in (panel.x, panel.y, *([] if panel.color is None else [panel.color])):
        if name not in names:
            raise RegistrationError(f"{where} shows {name}, which {panel.source} does not have.")


def in_page_order(found: Mapping[str, Analysis]) -> dict[str, Analysis]:
    """Sort analyses: compute categories by title with the rest last, then the other tiers."""

    def order(analysis: Analysis) -> tuple[int, bool, str]:
        is_rest = analysis.claim is not None and analysis.claim.rest
        return get_args(Tier).index(analysis.tier), is_rest, analysis.title

    return {analysis.key: analysis for analysis in sorted(found.values(), key=order)}


def checks_markdown() -> str:
    """Return ``docs/checks.md``: each analysis with its claim, its patterns and its checks."""
    lines = [
        "# Analyses and their checks",
        "",
        "Generated from the code by `make docs`. The numbers are the values of constants in it.",
        "",
        "## Shared checks",
        "",
    ]
    shared: dict[str, Check] = {}
    uses: dict[str, int] = {}
    for analysis in load_analyses().values():
        for check in analysis.all_checks:
            uses[check.__name__] = uses.get(check.__name__, 0) + 1
            shared[check.__name__] = check
    for name, check in shared.items():
        if uses[name] > 1:
            lines += check_markdown(check)
    lines += _facts_markdown()
    for analysis in load_analyses().values():
        own = [check for check in analysis.all_checks if uses[check.__name__] == 1]
        lines += [f"## {analysis.title} (`{analysis.key}`)", "", *_claim_markdown(analysis)]
        if names := ", ".join(f"`{c.__name__}`" for c in analysis.all_checks if c not in own):
            lines += [f"Shared checks: {names}.", ""]
        for check in own:
            lines += check_markdown(check)
    return "\n".join(lines).rstrip() + "\n"


def _facts_markdown() -> list[str]:
    return [
        "## Preconditions of actions",
        "",
        "An action of a finding is left out where the trace does not support it. A finding without "
        "an action on a path states this. The facts and the tables that they are derived from:",
        "",
        "| fact | holds if |",
        "|---|---|",
        *(f"| `{name}` | {_first_paragraph(function)} |" for name, function in FACTS.items()),
        "",
    ]


def _first_paragraph(function: Callable[..., object]) -> str:
    return filled_docstring(function).partition("\n\n")[0].replace("\n", " ").replace("``", "`")


def claim_text(claim: Claim) -> str:
    """Return the operations of a claim as Markdown: ``op categories `GEMM`; names `*gemm*```."""
    listed = (
        ("op categories {}", claim.op_categories),
        ("names {}", claim.op_names),
        ("kernels of the blocks {} without a known operator", claim.blocks),
        ("operations whose longest kernel is of the communication kinds {}", claim.kernel_kinds),
    )
    parts = [text.format(", ".join(f"`{n}`" for n in names)) for text, names in listed if names]
    if claim.rest:
        parts.append("all operations that no other analysis claims")
    return "; ".join(parts)


def _claim_markdown(analysis: Analysis) -> list[str]:
    lines: list[str] = []
    if analysis.claim:
        lines += [f"Claims {claim_text(analysis.claim)}.", ""]
    else:
        lines += [f"Reads {', '.join(f'`{name}`' for name in analysis.needs)}.", ""]
    if analysis.advice:
        lines += ["| pattern | rule | expected efficiency |", "|---|---|---|"]
        for pattern, advice in analysis.advice.items():
            low_high = advice.expected_pct
            expected = f"{low_high[0]:.0f}-{low_high[1]:.0f}%" if low_high else ""
            lines.append(f"| {pattern} | {advice.rule} | {expected} |")
        lines.append("")
    return lines


def check_markdown(check: Callable[..., object]) -> list[str]:
    """Return the docstring of a check as lines of Markdown, with CHECK_PARTS as a list."""
    summary, _, parts = filled_docstring(check).partition("\n\n")
    lines = [f"### `{check.__name__}`", "", summary, ""]
    text = parts.replace("\n", " ")
    for part in CHECK_PARTS:
        text = text.replace(part, f"\n- **{part[:-1]}**:")
    return [*lines, *(line.strip() for line in text.strip().split("\n")), ""]
