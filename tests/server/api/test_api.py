"""The API end to end: analyze, list, download, delete; and permissions."""

import gzip
import json
from pathlib import Path

import pytest
from httpx import Response
from starlette.testclient import TestClient

from jarvis.dashboard.session import links, navigation
from jarvis.dashboard.widgets import job_view
from jarvis.server import queue
from jarvis.server.access import audit
from jarvis.server.access.rights import Role
from jarvis.server.database import database
from jarvis.server.http.api import analysis_routes
from jarvis.server.ingest.intake import ROOTS_VARIABLE
from jarvis.server.page_links import analysis_page, job_page
from tests.builders import trace
from tests.dashboard.inline_jobs import outdated, work_off
from tests.server.api.conftest import bearer, beginning, uploaded
from tests.server.file_server import file_server


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A trace in a folder that may be named."""
    monkeypatch.setenv(ROOTS_VARIABLE, str(tmp_path))
    built = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=12)
    return built.write(tmp_path / "small.json")


def analyze(client: TestClient, headers: dict[str, str] | None = None, **asked: object) -> str:
    """The id of an analysis created by the API."""
    answer = client.post("/api/analyses", json=asked, headers=headers)
    assert answer.status_code == 202, answer.text
    work_off(database())
    job = client.get(f"/api/jobs/{answer.json()['id']}", headers=headers).json()
    assert job["state"] == "done", job
    return str(job["analysis_id"])


def test_an_upload_becomes_an_analysis_that_can_be_taken_home(
    client: TestClient, small: Path
) -> None:
    upload = uploaded(client, "small.json", small.read_bytes())
    asked = {"upload": upload, "platform": "MI300X", "model": "Tiny"}
    job = client.post("/api/analyses", json=asked).json()
    assert (job["state"], job["page"]) == ("queued", f"/jobs?job={job['id']}")
    work_off(database())
    job = client.get(f"/api/jobs/{job['id']}").json()
    assert job["steps"][0]["name"] == "Read the trace"
    found = client.get(f"/api/analyses/{job['analysis_id']}").json()
    assert (found["model"], found["trace"]) == ("Tiny", "small.json")
    assert "MI300X" in found["gpu"]
    (finding, *_) = found["results"]["gemm"]["findings"]
    assert "`aten::mm`" in finding["title"]
    assert finding["messages"]["title"][0]["id"].startswith("efficiency.title")
    assert found["manifest"]["analysis_id"] == found["id"]
    files = client.get(f"/api/analyses/{found['id']}/artifacts").json()["artifacts"]
    sizes = {file["name"]: file["size_bytes"] for file in files}
    assert {"manifest.json", "standalone_analysis_fair.md"} <= sizes.keys()
    for name in ("manifest.json", "tables/operations.parquet"):
        taken = client.get(f"/api/analyses/{found['id']}/artifacts/{name}")
        assert len(taken.content) == sizes[name]
        assert "attachment" in taken.headers["Content-Disposition"]
    again = client.post("/api/analyses", json=asked).json()
    work_off(database())
    assert client.get(f"/api/jobs/{again['id']}").json()["is_reused"]


def test_the_target_is_that_of_the_request(client: TestClient, small: Path) -> None:
    made = [analyze(client, path="small.json", **more) for more in ({}, {"target_pct": 65})]
    options = [
        client.get(f"/api/analyses/{analysis}").json()["manifest"]["options"] for analysis in made
    ]
    assert [option.get("target_pct") for option in options] == [None, 65]


def test_a_step_is_simulated_under_changes(client: TestClient, small: Path) -> None:
    made = analyze(client, path="small.json", platform="MI300X")
    asked = {"changes": ["scale=aten::mm:0.5"]}
    answer = client.post(f"/api/analyses/{made}/what-if", json=asked)
    assert answer.status_code == 200
    result = answer.json()
    assert result["step_ms"]["recorded"] - result["saved_ms"] == result["step_ms"]["simulated"]
    assert result["saved_ms"] > 0
    assert result["changes"][0]["change"] == "scale=aten::mm:0.5"
    for changes, status in ((["scale=no_such:1"], 400), (["merge-launches"] * 101, 422)):
        answer = client.post(f"/api/analyses/{made}/what-if", json={"changes": changes})
        assert answer.status_code == status
    assert client.post("/api/analyses/none/what-if", json=asked).status_code == 404


def test_an_analysis_is_written_as_a_file(client: TestClient, small: Path) -> None:
    made = analyze(client, path="small.json")
    place = f"/api/analyses/{made}/exports"
    job = client.post(place, json={"format": "perfetto"}).json()
    assert job["kind"] == "export"
    work_off(database())
    file = client.get(f"/api/jobs/{job['id']}/file")
    assert file.headers["content-disposition"].endswith('.perfetto.json.gz"')
    assert json.loads(gzip.decompress(file.content))["otherData"]["analysis"] == made
    assert client.post(place, json={"format": "perfetto"}).json()["id"] == job["id"]
    for asked, status in (({"format": "pdf"}, 400), ({}, 422), ({"format": "zip"}, 202)):
        assert client.post(place, json=asked).status_code == status
    other = client.post("/api/analyses/none/exports", json={"format": "html"})
    assert other.status_code == 404


def test_a_path_is_analyzed_and_removed(client: TestClient, small: Path) -> None:
    made = analyze(client, path="small.json")
    removed = client.delete(f"/api/analyses/{made}").json()
    assert removed["id"] == made
    assert removed["size_bytes"] > 1000
    for answer in (
        client.get(f"/api/analyses/{made}"),
        client.get(f"/api/analyses/{made}/artifacts"),
        client.get(f"/api/analyses/{made}/artifacts/manifest.json"),
        client.delete(f"/api/analyses/{made}"),
    ):
        assert answer.status_code == 404
        assert made in answer.json()["error"]


def test_a_url_is_fetched_and_analyzed(
    client: TestClient, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with file_server(small.read_bytes()) as elsewhere:
        url = f"http://127.0.0.1:{elsewhere.port}/far.json"
        refused = client.post("/api/analyses", json={"url": url})
        monkeypatch.setenv("JARVIS_INGEST_HOSTS", f"127.0.0.1:{elsewhere.port}")
        monkeypatch.setenv("JARVIS_INGEST_PRIVATE_HOSTS", f"127.0.0.1:{elsewhere.port}")
        made = analyze(client, url=url, model="Tiny")
    found = client.get(f"/api/analyses/{made}").json()
    assert (found["trace"], found["model"]) == ("far.json", "Tiny")
    assert refused.status_code == 400
    assert "JARVIS_INGEST_HOSTS" in refused.json()["error"]


def test_labels_are_given_listed_and_changed(client: TestClient, small: Path) -> None:
    made = analyze(client, path="small.json", project="llm", branch="main", tags=["b", "a"])

    def labels(answer: Response) -> tuple[object, ...]:
        assert answer.status_code == 200, answer.text
        found = answer.json()
        return found["project"], found["branch"], found["commit"], found["tags"]

    assert labels(client.get(f"/api/analyses/{made}")) == ("llm", "main", None, ["a", "b"])
    changed = client.patch(f"/api/analyses/{made}", json={"branch": None, "commit": "4f2a9c1"})
    assert labels(changed) == ("llm", None, "4f2a9c1", ["a", "b"])
    assert labels(client.get(f"/api/analyses/{made}")) == labels(changed)
    listed = client.get("/api/analyses").json()["analyses"]
    assert [each["commit"] for each in listed] == ["4f2a9c1"]
    entry = audit.recent(database())[0]
    assert (entry.action, entry.via, entry.subject) == ("label", "api", made)
    assert client.patch("/api/analyses/none", json={}).status_code == 404


@pytest.mark.parametrize(
    ("status", "changes", "sentence"),
    [
        (400, {"tags": ["a,b"]}, "The tag 'a,b' contains ','"),
        (400, {"project": "x" * 150}, "has 150 characters. Use at most 100."),
        (422, {"owner": "me"}, "owner"),
        (422, {"tags": "a"}, "tags"),
    ],
)
def test_a_label_that_is_not_valid_is_rejected(
    client: TestClient, small: Path, status: int, changes: dict[str, object], sentence: str
) -> None:
    made = analyze(client, path="small.json")
    answer = client.patch(f"/api/analyses/{made}", json=changes)
    assert (answer.status_code, sentence in answer.json()["error"]) == (status, True), answer.text
    if status == 400:
        asked = {"path": "small.json"} | changes
        answer = client.post("/api/analyses", json=asked)
        assert (answer.status_code, sentence in answer.json()["error"]) == (400, True), answer.text


def test_a_run_is_checked_against_the_last_runs_of_a_project(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ROOTS_VARIABLE, str(tmp_path))
    made = []
    for us in (1000, 1010, 990, 1500):
        built = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=us)
        built.write(tmp_path / f"{us}.json")
        made.append(analyze(client, path=f"{us}.json", project="llm", commit=str(us)))
    place = f"/api/analyses/{made[-1]}/baseline"
    found = client.get(place, params={"project": "llm"}).json()
    assert (found["is_slower"], found["has_noise"], found["threshold_pct"]) == (True, True, 5.0)
    assert {each["commit"] for each in found["runs"]} == {"1000", "1010", "990"}
    times = sorted(each["time_ms"] for each in found["runs"])
    assert found["step"]["median_ms"] == times[1]
    assert [part["key"] for part in found["parts"] if part["is_slower"]] == ["gemm"]
    lenient = client.get(place, params={"project": "llm", "threshold_pct": 100}).json()
    assert not lenient["is_slower"]
    none = client.get(place, params={"project": "other"})
    assert (none.status_code, "no runs" in none.json()["error"]) == (400, True)
    assert client.get(place).status_code == 422


@pytest.mark.usefixtures("asked_who")
def test_a_baseline_has_only_runs_that_the_caller_sees(client: TestClient, small: Path) -> None:
    ada, bob = bearer("ada", Role.EDITOR), bearer("bob", Role.EDITOR)
    built = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=13)
    built.write(small.parent / "other.json")
    asked = {"project": "llm", "visibility": "private"}
    analyze(client, ada, path="small.json", **asked)
    mine = analyze(client, bob, path="other.json", **asked)
    place, query = f"/api/analyses/{mine}/baseline", {"project": "llm"}
    assert client.get(place, params=query, headers=bob).status_code == 400
    assert client.get(place, params=query, headers=ada).status_code == 404
    assert client.get(place, params=query).status_code == 401


def test_the_list_comes_in_parts(client: TestClient, small: Path) -> None:
    made = [analyze(client, path="small.json", platform=gpu) for gpu in ("MI300X", "MI325X")]
    whole = client.get("/api/analyses").json()
    assert whole["total"] == 2
    assert {one["id"] for one in whole["analyses"]} == set(made)
    parts = [client.get(f"/api/analyses?offset={i}&limit=1").json()["analyses"] for i in range(3)]
    assert [one["id"] for part in parts for one in part] == [o["id"] for o in whole["analyses"]]
    for asked in ("limit=201", "limit=0", "offset=-1", "limit=x"):
        assert client.get(f"/api/analyses?{asked}").status_code == 422


def test_a_job_of_another_version_is_shown_and_not_retried(client: TestClient, small: Path) -> None:
    job = client.post("/api/analyses", json={"path": "small.json"}).json()
    client.post(f"/api/jobs/{job['id']}/cancel")
    outdated(database(), queue.find(database(), job["id"]))
    refused = client.post(f"/api/jobs/{job['id']}/retry")
    assert refused.status_code == 409
    assert "another version of Jarvis" in refused.json()["error"]
    assert client.get(f"/api/jobs/{job['id']}").json()["state"] == "cancelled"


def test_a_job_is_cancelled_and_retried(client: TestClient, small: Path) -> None:
    job = client.post("/api/analyses", json={"path": "small.json"}).json()
    assert client.post(f"/api/jobs/{job['id']}/cancel").json()["state"] == "cancelled"
    assert client.post(f"/api/jobs/{job['id']}/retry").json()["state"] == "queued"
    assert client.get("/api/jobs/none").status_code == 404
    assert [entry.action for entry in audit.recent(database())] == [
        audit.Action.RETRY,
        audit.Action.CANCEL,
        audit.Action.ANALYZE,
    ]


@pytest.mark.parametrize(
    ("asked", "status", "message"),
    [
        ({}, 422, "one of upload, path and url"),
        ({"path": "a.json", "upload": "0"}, 422, "one of upload, path and url"),
        ({"path": "a.json", "copy_to": "/etc"}, 422, "copy_to"),
        ({"path": "/etc/passwd"}, 400, "outside the folders"),
        ({"path": "gone.json"}, 400, "There is no file"),
        ({"path": "x" * 5000}, 422, "path"),
        ({"path": "a\0.json"}, 400, "is not a valid path"),
        ({"path": "small.json", "platform": "H9000"}, 400, "H9000"),
        ({"path": "small.json", "reference": "none"}, 404, "There is no analysis"),
        ({"path": "small.json", "target_pct": 0}, 422, "target_pct"),
        ({"path": "small.json", "target_pct": 101}, 422, "target_pct"),
        ({"upload": "0" * 32}, 404, "no such upload"),
        ({"path": "small.json", "captures": "small.json"}, 404, "no such upload"),
        ({"path": "small.json", "model_config": "small.json"}, 404, "no such upload"),
        ([1], 422, "the body"),
    ],
)
def test_what_cannot_be_meant_is_reported(
    client: TestClient, small: Path, asked: object, status: int, message: str
) -> None:
    answer = client.post("/api/analyses", json=asked)
    assert answer.status_code == status
    assert message in answer.json()["error"]
    assert answer.json().keys() == {"error"}


@pytest.mark.parametrize("body", [b"{", b"\xff\xfe", b"[" * 20_000, b'{"path": NaN}'])
def test_a_body_that_is_no_json_is_reported(client: TestClient, body: bytes) -> None:
    answer = client.post(
        "/api/analyses", content=body, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code in (400, 422)
    assert answer.json()["error"]


def test_half_an_upload_is_not_analyzed(client: TestClient) -> None:
    begun = client.post("/api/uploads", headers=beginning("a.json", 10))
    asked = {"upload": begun.headers["Location"].rpartition("/")[2]}
    answer = client.post("/api/analyses", json=asked)
    assert answer.status_code == 400
    assert "0 B of 10 B" in answer.json()["error"]


def test_only_files_of_an_analysis_are_given(client: TestClient, small: Path, home: Path) -> None:
    made = analyze(client, path="small.json")
    (home / "analyses" / made / "link").symlink_to("/etc/passwd")
    for name in ("../manifest.json", "%2e%2e/jarvis.db", "/etc/passwd", "link", "tables", "%00"):
        answer = client.get(f"/api/analyses/{made}/artifacts/{name}")
        assert answer.status_code == 404, name
        assert b"root:" not in answer.content


def test_what_is_not_there_is_reported_in_json(client: TestClient) -> None:
    assert client.get("/api/nothing").json()["error"].startswith("Not found")
    assert client.put("/api/analyses").status_code == 405
    assert client.put("/api/analyses").json()["error"].startswith("This method")


def test_a_fault_is_a_sentence_and_no_stack_trace(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise ValueError("a secret")

    monkeypatch.setattr(analysis_routes, "read_catalog", broken)
    with TestClient(client.app, raise_server_exceptions=False) as asked:
        answer = asked.get("/api/analyses")
    assert answer.status_code == 500
    assert answer.json()["error"].startswith("Internal error")
    assert "secret" not in answer.text


def test_too_many_requests_wait_and_uploads_go_on(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JARVIS_API_REQUESTS_PER_MINUTE", "3")
    upload = uploaded(client, "a.json", b"{}")
    statuses = [client.get("/api/analyses").status_code for _ in range(4)]
    assert statuses == [200, 200, 429, 429]
    refused = client.get("/api/analyses")
    assert 1 <= int(refused.headers["Retry-After"]) <= 60
    assert "Retry in" in refused.json()["error"]
    piece = {"Tus-Resumable": "1.0.0", "Content-Type": "application/offset+octet-stream"}
    sent = client.patch(f"/api/uploads/{upload}", headers={**piece, "Upload-Offset": "2"})
    assert sent.status_code == 204


@pytest.mark.usefixtures("asked_who")
def test_each_token_has_a_limit_of_its_own(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JARVIS_API_REQUESTS_PER_MINUTE", "1")
    ada, bob = bearer("ada", Role.VIEWER), bearer("bob", Role.VIEWER)
    statuses = [client.get("/api/analyses", headers=who).status_code for who in (ada, ada, bob)]
    assert statuses == [200, 429, 200]
    unknown = [client.get("/api/analyses").status_code for _ in range(2)]
    assert unknown == [401, 429]


@pytest.mark.usefixtures("asked_who")
def test_roles_say_who_may_do_what(client: TestClient, small: Path) -> None:
    ada, bob = bearer("ada", Role.EDITOR), bearer("bob", Role.EDITOR)
    eve, root = bearer("eve", Role.VIEWER), bearer("root", Role.ADMIN)
    asked = {"path": "small.json"}
    anonymous = client.post("/api/analyses", json=asked)
    assert anonymous.status_code == 401
    assert anonymous.headers["WWW-Authenticate"] == "Bearer"
    assert client.post("/api/analyses", json=asked, headers=eve).status_code == 403
    job = client.post("/api/analyses", json=asked, headers=ada).json()
    assert job["owner"] == "ada"
    assert client.post(f"/api/jobs/{job['id']}/cancel", headers=eve).status_code == 403
    assert client.post(f"/api/jobs/{job['id']}/cancel", headers=bob).status_code == 403
    assert client.post(f"/api/jobs/{job['id']}/cancel", headers=root).status_code == 200
    assert client.post(f"/api/jobs/{job['id']}/retry", headers=ada).status_code == 200
    work_off(database())
    made = client.get(f"/api/jobs/{job['id']}", headers=eve).json()["analysis_id"]
    assert client.get(f"/api/analyses/{made}", headers=eve).json()["owner"] == "ada"
    for who, status in ((eve, 403), (bob, 403), (ada, 200)):
        answer = client.patch(f"/api/analyses/{made}", json={"project": "llm"}, headers=who)
        assert answer.status_code == status
    for who, status in ((eve, 403), (bob, 403), (ada, 200)):
        assert client.delete(f"/api/analyses/{made}", headers=who).status_code == status
    assert audit.recent(database())[0].person == "ada"


@pytest.mark.usefixtures("asked_who")
def test_what_is_private_is_as_good_as_not_there(client: TestClient, small: Path) -> None:
    ada, bob = bearer("ada", Role.EDITOR), bearer("bob", Role.EDITOR)
    asked = {"path": "small.json", "visibility": "private"}
    job = client.post("/api/analyses", json=asked, headers=ada).json()
    work_off(database())
    made = client.get(f"/api/jobs/{job['id']}", headers=ada).json()["analysis_id"]
    places = (
        f"jobs/{job['id']}",
        f"analyses/{made}",
        f"analyses/{made}/artifacts",
        f"analyses/{made}/artifacts/manifest.json",
    )
    for place in places:
        assert client.get(f"/api/{place}", headers=ada).status_code == 200
        assert client.get(f"/api/{place}", headers=bob).status_code == 404
    assert client.delete(f"/api/analyses/{made}", headers=bob).status_code == 404
    changes = {"changes": ["scale=compute:0"]}
    assert (
        client.post(f"/api/analyses/{made}/what-if", json=changes, headers=bob).status_code == 404
    )
    asked = {"format": "perfetto"}
    assert client.post(f"/api/analyses/{made}/exports", json=asked, headers=bob).status_code == 404
    assert client.get("/api/analyses", headers=bob).json()["total"] == 0
    refers = {"path": "small.json", "reference": made}
    assert client.post("/api/analyses", json=refers, headers=bob).status_code == 404
    assert client.get(f"/api/analyses/{made}", headers=bob).json() == {
        "error": client.get("/api/analyses/none", headers=bob).json()["error"].replace("none", made)
    }


@pytest.mark.usefixtures("asked_who")
def test_the_upload_of_another_user_is_not_analyzed(client: TestClient) -> None:
    upload = uploaded(client, "a.json", b"{}", bearer("ada", Role.EDITOR))
    answer = client.post(
        "/api/analyses", json={"upload": upload}, headers=bearer("bob", Role.ADMIN)
    )
    assert answer.status_code == 404


def test_the_description_is_whole_and_needs_no_other_server(client: TestClient) -> None:
    described = client.get("/api/openapi.json").json()
    assert described["openapi"].startswith("3.1")
    assert described["servers"] == [{"url": "/api"}]
    ids = [
        operation["operationId"]
        for methods in described["paths"].values()
        for operation in methods.values()
    ]
    assert len(ids) == len(set(ids)) >= 12
    page = client.get("/api/docs")
    assert page.headers["Content-Type"].startswith("text/html")
    for word in ("<script", "<link", "src=", "@import", "url("):
        assert word not in page.text
    for path in described["paths"]:
        assert f"/api{path}" in page.text


def test_references_of_the_description_lead_somewhere(client: TestClient) -> None:
    described = client.get("/api/openapi.json").json()

    def references(part: object) -> list[str]:
        if isinstance(part, list):
            return [found for one in part for found in references(one)]
        if not isinstance(part, dict):
            return []
        return [part["$ref"]] if "$ref" in part else references(list(part.values()))

    for reference in references(described):
        found: object = described
        for name in reference.removeprefix("#/").split("/"):
            assert isinstance(found, dict)
            found = found[name]
        assert found


def test_pages_are_called_what_the_dashboard_calls_them() -> None:
    assert analysis_page("a b") == f"/{navigation.OVERVIEW}?{links.ANALYSIS}=a+b"
    assert job_page("j") == f"/{navigation.JOBS}?{job_view.JOB}=j"
