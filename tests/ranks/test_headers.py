"""Ranks in headers against those in names, before traces are read."""

import gzip
import json
from pathlib import Path

from jarvis.ranks.headers import HEAD_BYTES, header_rank, names_against_headers
from jarvis.ranks.inputs import InputFile


def header(rank: int) -> dict[str, object]:
    return {"backend": "nccl", "rank": rank, "world_size": 8, "pg_config": [{"ranks": [0]}]}


def written(path: Path, document: object) -> InputFile:
    content = json.dumps(document).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return InputFile(path, path.name)


def test_the_rank_of_a_header(tmp_path: Path) -> None:
    document = {"schemaVersion": 1, "distributedInfo": header(5), "traceEvents": []}
    for name in ("a.json", "a.json.gz"):
        assert header_rank(written(tmp_path / name, document).path) == 5
    without = {"traceEvents": [{"args": {"rank": 3}}]}
    assert header_rank(written(tmp_path / "b.json", without).path) is None
    late = {"padding": "x" * HEAD_BYTES, "distributedInfo": header(5)}
    assert header_rank(written(tmp_path / "c.json.gz", late).path) is None
    (tmp_path / "d.json.gz").write_bytes(b"\x1f\x8bno gzip")
    assert header_rank(tmp_path / "d.json.gz") is None
    assert header_rank(tmp_path / "missing.json") is None


def test_names_that_give_another_rank_are_reported(tmp_path: Path) -> None:
    ranks = {"rank0.json": 0, "rank1.json.gz": 2, "rank2.json": 1}
    files = [
        written(tmp_path / name, {"distributedInfo": header(rank)}) for name, rank in ranks.items()
    ]
    assert names_against_headers(files) == [
        "Of 2 files, the name gives another rank than the header, which is used: rank1.json.gz "
        "(1, header 2), rank2.json (2, header 1)."
    ]
    assert names_against_headers(files[:1]) == []
    assert names_against_headers(files, given=["rank1.json.gz", "rank2.json"]) == []
