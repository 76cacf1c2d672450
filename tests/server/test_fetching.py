"""Traces from other machines: by http from a real server on loopback, by sftp from a real sshd."""

import hashlib
import logging
import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from sqlalchemy import Engine

from jarvis.core.request import AnalysisOptions
from jarvis.core.workspace import uploads_dir
from jarvis.pipeline import STEPS, Step
from jarvis.ranks.inputs import TooManyFilesError
from jarvis.run import read_manifest
from jarvis.server import queue
from jarvis.server.database import JobState
from jarvis.server.errors import AddressError, FetchError, IntakeError
from jarvis.server.ingest import fetch
from jarvis.server.ingest.addresses import address_of
from jarvis.server.ingest.fetch import (
    fetch_trace,
    over_http,
    over_s3,
    over_sftp,
    trace_urls,
)
from jarvis.server.ingest.intake import StoredTrace
from jarvis.server.jobs.kinds import request_of
from jarvis.server.jobs.kinds.fetches import FETCH_STEP, Fetch
from jarvis.server.storage.catalog import analysis_root
from jarvis.server.storage.storage_keys import path_at
from tests.builders import trace
from tests.server.file_server import FileServer, file_server
from tests.server.working import ended, wait_for, worker
from tests.services.s3 import S3, s3
from tests.services.sshd import Sshd, make_key, node

__all__ = ["node", "s3"]

CONTENT = bytes(range(256)) * 4_000
NAME = "traces.test"
"""A host that only these tests know."""


