"""File upload from the browser in chunks, with progress; ids of uploads are in the URL.

The component (``upload.js``) sends the file to the API; the page only gets the ids.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import streamlit as st

from jarvis.core.workspace import TRUTH_NAME
from jarvis.dashboard.session.current_user import current_user, missing_role
from jarvis.dashboard.session.links import note_control, notice
from jarvis.ranks.inputs import max_ranks
from jarvis.reports.reading import WORKBOOK
from jarvis.server.errors import UnknownUploadError
from jarvis.server.ingest import uploads
from jarvis.server.ingest.intake import joined_uploads
from jarvis.server.ingest.tickets import UPLOAD, ticket_of
from jarvis.server.ingest.uploads import Upload, upload_limit
from jarvis.text.format import byte_size
from jarvis.text.markdown import escape

_TRACES = (".json", ".gz", ".tgz", ".zip")
_ENDINGS = (*_TRACES, WORKBOOK)


_MAX_LINKED_CHARS = 4000
"""Length of the ids of several uploads up to which the URL has them."""


@dataclass(frozen=True, slots=True)
class _Words:
    """Labels of the button before and after a choice, and what can be dropped; ``folder`` is the
    label of a button that takes all files below a folder."""

    choose: str
    again: str
    dropped: str
    folder: str = ""


_ONE = _Words("Choose a file", "Choose another file", "a file")
_ONE_OR_RANKS = replace(
    _ONE,
    dropped="a trace, or a folder with the traces of all ranks of a job,",
    folder="Choose a folder",
)
_SEVERAL = _Words("Choose files", "Choose other files", "files or a folder")


def _source(ending: str) -> str:
    return Path(__file__).with_suffix(ending).read_text(encoding="utf-8")


_component = st.components.v2.component(
    "jarvis_upload", html=_source(".html"), css=_source(".css"), js=_source(".js")
)


def uploaded_trace(prefix: str) -> Path | None:
    """Draw the upload, and return the uploaded trace or None."""
    return next(iter(_traces(prefix, _ONE)), None)


def uploaded_ranks(prefix: str) -> tuple[Path, ...] | None:
    """Draw the upload of a trace, or of those of several ranks; return them or None."""
    return _traces(prefix, _ONE_OR_RANKS) or None


def _traces(prefix: str, words: _Words) -> tuple[Path, ...]:
    if (reason := missing_role()) is not None:
        st.info(reason, icon=":material/lock:")
        return ()
    found = _uploaded(f"{prefix}_upload", _ENDINGS, words)
    if not found:
        st.caption(
            "A trace from `prof.export_chrome_trace('trace.json.gz')`, or a TraceLens workbook or "
            "zipped CSV files."
        )
    reused = [escape(upload.name) for upload in found if upload.is_reused]
    if len(reused) == 1:
        st.caption(f"{reused[0]} was already uploaded; the stored file is used.")
    elif reused:
        st.caption(f"{len(reused)} files were already uploaded; the stored ones are used.")
    return tuple(upload.trace for upload in found if upload.trace is not None)


def uploaded_file(parameter: str, endings: Sequence[str]) -> Upload | None:
    """Draw the upload, and return the complete upload whose id is in the URL, if any."""
    return next(iter(_uploaded(parameter, endings, _ONE)), None)


def uploaded_captures(prefix: str) -> Path | None:
    """Draw the upload of one or several captures; return the file, or an archive of them."""
    found = _uploaded(f"{prefix}_upload", _TRACES, _SEVERAL)
    traces = tuple(upload.trace for upload in found if upload.trace is not None)
    if not traces:
        st.caption("Traces that were recorded while graphs were captured, or a .zip of them.")
        return None
    st.caption(escape(", ".join(upload.name for upload in found)))
    return traces[0] if len(traces) == 1 else joined_uploads(traces)


def uploaded_config(prefix: str) -> Path | None:
    """Draw the upload of a JSON file, and return it or None."""
    upload = uploaded_file(f"{prefix}_upload", (".json",))
    return None if upload is None else upload.trace


def _uploaded(parameter: str, endings: Sequence[str], words: _Words) -> list[Upload]:
    uploads_ = _remembered(parameter)
    key = f"_{parameter}_component"
    names = [upload.name for upload in uploads_]
    _component(
        key=key,
        data={
            "key": key,
            "ticket": ticket_of(current_user(), UPLOAD),
            "endings": ",".join(endings),
            "takes_several": words is not _ONE,
            "choose": words.choose,
            "again": words.again,
            "folder": words.folder,
            "no_trace": TRUTH_NAME,
            "only_files": "This takes a file, not a folder.",
            "no_traces": f"There is no trace in this folder: {', '.join(endings)}.",
            "most_files": max_ranks(),
            "too_many": f"A job may have {max_ranks():,} ranks. Choose fewer files.",
            "most_bytes": upload_limit(),
            "too_large": f"This server takes up to {byte_size(upload_limit())}. Compress the file, "
            "or analyze it by its path on the server.",
            "words": f"or drop {words.dropped} here ({', '.join(endings)}; "
            f"up to {upload_limit() / 1e9:g} GB)",
            "name": names[0] if len(names) == 1 else f"{len(names)} files" if names else None,
        },
        on_upload_change=partial(_store_ids, key, parameter),
    )
    return uploads_


def _store_ids(key: str, parameter: str) -> None:
    """Store the ids of complete uploads in the session and the URL."""
    if ids := st.session_state[key].get("upload"):
        st.session_state[f"_{parameter}"] = ids
        if len(ids) <= _MAX_LINKED_CHARS:
            st.query_params[parameter] = ids
        else:
            st.query_params.pop(parameter, None)


def _remembered(parameter: str) -> list[Upload]:
    """Return the uploads of the session or the URL; unknown ones are cleared with a notice."""
    ids = st.query_params.get(parameter) or st.session_state.get(f"_{parameter}")
    if ids is None:
        return []
    try:
        found = [uploads.find_own(each, current_user().name) for each in ids.split(",")]
        if any(upload.trace is None for upload in found):
            raise UnknownUploadError
    except UnknownUploadError as error:
        notice(str(error))
        st.session_state.pop(f"_{parameter}", None)
        st.query_params.pop(parameter, None)
        return []
    st.session_state[f"_{parameter}"] = ids
    if len(ids) <= _MAX_LINKED_CHARS:
        st.query_params[parameter] = ids
        note_control(parameter, ids)
    return found
