"""Output options that name special files: written to, never replaced."""

import json
import os
import stat
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import openpyxl
import pytest

from jarvis import cli
from jarvis.cli.atomic_output import atomic_output
from jarvis.pipeline import analyze
from tests.builders import trace


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small trace; its analysis is in the folder ``run`` beside it."""
    folder = tmp_path_factory.mktemp("source")
    built = trace(device="AMD Instinct MI300X")
    built.op("aten::mm", [[4096, 4096], [4096, 4096]]).launches("gemm", us=900)
    path = built.write(folder / "trace.json")
    analyze(path, output_dir=folder / "run")
    return path


def json_export(content: bytes) -> bool:
    return "manifest" in json.loads(content)


def html(content: bytes) -> bool:
    return content.rstrip().endswith(b"</html>")


def workbook(content: bytes) -> bool:
    return bool(openpyxl.load_workbook(BytesIO(content)).sheetnames)


def archive(content: bytes) -> bool:
    return bool(zipfile.ZipFile(BytesIO(content)).namelist())


def sample(content: bytes) -> bool:
    return len(content) > 1000


COMMANDS: dict[str, tuple[list[str], Callable[[bytes], bool]]] = {
    "export json": (["export", "{run}", "--output", "{out}"], json_export),
    "export html": (["export", "{run}", "--format", "html", "-o", "{out}"], html),
    "archive": (["archive", "save", "{run}", "--output", "{out}"], archive),
    "sample": (["sample", "--scale", "tiny", "--steps", "1", "-o", "{out}"], sample),
    "report": (["report", "{trace}", "--output_xlsx_path", "{out}"], workbook),
    "compare": (["compare", "{run}", "{run}", "--names", "a", "b", "-o", "{out}"], workbook),
    "collectives": (
        ["collectives", "{trace}", "--rank-by-order", "--output-xlsx-path", "{out}"],
        workbook,
    ),
    "replay": (["replay", "{run}", "--op", "aten::mm", "-o", "{out}"], archive),
}
"""A call of each command that writes one file, and whether bytes are such a file."""

FOLDERS: dict[str, list[str]] = {
    "analyze": ["analyze", "{trace}", "--output-dir", "{out}"],
    "reproject": ["reproject", "{run}", "--platform", "H100 SXM", "--output-dir", "{out}"],
    "export csv": ["export", "{run}", "--format", "csv", "-o", "{out}"],
    "report csv": ["report", "{trace}", "--output_csvs_dir", "{out}"],
    "report parquet": ["report", "{trace}", "--output_parquet_dir", "{out}"],
    "collectives csv": ["collectives", "{trace}", "--rank-by-order", "--output-csvs-dir", "{out}"],
    "steps": ["steps", "{trace}", "--output-dir", "{out}"],
    "compare csv": ["compare", "{run}", "{run}", "--output_csvs_dir", "{out}", "-o", "{out}.xlsx"],
    "compare folder": ["compare", "{run}", "{run}", "--output-dir", "{out}"],
}
"""A call of each command that writes a folder."""


def filled(command: list[str], source: Path, out: Path | str) -> list[str]:
    places = {"trace": source, "run": source.parent / "run", "out": out}
    return [part.format(**places) for part in command]


def test_every_output_option_is_called_here() -> None:
    called = {command[0] for command, _ in COMMANDS.values()} | {c[0] for c in FOLDERS.values()}
    (commands,) = (a for a in cli.parser()._actions if a.dest == "==SUPPRESS==" and a.choices)
    writing = set()
    for name, command in dict(commands.choices or {}).items():
        options = {option for action in command._actions for option in action.option_strings}
        if any(option.startswith("--output") for option in options):
            writing.add(name)
    assert writing | {"archive"} == called


@pytest.mark.parametrize("name", COMMANDS)
def test_a_fifo_is_written_to(name: str, source: Path, tmp_path: Path) -> None:
    command, is_right = COMMANDS[name]
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(fifo.read_bytes()), daemon=True)
    reader.start()
    assert cli.main(filled(command, source, fifo)) == 0
    reader.join(120)
    assert is_right(got[0])
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    assert list(tmp_path.iterdir()) == [fifo]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_symlink_stays_and_its_target_is_replaced(
    name: str, source: Path, tmp_path: Path
) -> None:
    command, is_right = COMMANDS[name]
    target, link = tmp_path / "there" / "target", tmp_path / "link"
    target.parent.mkdir()
    target.write_text("old")
    link.symlink_to(Path("there") / "target")
    assert cli.main(filled(command, source, link)) == 0
    assert link.readlink() == Path("there") / "target"
    assert is_right(target.read_bytes())
    assert sorted(tmp_path.rglob("*")) == [link, target.parent, target]


def test_a_symlink_to_nothing_makes_its_target(source: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "new")
    assert cli.main(filled(COMMANDS["export json"][0], source, link)) == 0
    assert link.is_symlink()
    assert json_export((tmp_path / "new").read_bytes())


@pytest.mark.parametrize("name", COMMANDS)
def test_a_device_is_written_to(name: str, source: Path, tmp_path: Path) -> None:
    device = tmp_path / "null"
    device.symlink_to("/dev/null")
    before = Path("/dev/null").stat()
    assert cli.main(filled(COMMANDS[name][0], source, device)) == 0
    after = Path("/dev/null").stat()
    assert stat.S_ISCHR(after.st_mode)
    assert (after.st_ino, after.st_rdev) == (before.st_ino, before.st_rdev)
    assert list(tmp_path.iterdir()) == [device]


def printed(source: Path, out: str, *more: str, **options: object) -> tuple[bytes, bytes]:
    """Return stdout and stderr of an export in a separate process, which must succeed."""
    command = filled(COMMANDS["export json"][0], source, out)
    done = subprocess.run(
        [sys.executable, "-m", "jarvis.cli", *command, *more],
        **{"stdout": subprocess.PIPE, **options},  # type: ignore[call-overload]
        stderr=subprocess.PIPE,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.parametrize("out", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_stdout_gets_only_the_file(source: Path, out: str) -> None:
    written, output = printed(source, out)
    assert json_export(written)
    assert output.decode().strip() == out


def test_with_json_the_result_goes_to_stderr(source: Path) -> None:
    written, output = printed(source, "/dev/stdout", "--json")
    assert json_export(written)
    assert json.loads(output)["output"] == "/dev/stdout"


def test_stdout_that_is_a_file_keeps_what_is_in_it(source: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"before\n")
    inode = log.stat().st_ino
    with log.open("ab") as lines:
        printed(source, "/dev/stdout", stdout=lines)
        lines.write(b"after\n")
    content = log.read_bytes()
    assert log.stat().st_ino == inode
    assert content.startswith(b"before\n")
    assert content.endswith(b"after\n")
    assert json_export(content.removeprefix(b"before\n").removesuffix(b"after\n"))


@pytest.mark.parametrize("name", FOLDERS)
def test_a_linked_folder_stays_linked(name: str, source: Path, tmp_path: Path) -> None:
    link, target = tmp_path / "link", tmp_path / "on" / "disk"
    target.mkdir(parents=True)
    link.symlink_to(target)
    assert cli.main(filled(FOLDERS[name], source, link)) == 0
    assert link.readlink() == target
    assert [path.name for path in target.parent.iterdir()] == ["disk"]
    assert list(target.iterdir())


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_a_folder_does_not_replace_what_is_no_folder(
    name: str, kind: str, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "place"
    if kind == "fifo":
        os.mkfifo(place)
    else:
        place.symlink_to("/dev/null")
    before = place.lstat()
    assert cli.main(filled(FOLDERS[name], source, place)) != 0
    assert (place.lstat().st_mode, place.lstat().st_ino) == (before.st_mode, before.st_ino)
    assert str(place) in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} <= {"place", "place.xlsx"}


def test_a_file_does_not_replace_a_folder(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(filled(COMMANDS["export json"][0], source, tmp_path)) != 0
    assert f"jarvis: {tmp_path}: Is a directory." in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_files_of_a_folder_keep_links_and_fifos(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "folder", tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "linked").symlink_to(elsewhere)
    (folder / "null").symlink_to("/dev/null")
    with atomic_output(folder) as place:
        place.mkdir()
        for name in ("linked", "null", "plain"):
            (place / name).write_text("new")
    assert elsewhere.read_text() == "new"
    assert (folder / "linked").readlink() == elsewhere
    assert (folder / "null").readlink() == Path("/dev/null")
    assert (folder / "plain").read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "folder"]


def test_a_full_device_is_an_error(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(filled(COMMANDS["export json"][0], source, "/dev/full")) != 0
    assert "No space left on device" in capsys.readouterr().err
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)


def test_a_failed_command_leaves_and_replaces_nothing(tmp_path: Path) -> None:
    link, target = tmp_path / "link", tmp_path / "target"
    target.write_text("old")
    link.symlink_to(target)

    def write_half() -> None:
        with atomic_output(link) as place:
            place.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert target.read_text() == "old"
    assert sorted(tmp_path.iterdir()) == [link, target]
