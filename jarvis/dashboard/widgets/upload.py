"""A file comes from the visitor's browser: sent in pieces, shown as it arrives, found in the URL.

The component beside this module sends the file to the API; the page only learns the upload's id.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import streamlit as st

from jarvis.dashboard.session.current_user import missing_role, visitor
from jarvis.dashboard.session.links import note_control, notice
from jarvis.reports.reading import WORKBOOK
from jarvis.server.ingest import uploads
from jarvis.server.ingest.tickets import UPLOAD, ticket_of
from jarvis.server.ingest.uploads import UnknownUploadError, Upload, upload_limit
from jarvis.text.format import byte_size
from jarvis.text.markdown import escape

_ENDINGS = (".json", ".gz", ".zip", WORKBOOK)


def _source(ending: str) -> str:
    return Path(__file__).with_suffix(ending).read_text(encoding="utf-8")


_component = st.components.v2.component(
    "jarvis_upload", html=_source(".html"), css=_source(".css"), js=_source(".js")
)


def uploaded_trace(prefix: str) -> Path | None:
    """The trace that the visitor has uploaded, None while there is none; draws how it arrives."""
    if (reason := missing_role()) is not None:
        st.info(reason, icon=":material/lock:")
        return None
    upload = uploaded_file(f"{prefix}_upload", _ENDINGS)
    if upload is None:
        st.caption(
            "As `prof.export_chrome_trace('trace.json.gz')` writes it. In its place a workbook or "
            "zipped CSV files of TraceLens will do."
        )
        return None
    if upload.is_reused:
        st.caption(f"The bytes of {escape(upload.name)} were here before; they are stored once.")
    return upload.trace


def uploaded_file(parameter: str, endings: Sequence[str]) -> Upload | None:
    """The whole upload that a parameter of the URL names; draws how it arrives."""
    upload = _remembered(parameter)
    key = f"_{parameter}_component"
    _component(
        key=key,
        data={
            "key": key,
            "ticket": ticket_of(visitor(), UPLOAD),
            "endings": ",".join(endings),
            "most_bytes": upload_limit(),
            "too_large": f"This server takes up to {byte_size(upload_limit())}. Compress the file, "
            "or analyze it by its path on the server.",
            "words": f"or drop it here: {', '.join(endings)}, up to {byte_size(upload_limit())}",
            "name": None if upload is None else upload.name,
        },
        on_upload_change=partial(_arrived, key, parameter),
    )
    return upload


def _arrived(key: str, parameter: str) -> None:
    """Remember an upload that is whole, for this visit and in the URL."""
    upload_id = st.session_state[key].get("upload")
    if upload_id:
        st.session_state[f"_{parameter}"] = upload_id
        st.query_params[parameter] = upload_id


def _remembered(parameter: str) -> Upload | None:
    """The upload of this visit or of a link; one that is not there is corrected with a word."""
    upload_id = st.query_params.get(parameter) or st.session_state.get(f"_{parameter}")
    if upload_id is None:
        return None
    try:
        upload = uploads.find_own(upload_id, visitor().name)
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
