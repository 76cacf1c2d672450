"""Where a trace comes from: an upload, a path on the server, the sample, or a stored analysis."""

from collections.abc import Sequence
from pathlib import Path

import streamlit as st

from jarvis.core.workspace import home
from jarvis.dashboard.pages.ingest.trace_fetch import SOURCE, URL, fetched_trace
from jarvis.dashboard.widgets.controls import keyed_segments, text_input
from jarvis.dashboard.widgets.upload import uploaded_trace
from jarvis.server.ingest.intake import sample_trace, server_trace, trace_roots

UPLOAD, SERVER_PATH, ADDRESS, SAMPLE = "upload", "server path", SOURCE, "sample"
_LABELS = {ADDRESS: URL}
"""What people read where that is not the word of links."""


def choose_trace(prefix: str, sources: Sequence[str]) -> Path | None:
    """The trace of the chosen source, or None while there is none.

    Raises IntakeError where a path is refused. ``sources`` may hold words that are
    not traces; then the caller draws what belongs to them.
    """
    labels = {source: _LABELS.get(source, source) for source in sources}
    source = keyed_segments(f"{prefix}_source", "From", labels, "Where the trace comes from.")
    if source == UPLOAD:
        return uploaded_trace(prefix)
    if source == SERVER_PATH:
        roots = ", ".join(str(root) for root in trace_roots())
        path = text_input(f"{prefix}_path", "Path on the server", "trace.json.gz")
        st.caption(f"Read from {roots}; relative paths are looked up there.")
        return server_trace(path) if path else None
    if source == ADDRESS:
        return fetched_trace(prefix)
    if source == SAMPLE:
        st.caption(
            "A simulated training step (transformer and convolution blocks on eight ranks): it was "
            "computed, not recorded, and every page says so."
        )
        return _sample(str(home()))
    return None


@st.cache_resource(max_entries=8, show_spinner="Computing the sample")
def _sample(home_folder: str) -> Path:
    """The sample in the home folder: computed once for all visitors.

    Streamlit tells homes apart by the parameter, unless its name begins with an underscore.
    """
    return sample_trace()


def chosen_source(prefix: str) -> str | None:
    """The source that ``choose_trace`` showed as chosen."""
    chosen: str | None = st.session_state.get(f"{prefix}_source")
    return chosen
