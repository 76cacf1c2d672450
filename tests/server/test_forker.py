"""Processes of jobs that are forked from one that has imported everything."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jarvis.server.jobs.processes.start import SETTINGS, JobProcesses, Process
from tests.server.working import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="jobs are forked on Linux only")

MODULE = """
import os, signal, sys, threading, time
WITH_THREAD = {thread}
def prepare(is_wanted):
    if WITH_THREAD:
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
def main():
    line = sys.stdin.readline().strip()
    if line == "raise":
        raise ValueError("odd")
    if line == "kill":
        os.kill(os.getpid(), signal.SIGTERM)
    print(line, os.getppid(), threading.active_count(), flush=True)
if __name__ == "__main__":
    main()
"""


@pytest.fixture(params=[False, True], ids=["forked", "with a thread"])
def processes(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[JobProcesses]:
    """Processes of a module, which in the second case starts a thread when it is prepared."""
    (tmp_path / "a_job.py").write_text(MODULE.format(thread=request.param))
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    monkeypatch.setenv("PYTHONPATH", path)
    made = JobProcesses("a_job")
    yield made
    made.close()


def done(process: Process, line: str) -> tuple[int, str, str]:
    """Give a line to a process; return its exit code and what it writes."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdin as given:
        given.write(f"{line}\n".encode())
    with process.stdout as output, process.stderr as errors:
        return process.wait(), output.read().decode(), errors.read().decode()


def test_a_forked_process_has_its_own_streams_session_and_exit_code(
    processes: JobProcesses,
) -> None:
    first, second = processes.start(), processes.start()
    code, output, errors = done(second, "second")
    assert (code, errors) == (0, "")
    word, forker, threads = output.split()
    assert (word, threads) == ("second", "1")
    assert done(first, "first")[:2] == (0, f"first {forker} 1\n")
    assert int(forker) != os.getpid()
    wait_for(lambda: processes.is_ready)
    code, output, errors = done(processes.start(), "raise")
    assert (code, output) == (1, "")
    assert "ValueError: odd" in errors
    assert done(processes.start(), "kill")[0] == -signal.SIGTERM


def test_a_forker_that_ends_is_started_again(processes: JobProcesses) -> None:
    _, output, _ = done(processes.start(), "first")
    forker = int(output.split()[1])
    running = processes.start()
    wait_for(lambda: running.pid)
    os.kill(forker, signal.SIGKILL)
    assert wait_for(running.poll) == -signal.SIGKILL, "its status is lost"
    done(running, "it runs on")
    code, output, _ = done(processes.start(), "second")
    assert code == 0
    assert int(output.split()[1]) != forker
    processes.close()
    wait_for(lambda: processes.is_ready)


def test_what_jobs_import_starts_no_threads() -> None:
    """Otherwise they are not forked."""
    code = (
        "from jarvis.server.jobs.processes import forker, job_process\n"
        "job_process.prepare(lambda: False)\n"
        "print(forker.thread_names() - forker.IDLE_THREADS)"
    )
    environment = SETTINGS | os.environ
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert found.stdout == "set()\n"
