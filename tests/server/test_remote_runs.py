"""Analyses on another machine: a real sshd on loopback, with the ``jarvis`` of this checkout.

There is no container here: a script plays the program that runs a command in one.
"""

import json
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from jarvis.core.workspace import analyses_dir
from jarvis.pipeline import STEPS, Step, analyze
from jarvis.run import SCHEMA_VERSION, read_manifest
from jarvis.server import queue
from jarvis.server.database import JobState
from jarvis.server.errors import RemoteError
from jarvis.server.ingest.remote_runs import CONNECT_STEP, RETURN_STEP, RemoteRun
from jarvis.server.jobs.kinds import JobOutput, request_of
from jarvis.server.jobs.kinds.analyses import Remote
from jarvis.server.storage.archive import save_archive, unpack_archive
from jarvis.server.storage.catalog import analysis_root, read_catalog
from tests.builders import trace
from tests.server.working import ended, wait_for, worker
from tests.services.ports import free_port
from tests.services.sshd import NAME, Sshd, make_key, sshd

JARVIS = [sys.executable, "-c", "from jarvis.cli import run; run()"]
ROOT = Path(__file__).parents[2]
FAKE = """\
#!/bin/sh
case "$1" in
--version) cat "$0.version" ;;
analyze) . "$0.analyze" ;;
archive) cp "$0.zip" "$5" ;;
esac
"""
"""A fake ``jarvis`` on the other machine, controlled by files next to it."""

DOCKER = """\
#!/bin/sh
[ "$1 $2" = "exec -i" ] || exit 125
if [ "$3" != "profiling box" ]; then
  echo "Error response from daemon: No such container: $3" >&2
  exit 1
fi
shift 3
if ! command -v "$1" >/dev/null; then
  echo "OCI runtime exec failed: exec: \\"$1\\": executable file not found in \\$PATH" >&2
  exit 127
fi
IN_CONTAINER=1 exec "$@"
"""
"""A fake program that runs a command in a container."""

Describe = Callable[..., None]


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The other machine's folder, with its temporary files."""
    folder = tmp_path_factory.mktemp("there")
    (folder / "tmp").mkdir()
    return folder


