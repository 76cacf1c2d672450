"""Every request option is available in the CLI, API and pages, and reaches the run."""

import shlex
from dataclasses import Field, fields, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from jarvis.cli import parser
from jarvis.cli.options import request_of as request_of_command
from jarvis.cli.push import _new_analysis
from jarvis.core.request import AnalysisOptions, AnalysisRequest, public_name
from jarvis.dashboard.pages.ingest import options
from jarvis.pipeline import chosen_options
from jarvis.run import Options
from jarvis.server.database import JobKind
from jarvis.server.errors import RemoteError
from jarvis.server.http.api.analysis_views import NewAnalysis
from jarvis.server.ingest.remote_runs import RemoteRun, _script, check_run
from jarvis.server.jobs.kinds import Analyze, Request, request_of
from jarvis.server.jobs.kinds.analyses import Remote
from jarvis.server.jobs.kinds.fetches import Fetch
from jarvis.server.settings import Target
from jarvis.server.submission import Submission

OPTIONS = fields(AnalysisOptions)
SAMPLES: dict[Any, Any] = {str: "some text", float: 62.5, int: 3, bool: True, Path: Path("/a/b.py")}


def sample(option: "Field[Any]") -> Any:
    """Return a value that is not the default."""
    if option.name == "category_targets":
        return "gemm=70"
    return next(value for kind, value in SAMPLES.items() if kind.__name__ in str(option.type))


def flag(option: "Field[Any]") -> str:
    value, name = sample(option), public_name(option.name).replace("_", "-")
    return f"--{name}" if value is True else f"--{name}={value}"


EVERYTHING = AnalysisOptions(**{option.name: sample(option) for option in OPTIONS})


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JARVIS_INGEST_HOSTS", "traces.example.org")
    monkeypatch.setenv("JARVIS_TARGETS__LAB__HOST", "lab.example.org")


@pytest.mark.parametrize("option", fields(AnalysisRequest), ids=lambda option: option.name)
def test_the_command_line_offers_it(option: "Field[Any]") -> None:
    arguments = parser().parse_args(["analyze", "trace.json", flag(option)])
    expected = AnalysisRequest(**{option.name: sample(option)})
    assert request_of_command(arguments, AnalysisRequest) == expected


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_push_asks_the_api_for_it(option: "Field[Any]") -> None:
    arguments = parser().parse_args(["push", "t.json", "--server=http://server", flag(option)])
    asked = _new_analysis(arguments, "a1b2")
    assert asked[public_name(option.name)] == sample(option)
    made = TypeAdapter(NewAnalysis).validate_python(asked)
    assert getattr(made, option.name) == sample(option)


def test_a_command_without_options_sends_none_to_an_older_server() -> None:
    arguments = parser().parse_args(["push", "trace.json", "--server=http://server"])
    assert _new_analysis(arguments, "a1b2") == {"upload": "a1b2", "visibility": "team"}


@pytest.mark.parametrize("name", ["extension_file", "gpu_arch_json_path", "capture_folder"])
def test_the_api_rejects_files_of_the_server(name: str) -> None:
    assert name in {public_name(option.name) for option in fields(AnalysisRequest)}
    with pytest.raises(ValueError, match=name):
        TypeAdapter(NewAnalysis).validate_python({"path": "t.json", name: "mine.py"})


def test_other_files_of_a_request_are_uploads_in_the_api() -> None:
    """Their ids are strings; `tests/server/api/test_api.py` rejects paths in their place."""
    files = {option.name for option in fields(AnalysisRequest) if "Path" in str(option.type)}
    assert files == {"extension_file", "arch_json", "capture_folder", "served_model"}


def test_the_page_has_a_control_for_each() -> None:
    named = {option.name for option in options.OPTIONS}
    assert named | set(options._OTHER_CONTROLS) == {option.name for option in OPTIONS}
    assert not named & set(options._OTHER_CONTROLS)
    assert {option.type for option in options.OPTIONS} <= {float, str | None}


