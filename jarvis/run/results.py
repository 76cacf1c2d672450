"""``results.json``: the results of a run as data, with their sentences.

The file is an object of ``version`` and ``analyses``, the results by key. A finding has its
sentences, their ``messages`` (ids of templates and values) and its ``quantities``. Before version 2
the file was only the object of results, with sentences and labels.
"""

from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue, TypeAdapter
from pydantic_core import from_json, to_json

from jarvis.core.errors import NotARunError, RunVersionError
from jarvis.findings import AnalysisResult, result_data

RESULTS_VERSION = 2

FORMER_CHECK = "no_perf_model"
"""A check of earlier releases; trace health now reports time without a perf model."""

_RESULTS = TypeAdapter(dict[str, AnalysisResult])


def results_data(results: Mapping[str, AnalysisResult]) -> dict[str, JsonValue]:
    """Return the results by key as JSON."""
    return {key: result_data(result) for key, result in results.items()}


def results_json(results: Mapping[str, AnalysisResult]) -> bytes:
    """Return the content of ``results.json``."""
    content = {"version": RESULTS_VERSION, "analyses": results_data(results)}
    return to_json(content, indent=2, inf_nan_mode="null")


def read_results(path: Path, root: Path) -> dict[str, AnalysisResult]:
    """Read the results of the run ``root`` from its ``results.json``, of any version.

    Raises:
        NotARunError: The file is missing, or holds something else.
        RunVersionError: A newer version of Jarvis wrote it.
    """
    try:
        analyses = stored_analyses(from_json(path.read_bytes(), allow_inf_nan=False))
        results = _RESULTS.validate_python(analyses)
    except (OSError, ValueError) as error:
        raise NotARunError(root) from error
    return {key: _without_former(result) for key, result in results.items()}


def _without_former(result: AnalysisResult) -> AnalysisResult:
    findings = tuple(f for f in result.findings if f.check != FORMER_CHECK)
    if len(findings) == len(result.findings):
        return result
    return result.model_copy(update={"findings": findings})


def stored_analyses(content: object) -> object:
    """Return the results by key of a parsed ``results.json`` of any version.

    Raises:
        RunVersionError: A newer version of Jarvis wrote it.
    """
    if not isinstance(content, Mapping) or not isinstance(content.get("version"), int):
        return content
    if content["version"] > RESULTS_VERSION:
        raise RunVersionError(content["version"], RESULTS_VERSION)
    return content.get("analyses")
