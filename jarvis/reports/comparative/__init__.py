"""The reports of a comparison: for stakeholders (fair), for audits (rough), and its data as files.

They are in the folder of ``jarvis compare`` and in the run directory of a target that was analyzed
with a reference.
"""

from pathlib import Path

from jarvis.comparison import Comparison
from jarvis.core.output import write_output
from jarvis.core.workspace import RunPaths
from jarvis.reports.comparative.data import write_data
from jarvis.reports.comparative.fair import fair_markdown
from jarvis.reports.comparative.rough import rough_markdown
from jarvis.reports.comparative.subject import Subject
from jarvis.run import Run

__all__ = ["write_comparison"]


def write_comparison(comparison: Comparison, target: Run, reference: Run, root: Path) -> None:
    """Write both reports of a comparison of these runs below ``root``, and the data behind them."""
    subject = Subject(comparison, target, reference)
    paths = RunPaths(root)
    for kind, markdown in (("fair", fair_markdown), ("rough", rough_markdown)):
        write_output(paths.comparative_report(kind), markdown(subject))
    write_data(subject, root)
