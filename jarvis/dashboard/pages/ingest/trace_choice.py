"""Choice of a trace: upload, path on the server, URL or sample."""

from collections.abc import Sequence
from pathlib import Path

import streamlit as st

from jarvis.core.workspace import home
from jarvis.dashboard.pages.ingest.trace_fetch import SOURCE, URL, fetched_trace
from jarvis.dashboard.widgets.controls import keyed_segments, text_input
from jarvis.dashboard.widgets.upload import uploaded_trace
from jarvis.server.ingest.intake import sample_trace, server_trace, trace_roots

UPLOAD, SERVER_PATH, ADDRESS, SAMPLE = "upload", "server path", SOURCE, "sample"
STORED = "kept analysis"
"""Value of a stored analysis as the source of a reference, handled by the caller."""

_LABELS = {ADDRESS: URL, STORED: "stored analysis"}
"""Labels that differ from the value in links."""


def choose_trace(prefix: str, sources: Sequence[str]) -> Path | None:
    """Draw the choice of the source, and return its trace or None.

    Args:
        prefix: Prefix of the URL parameters.
        sources: Values to choose from; for values that are not handled here, the caller draws the
            controls.

    Raises:
        IntakeError: The path is not allowed.
    """
    labels = {source: _LABELS.get(source, source) for source in sources}
    source = keyed_segments(f"{prefix}_source", "From", labels, "Source of the trace.")
    if source == UPLOAD:
        return uploaded_trace(prefix)
    if source == SERVER_PATH:
        roots = ", ".join(str(root) for root in trace_roots())
        path = text_input(f"{prefix}_path", "Path on the server", "trace.json.gz")
        st.caption(f"Allowed folders: {roots}. Relative paths are resolved in them.")
        return server_trace(path) if path else None
    if source == ADDRESS:
        return fetched_trace(prefix)
    if source == SAMPLE:
        st.caption(
            "A simulated training step (transformer and convolution blocks on eight ranks), "
            "labeled as simulated on every page."
        )
        return _sample(str(home()))
    return None


@st.cache_resource(max_entries=8, show_spinner="Computing the sample")
def _sample(home_folder: str) -> Path:
    """Return the sample in the home folder, computed once for all users.

    ``home_folder`` is part of the cache key, so its name must not start with an underscore.
    """
    return sample_trace()


def chosen_source(prefix: str) -> str | None:
    """Return the source chosen in ``choose_trace``."""
    chosen: str | None = st.session_state.get(f"{prefix}_source")
    return chosen
