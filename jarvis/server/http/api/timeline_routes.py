"""Data of the timeline page: parts of the timeline, search and statistics of a time span.

The format belongs to the page (``dashboard/pages/timeline/canvas.js``) and may change with it, so
the description of the API leaves it out.
"""

import gzip
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Path, Query, Request, Response

from jarvis.core.workspace import RunPaths
from jarvis.run.timeline import Window
from jarvis.run.timeline_rows import MAX_DEPTH, MAX_THREADS, HostChoice, TimelineRows
from jarvis.server import actions
from jarvis.server.access.rights import require_viewer
from jarvis.server.errors import UnknownAnalysisError
from jarvis.server.http.api.callers import MAX_ID_LENGTH, TimelineReader
from jarvis.server.storage.loaded_runs import loaded_rows
from jarvis.text.format import count, milliseconds, percent

_MAX_TEXT_LENGTH = 200
_MAX_NS = 2**62
_LEVEL = 3


router = APIRouter(prefix="/analyses/{analysis_id}/timeline", include_in_schema=False)


def _rows(
    person: TimelineReader,
    analysis_id: Annotated[str, Path(max_length=MAX_ID_LENGTH)],
    host: HostChoice,
    threads: Annotated[int, Query(ge=0, le=MAX_THREADS)],
    depth: Annotated[int, Query(ge=0, le=MAX_DEPTH)],
) -> TimelineRows:
    require_viewer(person)
    root = actions.visible_run_dir(person, analysis_id)
    try:
        stamp = RunPaths(root).manifest.stat().st_mtime_ns
    except FileNotFoundError:
        raise UnknownAnalysisError(analysis_id) from None
    return loaded_rows(str(root), stamp, host, threads, depth)


def _window(
    rows: Annotated[TimelineRows, Depends(_rows)],
    start: Annotated[int, Query(ge=-_MAX_NS, le=_MAX_NS)],
    length: Annotated[int, Query(ge=1, le=_MAX_NS)],
) -> Window:
    """Return a span given in ns since the start of the recording."""
    recording = rows.timeline.recording
    origin_ns = 0 if recording is None else recording.start_ns
    return Window(origin_ns + start, origin_ns + start + length)


_Rows = Annotated[TimelineRows, Depends(_rows)]
_Window = Annotated[Window, Depends(_window)]


@router.get("/part")
def part(request: Request, rows: _Rows, window: _Window) -> Response:
    """Return what to draw of a time span."""
    return _packed(request, rows.part(window))


@router.get("/search")
def search(
    request: Request, rows: _Rows, text: Annotated[str, Query(max_length=_MAX_TEXT_LENGTH)]
) -> Response:
    """Return the events whose name contains a text."""
    return _packed(request, rows.search(text))


@router.get("/statistics")
def statistics(request: Request, rows: _Rows, window: _Window) -> Response:
    """Return the lines of a table: what the GPU does in a time span."""
    lines = [
        {
            "row": row,
            "what": what,
            "count": count(events),
            "time": milliseconds(busy_ns / 1e6),
            "share": percent(100 * busy_ns / window.length_ns),
        }
        for row, what, events, busy_ns in rows.statistics(window).iter_rows()
    ]
    return _packed(request, {"lines": lines})


def _packed(request: Request, content: dict[str, Any]) -> Response:
    """Return JSON, compressed if the browser accepts that."""
    body = orjson.dumps(content)
    headers = {"Cache-Control": "no-store", "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        body = gzip.compress(body, _LEVEL, mtime=0)
        headers["Content-Encoding"] = "gzip"
    return Response(body, media_type="application/json", headers=headers)
