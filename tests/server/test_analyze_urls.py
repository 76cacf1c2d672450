"""``jarvis analyze`` of URLs: a real web server on loopback, which no setting allows."""

import json
from pathlib import Path

import pytest

from jarvis.cli import main
from jarvis.run import Run
from jarvis.server.errors import AddressError
from jarvis.server.ingest.addresses import address_of, machines_of, typed_here
from tests.builders import trace
from tests.server.file_server import file_server


def built(rank: int = 0) -> bytes:
    built_trace = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm", us=12 + rank)
    return json.dumps(built_trace.document()).encode()


def test_a_trace_is_downloaded_and_its_results_are_in_the_current_folder(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with file_server(built()) as server:
        url = f"http://127.0.0.1:{server.port}/runs/step.json?signature=secret"
        assert main(["analyze", url, "--platform", "MI300X"]) == 0
    run = Run.load(tmp_path / "analysis_output")
    assert run.manifest.trace.file_name == "step.json"
    printed = capsys.readouterr().err
    assert "Downloaded step.json" in printed
    assert "secret" not in printed
    assert not list(home.glob("traces/*"))


def test_a_folder_of_ranks_is_one_distributed_run(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with file_server(b"") as server:
        paths = [f"/job/rank{rank}/trace.json" for rank in range(2)]
        server.files = {path: built(rank) for rank, path in enumerate(paths)} | {
            "/job/": b"<a href=rank0/></a><a href=rank1/></a>",
            **{f"/job/rank{rank}/": b"<a href=trace.json></a>" for rank in range(2)},
        }
        url, out = f"http://127.0.0.1:{server.port}/job/", tmp_path / "job"
        assert main(["analyze", url, "--platform", "MI300X", "--output-dir", str(out)]) == 0
    assert "2 of 2 ranks (0-1)" in capsys.readouterr().err
    assert (out / "multi_rank_report.xlsx").exists()


def test_paths_and_urls_are_not_mixed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["analyze", "trace.json", "https://traces.test/trace.json"])
    assert "name traces or URLs, not both" in capsys.readouterr().err


def test_only_hosts_that_were_typed_may_be_in_a_private_network(home: Path) -> None:
    typed = "http://127.0.0.1:8000/a.json"
    with pytest.raises(AddressError, match="no host is allowed"):
        address_of(typed)
    with typed_here([typed]):
        assert [str(machine) for machine in machines_of(address_of(typed))] == ["127.0.0.1"]
        for redirected in ("http://127.0.0.1:9000/a.json", "http://10.0.0.1/a.json"):
            with pytest.raises(AddressError, match="in a private network"):
                machines_of(address_of(redirected))
        with pytest.raises(AddressError, match="reserved address"):
            machines_of(address_of("http://169.254.169.254/latest"))
    with pytest.raises(AddressError, match="no host is allowed"):
        address_of(typed)


def test_a_missing_file_is_an_error_in_one_sentence(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with file_server(b"") as server:
        server.files = {"/other": b"x"}
        assert main(["analyze", f"http://127.0.0.1:{server.port}/a.json"]) == 1
    assert "cannot be downloaded: HTTP status 404" in capsys.readouterr().err
