"""Analysis of a trace on the machine that has it: ``jarvis analyze`` by ssh.

The returned archive is untrusted, like an upload, and user input is quoted for each shell. The
remote run ends when its stdin is closed, because the job was cancelled or this machine is down.
"""

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from time import monotonic

from jarvis.core.request import AnalysisOptions
from jarvis.pipeline import STEPS, Progress, Step
from jarvis.pipeline.steps import step_of_line
from jarvis.run import SCHEMA_VERSION
from jarvis.server.errors import RemoteError
from jarvis.server.ingest.ssh_session import OutputLimitError, SshSession
from jarvis.server.settings import PREFIX, Target, settings
from jarvis.text.markdown import short_line
from jarvis.trace import ReadProgress

SSH_FAILED = 255
NOT_RUNNABLE, NOT_FOUND = 126, 127
USAGE = 2
KILLED = 128


_SSH = (
    (
        ("REMOTE HOST IDENTIFICATION HAS CHANGED",),
        "has another host key than in known_hosts: the machine was reinstalled, or the connection "
        "is intercepted. Nothing was sent. Verify the key with the machine's admin, then update "
        "known_hosts on this server.",
    ),
    (
        ("Host key verification failed",),
        "has an unknown host key. Connect once by ssh as the user of this server, and verify the "
        "key.",
    ),
    (
        ("Permission denied", "Too many authentication failures"),
        "rejected this server's key. Authorize the key there.",
    ),
    (
        (
            "Could not resolve",
            "Connection refused",
            "timed out",
            "No route to host",
            "unreachable",
        ),
        "cannot be reached by ssh. Check that it is running, and its name in the settings.",
    ),
)
"""Messages by substrings of ssh's stderr; the first match applies."""

_NO_CONTAINER = ("No such container", "is not running", "no container with name")
_NOT_IN_CONTAINER = ("executable file not found", "no such file or directory")
_FROM_JARVIS = "jarvis: "


def reason_of(name: str, target: Target, code: int, stderr: tuple[str, ...]) -> str:
    """Return why a run on the machine ``name`` failed, and what to do.

    Args:
        code: exit code of ssh.
        stderr: last lines of stderr; untrusted.
    """
    text = "\n".join(stderr)
    if code == SSH_FAILED:
        for signs, reason in _SSH:
            if any(sign in text for sign in signs):
                return f"{name} {reason}"
        return f"The connection to {name} was lost{_quoted(stderr)}. Retry the job."
    if target.container and any(sign in text for sign in _NO_CONTAINER):
        return (
            f"No container {target.container} is running on {name}. Start it there, or correct "
            "its name in the settings."
        )
    if code in (NOT_RUNNABLE, NOT_FOUND):
        return _missing(name, target, text)
    message = next((line for line in reversed(stderr) if line.startswith(_FROM_JARVIS)), None)
    if code == USAGE:
        return f"Jarvis on {name} is too old for these options. Update it there."
    if message is not None:
        return f"On {name}: {message.removeprefix(_FROM_JARVIS)}"
    if code > KILLED:
        return (
            f"The run on {name} was killed (signal {code - KILLED}), perhaps because the machine "
            "ran out of memory. Retry the job."
        )
    return f"The run on {name} failed with exit code {code}{_quoted(stderr)}. See the log."


def _missing(name: str, target: Target, text: str) -> str:
    runner = target.container_command[0] if target.container_command else ""
    is_runner = target.container and f"{runner}:" in text and "not found" in text
    if is_runner and not any(sign in text for sign in _NOT_IN_CONTAINER):
        return (
            f"{name} has no program {runner}, which is needed for the container. Install it "
            "there, or correct the settings."
        )
    where = f"in the container {target.container} on {name}" if target.container else f"on {name}"
    return (
        f"Jarvis is not installed {where}: {target.command[0]} was not found. Install it there, "
        "or set its command in the settings."
    )


def _quoted(stderr: tuple[str, ...]) -> str:
    return f" ({stderr[-1]})" if stderr else ""


CONNECT_STEP, RETURN_STEP = "Connect to the machine", "Copy the analysis back"
TARGETS_VARIABLE = f"{PREFIX}TARGETS"

_OPTIONS = {
    "BatchMode": "yes",
    "ConnectTimeout": "10",
    "ServerAliveInterval": "15",
    "ServerAliveCountMax": "4",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "ClearAllForwardings": "yes",
}
"""ssh options: never prompt for a password; give up on a silent machine after a minute."""

