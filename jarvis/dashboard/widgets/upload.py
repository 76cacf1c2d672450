"""File upload from the browser in chunks, with progress; the upload's id is in the URL.

The component (``upload.js``) sends the file to the API; the page only gets the upload's id.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import streamlit as st

from jarvis.dashboard.session.current_user import current_user, missing_role
from jarvis.dashboard.session.links import note_control, notice
from jarvis.reports.reading import WORKBOOK
from jarvis.server.errors import UnknownUploadError
from jarvis.server.ingest import uploads
from jarvis.server.ingest.tickets import UPLOAD, ticket_of
from jarvis.server.ingest.uploads import Upload, upload_limit
from jarvis.text.format import byte_size
from jarvis.text.markdown import escape

_ENDINGS = (".json", ".gz", ".zip", WORKBOOK)


def _source(ending: str) -> str:
    return Path(__file__).with_suffix(ending).read_text(encoding="utf-8")


_component = st.components.v2.component(
    "jarvis_upload", html=_source(".html"), css=_source(".css"), js=_source(".js")
)


def uploaded_trace(prefix: str) -> Path | None:
    """Draw the upload, and return the uploaded trace or None."""
    if (reason := missing_role()) is not None:
        st.info(reason, icon=":material/lock:")
        return None
    upload = uploaded_file(f"{prefix}_upload", _ENDINGS)
    if upload is None:
        st.caption(
            "A trace from `prof.export_chrome_trace('trace.json.gz')`, or a TraceLens workbook or "
            "zipped CSV files."
        )
        return None
    if upload.is_reused:
        st.caption(f"{escape(upload.name)} was already uploaded; the stored file is used.")
    return upload.trace


def uploaded_file(parameter: str, endings: Sequence[str]) -> Upload | None:
    """Draw the upload, and return the complete upload whose id is in the URL, if any."""
    upload = _remembered(parameter)
    key = f"_{parameter}_component"
    _component(
        key=key,
        data={
            "key": key,
            "ticket": ticket_of(current_user(), UPLOAD),
            "endings": ",".join(endings),
            "most_bytes": upload_limit(),
            "too_large": f"This server takes up to {byte_size(upload_limit())}. Compress the file, "
            "or analyze it by its path on the server.",
            "words": f"or drop it here: {', '.join(endings)}, up to {byte_size(upload_limit())}",
            "name": None if upload is None else upload.name,
        },
        on_upload_change=partial(_store_id, key, parameter),
    )
    return upload


def _store_id(key: str, parameter: str) -> None:
    """Store the id of a complete upload in the session and the URL."""
    upload_id = st.session_state[key].get("upload")
    if upload_id:
        st.session_state[f"_{parameter}"] = upload_id
        st.query_params[parameter] = upload_id


def _remembered(parameter: str) -> Upload | None:
    """Return the upload of the session or the URL; an unknown one is cleared with a notice."""
    upload_id = st.query_params.get(parameter) or st.session_state.get(f"_{parameter}")
    if upload_id is None:
        return None
    try:
        upload = uploads.find_own(upload_id, current_user().name)
        if upload.trace is None:
            raise UnknownUploadError
    except UnknownUploadError as error:
        notice(str(error))
        st.session_state.pop(f"_{parameter}", None)
        st.query_params.pop(parameter, None)
        return None
    st.session_state[f"_{parameter}"] = upload_id
    st.query_params[parameter] = upload_id
    note_control(parameter, upload_id)
    return upload