@pytest.fixture(scope="module")
def machine(there: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """The other machine."""
    environment = {
        "TMPDIR": str(there / "tmp"),
        "JARVIS_HOME": str(there / "home"),
        "PYTHONPATH": str(ROOT),
    }
    with sshd(tmp_path_factory.mktemp("sshd"), environment) as running:
        yield running


@pytest.fixture
def describe(
    home: Path, machine: Sshd, there: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Describe]:
    """Describes the machine ``lab`` in the settings; nothing of a run is left there."""

    def to(**differs: object) -> None:
        described = {"host": NAME, "command": JARVIS, "ssh": machine.ssh} | differs
        monkeypatch.setenv("JARVIS_TARGETS", json.dumps({"lab": described}))

    to()
    yield to
    wait_for(lambda: not list((there / "tmp").iterdir()))


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An analysis as another machine would send it."""
    folder = tmp_path_factory.mktemp("archive")
    built = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=12)
    analyze(built.write(folder / "tiny.json"), output_dir=folder / "run")
    save_archive(folder / "run", folder / "run.zip")
    return folder / "run.zip"


@pytest.fixture
def fake(describe: Describe, there: Path, archive: Path) -> Path:
    """The fake ``jarvis``, which succeeds by default."""
    program = there / "fake jarvis"
    program.write_text(FAKE)
    program.chmod(0o755)
    beside(program, "version", f"jarvis 0.1.0, layout {SCHEMA_VERSION}\n")
    beside(program, "analyze", "")
    beside(program, "zip", archive.read_bytes())
    describe(command=[str(program)])
    return program


def beside(program: Path, ending: str, content: str | bytes) -> None:
    """Sets what the fake ``jarvis`` does."""
    file = program.with_name(f"{program.name}.{ending}")
    file.write_bytes(content.encode() if isinstance(content, str) else content)


def asked(path: object, **more: Any) -> Remote:
    return Remote(RemoteRun("lab", str(path), **more))


def done(request: Remote) -> JobOutput:
    return request.run(lambda _: None, "a1b2")


def refusal(request: Remote) -> str:
    with pytest.raises(RemoteError) as error:
        done(request)
    assert not list(analyses_dir().glob("*"))
    return str(error.value)


def test_a_trace_is_analyzed_where_it_lies(describe: Describe, there: Path) -> None:
    built = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=12)
    small = built.write(there / 'it\'s $(touch hit) `x`; & "y".json')
    request = asked(small, platform="MI300X", model_name='T"iny $HOME', target_pct=62.5)
    new = request.new_job()
    assert request_of(new.kind, new.parameters) == request
    steps: list[Step] = []
    made = request.run(steps.append, "a1b2")
    assert made.analysis_id is not None
    (entry,) = read_catalog().entries
    assert entry.made_on == "lab"
    manifest = read_manifest(analysis_root(made.analysis_id))
    assert manifest.model_name == 'T"iny $HOME'
    assert manifest.options.platform == "MI300X"
    assert manifest.options.target_pct == 62.5
    assert manifest.trace.file_name == small.name
    ends = [step for step in steps if step.state == "done"]
    assert [step.name for step in ends] == [CONNECT_STEP, *STEPS, RETURN_STEP]
    assert [step.number for step in ends] == list(range(1, len(STEPS) + 3))
    assert {step.total for step in ends} == {len(STEPS) + 2}
    assert all(step.elapsed_s is not None for step in ends)
    assert not list(Path.home().glob("hit"))
    assert not list(analyses_dir().glob(".*"))


def test_a_run_in_a_container(fake: Path, describe: Describe, there: Path) -> None:
    """Uses a script instead of ``docker exec -i``."""
    docker = there / "docker"
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    beside(fake, "analyze", f'[ "$IN_CONTAINER" = 1 ] && echo "$3" > "{there}/analyzed"\n')
    inside = {"command": [str(fake)], "container_command": [str(docker), "exec", "-i"]}
    describe(**inside, container="profiling box")
    path = "/data/it's $(touch hit).json"
    first = done(asked(path))
    assert (there / "analyzed").read_text() == f"{path}\n"
    again = done(asked(path))
    assert first.analysis_id == again.analysis_id
    assert (first.result["is_reused"], again.result["is_reused"]) == (False, True)


def test_what_a_container_lacks_is_reported(fake: Path, describe: Describe, there: Path) -> None:
    docker = there / "docker"
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    runner = {"container_command": [str(docker), "exec", "-i"]}
    describe(**runner, command=[str(fake)], container="gone")
    assert "No container gone is running on lab" in refusal(asked("/a.json"))
    describe(**runner, command=["no-jarvis"], container="profiling box")
    message = (
        "Jarvis is not installed in the container profiling box on lab: no-jarvis was not found"
    )
    assert message in refusal(asked("/a.json"))
    describe(container_command=["no-docker"], command=[str(fake)], container="profiling box")
    assert "lab has no program no-docker" in refusal(asked("/a.json"))


def test_a_machine_without_a_jarvis_that_suits_is_reported(fake: Path, describe: Describe) -> None:
    beside(fake, "version", f"jarvis 0.0.9, layout {SCHEMA_VERSION - 1}\n")
    assert "Jarvis on lab is older than on this server" in refusal(asked("/a.json"))
    beside(fake, "version", f"jarvis 9.0.0, layout {SCHEMA_VERSION + 1}\n")
    assert "Jarvis on lab is newer (9.0.0) than on this server" in refusal(asked("/a.json"))
    describe(command=["sh", "-c", "echo 'jarvis: error: unrecognized arguments' >&2; exit 2"])
    assert "Jarvis on lab is too old for these options" in refusal(asked("/a.json"))
    describe(command=["/nowhere/jarvis"])
    assert "Jarvis is not installed on lab: /nowhere/jarvis was not found" in refusal(
        asked("/a.json")
    )


def test_why_ssh_fails_is_reported(describe: Describe, machine: Sshd, tmp_path: Path) -> None:
    make_key(tmp_path / "unknown")
    plain = ["ssh", "-F", "/dev/null", "-o", "IdentitiesOnly=yes", "-o", "GlobalKnownHostsFile=/x"]

    def ssh(key: Path, known: Path, port: int = machine.port) -> str:
        options = ["-i", str(key), "-p", str(port), "-o", f"UserKnownHostsFile={known}"]
        describe(host=f"{machine.user}@127.0.0.1", ssh=[*plain, *options])
        return refusal(asked("/a.json"))

    assert "rejected this server's key" in ssh(tmp_path / "unknown", machine.known_hosts)
    assert "has an unknown host key" in ssh(machine.key, tmp_path / "empty")
    other = (tmp_path / "unknown.pub").read_text()
    (tmp_path / "changed").write_text(f"[127.0.0.1]:{machine.port} {other}")
    assert "has another host key" in ssh(machine.key, tmp_path / "changed")
    assert "cannot be reached by ssh" in ssh(machine.key, machine.known_hosts, free_port())
    describe(ssh=[*machine.ssh, "-o", "HostName=no-such-host.invalid"])
    assert "cannot be reached by ssh" in refusal(asked("/a.json"))


def test_only_known_machines_and_whole_paths_are_asked_for(describe: Describe) -> None:
    with pytest.raises(RemoteError, match="There is no machine 'moon'"):
        Remote(RemoteRun("moon", "/a.json")).new_job()
    for path in ("a.json", "-oProxyCommand=x", "", "/a\nb.json", "/a\0.json", "/" + "x" * 4_000):
        with pytest.raises(RemoteError, match="Give the absolute path"):
            asked(path).new_job()
    for name in ("a\0b", "a\nb", "x" * 5_000):
        with pytest.raises(RemoteError, match="names without line breaks"):
            asked("/a.json", model_name=name).new_job()


def test_traces_lie_in_the_allowed_folders(fake: Path, describe: Describe, there: Path) -> None:
    roots = there / "all traces"
    (roots / "in").mkdir(parents=True)
    (roots / "in" / "a.json").write_text("{}")
    (there / "secret.json").write_text("{}")
    (roots / "link.json").symlink_to(there / "secret.json")
    describe(command=[str(fake)], roots=["/var/empty", str(roots)])
    beside(fake, "analyze", f'echo "$3" > "{there}/analyzed"\n')
    for outside in ("../secret.json", "in/../../secret.json", "link.json"):
        assert "in the allowed folders of lab" in refusal(asked(roots / outside))
    assert "in the allowed folders of lab" in refusal(asked(f"{roots}-other/a.json"))
    done(asked(f"{roots}/in/../in/a.json"))
    assert (there / "analyzed").read_text() == f"{roots / 'in' / 'a.json'}\n"


@pytest.mark.parametrize(
    ("does", "message"),
    [
        ("echo 'jarvis: /a.json cannot be read. Check it.' >&2; exit 1", "On lab: /a.json cannot"),
        ("exit 1", "failed with exit code 1"),
        ("kill -9 $$", "was killed (signal 9)"),
        ('rm -f "$0.zip"', "failed with exit code 1"),
    ],
)
def test_a_run_that_fails_there_is_reported(fake: Path, does: str, message: str) -> None:
    beside(fake, "analyze", does)
    assert message in refusal(asked("/a.json"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("../../hit", b"x", "sent an invalid analysis"),
        ("/tmp/hit", b"x", "sent an invalid analysis"),
        ("results.json", b"{}", "sent an invalid analysis"),
        (None, b"", "sent an invalid analysis"),
    ],
)
def test_what_comes_back_is_not_believed(
    fake: Path, archive: Path, tmp_path: Path, name: str | None, content: bytes, message: str
) -> None:
    hostile = tmp_path / "hostile.zip"
    hostile.write_bytes(archive.read_bytes() if name else b"no zip")
    if name is not None:
        with zipfile.ZipFile(hostile, "a") as packed:
            packed.writestr(name, content)
    beside(fake, "zip", hostile.read_bytes())
    assert message in refusal(asked("/a.json"))


def test_an_analysis_that_contradicts_itself_is_not_stored(
    fake: Path, archive: Path, tmp_path: Path
) -> None:
    unpack_archive(archive, tmp_path / "run")
    (tmp_path / "run" / "perf_report_csvs" / "gpu_timeline.csv").write_text("type,time ms\n")
    save_archive(tmp_path / "run", tmp_path / "changed.zip")
    beside(fake, "zip", (tmp_path / "changed.zip").read_bytes())
    assert "is inconsistent" in refusal(asked("/a.json"))


def test_what_comes_back_has_a_bound(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JARVIS_MAX_UPLOAD_GB", "0.000001")
    assert "so the transfer was stopped" in refusal(asked("/a.json"))


def test_hostile_words_do_no_harm(fake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    step = '{"name": "%s", "number": %s, "total": %s, "state": "done", "elapsed_s": %s}'
    huge = f'{{"bytes_done": {10**30}, "bytes_total": -5, "events": 1}}'
    lines = [
        step % ("n" * 5_000, 1, 8, "1e999"),
        step % ("a\\u0000b\\u001b[2J", 2, 8, "-1"),
        step % ("far", 9, 8, 1),
        step % ("many", 1, 10**9, 1),
        *[step % ("again", 3, 8, 1)] * 500,
        f'{{"name": "big", "number": 4, "total": 8, "state": "running", "reading": {huge}}}',
        "\x1b[2J no step",
        "x" * 100_000,
    ]
    beside(fake, "words", "\n".join(lines))
    beside(fake, "analyze", 'cat "$0.words" >&2')
    steps: list[Step] = []
    assert asked("/a.json").run(steps.append, "a1b2").analysis_id
    assert len(steps) < 100
    assert all(len(one.name) <= 80 and one.name.isprintable() for one in steps)
    assert all(one.elapsed_s is None or 0 <= one.elapsed_s < 1e8 for one in steps)
    assert all(1 <= one.number <= one.total <= 60 for one in steps)
    logged = capsys.readouterr().err
    assert "[2J no step" in logged
    assert "\x1b" not in logged
    assert max(map(len, logged.splitlines())) < 600


def test_a_cancelled_job_ends_there_too(fake: Path, there: Path, engine: Engine) -> None:
    """Even if the remote process ignores the signals that a shell can send."""
    pid = there / "pid"
    beside(
        fake,
        "analyze",
        f"trap '' TERM HUP; echo $$ > '{pid}.new'; mv '{pid}.new' '{pid}'; sleep 600",
    )
    with worker():
        job = queue.submit(engine, asked("/a.json").new_job())
        wait_for(pid.exists)
        process = Path(f"/proc/{pid.read_text().strip()}")
        assert process.exists()
        queue.cancel(engine, job.id)
        assert ended(engine, job.id).state is JobState.CANCELLED
        wait_for(lambda: not process.exists())
    assert not list(analyses_dir().glob(".*"))
