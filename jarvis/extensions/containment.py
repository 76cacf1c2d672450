"""Third-party analyses, wrapped so that their errors do not abort a report."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import wraps
from typing import Any

import orjson
import polars as pl
from pydantic import JsonValue

from jarvis.analyses.base import Analysis, CategoryData, Check, Classify, Measure
from jarvis.core.extension_log import reason_of
from jarvis.findings import Finding, with_literal_messages
from jarvis.text.messages import to_text


class ExtensionFaultError(Exception):
    """A function of an extension failed; the runner records it as the error of its analysis."""


def sandboxed_analysis(analysis: Analysis, key: str, source: str) -> Analysis:
    """Return the analysis ``key`` of the file ``source`` with its functions wrapped.

    Their errors name the line of the file, and their return values are validated.
    """
    return replace(
        analysis,
        checks=tuple(_check(check, key, source) for check in analysis.checks),
        specific=tuple(_check(check, key, source) for check in analysis.specific),
        classify=analysis.classify and _classify(analysis.classify, source),
        measure=analysis.measure and _measure(analysis.measure, source),
        prepare=analysis.prepare and _measure(analysis.prepare, source),
    )


def _called(call: Callable[..., Any], source: str, *arguments: object) -> Any:
    try:
        return call(*arguments)
    except (Exception, SystemExit) as error:
        raise ExtensionFaultError(reason_of(error, source)) from error


def _check(check: Check, key: str, source: str) -> Check:
    @wraps(check)
    def sandboxed_check(data: CategoryData) -> Iterator[Finding]:
        findings = _called(lambda: list(check(data)), source)
        uids = set(data.operations["uid"])
        for finding in findings:
            _called(_check_finding, source, finding, key, uids)
        yield from map(
            with_literal_messages, findings
        )  # pages without the extension render them too

    return sandboxed_check


def _check_finding(finding: object, key: str, uids: set[int]) -> None:
    """Raise TypeError or ValueError if pages and reports cannot render a finding."""
    if not isinstance(finding, Finding):
        raise TypeError(f"a check yielded {type(finding).__name__}, not a Finding")
    finding.model_dump_json()  # a text that cannot be encoded
    if finding.category != key:
        raise ValueError(
            f"the finding {to_text(finding.title)!r} has the category {finding.category!r} "
            f"instead of {key!r}"
        )
    foreign = {row.uid for row in finding.operations} - uids
    if foreign and uids:
        raise ValueError(
            f"the finding {to_text(finding.title)!r} is about operations of other categories"
        )


def _classify(classify: Classify, source: str) -> Classify:
    @wraps(classify)
    def sandboxed_classify(rows: pl.DataFrame, compute_units: int | None) -> pl.DataFrame:
        found = _called(classify, source, rows, compute_units)
        fitting: pl.DataFrame = _called(_with_new_columns, source, rows, found)
        return fitting

    return sandboxed_classify


def _with_new_columns(rows: pl.DataFrame, found: object) -> pl.DataFrame:
    """Return ``rows`` with the new columns of ``found``."""
    if not isinstance(found, pl.DataFrame):
        raise TypeError(f"classify returned {type(found).__name__}, not a DataFrame")
    if "uid" not in found.columns or not rows["uid"].equals(found["uid"]):
        raise ValueError("classify did not return its input rows in their order")
    new = found.select(pl.exclude(rows.columns))
    for column in new.iter_columns():
        if column.dtype == pl.Object:
            raise TypeError(f"classify added the column {column.name!r} of Python objects")
    return rows.hstack(new.get_columns())


def _measure(measure: Measure, source: str) -> Measure:
    @wraps(measure)
    def sandboxed_measure(data: CategoryData) -> dict[str, JsonValue]:
        found = _called(measure, source, data)
        read: dict[str, JsonValue] = _called(_as_json, source, found)
        return read

    return sandboxed_measure


def _as_json(found: object) -> object:
    if not isinstance(found, dict):
        raise TypeError(f"a measure returned {type(found).__name__}, not a dict")
    return orjson.loads(orjson.dumps(found))
