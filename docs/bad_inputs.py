"""Examples of hostile input and the resulting messages, for ``bad-inputs.md`` and a test.

Hostile names are in ``tests/hostile.py``.
"""

import gzip
import io
import json
import os
import struct
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import openpyxl
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

from jarvis.core.errors import JarvisError
from jarvis.core.product import API
from jarvis.core.workspace import HOME_VARIABLE
from jarvis.hardware import HardwareSpec
from jarvis.reports.reading import read_report
from jarvis.server.http.api import api
from jarvis.server.http.app import middleware
from jarvis.server.ingest.addresses import (
    HOSTS_VARIABLE,
    PRIVATE_HOSTS_VARIABLE,
    address_of,
    machines_of,
)
from jarvis.server.ingest.intake import ROOTS_VARIABLE, server_trace, store_upload
from jarvis.server.ingest.remote_runs import check_path
from jarvis.server.ingest.tickets import UPLOAD, ticket_holder
from jarvis.server.ingest.upload_writer import resume_upload
from jarvis.server.ingest.uploads import create, find
from jarvis.server.storage.catalog import analysis_root
from jarvis.trace import read_trace
from jarvis.tracelens.imported import typed_sheets

MB = 1 << 20
_EVENT = b'{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1,"dur":2}'
_TRACE = b'{"traceEvents": [%s]}' % _EVENT
_SECRETS = ("secret.json", "secret.csv")
_LISTED = "traces.example.org"
_METADATA = "169.254.169.254"
_CREDENTIALS = "me:secret"
_ACCEPTED = "Accepted: nothing of it is executed, written elsewhere or fetched."


class BadInput(NamedTuple):
    """An input; ``give`` passes it to Jarvis in an empty folder."""

    name: str
    give: Callable[[Path], object]


def inputs() -> list[BadInput]:
    """Return one input of each kind."""
    return [
        BadInput("A gzip file of whitespace", lambda at: _read(at, "t.json.gz", _bomb(80))),
        BadInput("A gzip file inside a zip, packed twice", _packed_twice),
        BadInput("A zip that lists a million files", _many_names),
        BadInput("A zip whose trace is named `../../outside.json`", _traversal),
        BadInput("A zip marked as encrypted", _encrypted),
        BadInput("A trace nested 200,000 levels deep", lambda at: _read(at, "t.json", _deep())),
        BadInput("A trace with a name of 15 MB", lambda at: _read(at, "t.json", _long_name())),
        BadInput("A trace with NaN, infinite and very long numbers", _odd_numbers),
        BadInput("A workbook with one cell in its last corner", _last_cell),
        BadInput("A sheet with a million columns", _many_columns),
        BadInput("A workbook with 2,500 cells without a position", _cells_without_position),
        BadInput("A report whose parts exceed their total", _long_part),
        BadInput("A trace whose kernels are of another phase than X", _other_phase),
        BadInput("A sheet named `../../outside`", _sheet_elsewhere),
        BadInput("A path outside the allowed folders", lambda _: server_trace("../secret.json")),
        BadInput("A link to a file outside the allowed folders", _linked),
        BadInput("A folder whose sheet is such a link", _linked_sheet),
        BadInput("A path with a zero byte", lambda _: server_trace("a\0b.json")),
        BadInput("A path of 5,000 characters", lambda _: server_trace("x" * 5_000 + ".json")),
        BadInput("An upload named `../../t.json`", lambda _: _upload("../../t.json")),
        BadInput("An upload of a Python file", lambda _: _upload("extension.py")),
        BadInput("A GPU whose bandwidth is infinite", lambda _: _gpu(b'{"mem_bw_gbps": 1e999}')),
        BadInput("A GPU nested 100,000 levels deep", lambda _: _gpu(b"[" * 100_000)),
        BadInput("Operators named as script, formula, link and path", _attacking_names),
        BadInput("A request with another host name", lambda _: _ask(host="evil.test")),
        BadInput(
            "A request from a page of another site",
            lambda _: _ask(origin="http://evil.test"),
        ),
        BadInput("A request of 2 MB that is not an upload", lambda _: _ask(content=b" " * 2 * MB)),
        BadInput("The analysis id `../../etc`", lambda _: analysis_root("../../etc")),
        *_uploads(),
        *_remote(),
    ]


def message_for(given: BadInput) -> str:
    """Return the message for an input, without temporary folders."""
    with tempfile.TemporaryDirectory() as folder, _working_in(Path(folder)) as roots:
        try:
            given.give(roots)
        except JarvisError as error:
            return f"Rejected: {error}".replace(f"{roots}/", "").replace(str(roots), "traces")
        written = {p.relative_to(folder).parts[0] for p in Path(folder).rglob("*") if p.is_file()}
        assert written <= {"traces", "home", *_SECRETS}
        return _ACCEPTED


