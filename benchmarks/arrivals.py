"""Concurrent uploads by the tus protocol."""

import base64
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.asked import Asked
from benchmarks.servers import Server

PIECE_BYTES = 16 << 20
_BLOCK_BYTES = 1 << 20
_TUS = {"Tus-Resumable": "1.0.0"}
_PATIENCE_S = 300


@dataclass(frozen=True, slots=True)
class Arrived:
    """Result of the uploads: seconds per file, and ``elapsed_s`` for all."""

    asked: Asked
    times_s: list[float]
    elapsed_s: float
    megabytes: float

    @property
    def mb_per_s(self) -> float:
        """Throughput of all uploads together."""
        return self.megabytes / self.elapsed_s


def upload_all(server: Server, traces: Sequence[Path]) -> Arrived:
    """Upload all files concurrently and queue an analysis of each."""
    begin = time.perf_counter()
    with ThreadPoolExecutor(len(traces)) as pool:
        sent = list(pool.map(lambda trace: _uploaded(server, trace), traces))
    elapsed_s = time.perf_counter() - begin
    megabytes = sum(trace.stat().st_size for trace in traces) / 1e6
    return Arrived(Asked([job for job, _ in sent]), [s for _, s in sent], elapsed_s, megabytes)


def _uploaded(server: Server, trace: Path) -> tuple[str, float]:
    """Upload a trace and queue its analysis; return the job id and the seconds of the upload."""
    begin = time.perf_counter()
    size = trace.stat().st_size
    name = base64.b64encode(trace.name.encode()).decode()
    with httpx.Client(base_url=server.url, headers=_TUS, timeout=_PATIENCE_S) as client:
        made = client.post(
            "/api/uploads",
            headers={"Upload-Length": str(size), "Upload-Metadata": f"filename {name}"},
        ).raise_for_status()
        address = made.headers["Location"]
        for offset in range(0, size, PIECE_BYTES):
            length = min(PIECE_BYTES, size - offset)
            client.patch(
                address,
                content=_piece(trace, offset, length),
                headers={
                    "Upload-Offset": str(offset),
                    "Content-Type": "application/offset+octet-stream",
                    "Content-Length": str(length),
                },
            ).raise_for_status()
        elapsed_s = time.perf_counter() - begin
        asked = {"upload": address.rpartition("/")[2]}
        job = client.post("/api/analyses", json=asked).raise_for_status().json()
    return str(job["id"]), elapsed_s


def _piece(trace: Path, offset: int, length: int) -> Iterator[bytes]:
    with trace.open("rb") as file:
        file.seek(offset)
        while length > 0:
            block = file.read(min(_BLOCK_BYTES, length))
            length -= len(block)
            yield block
