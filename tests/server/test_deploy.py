"""Files in docs/deploy/ use existing programs, options and settings."""

import configparser
import json
import os
import shlex
import sqlite3
import subprocess
import tarfile
from pathlib import Path

import pytest
from sqlalchemy import Engine

from jarvis import cli
from jarvis.server.access.login import check_login
from jarvis.server.http.web.lifespan import AFTER_REQUESTS_S
from jarvis.server.http.web.metrics import REGISTRY, QueueFigures, figure_families
from jarvis.server.settings import settings
from jarvis.server.settings_shown import unknown_variables

DEPLOY = Path(__file__).parents[2] / "docs" / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))


class _Unit(configparser.RawConfigParser):
    """A unit; of a line that comes again all values are kept."""

    def optionxform(self, optionstr: str) -> str:
        """Names as they are written."""
        return optionstr

    def __init__(self, path: Path) -> None:
        super().__init__(strict=False, interpolation=None, delimiters=("=",))
        self.read(path, encoding="utf-8")
        lines = path.read_text(encoding="utf-8").splitlines()
        self.environment = [
            line.partition("=")[2] for line in lines if line.startswith("Environment=")
        ]


def _is_understood(command: list[str]) -> bool:
    """Whether the program takes these arguments."""
    program = Path(command[0]).name
    if program == "backup.sh":
        return (DEPLOY / program).is_file() and len(command) == 2
    assert program == "jarvis"
    return callable(cli.parser().parse_args(command[1:]).run)


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_the_commands_of_a_unit_are_understood(path: Path) -> None:
    service = _Unit(path)["Service"]
    for key in ("ExecStartPre", "ExecStart"):
        if key in service:
            assert _is_understood(shlex.split(service[key].replace("%i", "8501")))


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_the_variables_of_a_unit_are_settings(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = unknown_variables()
    for pair in _Unit(path).environment:
        monkeypatch.setenv(*pair.split("=", 1))
    assert unknown_variables() == before


@pytest.mark.parametrize("name", ["jarvis@.service", "jarvis-worker.service"])
def test_a_unit_waits_for_the_end_and_leaves_jobs_to_the_server(name: str) -> None:
    service = _Unit(DEPLOY / name)["Service"]
    assert service["KillMode"] == "mixed"
    assert int(service["TimeoutStopSec"]) > settings().stop_seconds + AFTER_REQUESTS_S


def test_the_command_of_the_container_is_understood() -> None:
    (last,) = (
        line
        for line in (DEPLOY / "Containerfile").read_text(encoding="utf-8").splitlines()
        if line.startswith("CMD ")
    )
    assert _is_understood(["jarvis", *json.loads(last.removeprefix("CMD "))])


def test_the_settings_of_a_team_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JARVIS_CONFIG", str(DEPLOY / "jarvis.toml"))
    monkeypatch.setenv("JARVIS_OIDC__CLIENT_SECRET", "s" * 40)
    monkeypatch.setenv("JARVIS_OIDC__COOKIE_SECRET", "c" * 40)
    check_login(settings())
    assert settings().public_url == "https://jarvis.example.org"


def test_the_guide_names_every_file_and_every_figure() -> None:
    guide = (DEPLOY.parent / "how-to" / "operate.md").read_text(encoding="utf-8")
    assert [path.name for path in DEPLOY.iterdir() if f"../deploy/{path.name})" not in guide] == []
    queue = figure_families(QueueFigures({}, 0, {}, 0, 0))
    figures = {family.name for family in (*REGISTRY.collect(), *queue)}
    ours = {name for name in figures if name.startswith("jarvis_")}
    assert len(ours) > 8
    assert [name for name in ours if f"`{name}" not in guide] == []


@pytest.mark.parametrize("path", sorted(DEPLOY.iterdir()), ids=lambda path: path.name)
def test_every_file_says_first_how_it_was_tested(path: Path) -> None:
    head = "\n".join(path.read_text(encoding="utf-8").splitlines()[:7]).lower()
    assert "tested" in head


def _backup(home: Path, to: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"JARVIS_HOME": str(home)} | variables
    command = ["bash", str(DEPLOY / "backup.sh"), str(to)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_the_backup_holds_database_and_files(engine: Engine, home: Path, tmp_path: Path) -> None:
    (home / "traces").mkdir()
    (home / "traces" / "t.json").write_text("{}")
    (home / "cache").mkdir()
    done = _backup(home, tmp_path / "to")
    assert done.returncode == 0, done.stderr
    made = Path(done.stdout.strip())
    with tarfile.open(made / "home.tar.gz") as files:
        names = files.getnames()
    assert "./traces/t.json" in names
    assert not [name for name in names if "jarvis.db" in name or "cache" in name]
    with sqlite3.connect(made / "jarvis.db") as copy:
        assert copy.execute("SELECT count(*) FROM jobs").fetchone() == (0,)
    assert [path.name for path in (tmp_path / "to").iterdir()] == [made.name]


@pytest.mark.usefixtures("engine")
def test_old_backups_go_and_others_folders_stay(home: Path, tmp_path: Path) -> None:
    for name in ("2020-01-01T000000Z", "2021-01-01T000000Z", "mine"):
        (tmp_path / "to" / name).mkdir(parents=True)
    done = _backup(home, tmp_path / "to", BACKUPS_KEPT="2")
    left = sorted(path.name for path in (tmp_path / "to").iterdir())
    assert left == ["2021-01-01T000000Z", Path(done.stdout.strip()).name, "mine"]


def test_without_a_database_there_is_no_backup(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    done = _backup(tmp_path / "home", tmp_path / "to")
    assert done.returncode == 1
    assert "there is no database" in done.stderr
    assert list((tmp_path / "to").iterdir()) == []
