"""Checks of numbers and images: shares of the timeline, hardware, charts."""

import re
from collections.abc import Iterator

from jarvis.validation.check import Check, Problem
from jarvis.validation.run_files import Json
from jarvis.validation.totals import agree
from tests.layout.markdown import Part, plain
from tests.layout.rendered import Rendered

PEAK_TOLERANCE = 0.005
SUMMARY, APPENDIX, HARDWARE = "Executive Summary", "Appendix", "Hardware Reference"
PEAK = re.compile(r"(\d[\d,]*(?:\.\d+)?) (?:TB/s|TFLOP)")
_SHARE = r"(\d+(?:\.\d+)?)%"
TOLD_SHARES = (
    (re.compile(rf"^GPU Utilization .*?{_SHARE} computing"), "computation_time"),
    (re.compile(rf"^GPU Utilization .*?{_SHARE} idle"), "idle_time"),
    (re.compile(rf"^Compute % {_SHARE}"), "computation_time"),
    (re.compile(rf"^Idle % {_SHARE}"), "idle_time"),
)
"""Pattern of a share in a summary, and the row of the GPU timeline that it shows."""

WINDOW_SHARES = ("Compute %", "Idle %")
"""Rows of shares of the GPU timeline; the others are shares of the step time, if known."""


def reports_give_the_shares_of_the_timeline(run: Rendered) -> Iterator[Problem]:
    """The shares of compute and idle time in a summary equal those of the steps, or of the GPU
    timeline."""
    for document in (run.fair, run.document(run.paths.analysis_report)):
        summary = document.part(SUMMARY) if document else None
        for table in summary.tables if summary else ():
            for row in table.rows:
                reported = " ".join(plain(cell) for cell in row.cells.values())
                for pattern, kind in TOLD_SHARES:
                    found = pattern.search(reported)
                    expected = run.gpu_timeline.get(kind, (0.0, None))[1]
                    if "of the GPU window" not in reported and not reported.startswith(
                        WINDOW_SHARES
                    ):
                        expected = run.step_pct.get(kind, expected)
                    if found and not agree(float(found[1]), expected):
                        text = f"It gives {kind} as {found[1]}%; {expected}% expected."
                        yield Problem(summary.file if summary else "", text, row.number)


def hardware_is_named(run: Rendered) -> Iterator[Problem]:
    """The appendices name the GPU, its bandwidth and its compute peaks as used by the run."""
    for document in (run.fair, run.document(run.paths.analysis_report)):
        appendix = document.part(APPENDIX) if document else None
        part = appendix.part(HARDWARE, level=3) if appendix else None
        if document is not None and run.hardware is not None:
            yield from _hardware(run.hardware, part or document)


def images_are_there(run: Rendered) -> Iterator[Problem]:
    """Every image that a report shows is a file of the run."""
    for report in run.reports:
        folder = (run.root / report.file).parent
        for line, target in report.images:
            if not target.startswith("data:") and not (folder / target).is_file():
                yield Problem(report.file, f"The image {target} is missing.", line)


def _hardware(hardware: Json, part: Part) -> Iterator[Problem]:
    reported = [plain(line.text) for line in part.lines]
    if not any(hardware["name"] in line for line in reported):
        yield Problem(part.file, f"The appendix does not name the {hardware['name']}.", part.number)
    known = {
        "HBM BW": [hardware["mem_bw_gbps"] / 1000],
        "MAF": list(hardware["max_achievable_tflops"].values()),
    }
    for label, expected in known.items():
        given = [
            (line.number, float(found[1].replace(",", "")))
            for line in part.lines
            if label in line.text and (found := PEAK.search(plain(line.text)))
        ]
        if expected and not given:
            yield Problem(part.file, f"The appendix gives no {label}.", part.number)
        for number, value in given:
            if not any(abs(value - peak) <= PEAK_TOLERANCE * peak for peak in expected):
                text = f"The {label} is {value:g}; one of {expected} expected."
                yield Problem(part.file, text, number)


CHECKS = (
    Check(reports_give_the_shares_of_the_timeline),
    Check(hardware_is_named),
    Check(images_are_there),
)
