"""What there is to say about extensions, in sentences."""

import traceback
from dataclasses import dataclass, field
from pathlib import Path

MAX_REASON_LENGTH = 300
"""Characters of what an error says; formulas put whole arrays into it."""


@dataclass
class Log:
    """``notes``: what to know; ``failures``: what could not be used while loading.

    ``faults`` fills while a report is made: one sentence for each op and pass whose formula failed.
    """

    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    faults: dict[str, str] = field(default_factory=dict)

    def fault(self, what: str, reason: str) -> None:
        """Keep the first reason why ``what`` failed."""
        self.faults.setdefault(what, f"The {what} failed: {reason}.")


def reason_of(error: BaseException, source: str) -> str:
    """``my_models.py, line 3: KeyError: 'x'``, in one line that every table and file can hold."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).name == source
    ]
    where = f"{source}, line {lines[-1]}" if lines else source
    try:
        said = str(error).encode(errors="replace").decode()
    except Exception:  # of a class with a broken __str__
        said = ""
    text = " ".join(f"{type(error).__name__}: {said}".split()).rstrip(" .:")
    return (
        f"{where}: {text if len(text) <= MAX_REASON_LENGTH else text[:MAX_REASON_LENGTH] + '...'}"
    )