_MAX_ANSWER_BYTES = 1 << 20
_ANSWER_S = 60.0
_MAX_PATH_LENGTH = 4_000
_VERSION = re.compile(r"jarvis (\S{1,40}), layout (\d{1,6})")
_MAX_STEPS = 50
_MAX_NAME_LENGTH = 80
_MAX_BYTES = 1 << 62
_MAX_SECONDS = 1e7

_SCRIPT = """\
work=
folder=$(mktemp -d) || exit 1
trap '[ -z "$work" ] || kill -9 "$work"; rm -rf "$folder"' EXIT
trap 'exit 143' HUP INT TERM
trap : PIPE
exec 3<&0
{analyze} --output-dir "$folder/run" </dev/null >/dev/null 3<&- &
work=$!
(read -r _; kill "$work"; sleep 2; kill -9 "$work") <&3 >/dev/null 2>&1 3<&- &
watch=$!
exec 3<&-
wait "$work"
code=$?
work=
kill "$watch" 2>/dev/null
[ "$code" = 0 ] || exit "$code"
{save} "$folder/run" --output "$folder/run.zip" >/dev/null || exit 1
cat "$folder/run.zip"
"""
"""Script for the remote shell. Nothing is sent to its stdin, so ``read`` returns when the
connection closes: processes in a container outlive the program that started them, but see the end
of stdin. The trap of PIPE lets the shell clean up after the connection is lost."""

_REALPATH = 'realpath -- "$@" 2>/dev/null || :'
"""Prints fewer lines than arguments if one is missing."""


@dataclass(frozen=True, slots=True)
class RemoteRun(AnalysisOptions):
    """Options of an analysis on another machine, with the path of the trace there."""

    target: str
    path: str


def target_named(name: str) -> Target:
    """Return a machine of the settings; raise RemoteError if it is unknown."""
    targets = settings().targets
    if name not in targets:
        raise RemoteError(
            f"There is no machine {name[:80]!r} to analyze on. Choose one that is listed in "
            f"{TARGETS_VARIABLE}."
        )
    return targets[name]


def check_path(path: str) -> None:
    """Raise RemoteError unless a path is absolute and printable."""
    is_path = path.startswith("/") and path.isprintable() and len(path) <= _MAX_PATH_LENGTH
    if not is_path:
        raise RemoteError("Give the absolute path of the trace on that machine.")


def check_run(run: RemoteRun) -> None:
    """Raise RemoteError for an unknown machine, an invalid path or option, or a reference."""
    target_named(run.target)
    check_path(run.path)
    if run.reference is not None:
        raise RemoteError(
            "A run on another machine cannot use a reference analysis of this server. Remove the "
            "reference, and compare both when the run is done."
        )
    values = [value for value in run.chosen().values() if isinstance(value, str)]
    if not all(len(value) <= _MAX_PATH_LENGTH and value.isprintable() for value in values):
        raise RemoteError("Give names without line breaks and control characters.")


def run_remote(run: RemoteRun, out: Path, progress: Progress) -> None:
    """Analyze a trace on another machine, and write the archive of the analysis to ``out``.

    Raises:
        RemoteError: the machine cannot be reached, has no compatible Jarvis, or cannot analyze the
            trace; the message says what to do.
    """
    check_run(run)
    machine = _Machine(run.target, target_named(run.target))
    total = len(STEPS) + 2
    connecting = Step(CONNECT_STEP, 1, total, "started")
    begin = monotonic()
    progress(connecting)
    machine.check_version()
    path = machine.allowed_path(run.path)
    progress(replace(connecting, state="done", elapsed_s=monotonic() - begin))
    steps = _RemoteSteps(progress, total)
    with out.open("wb") as file:

        def write(piece: bytes) -> None:
            steps.receiving(file.tell() + len(piece))
            file.write(piece)

        machine.execute(
            ["sh", "-c", _script(machine.target, replace(run, path=path))],
            write,
            steps.parse_line,
            int(settings().max_upload_gb * 1e9),
        )
    steps.received(out.stat().st_size)


def _script(target: Target, run: RemoteRun) -> str:
    options = [f"--{name.replace('_', '-')}={value}" for name, value in run.chosen().items()]
    analyze = [*target.command, "analyze", "--progress=json", *options, run.path]
    return _SCRIPT.format(
        analyze=shlex.join(analyze), save=shlex.join([*target.command, "archive", "save"])
    )


