"""``results.json``: findings as data beside their sentences, and the files of earlier releases."""

import json
from pathlib import Path
from typing import Any

import pytest

from jarvis.core.errors import NotARunError, RunVersionError
from jarvis.core.workspace import RunPaths
from jarvis.findings import TEXTS, shown_evidence
from jarvis.run import Run
from jarvis.run.results import RESULTS_VERSION
from jarvis.text.messages import LITERAL, to_text
from jarvis.text.quantities import title_of


def stored(root: Path) -> Any:
    return json.loads(RunPaths(root).results.read_text(encoding="utf-8"))


def store(root: Path, content: object) -> None:
    RunPaths(root).results.write_text(json.dumps(content), encoding="utf-8")


def test_findings_are_stored_as_data_beside_their_sentences(made_once: Path) -> None:
    content = stored(made_once)
    assert content["version"] == RESULTS_VERSION
    run = Run.load(made_once)
    count = 0
    for key, result in run.results.items():
        for finding, data in zip(
            result.findings, content["analyses"][key]["findings"], strict=True
        ):
            count += 1
            for name in TEXTS:
                assert data[name] == (to_text(getattr(finding, name)) or None)
                ids = [message["id"] for message in data["messages"][name]]
                assert ids == [message.id for message in getattr(finding, name)]
            values = {q["name"]: q["value"] for q in data["quantities"]}
            assert values == shown_evidence(finding)
            labels = [
                f"{q['label']} ({q['unit']})" if q["unit"] else q["label"]
                for q in data["quantities"]
            ]
            assert list(data["evidence"]) == labels == [title_of(n) for n in finding.evidence]
    assert count >= 5


def test_a_file_of_the_last_release_opens_with_its_sentences(good_run: Path) -> None:
    analyses = stored(good_run)["analyses"]
    for result in analyses.values():
        for finding in result["findings"]:
            del finding["messages"], finding["quantities"]
            finding["issue"] = "It was slow in 2025."
    store(good_run, analyses)
    found = [f for result in Run.load(good_run).results.values() for f in result.findings]
    written = [f for result in analyses.values() for f in result["findings"]]
    assert len(found) == len(written) >= 5
    for finding, before in zip(found, written, strict=True):
        assert [message.id for message in finding.issue] == [LITERAL]
        for name in TEXTS:
            assert to_text(getattr(finding, name)) == (before[name] or "")
        assert {title_of(name): v for name, v in finding.evidence.items()} == before["evidence"]


def test_a_newer_version_is_refused(good_run: Path) -> None:
    store(good_run, {**stored(good_run), "version": RESULTS_VERSION + 1})
    with pytest.raises(RunVersionError, match=str(RESULTS_VERSION + 1)):
        Run.load(good_run)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda finding: finding.update(messages=[]),
        lambda finding: finding["messages"].update(elsewhere=[]),
        lambda finding: finding.update(messages={"title": [{"values": {}}]}),
        lambda finding: finding.update(quantities=None),
        lambda finding: finding.update(quantities=[{"name": "calls"}]),
    ],
    ids=["no object", "another field", "no id", "no quantities", "half a quantity"],
)
def test_broken_data_are_no_run(good_run: Path, spoil: Any) -> None:
    content = stored(good_run)
    spoil(content["analyses"]["gemm"]["findings"][0])
    store(good_run, content)
    with pytest.raises(NotARunError):
        Run.load(good_run)
