"""A trace is analyzed where it lies: ``jarvis analyze`` on another machine, by ssh.

What comes back from there is as little trusted as an upload, and what a user types for it is quoted
for every shell on the way. The run there ends when its input does: then the job was cancelled, or
this machine is gone.
"""

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from time import monotonic

from jarvis.core.request import AnalysisOptions
from jarvis.pipeline import STEPS, Progress, Step
from jarvis.pipeline.step_lines import step_of_line
from jarvis.run import SCHEMA_VERSION
from jarvis.server.ingest.remote_errors import RemoteError, reason_of
from jarvis.server.ingest.ssh_session import Conversation, TooMuchSentError
from jarvis.server.settings import PREFIX, Target, settings
from jarvis.text.markdown import one_line, shortened
from jarvis.trace import ReadProgress

CONNECT_STEP, RETURN_STEP = "Connect to the machine", "Bring the analysis back"
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
"""Nobody is there to type a password; a machine that falls silent is given up after a minute."""

_ANSWER_BYTES = 1 << 20
_ANSWER_S = 60.0
_LONGEST_PATH = 4_000
_VERSION = re.compile(r"jarvis (\S{1,40}), layout (\d{1,6})")
_MOST_STEPS = 50
_LONGEST_NAME = 80
_MOST_BYTES = 1 << 62
_MOST_SECONDS = 1e7

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
"""What the machine's shell does. Nothing is ever sent to it, so ``read`` ends with the connection:
a container's processes outlive the program that started them there, but see their input end. A
shell whose words nobody hears any more must live on to clear away."""

_REALPATH = 'realpath -- "$@" 2>/dev/null || :'
"""Prints less than a line for each where one is missing: what is outside is not looked for."""


@dataclass(frozen=True, slots=True)
class RemoteRun(AnalysisOptions):
    """The options of an analysis, with the machine and the path of the trace there."""

    target: str
    path: str


def target_named(name: str) -> Target:
    """A machine of the settings; RemoteError where it is none."""
    targets = settings().targets
    if name not in targets:
        raise RemoteError(
            f"There is no machine {name[:80]!r} to analyze on. Choose one that stands in "
            f"{TARGETS_VARIABLE}."
        )
    return targets[name]


def check_path(path: str) -> None:
    """Refuse what cannot be the path of a trace on another machine."""
    is_path = path.startswith("/") and path.isprintable() and len(path) <= _LONGEST_PATH
    if not is_path:
        raise RemoteError("Give the whole path of the trace on that machine, from / on.")


def check_asked(asked: RemoteRun) -> None:
    """Refuse what cannot be asked for: an unknown machine, no path, names that are no text."""
    target_named(asked.target)
    check_path(asked.path)
    if asked.reference is not None:
        raise RemoteError(
            "A trace that is analyzed on another machine cannot be compared with an analysis of "
            "this one. Leave the reference out, and compare both when it is here."
        )
    names = [value for value in asked.chosen().values() if isinstance(value, str)]
    if not all(len(name) <= _LONGEST_PATH and name.isprintable() for name in names):
        raise RemoteError("Give names without line breaks and control characters.")


def run_remote(asked: RemoteRun, out: Path, progress: Progress) -> None:
    """Analyze a trace on another machine, and write the archive of the analysis to ``out``.

    Raises RemoteError, with what to do, where the machine cannot be reached, has no Jarvis that
    suits ours, or cannot analyze the trace.
    """
    check_asked(asked)
    machine = _Machine(asked.target, target_named(asked.target))
    total = len(STEPS) + 2
    connecting = Step(CONNECT_STEP, 1, total, "started")
    begin = monotonic()
    progress(connecting)
    machine.check_version()
    path = machine.allowed_path(asked.path)
    progress(replace(connecting, state="done", elapsed_s=monotonic() - begin))
    follower = _Follower(progress, total)
    with out.open("wb") as file:

        def keep(piece: bytes) -> None:
            follower.returning(file.tell() + len(piece))
            file.write(piece)

        most = int(settings().max_upload_gb * 1e9)
        machine.ask(
            ["sh", "-c", _script(machine.target, replace(asked, path=path))],
            keep,
            follower.line,
            most,
        )
    follower.returned(out.stat().st_size)


def _script(target: Target, asked: RemoteRun) -> str:
    given = [f"--{name.replace('_', '-')}={value}" for name, value in asked.chosen().items()]
    analyze = [*target.command, "analyze", "--progress=json", *given, asked.path]
    return _SCRIPT.format(
        analyze=shlex.join(analyze), save=shlex.join([*target.command, "archive", "save"])
    )


