"""The replay packages of a run, as listed in the report for stakeholders."""

from pathlib import Path
from typing import Any

import orjson

from jarvis.core.workspace import RunPaths
from jarvis.impact import marked_efficiency
from jarvis.text.format import count, percent
from jarvis.text.markdown import Markdown, cell, prose, table

NOT_BUILT = "No replay packages were built with this analysis."


def replay_sentence(root: Path) -> str:
    """Return whether there are packages, and by which rule."""
    index = _index(root)
    if index is None:
        return NOT_BUILT
    if not index["operations"]:
        return f"None: a package is built for each operation that takes {index['rule']}."
    return (
        "Replay artifacts are recommended for the kernel team to investigate and optimize. There "
        f"is one for each operation that takes {index['rule']}."
    )


def replay_table(root: Path) -> Markdown | None:
    """Return operation, share, efficiency and package, or the reason why there is none."""
    index = _index(root)
    if not index or not index["operations"]:
        return None
    return table(
        ("Operation", "% of Compute", "Efficiency", "Distinct calls", "Package"),
        (
            (
                cell(package["op_name"]),
                percent(package["percent_of_compute"]),
                marked_efficiency(package["efficiency_pct"]),
                count(package["entries"]),
                _package(package),
            )
            for package in index["operations"]
        ),
    )


def _package(package: dict[str, Any]) -> Markdown:
    if package["package"] is None:
        return prose(f"none: {package['reason']}")
    folder = RunPaths(Path()).replay_packages
    return cell(str(folder / package["package"]))


def _index(root: Path) -> dict[str, Any] | None:
    """Return the index of the packages; None if none were built."""
    path = RunPaths(root).replay_index
    return orjson.loads(path.read_bytes()) if path.is_file() else None