@dataclass(frozen=True, slots=True)
class _Machine:
    name: str
    target: Target

    def check_version(self) -> None:
        """Raise RemoteError if the analyses of the remote Jarvis cannot be read here."""
        version = _VERSION.search(self.output([*self.target.command, "--version"]))
        if version is None or int(version[2]) < SCHEMA_VERSION:
            raise RemoteError(
                f"Jarvis on {self.name} is older than on this server, which cannot read its "
                "results. Update it there."
            )
        if int(version[2]) > SCHEMA_VERSION:
            raise RemoteError(
                f"Jarvis on {self.name} is newer ({version[1]}) than on this server, which cannot "
                "read its results. Update Jarvis on this server."
            )

    def allowed_path(self, path: str) -> str:
        """Return the path with links resolved; raise RemoteError if it leaves the allowed roots."""
        roots = self.target.roots
        if not roots:
            return path
        lines = self.output(["sh", "-c", _REALPATH, "sh", path, *roots]).splitlines()
        resolved, folders = PurePosixPath(lines[0] if lines else ""), lines[1:]
        if len(folders) != len(roots) or not any(map(resolved.is_relative_to, folders)):
            raise RemoteError(
                f"There is no {short_line(path)} in the allowed folders of "
                f"{self.name} ({', '.join(roots)}). Check the path."
            )
        return str(resolved)

    def output(self, command: Sequence[str]) -> str:
        """Run a short command and return its stdout."""
        stdout = bytearray()
        self.execute(command, stdout.extend, lambda _: False, _MAX_ANSWER_BYTES, _ANSWER_S)
        return stdout.decode(errors="replace")

    def execute(
        self,
        command: Sequence[str],
        on_output: Callable[[bytes], object],
        is_step: Callable[[str], bool],
        max_bytes: int,
        timeout_s: float | None = None,
    ) -> None:
        """Run a command; pass stdout to ``on_output`` and log the stderr that is no step."""
        target = self.target
        inside = [*target.container_command, target.container] if target.container else []
        options = [f"-o{name}={value}" for name, value in _OPTIONS.items()]
        line = shlex.join([*inside, *command])
        ssh = [*target.ssh, *options, "-T", "--", target.host, line]
        try:
            result = SshSession(ssh, max_bytes, timeout_s).run(on_output, is_step)
        except OutputLimitError as error:
            raise RemoteError(
                f"{self.name} sent more than {max_bytes / 1e9:g} GB, so the transfer was stopped."
            ) from error
        except TimeoutError as error:
            raise RemoteError(f"{self.name} does not answer. Check the machine.") from error
        if result.code != 0:
            raise RemoteError(reason_of(self.name, target, result.code, result.stderr))


class _RemoteSteps:
    """Reports remote steps as steps of this job, between connecting and copying the result."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0
        self._receiving: tuple[Step, float] | None = None

    def parse_line(self, text: str) -> bool:
        """Report a line of stderr, which is untrusted, if it is a step; return whether it is."""
        step = step_of_line(text)
        if step is None or not 1 <= step.number <= step.total <= _MAX_STEPS:
            return False
        if step.state == "done":
            self._done += 1
        if self._done <= _MAX_STEPS and self._receiving is None:
            self._total = step.total + 2
            self._progress(
                replace(
                    step,
                    name=short_line(step.name, _MAX_NAME_LENGTH),
                    number=step.number + 1,
                    total=self._total,
                    elapsed_s=_bounded(step.elapsed_s, _MAX_SECONDS),
                    reading=_sane(step.reading),
                )
            )
        return True

    def receiving(self, size_bytes: int) -> None:
        """Report the number of received bytes."""
        if self._receiving is None:
            step = Step(RETURN_STEP, self._total, self._total, "started")
            self._receiving = step, monotonic()
            self._progress(step)
        step, _ = self._receiving
        self._progress(replace(step, state="running", reading=ReadProgress(size_bytes, 0, 0)))

    def received(self, size_bytes: int) -> None:
        """Report the end of the transfer."""
        self.receiving(size_bytes)
        if self._receiving is not None:
            step, begin = self._receiving
            self._progress(replace(step, state="done", elapsed_s=monotonic() - begin))


def _sane(reading: ReadProgress | None) -> ReadProgress | None:
    if reading is None:
        return None
    done, total = (
        min(max(0, size), _MAX_BYTES) for size in (reading.bytes_done, reading.bytes_total)
    )
    return ReadProgress(min(done, total), total, 0)


def _bounded(number: float | None, maximum: float) -> float | None:
    return None if number is None or not 0 <= number <= maximum else number
