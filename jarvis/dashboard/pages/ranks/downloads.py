"""Files of a distributed run to download."""

import streamlit as st

from jarvis.core.workspace import RunPaths
from jarvis.dashboard.widgets.controls import text_input
from jarvis.dashboard.widgets.file_jobs import file_button, file_job
from jarvis.ranks.identity import as_ranges, ranks_in
from jarvis.ranks.run import DistributedRun
from jarvis.reports.ranks_export import HTML, PERFETTO
from jarvis.server.jobs.kinds import WHOLE_RUN
from jarvis.server.jobs.kinds.ranks import RanksExport

PAGE = "ranks_files"


def downloads(run: DistributedRun) -> None:
    """Draw the buttons that make or download the files of a distributed run."""
    identifier = run.manifest.distributed_id
    with st.container(border=True):
        st.markdown("**Files**")
        with st.container(horizontal=True, vertical_alignment="bottom"):
            ranks = _chosen_ranks(run)
            report = RanksExport(identifier, HTML)
            trace = RanksExport(identifier, PERFETTO, ranks)
            whole = RanksExport(identifier, WHOLE_RUN)
            file_button(PAGE, "Report as HTML", report, "The findings and the table of ranks.")
            file_button(
                PAGE,
                "Trace of the ranks",
                trace,
                "GPU events and host calls of these ranks on their common clock, for Perfetto.",
            )
            file_button(PAGE, "All files", whole, "Sheets, workbook and tables, as a .zip.")
            workbook = RunPaths(run.root).multi_rank_xlsx
            st.download_button(
                "Workbook",
                workbook.read_bytes,
                workbook.name,
                icon=":material/download:",
                help="The collective report with the tables of the ranks.",
            )
        file_job(PAGE, report, trace, whole)


def _chosen_ranks(run: DistributedRun) -> tuple[int, ...]:
    """Draw the choice of the ranks of a trace; return them, or none for all."""
    usable = [entry.rank or 0 for entry in run.manifest.usable]
    typed = text_input("ranks_of_trace", "Ranks of the trace", as_ranges(usable))
    ranks = ranks_in(typed) if typed else ()
    if ranks is None or not set(ranks) <= set(usable):
        st.error(f"Type some of the ranks {as_ranges(usable)}, such as 0,4-7.")
        return ()
    return ranks