@dataclass(frozen=True, slots=True)
class _Machine:
    name: str
    target: Target

    def check_version(self) -> None:
        """Refuse a machine whose analyses could not be read here."""
        said = self.answer([*self.target.command, "--version"])
        found = _VERSION.search(said)
        if found is None or int(found[2]) < SCHEMA_VERSION:
            raise RemoteError(
                f"Jarvis on {self.name} is older than here, and what it makes could not be read. "
                "Update it there."
            )
        if int(found[2]) > SCHEMA_VERSION:
            raise RemoteError(
                f"Jarvis on {self.name} is newer ({found[1]}) than here, and what it makes could "
                "not be read. Update it here."
            )

    def allowed_path(self, path: str) -> str:
        """The path with links followed, once it is sure that it lies in an allowed folder."""
        roots = self.target.roots
        if not roots:
            return path
        lines = self.answer(["sh", "-c", _REALPATH, "sh", path, *roots]).splitlines()
        resolved, folders = PurePosixPath(lines[0] if lines else ""), lines[1:]
        if len(folders) != len(roots) or not any(map(resolved.is_relative_to, folders)):
            raise RemoteError(
                f"There is no {shortened(one_line(path), 200)} in the folders of {self.name} that "
                f"may be read ({', '.join(roots)}). Check the path."
            )
        return str(resolved)

    def answer(self, words: Sequence[str]) -> str:
        """What a short command prints there."""
        said = bytearray()
        self.ask(words, said.extend, lambda _: False, _ANSWER_BYTES, _ANSWER_S)
        return said.decode(errors="replace")

    def ask(
        self,
        words: Sequence[str],
        take: Callable[[bytes], object],
        is_step: Callable[[str], bool],
        most_bytes: int,
        seconds: float | None = None,
    ) -> None:
        """Run a command there; what it prints goes to ``take``, other words to the job's log."""
        target = self.target
        inside = [*target.container_command, target.container] if target.container else []
        options = [f"-o{name}={value}" for name, value in _OPTIONS.items()]
        command = [*target.ssh, *options, "-T", "--", target.host, shlex.join([*inside, *words])]
        try:
            ended = Conversation(command, most_bytes, seconds).hold(take, is_step)
        except TooMuchSentError as error:
            raise RemoteError(
                f"{self.name} sent more than {most_bytes / 1e9:g} GB, which is no analysis."
            ) from error
        except TimeoutError as error:
            raise RemoteError(f"{self.name} does not answer. Check that it is well.") from error
        if ended.code != 0:
            raise RemoteError(reason_of(self.name, target, ended.code, ended.said))


class _Follower:
    """Says the steps there as those of a job here, between the way there and the way back."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0
        self._returning: tuple[Step, float] | None = None

    def line(self, text: str) -> bool:
        """Whether a line was a step, which is passed on then; a stranger may have written it."""
        step = step_of_line(text)
        if step is None or not 1 <= step.number <= step.total <= _MOST_STEPS:
            return False
        if step.state == "done":
            self._done += 1
        if self._done <= _MOST_STEPS and self._returning is None:
            self._total = step.total + 2
            self._progress(
                replace(
                    step,
                    name=shortened(one_line(step.name), _LONGEST_NAME),
                    number=step.number + 1,
                    total=self._total,
                    elapsed_s=_bounded(step.elapsed_s, _MOST_SECONDS),
                    reading=_sane(step.reading),
                )
            )
        return True

    def returning(self, size_bytes: int) -> None:
        """So much of the analysis has come."""
        if self._returning is None:
            step = Step(RETURN_STEP, self._total, self._total, "started")
            self._returning = step, monotonic()
            self._progress(step)
        step, _ = self._returning
        self._progress(replace(step, state="running", reading=ReadProgress(size_bytes, 0, 0)))

    def returned(self, size_bytes: int) -> None:
        """All of it has come."""
        self.returning(size_bytes)
        if self._returning is not None:
            step, begin = self._returning
            self._progress(replace(step, state="done", elapsed_s=monotonic() - begin))


def _sane(reading: ReadProgress | None) -> ReadProgress | None:
    if reading is None:
        return None
    done, total = (
        min(max(0, size), _MOST_BYTES) for size in (reading.bytes_done, reading.bytes_total)
    )
    return ReadProgress(min(done, total), total, 0)


def _bounded(number: float | None, most: float) -> float | None:
    return None if number is None or not 0 <= number <= most else number