@pytest.fixture
def server(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    """A web server that may be fetched from as ``localhost`` and as ``NAME``."""
    monkeypatch.setattr(fetch, "WAITS_S", (0.0, 0.0))
    with file_server(CONTENT) as running:
        allow(monkeypatch, f"127.0.0.1:{running.port}", f"{NAME}:{running.port}")
        yield running


def allow(monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
    for variable in ("JARVIS_INGEST_HOSTS", "JARVIS_INGEST_PRIVATE_HOSTS"):
        monkeypatch.setenv(variable, ",".join(hosts))


def fetched(address: str, folder: Path) -> tuple[StoredTrace, list[tuple[int, int | None]]]:
    """The stored trace and the reported progress."""
    message: list[tuple[int, int | None]] = []
    folder.mkdir(exist_ok=True)
    return fetch_trace(address, folder, lambda *far: message.append(far)), message


def test_a_trace_is_fetched_and_stored_by_its_content(server: FileServer, tmp_path: Path) -> None:
    kept, message = fetched(f"http://127.0.0.1:{server.port}/runs/a.json?token=secret", tmp_path)
    assert kept.path.read_bytes() == CONTENT
    assert kept.path.name == "a.json"
    assert kept.path.parent.name == hashlib.sha256(CONTENT).hexdigest()[:16]
    assert message[0] == (0, len(CONTENT))
    assert message[-1] == (len(CONTENT), len(CONTENT))
    assert len(message) > 2
    assert server.asked[0][0] == "/runs/a.json?token=secret"
    again, _ = fetched(f"http://127.0.0.1:{server.port}/runs/a.json", tmp_path)
    assert again == StoredTrace(kept.path, is_reused=True)


def test_the_length_may_be_unknown(server: FileServer, tmp_path: Path) -> None:
    server.says_length = False
    kept, message = fetched(f"http://127.0.0.1:{server.port}/a.json", tmp_path)
    assert kept.path.read_bytes() == CONTENT
    assert message[-1] == (len(CONTENT), None)


def test_after_a_broken_connection_only_the_rest_is_asked_for(
    server: FileServer, tmp_path: Path
) -> None:
    server.breaks = [300_000, 200_000]
    kept, message = fetched(f"http://127.0.0.1:{server.port}/a.json", tmp_path)
    assert kept.path.read_bytes() == CONTENT
    asked = [headers.get("range") for _, headers in server.asked]
    assert asked == [None, "bytes=300000-", "bytes=500000-"]
    assert [done for done, _ in message] == sorted(done for done, _ in message)


@pytest.mark.parametrize("change", [{"takes_ranges": False}, {"etag": None}, {"etag": 'W/"1"'}])
def test_where_the_rest_cannot_be_had_all_comes_again(
    server: FileServer, tmp_path: Path, change: dict[str, object]
) -> None:
    for name, value in change.items():
        setattr(server, name, value)
    server.breaks = [300_000]
    kept, _ = fetched(f"http://127.0.0.1:{server.port}/a.json", tmp_path)
    assert kept.path.read_bytes() == CONTENT


def test_a_part_that_is_not_all_of_the_rest_is_refused(server: FileServer, tmp_path: Path) -> None:
    server.breaks, server.sends_only = [300_000], 10
    with pytest.raises(FetchError, match="HTTP status 206"):
        fetched(f"http://127.0.0.1:{server.port}/a.json", tmp_path)


def test_a_file_that_changed_meanwhile_comes_whole(server: FileServer, tmp_path: Path) -> None:
    def change(done: int, _: int | None) -> None:
        if done > 100_000:
            server.etag, server.content = '"2"', CONTENT[::-1]

    server.breaks = [300_000]
    kept = fetch_trace(f"http://127.0.0.1:{server.port}/a.json", tmp_path, change)
    assert kept.path.read_bytes() == CONTENT[::-1]


def test_a_connection_that_breaks_again_and_again_is_given_up(
    server: FileServer, tmp_path: Path
) -> None:
    server.breaks = [300_000, 0, 0, 0, 0]
    with pytest.raises(FetchError, match="stopped sending"):
        fetched(f"http://127.0.0.1:{server.port}/a.json", tmp_path)
    assert len(server.asked) == 3


def test_too_large_a_file_is_refused_at_once_or_when_it_shows(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JARVIS_MAX_UPLOAD_GB", "0.0005")
    for says_length in (True, False):
        server.says_length = says_length
        with pytest.raises(FetchError, match=r"exceeds the limit of 0\.0005 GB"):
            fetched(f"http://127.0.0.1:{server.port}/a.json", tmp_path)
    assert (tmp_path / "partial").stat().st_size <= 500_000


@pytest.mark.parametrize(
    ("status", "message"), [(404, "404 (Not Found). Check the path"), (599, "599.")]
)
def test_an_answer_without_the_file_is_reported(
    server: FileServer, tmp_path: Path, status: int, message: str
) -> None:
    server.status = status
    with pytest.raises(FetchError) as error:
        fetched(f"http://127.0.0.1:{server.port}/a.json?token=secret", tmp_path)
    assert message in str(error.value)
    assert "secret" not in str(error.value)


def test_no_secret_is_logged(
    server: FileServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        fetched(f"http://127.0.0.1:{server.port}/a.json?token=secret", tmp_path)
    assert "secret" not in caplog.text


def test_a_file_has_the_name_of_its_address_or_of_its_sender(
    server: FileServer, tmp_path: Path
) -> None:
    with pytest.raises(IntakeError, match="is not a supported trace file"):
        fetched(f"http://127.0.0.1:{server.port}/download?id=7", tmp_path)
    server.disposition = 'attachment; filename="../../run 7.json.gz"'
    kept, _ = fetched(f"http://127.0.0.1:{server.port}/download?id=7", tmp_path)
    assert kept.path.name == "run_7.json.gz"


def test_redirections_are_followed_to_allowed_places_only(
    server: FileServer, tmp_path: Path, home: Path
) -> None:
    server.location = "/a.json"
    kept, _ = fetched(f"http://127.0.0.1:{server.port}/from", tmp_path)
    assert kept.path.read_bytes() == CONTENT
    for location in (
        "http://169.254.169.254/latest/meta-data/",
        "http://10.0.0.1/a.json",
        "//metadata.internal/a.json",
        f"http://127.0.0.1:{server.port + 1}/a.json",
        "file:///etc/passwd",
        f"sftp://127.0.0.1:{server.port}/a.json",
        f"http://me:secret@127.0.0.1:{server.port}/a.json",
    ):
        server.location = location
        asked = len(server.asked)
        with pytest.raises(AddressError):
            fetched(f"http://127.0.0.1:{server.port}/from", tmp_path)
        assert len(server.asked) == asked + 1


def test_redirections_come_to_an_end(server: FileServer, tmp_path: Path) -> None:
    server.location = "/from-here-to-there"
    with pytest.raises(FetchError, match="has more than 5 redirects"):
        fetched(f"http://127.0.0.1:{server.port}/from", tmp_path)
    assert len(server.asked) == over_http.MAX_REDIRECTS + 1


def test_a_name_is_looked_up_once_for_a_connection(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that resolves to another machine each time cannot pass the check with one of them
    and be spoken to as the other."""
    looked_up: list[str] = []
    real = socket.getaddrinfo

    def look_up(host: str, port: int, *rest: Any, **more: Any) -> object:
        if host != NAME:
            return real(host, port, *rest, **more)
        looked_up.append(host)
        machine = "127.0.0.1" if len(looked_up) == 1 else "169.254.169.254"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (machine, port))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    kept, _ = fetched(f"http://{NAME}:{server.port}/a.json", tmp_path)
    assert kept.path.read_bytes() == CONTENT
    assert looked_up == [NAME]
    assert server.asked[0][1]["host"] == f"{NAME}:{server.port}"
    server.location, server.asked[:] = f"http://{NAME}:{server.port}/a.json", []
    with pytest.raises(AddressError, match=r"169\.254\.169\.254"):
        fetched(f"http://{NAME}:{server.port}/a.json", tmp_path)


def test_no_proxy_of_the_environment_comes_between(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    assert fetched(f"http://127.0.0.1:{server.port}/a.json", tmp_path)


def test_a_machine_that_is_away_is_reported(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        away = bound.getsockname()[1]
    allow(monkeypatch, f"127.0.0.1:{away}")
    with pytest.raises(FetchError, match=f"127.0.0.1:{away} cannot be reached: .*refused"):
        fetched(f"http://127.0.0.1:{away}/a.json", tmp_path)


def test_the_certificate_must_be_that_of_the_host(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also though the connection goes to an address that was looked up before."""
    certificate = tmp_path / "certificate.pem"
    key = _signed(certificate)
    sending = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    sending.load_cert_chain(certificate, key)
    real = socket.getaddrinfo
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *rest, **more: real(
            "127.0.0.1" if host.endswith(".test") else host, *rest, **more
        ),
    )
    with file_server(CONTENT, sending) as running:
        allow(monkeypatch, f"{NAME}:{running.port}", f"other.test:{running.port}")
        with pytest.raises(FetchError, match="certificate verify failed"):
            fetched(f"https://{NAME}:{running.port}/a.json", tmp_path)
        trusting = ssl.create_default_context(cafile=str(certificate))
        monkeypatch.setattr(over_http, "_trusted", lambda: trusting)
        kept, _ = fetched(f"https://{NAME}:{running.port}/a.json", tmp_path)
        assert kept.path.read_bytes() == CONTENT
        with pytest.raises(FetchError, match=r"not valid for 'other\.test'"):
            fetched(f"https://other.test:{running.port}/a.json", tmp_path)


def _signed(certificate: Path) -> Path:
    """A certificate of ``NAME`` that signs itself; its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    place = certificate.with_name("key.pem")
    place.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return place


@pytest.fixture
def by_sftp(node: Sshd, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a trace on the ssh server, which lets this one in."""
    monkeypatch.setattr(fetch, "WAITS_S", (0.0, 0.0))
    allow(monkeypatch, f"127.0.0.1:{node.port}")
    monkeypatch.setenv("JARVIS_SFTP_KEY", str(node.key))
    monkeypatch.setenv("JARVIS_SFTP_KNOWN_HOSTS", str(node.known_hosts))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "a b.json").write_bytes(CONTENT)
    return f"sftp://{node.user}@127.0.0.1:{node.port}{tmp_path}/there/a%20b.json"


def test_a_trace_comes_by_sftp(by_sftp: str, tmp_path: Path) -> None:
    kept, message = fetched(by_sftp, tmp_path / "here")
    assert kept.path.read_bytes() == CONTENT
    assert kept.path.name == "a_b.json"
    assert message[0] == (0, len(CONTENT))
    assert message[-1] == (len(CONTENT), len(CONTENT))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # paramiko's
def test_the_rest_comes_by_sftp_after_a_broken_connection(
    by_sftp: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect, clients = over_sftp._connected, []

    def connected(*given: Any) -> object:
        clients.append(connect(*given))
        return clients[-1]

    starts: list[int] = []

    def on_bytes(done: int, _: int | None) -> None:
        starts.append(done)
        if done > 500_000 and len(clients) == 1:
            clients[0].get_transport().sock.close()

    monkeypatch.setattr(over_sftp, "_AHEAD_BLOCKS", 2)
    monkeypatch.setattr(over_sftp, "_connected", connected)
    (tmp_path / "here").mkdir()
    kept = fetch_trace(by_sftp, tmp_path / "here", on_bytes)
    assert kept.path.read_bytes() == CONTENT
    assert len(clients) == 2
    assert starts == sorted(starts)


def test_what_sftp_refuses_is_reported(
    by_sftp: str, node: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    with pytest.raises(FetchError, match="No such file"):
        fetched(by_sftp.replace("there", "elsewhere"), here)
    with pytest.raises(FetchError, match="is not a file"):
        fetched(by_sftp.rpartition("/")[0], here)
    make_key(tmp_path / "unknown")
    monkeypatch.setenv("JARVIS_SFTP_KEY", str(tmp_path / "unknown"))
    with pytest.raises(FetchError, match=f"rejected the login of {node.user}"):
        fetched(by_sftp, here)


def test_a_host_must_show_the_key_that_is_known(
    by_sftp: str, node: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = tmp_path / "known_hosts"
    monkeypatch.setenv("JARVIS_SFTP_KNOWN_HOSTS", str(known))
    with pytest.raises(FetchError, match="is unknown"):
        fetched(by_sftp, tmp_path / "here")
    other = (node.key.with_suffix(".pub")).read_text()
    known.write_text(f"[127.0.0.1]:{node.port} {other}")
    with pytest.raises(FetchError, match="differs from the one"):
        fetched(by_sftp, tmp_path / "here")


def test_a_job_fetches_and_says_where_the_trace_is(server: FileServer, home: Path) -> None:
    asked = Fetch(f"http://127.0.0.1:{server.port}/a.json?token=secret")
    new = asked.new_job()
    assert "secret" not in new.title
    assert request_of(new.kind, new.parameters) == asked
    steps: list[Step] = []
    made = asked.run(steps.append, "a1b2")
    assert made.analysis_id is None
    assert not made.result["was_here"]
    assert path_at(made.result["trace"]).read_bytes() == CONTENT
    assert [step.state for step in steps][:2] == ["started", "running"]
    assert steps[-1].state == "done"
    assert not list(uploads_dir().glob(".*"))


def test_a_job_may_analyze_what_it_fetched(server: FileServer, home: Path, tmp_path: Path) -> None:
    built = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=12)
    server.content = built.write(tmp_path / "tiny.json").read_bytes()
    asked = Fetch(
        f"http://127.0.0.1:{server.port}/tiny.json",
        AnalysisOptions(platform="MI300X", model_name="Tiny"),
    )
    new = asked.new_job()
    assert request_of(new.kind, new.parameters) == asked
    steps: list[Step] = []
    made = asked.run(steps.append, "a1b2")
    assert made.analysis_id is not None
    manifest = read_manifest(analysis_root(made.analysis_id))
    assert manifest.model_name == "Tiny"
    done = [step.number for step in steps if step.state == "done"]
    assert done == list(range(1, len(STEPS) + 2))


INDEX = """
<html><h1>Index of /job</h1><a name="top"></a> <a href="?C=M;O=A">Last modified</a>
<a href="../">Parent</a> <a href="rank0/">rank0/</a> <a href="/job/rank1/">rank1/</a>
<A HREF="rank%202.json.gz?x=1">two</A> <a href="rank0/trace.json">deeper</a>
<a href=".hidden.json">h</a> <a href="notes.txt">n</a> <a href="truth.json">t</a>
<a href="../other/rank4.json">o</a> <a href="%2e%2e/rank5.json">o</a> <a href="a%2Fb.json">s</a>
<a href="//10.0.0.1/job/rank6.json">x</a> <a href="http://[/job/x.json">x</a>
<a href="file:///job/rank7.json">x</a>
"""


def folder(server: FileServer) -> str:
    """The URL of a folder with the traces of three ranks and other links."""
    server.files = {
        "/job/": INDEX.encode(),
        "/job/rank0/": b'<a href="trace.json">trace</a>',
        "/job/rank1/": b'<a href="trace.json">trace</a> <a href="lost.json">lost</a>',
        "/job/rank0/trace.json": CONTENT,
        "/job/rank1/trace.json": CONTENT[1:],
        "/job/rank%202.json.gz": CONTENT[2:],
    }
    return f"http://127.0.0.1:{server.port}/job/?token=secret"


def test_the_index_of_a_folder_names_its_traces(
    server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = trace_urls(folder(server))
    assert [each.name for each in found] == [
        "rank 2.json.gz",
        "rank0/trace.json",
        "rank1/lost.json",
        "rank1/trace.json",
    ]
    base = f"http://127.0.0.1:{server.port}/job"
    assert found[0].url == f"{base}/rank%202.json.gz?token=secret"
    assert {path.partition("?")[0] for path, _ in server.asked} == {
        "/job/",
        "/job/rank0/",
        "/job/rank1/",
    }
    server.files["/job/empty/"] = b"<p>empty"
    with pytest.raises(FetchError, match=r"no trace in 127\.0\.0\.1:\d+/job/empty/"):
        trace_urls(f"{base}/empty/")
    for module, limit, message in (
        (fetch, "MAX_ENTRIES", "too many files"),
        (over_http, "MAX_INDEX_BYTES", "The index of"),
    ):
        with monkeypatch.context() as limited:
            limited.setattr(module, limit, 3)
            with pytest.raises(FetchError, match=message):
                trace_urls(f"{base}/")
    monkeypatch.setenv("JARVIS_MAX_RANKS", "3")
    with pytest.raises(TooManyFilesError):
        trace_urls(f"{base}/")
    server.location = "http://169.254.169.254/latest/"
    with pytest.raises(AddressError):
        trace_urls(f"http://127.0.0.1:{server.port}/from/")


def test_a_job_fetches_a_folder_and_names_what_it_lacks(server: FileServer, home: Path) -> None:
    asked = Fetch(folder(server))
    assert asked.new_job().title == f"Download traces from 127.0.0.1:{server.port}"
    steps: list[Step] = []
    made = asked.run(steps.append, "a1b2")
    stored = [path_at(each) for each in made.result["traces"]]
    assert [path.name for path in stored] == [
        "rank_2.json.gz",
        "rank0_trace.json",
        "rank1_trace.json",
    ]
    assert stored[2].read_bytes() == CONTENT[1:]
    (failed,) = made.result["failed"]
    assert failed.startswith("rank1/lost.json: 127.0.0.1")
    assert "secret" not in str(made.result)
    assert [step.number for step in steps if step.state == "done"] == [1, 2, 4]
    with pytest.raises(FetchError, match="is a folder"):
        Fetch(folder(server), AnalysisOptions()).run(steps.append, "a1b2")


def test_a_folder_is_listed_by_sftp_without_links(by_sftp: str, home: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    (there / "rank0").mkdir()
    (there / "rank0" / "trace.json").write_bytes(CONTENT[1:])
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "rank1.json").write_bytes(CONTENT)
    (there / "linked").symlink_to(tmp_path / "elsewhere")
    (there / "rank1.json").symlink_to(tmp_path / "elsewhere" / "rank1.json")
    address = by_sftp.rpartition("/")[0]
    found = trace_urls(f"{address}/")
    assert [each.name for each in found] == ["a b.json", "rank0/trace.json"]
    assert found[0].url == by_sftp
    made = Fetch(f"{address}/").run(lambda _: None, "a1b2")
    names = [path_at(each).name for each in made.result["traces"]]
    assert names == ["a_b.json", "rank0_trace.json"]
    with pytest.raises(FetchError, match="cannot be listed: No such file"):
        trace_urls(f"{address}/nothing/")


def test_buckets_that_are_listed_in_the_settings_are_read(
    s3: S3, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    bucket = s3.bucket()
    allow(monkeypatch, bucket)
    for key, content in (("rank0/a b.json", CONTENT), ("rank1/c.json", CONTENT[1:]), ("n", b"")):
        s3.files.pipe_file(f"{bucket}/job/{key}", content)
    found = trace_urls(f"{bucket}/job/")
    assert [each.name for each in found] == ["rank0/a b.json", "rank1/c.json"]
    kept, message = fetched(found[0].url, tmp_path)
    assert (kept.path.read_bytes(), kept.path.name) == (CONTENT, "a_b.json")
    assert message[-1] == (len(CONTENT), len(CONTENT))
    made = Fetch(f"{bucket}/job/").run(lambda _: None, "a1b2")
    assert len(made.result["traces"]) == 2
    remote = over_s3.S3File(address_of(found[0].url))
    with remote.open(0):
        pass
    with remote.open(1000) as rest:
        assert (rest.start, rest.total_bytes) == (1000, len(CONTENT))
        assert b"".join(rest.pieces) == CONTENT[1000:]
    s3.files.pipe_file(f"{bucket}/job/rank0/a b.json", CONTENT[::-1])
    with remote.open(1000) as whole:
        assert whole.start == 0
    with pytest.raises(FetchError, match=r"cannot be read: .*NoSuchKey.*Check the URL"):
        fetched(f"{bucket}/job/none.json", tmp_path)
    with pytest.raises(FetchError, match="There is no trace"):
        trace_urls(f"{bucket}/none/")
    with pytest.raises(AddressError):
        trace_urls("s3://other-bucket/job/")


def test_what_is_not_allowed_is_refused_before_it_is_queued(server: FileServer) -> None:
    with pytest.raises(AddressError):
        Fetch("http://169.254.169.254/a.json").new_job()


def test_a_job_that_was_asked_for_is_not_done_when_the_setting_changed(
    server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Fetch(f"http://127.0.0.1:{server.port}/a.json")
    allow(monkeypatch, "example.org")
    with pytest.raises(AddressError):
        asked.run(lambda _: None, "a1b2")
    assert not server.asked


def test_a_cancelled_job_leaves_nothing(server: FileServer, engine: Engine) -> None:
    server.holds_after = 300_000
    with worker():
        job = queue.submit(engine, Fetch(f"http://127.0.0.1:{server.port}/a.json").new_job())
        wait_for(lambda: queue.find(engine, job.id).step == FETCH_STEP and server.asked)
        assert list(uploads_dir().glob(".*"))
        queue.cancel(engine, job.id)
        assert ended(engine, job.id).state is JobState.CANCELLED
        wait_for(lambda: not list(uploads_dir().glob(".*")))
