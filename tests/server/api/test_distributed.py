"""Distributed runs through the API."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from jarvis.pipeline.joint_what_if import ranks_what_if
from jarvis.ranks.run import DistributedRun
from jarvis.sample import Job, write_job
from jarvis.server.access.rights import Role
from jarvis.server.database import database
from jarvis.server.http.api import distributed_routes
from jarvis.server.storage.catalog import analysis_root
from tests.dashboard.inline_jobs import do_jobs_at_once, work_off
from tests.ranks.test_distributed import BOMB, RANKS, rank_trace
from tests.server.api.conftest import bearer, uploaded
from tests.server.file_server import file_server


def contents() -> list[bytes]:
    return [json.dumps(rank_trace(rank).document()).encode() for rank in range(RANKS)]


def test_uploads_become_a_distributed_run(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploads = [uploaded(client, f"rank{n}.json", text) for n, text in enumerate(contents())]
    asked = client.post("/api/distributed", json={"uploads": uploads, "project": "llm"})
    assert asked.status_code == 202, asked.text
    job = asked.json()
    assert (job["kind"], job["state"], job["members"]) == ("join", "queued", {"queued": RANKS})
    work_off(database())
    job = client.get(f"/api/jobs/{job['id']}").json()
    assert (job["state"], job["members"]) == ("done", {"done": RANKS}), job["error"]
    run = client.get(f"/api/distributed/{job['analysis_id']}").json()
    assert job["page"] == run["page"] == f"/ranks?ranks_run={run['id']}"
    assert run["manifest"]["title"] == "3 of 3 ranks (0-2)"
    assert [row["rank"] for row in run["ranks"]] == [0, 1, 2]
    assert run["superseded_by"] is None
    assert [row["times_last"] for row in run["ranks"]] == [0, 3, 0]
    listed = client.get("/api/analyses").json()["analyses"]
    assert {each["project"] for each in listed} == {"llm"}

    base = f"/api/distributed/{run['id']}"
    page = client.get(f"{base}/instances", params={"rank": 1, "limit": 2}).json()
    assert (len(page["instances"]), page["total"]) == (2, run["manifest"]["matching"]["instances"])
    assert {row["last_rank"] for row in page["instances"]} == {1}
    first = page["instances"][0]
    assert client.get(f"{base}/instances", params={"comm": "none"}).json()["total"] == 0
    one_step = client.get(f"{base}/instances", params={"step": first["step"]}).json()
    assert {row["step"] for row in one_step["instances"]} == {first["step"]}
    delay = client.get(f"{base}/lateness/{first['instance_id']}").json()
    assert delay["instance"] == first
    assert [row["rank"] for row in delay["arrivals"]] == [0, 1, 2]
    assert max(delay["arrivals"], key=lambda row: row["start_ns"])["rank"] == first["last_rank"]
    assert client.get(f"{base}/lateness/99999").status_code == 404
    asked = {"changes": ["transfer=0.5"]}
    with monkeypatch.context() as at_once:
        do_jobs_at_once(at_once)
        without_graph = client.post(f"{base}/what-if", json=asked)
    assert (without_graph.status_code, without_graph.json()["error"][:11]) == (400, "Step time n")
    member = client.get(f"/api/analyses/{run['ranks'][0]['analysis_id']}").json()
    assert member["distributed"] == [run["id"]]

    assert_files(client, base, run)
    analyses = [entry["id"] for entry in listed]
    again = client.post("/api/distributed", json={"analyses": analyses, "world_size": 8})
    work_off(database())
    job = client.get(f"/api/jobs/{again.json()['id']}").json()
    run = client.get(f"/api/distributed/{job['analysis_id']}").json()
    assert run["manifest"]["missing"] == [[3, 7]]
    assert_compared(client, base, run["id"])


def assert_files(client: TestClient, base: str, run: dict[str, Any]) -> None:
    """Its files are listed, its tables are JSON, and jobs write the others."""
    files = client.get(f"{base}/artifacts").json()["artifacts"]
    names = {file["name"] for file in files}
    assert {"manifest.json", "multi_rank_report.xlsx", "tables/ranks.parquet"} <= names
    table = client.get(f"{base}/artifacts/tables/ranks.parquet")
    assert table.content.startswith(b"PAR1")
    causes = client.get(f"{base}/tables/rank_steps", params={"limit": 2, "offset": 1}).json()
    assert (causes["rows"], causes["offset"]) == ([], 1)
    ranks = client.get(f"{base}/tables/ranks", params={"limit": 1}).json()
    assert (ranks["rows"], ranks["total"]) == (run["ranks"][:1], RANKS)
    assert client.get(f"{base}/tables/none").status_code == 404
    for asked, start in (({"format": "html"}, b"<!DOCTYPE"), ({"format": "zip"}, b"PK")):
        job = client.post(f"{base}/exports", json=asked).json()
        work_off(database())
        assert client.get(f"/api/jobs/{job['id']}/file").content.startswith(start)
    asked = {"format": "perfetto", "ranks": [0, 2]}
    job = client.post(f"{base}/exports", json=asked).json()
    work_off(database())
    assert client.post(f"{base}/exports", json=asked).json()["id"] == job["id"]
    assert client.get(f"/api/jobs/{job['id']}/file").content.startswith(b"\x1f\x8b")
    for wrong in ({"format": "pdf"}, {"format": "perfetto", "ranks": [7]}):
        assert client.post(f"{base}/exports", json=wrong).status_code == 400
    missing = client.get(f"{base}/artifacts/../../jarvis.db")
    assert missing.status_code == 404


def assert_compared(client: TestClient, base: str, larger: str) -> None:
    """A run is compared with itself by rank, and with one of more ranks by medians."""
    same = client.get(f"{base}/compare/{base.rpartition('/')[2]}").json()
    assert {row["change_ms"] for row in same["ranks"] + same["medians"]} <= {0, None}
    assert {row["rank"] for row in same["ranks"]} == {0, 1, 2}
    assert client.get(f"{base}/compare/none").status_code == 404
    found = client.get(f"{base}/compare/{larger}").json()
    assert found["ranks"] == []
    assert found["notes"][1] == (
        "The jobs have 8 and 3 ranks, so only medians of the ranks are compared."
    )


def test_traces_of_two_jobs_become_two_runs(client: TestClient) -> None:
    built = [(rank, size) for size in (2, 4) for rank in range(2)]
    uploads = [
        uploaded(client, f"rank{rank}.json", json.dumps(rank_trace(rank, size).document()).encode())
        for rank, size in built
    ]
    asked = client.post("/api/distributed", json={"uploads": uploads}).json()
    assert asked["others"] == []
    work_off(database())
    job = client.get(f"/api/jobs/{asked['id']}").json()
    (other,) = job["others"]
    titles = [
        client.get(f"/api/distributed/{each}").json()["manifest"]["title"]
        for each in (job["analysis_id"], other)
    ]
    assert sorted(titles) == ["2 of 2 ranks (0-1)", "2 of 4 ranks (0-1)"]


def test_hostile_files_cost_only_themselves(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("rank7.json", BOMB)
    too_large = rank_trace(0)
    too_large.header["distributedInfo"] = {"rank": 1 << 40, "world_size": RANKS}
    given = {
        "rank0.json": contents()[0],
        "../../rank1.json": contents()[1],
        "rank2.json": json.dumps(too_large.document()).encode(),
        "rank7.json.zip": packed.getvalue(),
    }
    uploads = [uploaded(client, name, content) for name, content in given.items()]
    job = client.post("/api/distributed", json={"uploads": uploads}).json()
    work_off(database())
    job = client.get(f"/api/jobs/{job['id']}").json()
    run = client.get(f"/api/distributed/{job['analysis_id']}").json()
    found = {each["file_name"]: each for each in run["manifest"]["members"]}
    assert {name: (each["rank"], each["state"]) for name, each in found.items()} == {
        "rank0.json": (0, "usable"),
        "rank1.json": (1, "usable"),
        "rank2.json": (2, "usable"),
        "rank7.json.zip": (7, "failed"),
    }
    assert "it unpacks to more than 200 times its size" in found["rank7.json.zip"]["error"]
    many = {"uploads": [uploads[0]] * 5_000}
    assert client.post("/api/distributed", json=many).status_code == 422
    monkeypatch.setenv("JARVIS_MAX_RANKS", "3")
    limited = client.post("/api/distributed", json={"uploads": uploads})
    assert (limited.status_code, limited.json()["error"][:14]) == (400, "A distributed ")


def test_a_job_simulates_changes_of_all_ranks(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {rank: tmp_path / f"rank{rank}.json.gz" for rank in range(2)}
    write_job(Job(2, 2, scale="tiny"), files)
    uploads = [uploaded(client, file.name, file.read_bytes()) for file in files.values()]
    joined = client.post("/api/distributed", json={"uploads": uploads}).json()
    work_off(database())
    run = client.get(f"/api/jobs/{joined['id']}").json()["analysis_id"]
    place, asked = f"/api/distributed/{run}/what-if", {"changes": ["scale=compute:0.5"]}
    monkeypatch.setattr(distributed_routes, "WHAT_IF_S", 0)
    later = client.post(place, json=asked)
    assert (later.status_code, later.json()["kind"]) == (202, "what_if")
    assert client.post(place, json=asked).json()["id"] == later.json()["id"]
    work_off(database())
    job = client.get(f"/api/jobs/{later.json()['id']}").json()
    assert (job["state"], job["page"]) == ("done", f"/ranks?ranks_run={run}"), job["error"]
    answer = client.post(place, json=asked)
    assert answer.status_code == 200
    expected = ranks_what_if(
        DistributedRun.load(analysis_root(run)),
        asked["changes"],
        lambda member: analysis_root(str(member.analysis_id)),
    )
    assert answer.json() == expected.model_dump(mode="json")
    assert answer.json()["saved_low_ms"] > 0
    wrong = client.post(place, json={"changes": ["rank=9"]})
    work_off(database())
    failed = client.get(f"/api/jobs/{wrong.json()['id']}").json()
    assert "There is no rank" in failed["error"]


def test_a_range_or_a_folder_of_urls_is_a_job_for_each(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"urls": ["https://traces.test/a/rank{0..2}.json.gz"], "project": "llm"}
    assert client.post("/api/distributed", json=asked).status_code == 400
    monkeypatch.setenv("JARVIS_INGEST_HOSTS", "traces.test")
    job = client.post("/api/distributed", json=asked).json()
    assert job["members"] == {"queued": 3}
    assert job["title"] == "Join 3 ranks (rank0.json.gz, ...)"
    with file_server(b"") as far:
        host = f"127.0.0.1:{far.port}"
        for variable in ("JARVIS_INGEST_HOSTS", "JARVIS_INGEST_PRIVATE_HOSTS"):
            monkeypatch.setenv(variable, f"traces.test,{host}")
        links = (f'<a href="rank{rank}/">rank{rank}</a>' for rank in range(RANKS))
        far.files = {"/job/": "".join(links).encode()}
        for rank, text in enumerate(contents()):
            far.files |= {f"/job/rank{rank}/": b'<a href="t.json">t</a>'}
            far.files |= {f"/job/rank{rank}/t.json": text}
        job = client.post("/api/distributed", json={"urls": [f"http://{host}/job/"]}).json()
        assert job["title"] == "Join 3 ranks (rank0/t.json, ...)"
        work_off(database())
        job = client.get(f"/api/jobs/{job['id']}").json()
        run = client.get(f"/api/distributed/{job['analysis_id']}").json()
        assert run["manifest"]["title"] == "3 of 3 ranks (0-2)"
        none = client.post("/api/distributed", json={"urls": [f"http://{host}/job/rank9/"]})
        assert (none.status_code, none.json()["error"][:11]) == (400, f"{host}"[:11])
    too_many = client.post("/api/distributed", json={"urls": ["https://traces.test/{0..9999}"]})
    assert too_many.status_code == 400


def test_requests_that_name_no_ranks_are_rejected(client: TestClient) -> None:
    for body, status in (
        ({}, 400),
        ({"analyses": ["abc", "def"]}, 404),
        ({"uploads": ["abc", "def"]}, 404),
        ({"paths": ["/etc/passwd", "/etc/hosts"]}, 400),
        ({"uploads": "abc"}, 422),
        ({"analyses": ["a"] * 5000}, 422),
        ({"ranks": {"rank0.json": 2**40}}, 422),
        ({"world_size": 2**40}, 422),
        ({"rank_regex": "(a+)+$"}, 422),
    ):
        answer = client.post("/api/distributed", json=body)
        assert answer.status_code == status, answer.text
    assert client.get("/api/distributed/abc").status_code == 404


@pytest.mark.usefixtures("asked_who")
def test_rights_are_those_of_analyses(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JARVIS_TRACE_ROOTS", str(tmp_path / "traces"))
    (tmp_path / "traces").mkdir()
    paths = []
    for number, text in enumerate(contents()):
        paths.append(f"rank{number}.json")
        (tmp_path / "traces" / paths[-1]).write_bytes(text)
    ann, bob = bearer("ann", Role.EDITOR), bearer("bob", Role.EDITOR)
    asked = {"paths": paths, "visibility": "private"}
    viewer = client.post("/api/distributed", json=asked, headers=bearer("vic", Role.VIEWER))
    assert viewer.status_code == 403
    job = client.post("/api/distributed", json=asked, headers=ann).json()
    work_off(database())
    job = client.get(f"/api/jobs/{job['id']}", headers=ann).json()
    assert job["state"] == "done", job["error"]
    run = f"/api/distributed/{job['analysis_id']}"
    assert client.get(run, headers=ann).status_code == 200
    for path in (run, f"{run}/artifacts", f"{run}/artifacts/manifest.json"):
        assert client.get(path, headers=bob).status_code == 404
        assert client.get(path).status_code == 401
    assert client.get(f"/api/jobs/{job['id']}", headers=bob).status_code == 404
