"""Messages about extensions: notes, load failures and faults at run time."""

import traceback
from dataclasses import dataclass, field
from pathlib import Path

MAX_REASON_LENGTH = 300
"""Characters of an exception message; formulas can put whole arrays into one."""


@dataclass
class Log:
    """Messages about the extensions of one analysis.

    ``notes`` are informational, ``failures`` list what could not be loaded, and ``faults`` has one
    sentence for each op and pass whose formula failed while a report was made.
    """

    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    faults: dict[str, str] = field(default_factory=dict)

    def fault(self, what: str, reason: str) -> None:
        """Record why ``what`` failed; later reasons for the same are ignored."""
        self.faults.setdefault(what, f"The {what} failed: {reason}.")


def reason_of(error: BaseException, source: str) -> str:
    """Return the error as one line with its position: ``my_models.py, line 3: KeyError: 'x'``.

    Args:
        source: Name of the file whose line is reported.
    """
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).name == source
    ]
    where = f"{source}, line {lines[-1]}" if lines else source
    try:
        message = str(error).encode(errors="replace").decode()
    except Exception:  # of a class with a broken __str__
        message = ""
    text = " ".join(f"{type(error).__name__}: {message}".split()).rstrip(" .:")
    return (
        f"{where}: {text if len(text) <= MAX_REASON_LENGTH else text[:MAX_REASON_LENGTH] + '...'}"
    )
