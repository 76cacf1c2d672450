"""Report formats of other packages: on demand, and contained where they fail."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jarvis import cli, reports
from jarvis.reports import Reporter, load_formats, load_reporters, write_reports
from jarvis.run import Run
from tests.extensions.conftest import Point
from tests.reports.conftest import Analyzed


class Slides(Reporter):
    name = "deck"
    suffix = ".txt"

    def render(self, run: Run, out: Path) -> None:
        out.write_text(f"{len(run.results)} analyses", encoding="utf-8")


class Raising(Slides):
    def render(self, run: Run, out: Path) -> None:
        out.write_text("half", encoding="utf-8")
        raise SystemExit("no more slides")


class Silent(Slides):
    def render(self, run: Run, out: Path) -> None:
        """Write nothing."""


Install = Callable[..., None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs report formats by name, for the length of a test."""

    def installed(**formats: object) -> None:
        points = [Point(name, value) for name, value in formats.items()]
        monkeypatch.setattr(
            reports, "entry_points", lambda group: points if group == "jarvis.reports" else []
        )
        load_formats.cache_clear()

    yield installed
    load_formats.cache_clear()


def test_a_format_of_a_package_is_written_on_demand(
    install: Install, sample: Analyzed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(slides=Slides())
    out = tmp_path / "slides.txt"
    words = ["export", str(sample.root), "--format", "slides", "--output", str(out), "--json"]
    assert cli.main(words) == 0
    assert json.loads(capsys.readouterr().out) == {"format": "slides", "output": str(out)}
    assert out.read_text(encoding="utf-8") == f"{len(sample.run.results)} analyses"


def test_run_directories_do_not_get_it(install: Install, sample: Analyzed, tmp_path: Path) -> None:
    install(slides=Slides())
    assert "slides" in load_reporters()
    write_reports(Run.load(sample.root), tmp_path)
    assert not list(tmp_path.rglob("*slides*"))


@pytest.mark.parametrize(
    ("format_", "sentence"),
    [
        (Raising(), "'slides' of another package failed: SystemExit: no more slides. Contact its"),
        (Silent(), "'slides' of another package failed: FileNotFoundError: it wrote nothing"),
        (ImportError("no such thing"), "(it could not be loaded: ImportError: no such thing)"),
        (5, "(it could not be loaded: RegistrationError: theirs:slides is not a Reporter"),
    ],
)
def test_one_that_fails_is_a_sentence_and_leaves_nothing(
    install: Install,
    sample: Analyzed,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    format_: object,
    sentence: str,
) -> None:
    install(slides=format_)
    out = tmp_path / "slides.txt"
    words = ["export", str(sample.root), "--format", "slides", "--output", str(out)]
    assert cli.main(words) == 1
    (output,) = capsys.readouterr().err.splitlines()
    assert sentence in output
    assert list(tmp_path.iterdir()) == []


def test_the_name_of_one_of_ours_stays_ours(install: Install) -> None:
    ours = load_reporters()["fair"]
    install(fair=Slides(), slides=Slides())
    assert type(load_reporters()["fair"]) is type(ours)
    assert load_formats().failures == {
        "fair": "RegistrationError: another format already has this name"
    }
    assert "slides" in load_reporters()
