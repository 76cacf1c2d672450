"""Faults to plant into the files of a run."""

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jarvis.core.workspace import RunPaths

Fault = Callable[[RunPaths], object]


def substitute(path: Path, pattern: str, replacement: str, count: int = 1) -> None:
    """Replace the first matches; raise if nothing changes."""
    text = path.read_text(encoding="utf-8")
    changed, found = re.subn(pattern, replacement, text, count=count, flags=re.MULTILINE)
    assert found, f"{pattern} is not in {path.name}"
    path.write_text(changed, encoding="utf-8")


def change_json(path: Path, change: Callable[[Any], None]) -> None:
    """Change the content of a JSON file."""
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")


def change_csv(path: Path, change: Callable[[list[dict[str, str]]], Any]) -> None:
    """Change the rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    change(rows)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
