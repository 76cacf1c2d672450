"""``jarvis push`` to a real server, also one that crashes, and its error messages."""

import json
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest

from jarvis.cli import main, remote
from jarvis.cli.output import ExitCode
from tests.browser.conftest import Server
from tests.builders import trace
from tests.capture.test_merge import captured, step
from tests.perf_report.test_inference_steps import QWEN3_8B
from tests.ranks.test_distributed import rank_trace
from tests.services.serving import TIMEOUT_S

SOME_BYTES = 8_000_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("home"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def small(tmp_path: Path) -> Path:
    built = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=12)
    return built.write(tmp_path / "small.json")


def test_a_pushed_trace_is_analyzed_and_linked_to(
    server: Server, small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["push", str(small), "--server", f"{server.url}/", "--name", "Tiny", "--wait"]
    assert main([*asked, "--platform", "MI300X", "--target-pct", "65", "--json"]) == ExitCode.OK
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert result["link"] == f"{server.url}/overview?analysis={result['analysis_id']}"
    assert "Read the trace" in printed.err
    assert " of " in printed.err.splitlines()[0]
    found = httpx.get(
        f"{server.url}/api/analyses/{result['analysis_id']}", timeout=TIMEOUT_S
    ).json()
    assert (found["model"], found["trace"]) == ("Tiny", "small.json")
    assert found["manifest"]["options"]["target_pct"] == 65
    assert main(["push", str(small), "--server", server.url]) == ExitCode.OK
    again = capsys.readouterr()
    assert again.out.startswith(f"{server.url}/jobs?job=")
    assert "the server already has this file" in again.err


def test_a_folder_of_ranks_is_pushed_and_joined(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "job"
    for rank in range(3):
        (folder / f"rank{rank}").mkdir(parents=True)
        rank_trace(rank, 4).write(folder / f"rank{rank}" / "trace.json")
    asked = ["push", str(folder), "--server", server.url, "--wait"]
    assert main([*asked, "--json"]) == ExitCode.OK
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert result["link"] == f"{server.url}/ranks?ranks_run={result['analysis_id']}"
    assert list(result["sha256"]) == [f"rank{rank}/trace.json" for rank in range(3)]
    assert "[1/3] rank0/trace.json" in printed.err
    assert "3 of 3 ranks" in printed.err
    run = httpx.get(
        f"{server.url}/api/distributed/{result['analysis_id']}", timeout=TIMEOUT_S
    ).json()
    assert run["manifest"]["missing"] == [[3, 3]]
    names = [member["file_name"] for member in run["manifest"]["members"]]
    assert names == [f"rank{rank}_trace.json" for rank in range(3)]

    (folder / "rank3").mkdir()
    (folder / "rank3" / "trace.json").write_text("no trace", encoding="utf-8")
    assert main([*asked, "--rank", "rank3/trace.json=3"]) == ExitCode.CHECK_FAILED
    printed_err = capsys.readouterr().err
    assert "3 of 4 ranks, 1 failed" in printed_err
    assert "rank3_trace.json: " in printed_err
    with pytest.raises(SystemExit):
        main([*asked, "--model-config", "config.json"])


def test_a_job_that_fails_ends_the_command_so(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "half.json").write_bytes(b'{"traceEvents": [')
    asked = ["push", str(tmp_path / "half.json"), "--server", server.url, "--wait"]
    assert main(asked) == ExitCode.FAILED
    assert "half.json ends before the first event" in capsys.readouterr().err


def test_it_goes_on_after_the_server_was_killed(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "PIECE_BYTES", 1_000_000)
    monkeypatch.setattr(remote, "_PROGRESS_INTERVAL_S", 0)
    content = random.Random(7).randbytes(SOME_BYTES)
    (tmp_path / "large.json.gz").write_bytes(content)
    message: list[str] = []

    def progress(text: str, *, is_last: bool) -> None:
        message.append(text)
        if "4.00 MB of" in text and not any("connection lost" in one for one in message):
            server.kill()
        if "connection lost" in text:
            server.start()

    with remote.ServerConnection(server.url, None) as there:
        upload = there.upload(tmp_path / "large.json.gz", progress)
    assert upload["is_whole"]
    (stored,) = server.home.glob("traces/*/large.json.gz")
    assert stored.read_bytes() == content
    broken = message.index(next(text for text in message if "connection lost" in text))
    assert all(not text.startswith(("1.", "2.")) for text in message[broken:]), "restarted"


def test_a_command_that_was_stopped_goes_on_when_it_is_repeated(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "PIECE_BYTES", 1_000_000)
    monkeypatch.setattr(remote, "_PROGRESS_INTERVAL_S", 0)
    path = tmp_path / "stopped.json.gz"
    path.write_bytes(random.Random(8).randbytes(SOME_BYTES))
    shown: list[str] = []

    def stopped(text: str, *, is_last: bool) -> None:
        if text.startswith("4.00 MB of"):
            raise KeyboardInterrupt

    def progress(text: str, *, is_last: bool) -> None:
        shown.append(text)

    with remote.ServerConnection(server.url, None) as there:
        with pytest.raises(KeyboardInterrupt):
            there.upload(path, stopped)
        upload = there.upload(path, progress)
        assert upload["is_whole"]
        assert not [text for text in shown if text.startswith(("1.", "2."))], "restarted"
        assert there.upload(path, progress) == {**upload, "is_reused": True}


def answering(monkeypatch: pytest.MonkeyPatch, answer: Callable[..., httpx.Response]) -> None:
    """Answer all requests with ``answer``."""
    transport = httpx.MockTransport(answer)
    monkeypatch.setattr(httpx, "Client", partial(httpx.Client, transport=transport))


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (401, "This server requires authentication."),
        (403, "Ask an admin of this server."),
        (413, "takes up to"),
        (429, "Retry in 3 s."),
        (507, "disk has free space"),
    ],
)
def test_what_the_server_refuses_is_reported_as_it_says_it(
    monkeypatch: pytest.MonkeyPatch,
    small: Path,
    capsys: pytest.CaptureFixture[str],
    status: int,
    message: str,
) -> None:
    answering(monkeypatch, lambda _: httpx.Response(status, json={"error": message}))
    assert main(["push", str(small), "--server", "https://jarvis.test"]) == ExitCode.FAILED
    assert capsys.readouterr().err == f"jarvis: {message}\n"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (httpx.ConnectError("Name or service not known"), "cannot be reached"),
        (httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED]"), "certificate"),
        (httpx.ReadTimeout("late"), "did not answer in time"),
        (httpx.Response(200, text="<html>"), "is not a Jarvis server"),
        (
            httpx.Response(302, headers={"Location": "https://x.test"}),
            "It redirects to https://x.test",
        ),
        (httpx.Response(502, text="bad gateway"), "502 Bad Gateway"),
    ],
)
def test_what_is_no_server_is_reported(
    monkeypatch: pytest.MonkeyPatch,
    small: Path,
    capsys: pytest.CaptureFixture[str],
    answer: httpx.Response | httpx.TransportError,
    message: str,
) -> None:
    def answered(_: httpx.Request) -> httpx.Response:
        if isinstance(answer, httpx.Response):
            return answer
        raise answer

    answering(monkeypatch, answered)
    assert main(["push", str(small), "--server", "https://jarvis.test"]) == ExitCode.FAILED
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_urls_are_downloaded_by_the_server(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, dict[str, object]]] = []

    def answered(request: httpx.Request) -> httpx.Response:
        asked.append((request.url.path, json.loads(request.content)))
        keys = ("id", "state", "analysis_id", "is_reused", "error")
        return httpx.Response(202, json={**dict.fromkeys(keys), "page": "/jobs?job=1"})

    answering(monkeypatch, answered)
    base, to = "s3://traces/job", ["--server", "https://jarvis.test"]
    several = ([f"{base}/"], [f"{base}/rank{{0..63}}.json"], [f"{base}/a.json", f"{base}/b.json"])
    for urls in several:
        assert main(["push", *urls, *to, "--rank", "a.json=3", "--name", "Tiny"]) == ExitCode.OK
        path, body = asked.pop()
        assert (path, body["urls"], body["ranks"]) == ("/api/distributed", urls, {"a.json": 3})
    assert main(["push", f"{base}/a.json?x=/", *to, "--name", "Tiny"]) == ExitCode.OK
    path, body = asked.pop()
    assert (path, body["url"], body["model"]) == ("/api/analyses", f"{base}/a.json?x=/", "Tiny")
    with pytest.raises(SystemExit):
        main(["push", f"{base}/a.json", "b.json", *to])
    assert "name traces or URLs, not both" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("server_given", "message"),
    [
        ("jarvis.test", "is not the URL of a server"),
        ("ftp://jarvis.test", "is not the URL of a server"),
        ("https://", "is not the URL of a server"),
        ("https://ada:secret@jarvis.test", "JARVIS_TOKEN"),
    ],
)
def test_an_address_that_cannot_be_is_reported(
    small: Path, capsys: pytest.CaptureFixture[str], server_given: str, message: str
) -> None:
    assert main(["push", str(small), "--server", server_given]) == ExitCode.FAILED
    error = capsys.readouterr().err
    assert message in error
    assert "secret" not in error