def bad_inputs_markdown() -> str:
    """Return the page ``bad-inputs.md``."""
    lines = [
        "# Hostile input",
        "",
        "Each row passes such an input to Jarvis (`make docs`). See also the",
        "[threat model](../SECURITY.md) and [broken traces](broken-traces.md).",
        "",
        "| input | message |",
        "|---|---|",
    ]
    for given in inputs():
        text = message_for(given).replace("|", "\\|")
        lines.append(f"| {given.name} | {text} |")
    return "\n".join(lines) + "\n"


@contextmanager
def _working_in(folder: Path) -> Iterator[Path]:
    """Set up a folder where only ``traces`` is allowed, beside a secret file."""
    roots = folder / "traces"
    roots.mkdir()
    for name in _SECRETS:
        (folder / name).write_bytes(_TRACE)
    settings = {ROOTS_VARIABLE: str(roots), HOME_VARIABLE: str(folder / "home")}
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield roots.resolve()
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _read(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    read_trace(folder / name)


def _zip(folder: Path, name: str, content: bytes) -> Path:
    path = folder / "t.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return path


def _bomb(megabytes: int) -> bytes:
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as file:
        file.write(_TRACE[:-2])
        for _ in range(megabytes):
            file.write(b" " * MB)
        file.write(_TRACE[-2:])
    return packed.getvalue()


def _packed_twice(folder: Path) -> None:
    read_trace(_zip(folder, "t.json.gz", _bomb(80)))


def _many_names(folder: Path) -> None:
    path = _zip(folder, "a.json", _TRACE)
    content = path.read_bytes()
    start, end = content.index(b"PK\x01\x02"), content.index(b"PK\x05\x06")
    ending = bytearray(content[end:])
    struct.pack_into("<L", ending, 12, 1_000_000 * (end - start))
    path.write_bytes(content[:start] + content[start:end] * 1_000_000 + bytes(ending))
    read_trace(path)


def _traversal(folder: Path) -> None:
    read_trace(_zip(folder, "../../outside.json", _TRACE))


def _encrypted(folder: Path) -> None:
    path = _zip(folder, "t.json", _TRACE)
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1
    content[6] |= 1
    path.write_bytes(content)
    read_trace(path)


def _deep() -> bytes:
    nested = b"[" * 200_000 + b"]" * 200_000
    return _TRACE.replace(b'"dur":2', b'"dur":2,"args":{"Input Dims":%s}' % nested)


def _long_name() -> bytes:
    return _TRACE.replace(b'"k"', b'"%s"' % (b"n" * 15 * MB))


def _odd_numbers(folder: Path) -> None:
    numbers = (b"NaN", b"-Infinity", b"1e999", b"9" * 5_000, b"{}")
    events = [_EVENT, *(_EVENT.replace(b'"ts":1', b'"ts":%s' % number) for number in numbers)]
    _read(folder, "t.json", b'{"traceEvents": [%s]}' % b",".join(events))


def _last_cell(folder: Path) -> None:
    book = openpyxl.Workbook()
    book.active.cell(1_048_576, 16_384).value = 1
    book.save(folder / "r.xlsx")
    read_report(folder / "r.xlsx")


def _many_columns(folder: Path) -> None:
    (folder / "gpu_timeline.csv").write_text(",".join(map(str, range(1_000_000))) + "\n")
    read_report(folder)


def _cells_without_position(folder: Path) -> None:
    sheet = b"<sheetData><row>" + b"<c/>" * 2_500 + b"</row></sheetData>"
    _zip(folder, "xl/worksheets/sheet1.xml", sheet).rename(folder / "r.xlsx")
    read_report(folder / "r.xlsx")


def _long_part(folder: Path) -> None:
    sheet = (
        b"type,time ms\ncomputation_time,9\nexposed_comm_time,0\nexposed_memcpy_time,0\n"
        b"busy_time,3\nidle_time,0\ntotal_time,3\n"
    )
    typed_sheets(read_report(_zip(folder, "gpu_timeline.csv", sheet)), folder / "r.zip")


def _other_phase(folder: Path) -> None:
    _read(folder, "t.json", _TRACE.replace(b'"ph":"X"', b'"ph":"B"'))


def _sheet_elsewhere(folder: Path) -> None:
    sheet = read_report(_zip(folder, "gpu_timeline.csv", b"type,time ms\nbusy_time,1\n"))
    typed_sheets({"../../outside": sheet["gpu_timeline"]}, folder / "r.xlsx")


def _linked(folder: Path) -> None:
    (folder / "link.json").symlink_to(folder.parent / "secret.json")
    server_trace("link.json")


def _linked_sheet(folder: Path) -> None:
    (folder / "report").mkdir()
    (folder / "report" / "gpu_timeline.csv").symlink_to(folder.parent / "secret.csv")
    server_trace("report")


def _upload(name: str) -> None:
    store_upload(name, io.BytesIO(_TRACE))


def _attacking_names(folder: Path) -> None:
    names = (
        "<script>alert(1)</script>",
        "=cmd|' /C calc'!A0",
        "[x](javascript:alert(1))",
        "../../x",
    )
    events = (_EVENT.replace(b'"k"', json.dumps(name).encode()) for name in names)
    _read(folder, "t.json", b'{"traceEvents": [%s]}' % b",".join(events))


def _ask(content: bytes = b"", **headers: str) -> None:
    """Send a POST request to a server; raise JarvisError with the response if it is an error."""
    served = Starlette(
        routes=[Route("/", lambda _: Response(), methods=["POST"])],
        middleware=middleware(),
    )
    with TestClient(served, base_url="http://127.0.0.1") as client:
        answer = client.post("/", content=content, headers=headers)
    if answer.is_error:
        raise JarvisError(answer.text.strip())


def _gpu(content: bytes) -> None:
    HardwareSpec.parse_arch_json(content, "gpu.json")


def _uploads() -> list[BadInput]:
    """Return the inputs of uploads and the API."""
    large = 5 * 10**12
    return [
        BadInput("An upload that declares 5 TB", lambda _: create("t.json", large, None)),
        BadInput("More bytes than an upload declared", lambda _: _piece(_TRACE, size=9)),
        BadInput("Bytes at the wrong offset of an upload", lambda _: _piece(_TRACE, offset=5)),
        BadInput("The upload id `../../etc`", lambda _: find("../../etc")),
        BadInput(
            "A forged upload ticket",
            lambda _: ticket_holder("eyJyb2xlIjoiYWRtaW4ifQ.00", UPLOAD),
        ),
        BadInput("An API request nested 100,000 levels deep", lambda _: _json(b"[" * 100_000)),
        BadInput(
            "An API request with an unknown field",
            lambda _: _json(b'{"path": "t.json", "copy_to": "/etc"}'),
        ),
        BadInput(
            "An API request with a path outside the allowed folders",
            lambda _: _json(b'{"path": "/etc/passwd"}'),
        ),
    ]


def _piece(content: bytes, size: int = len(_TRACE), offset: int = 0) -> None:
    """Send a piece of an upload that was announced with this many bytes."""
    with resume_upload(create("t.json", size, None).id, offset) as arrival:
        arrival.write(content)


def _json(content: bytes) -> None:
    """Request an analysis from the API; raise JarvisError with the response if it is an error."""
    with TestClient(Starlette(routes=[Mount(API, app=api())])) as client:
        sent = {"Content-Type": "application/json"}
        answer = client.post(f"{API}/analyses", content=content, headers=sent)
    if answer.is_error:
        raise JarvisError(answer.json()["error"])


def _remote() -> list[BadInput]:
    """Return URLs, also of allowed hosts, and paths on other machines."""
    return [
        BadInput("A URL of another scheme", _fetch("file:///etc/passwd")),
        BadInput(
            "A URL of a host that is not allowed",
            _fetch(f"http://{_METADATA}/latest/meta-data/"),
        ),
        BadInput("Another port of an allowed host", _fetch(f"http://{_LISTED}:6379/t.json")),
        BadInput("A URL with a password", _fetch(f"https://{_CREDENTIALS}@{_LISTED}/t.json")),
        BadInput("A URL whose host follows an @", _fetch(f"https://{_LISTED}@evil.test/")),
        BadInput("A URL with a line break", _fetch(f"http://{_LISTED}/t.json\r\nHost: evil.test")),
        BadInput(
            "An allowed host that is this machine", _fetch("http://127.0.0.1/t.json", "127.0.0.1")
        ),
        BadInput(
            "The same, as the number `2130706433`", _fetch("http://2130706433/t.json", "2130706433")
        ),
        BadInput("The same, as `0x7f.1`", _fetch("http://0x7f.1/t.json", "0x7f.1")),
        BadInput("The same, as `0177.0.0.1`", _fetch("http://0177.0.0.1/t.json", "0177.0.0.1")),
        BadInput(
            "A private address inside an IPv6 address",
            _fetch("http://[::ffff:10.0.0.1]/t.json", "::ffff:10.0.0.1"),
        ),
        BadInput(
            "The metadata address of clouds, although it is allowed",
            _fetch(f"http://{_METADATA}/t.json", _METADATA, is_private=True),
        ),
        BadInput(
            "A path on another machine that is a command option",
            lambda _: check_path("-oProxyCommand=x"),
        ),
        BadInput(
            "A path on another machine with a line break",
            lambda _: check_path("/traces/t.json\nrm -rf /"),
        ),
    ]


def _fetch(
    address: str, host: str = _LISTED, *, is_private: bool = False
) -> Callable[[Path], object]:
    def give(_: Path) -> object:
        allowed = {HOSTS_VARIABLE: host, PRIVATE_HOSTS_VARIABLE: host if is_private else ""}
        with patch.dict(os.environ, allowed):
            return machines_of(address_of(address))

    return give
