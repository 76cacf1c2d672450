"""Completers of argument values for shell completion."""

import argparse
from collections.abc import Callable, Iterable

from jarvis.core.workspace import analyses_dir


def completed_by(
    action: argparse.Action, complete: Callable[..., Iterable[str]]
) -> argparse.Action:
    """Set the completer of an action, and return the action."""
    action.completer = complete  # type: ignore[attr-defined]
    return action


def complete_run(prefix: str, **_: object) -> Iterable[str]:
    """Complete ids of stored analyses, files and folders."""
    from argcomplete.completers import FilesCompleter

    return [*complete_stored(prefix), *FilesCompleter()(prefix)]


def complete_stored(prefix: str, **_: object) -> list[str]:
    """Complete ids of stored analyses."""
    root = analyses_dir()
    names = (folder.name for folder in root.iterdir()) if root.is_dir() else ()
    return [name for name in names if name.startswith(prefix) and not name.startswith(".")]


def complete_gpu(prefix: str, **_: object) -> Iterable[str]:
    """Complete GPU names."""
    from jarvis.hardware import load_hardware

    return [name for name in load_hardware().names() if name.lower().startswith(prefix.lower())]