def test_a_file_that_is_not_there_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = str(tmp_path / "gone.json")
    assert main(["push", gone, "--server", "https://jarvis.test"]) == ExitCode.FAILED
    assert "gone.json cannot be read" in capsys.readouterr().err


def test_a_server_that_stays_away_is_given_up(
    monkeypatch: pytest.MonkeyPatch, small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(remote, "RETRY_TIMEOUT_S", 0.2)
    monkeypatch.setattr(remote, "_RETRY_DELAYS_S", (0.05,))
    asked: list[str] = []

    def dies(request: httpx.Request) -> httpx.Response:
        asked.append(request.method)
        if request.method == "POST":
            headers = {"Location": "/api/uploads/1", "Tus-Resumable": "1.0.0"}
            return httpx.Response(201, headers=headers)
        raise httpx.ReadError("connection reset")

    answering(monkeypatch, dies)
    assert main(["push", str(small), "--server", "https://jarvis.test"]) == ExitCode.FAILED
    assert "was lost" in capsys.readouterr().err.splitlines()[-1]
    assert asked.count("GET") > 2


def test_the_token_goes_to_the_server_alone(
    monkeypatch: pytest.MonkeyPatch, small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JARVIS_TOKEN", "jrv_secret")
    sent: list[httpx.Request] = []

    def answered(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(302, headers={"Location": "https://elsewhere.test/"})

    answering(monkeypatch, answered)
    main(["push", str(small), "--server", "https://jarvis.test"])
    (only,) = sent
    assert only.headers["Authorization"] == "Bearer jrv_secret"
    assert only.url.host == "jarvis.test"
    assert "jrv_secret" not in capsys.readouterr().err


def test_captures_are_pushed_with_a_trace(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "captures"
    folder.mkdir()
    captured(8).write(folder / "bs_8.json")
    replay = step(trace("AMD Instinct MI300X"), 8).write(tmp_path / "step.json")
    asked = ["push", str(replay), "--server", server.url, "--wait", "--json"]
    ids = []
    for place in (folder, folder / "bs_8.json", folder):
        assert main([*asked, "--capture-folder", str(place)]) == ExitCode.OK
        ids.append(json.loads(capsys.readouterr().out)["analysis_id"])
    assert ids[0] == ids[2]
    found = httpx.get(f"{server.url}/api/analyses/{ids[0]}", timeout=TIMEOUT_S).json()
    assert found["manifest"]["options"]["captures_name"] == "captures.zip"
    assert "graph_launches" in found["manifest"]["tables"]
    config = tmp_path / "config.json"
    config.write_text(json.dumps(QWEN3_8B), encoding="utf-8")
    options = ["--model-config", str(config), "--tensor-parallel", "2"]
    assert main([*asked, *options]) == ExitCode.OK
    modeled = json.loads(capsys.readouterr().out)["analysis_id"]
    assert modeled not in ids
    found = httpx.get(f"{server.url}/api/analyses/{modeled}", timeout=TIMEOUT_S).json()
    assert found["manifest"]["options"]["served_model_name"] == "config.json"
    assert found["manifest"]["options"]["tensor_parallel"] == 2
    nowhere = [*asked, "--capture-folder", str(tmp_path / "nowhere")]
    assert main(nowhere) == ExitCode.FAILED
    assert "nowhere" in capsys.readouterr().err
