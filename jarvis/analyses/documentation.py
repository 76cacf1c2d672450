"""Generate ``docs/checks.md`` from the registered analyses and the docstrings of their checks."""

from jarvis.analyses.base import Analysis, Check
from jarvis.analyses.registry import CHECK_PARTS, load_analyses
from jarvis.text.docstrings import filled_docstring


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
            lines += _check_markdown(check)
    for analysis in load_analyses().values():
        own = [check for check in analysis.all_checks if uses[check.__name__] == 1]
        lines += [f"## {analysis.title} (`{analysis.key}`)", "", *_claim_markdown(analysis)]
        if names := ", ".join(f"`{c.__name__}`" for c in analysis.all_checks if c not in own):
            lines += [f"Shared checks: {names}.", ""]
        for check in own:
            lines += _check_markdown(check)
    return "\n".join(lines).rstrip() + "\n"


def _claim_markdown(analysis: Analysis) -> list[str]:
    lines: list[str] = []
    if claim := analysis.claim:
        parts = []
        if claim.op_categories:
            parts.append("op categories " + ", ".join(f"`{c}`" for c in claim.op_categories))
        if claim.op_names:
            parts.append("names " + ", ".join(f"`{n}`" for n in claim.op_names))
        if claim.rest:
            parts.append("all operations that no other analysis claims")
        lines += [f"Claims {'; '.join(parts)}.", ""]
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


def _check_markdown(check: Check) -> list[str]:
    summary, _, parts = filled_docstring(check).partition("\n\n")
    lines = [f"### `{check.__name__}`", "", summary, ""]
    text = parts.replace("\n", " ")
    for part in CHECK_PARTS:
        text = text.replace(part, f"\n- **{part[:-1]}**:")
    return [*lines, *(line.strip() for line in text.strip().split("\n")), ""]