@pytest.mark.parametrize(
    "request_",
    [
        Analyze(Submission.of(EVERYTHING, trace=Path("/data/t.json"))),
        Fetch("https://traces.example.org/t.json", EVERYTHING),
        Remote(RemoteRun.of(replace(EVERYTHING, reference=None), target="lab", path="/t.json")),
    ],
    ids=lambda request: type(request).__name__,
)
def test_a_job_restores_all_options_from_the_queue(request_: Request, tmp_path: Path) -> None:
    if isinstance(request_, Analyze):
        trace = tmp_path / "t.json"
        trace.touch()
        request_ = Analyze(replace(request_.submission, trace=trace))
    new = request_.new_job()
    assert request_of(new.kind, new.parameters) == request_


def test_a_fetched_trace_is_analyzed_with_all_options(tmp_path: Path) -> None:
    analysis = Fetch("https://traces.example.org/t.json", EVERYTHING)._analysis(tmp_path)
    assert AnalysisOptions.of(analysis.submission) == EVERYTHING


def test_remote_requests_contain_all_options() -> None:
    asked = RemoteRun.of(replace(EVERYTHING, reference=None), target="lab", path="/t.json")
    check_run(asked)
    script = _script(Target(host="lab.example.org"), asked)
    words = next(line for line in script.splitlines() if line.startswith("jarvis analyze"))
    arguments = parser().parse_args(shlex.split(words.partition(" <")[0])[1:])
    assert AnalysisOptions.of(request_of_command(arguments, AnalysisRequest)) == replace(
        EVERYTHING, reference=None
    )


def test_another_machine_has_no_analyses_of_this_one() -> None:
    with pytest.raises(RemoteError, match="compare both when the run is done"):
        check_run(RemoteRun("lab", "/t.json", reference="abc"))


def test_the_run_stores_all_options() -> None:
    stored = chosen_options(AnalysisRequest.of(EVERYTHING))
    assert AnalysisOptions.of(stored) == EVERYTHING
    adapter = TypeAdapter(Options)
    assert adapter.validate_python(adapter.dump_python(stored, mode="json")) == stored


QUEUED: dict[JobKind, tuple[dict[str, Any], Request]] = {
    JobKind.ANALYZE: (
        {
            "submission": {
                "trace": "/data/t.json",
                "platform": "MI300X",
                "preset": None,
                "model_name": "Tiny",
                "reference": "abc",
                "copy_to": "/data/copy",
                "extension_file": "/data/mine.py",
                "arch_json": None,
                "target_pct": 65.0,
            },
            "reference_trace": None,
            "is_again": True,
        },
        Analyze(
            Submission(
                Path("/data/t.json"),
                platform="MI300X",
                model_name="Tiny",
                reference="abc",
                copy_to=Path("/data/copy"),
                extension_file=Path("/data/mine.py"),
                target_pct=65.0,
            ),
            is_again=True,
        ),
    ),
    JobKind.FETCH: (
        {
            "url": "https://traces.example.org/t.json",
            "wishes": {
                "platform": "MI300X",
                "preset": "achievable",
                "model_name": None,
                "reference": None,
                "target_pct": 80.0,
            },
            "is_again": False,
        },
        Fetch(
            "https://traces.example.org/t.json",
            AnalysisOptions(platform="MI300X", preset="achievable"),
        ),
    ),
    JobKind.REMOTE: (
        {
            "run_asked": {
                "target": "lab",
                "path": "/t.json",
                "platform": None,
                "preset": None,
                "model_name": "Tiny",
                "target_pct": 62.5,
            }
        },
        Remote(RemoteRun("lab", "/t.json", model_name="Tiny", target_pct=62.5)),
    ),
}
"""Rows of the queue as written by the release before ``AnalysisRequest``."""


@pytest.mark.parametrize("kind", QUEUED)
def test_jobs_of_the_previous_release_are_read(kind: JobKind) -> None:
    parameters, request = QUEUED[kind]
    assert request_of(kind, parameters) == request


@pytest.mark.parametrize("kind", QUEUED)
def test_the_previous_release_can_read_new_jobs(kind: JobKind) -> None:
    """Servers of a cluster are not upgraded at the same time."""
    parameters, request = QUEUED[kind]
    written = TypeAdapter(type(request)).dump_python(request, mode="json")

    def is_in(old: Any, new: Any) -> bool:
        if isinstance(old, dict):
            return all(name in new and is_in(value, new[name]) for name, value in old.items())
        return bool(old == new)

    assert is_in(parameters, written)
