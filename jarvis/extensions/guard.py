"""Run functions of extensions so that their errors and invalid results do not end a report."""

import math
from ast import literal_eval
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import wraps
from numbers import Real
from typing import Any

import orjson
import polars as pl
from pydantic import JsonValue

from jarvis.analyses.base import Analysis, CategoryData, Check, Classify, Measure
from jarvis.core.extension_log import Log, reason_of
from jarvis.findings import Finding, with_literal_messages
from jarvis.perf_models import (
    Formula,
    NoModelForCallError,
    OpCost,
    OpSignature,
    Registry,
    UnexpectedArgumentsError,
)
from jarvis.schemas.names import C
from jarvis.text.messages import to_text


class ExtensionFaultError(Exception):
    """A function of an extension failed; the runner records it as the error of its analysis."""


def sandboxed_analysis(analysis: Analysis, key: str, source: str) -> Analysis:
    """Return the analysis ``key`` of the file ``source`` with its functions wrapped.

    Their errors name the line of the file, and their return values are validated.
    """
    return replace(
        analysis,
        checks=tuple(_sandboxed_check(check, key, source) for check in analysis.checks),
        specific=tuple(_sandboxed_check(check, key, source) for check in analysis.specific),
        classify=analysis.classify and _sandboxed_classify(analysis.classify, source),
        measure=analysis.measure and _sandboxed_measure(analysis.measure, source),
        prepare=analysis.prepare and _sandboxed_measure(analysis.prepare, source),
    )


def _called(call: Callable[..., Any], source: str, *arguments: object) -> Any:
    try:
        return call(*arguments)
    except (Exception, SystemExit) as error:
        raise ExtensionFaultError(reason_of(error, source)) from error


def _sandboxed_check(check: Check, key: str, source: str) -> Check:
    @wraps(check)
    def sandboxed_check(data: CategoryData) -> Iterator[Finding]:
        findings = _called(lambda: list(check(data)), source)
        uids = set(data.operations[C.uid])
        for finding in findings:
            _called(_check_finding, source, finding, key, uids)
        # Stored runs are also rendered without the extension, which has the message templates.
        yield from map(with_literal_messages, findings)

    return sandboxed_check


def _check_finding(finding: object, key: str, uids: set[int]) -> None:
    """Raise TypeError or ValueError if pages and reports cannot render a finding."""
    if not isinstance(finding, Finding):
        raise TypeError(f"a check yielded {type(finding).__name__}, not a Finding")
    finding.model_dump_json()  # raises for text that cannot be encoded
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


def _sandboxed_classify(classify: Classify, source: str) -> Classify:
    @wraps(classify)
    def sandboxed_classify(rows: pl.DataFrame, compute_units: int | None) -> pl.DataFrame:
        found = _called(classify, source, rows, compute_units)
        classified: pl.DataFrame = _called(_with_new_columns, source, rows, found)
        return classified

    return sandboxed_classify


def _with_new_columns(rows: pl.DataFrame, found: object) -> pl.DataFrame:
    """Return ``rows`` with the new columns of ``found``."""
    if not isinstance(found, pl.DataFrame):
        raise TypeError(f"classify returned {type(found).__name__}, not a DataFrame")
    if C.uid not in found.columns or not rows[C.uid].equals(found[C.uid]):
        raise ValueError("classify did not return its input rows in their order")
    new = found.select(pl.exclude(rows.columns))
    for column in new.iter_columns():
        if column.dtype == pl.Object:
            raise TypeError(f"classify added the column {column.name!r} of Python objects")
    return rows.hstack(new.get_columns())


def _sandboxed_measure(measure: Measure, source: str) -> Measure:
    @wraps(measure)
    def sandboxed_measure(data: CategoryData) -> dict[str, JsonValue]:
        found = _called(measure, source, data)
        measured: dict[str, JsonValue] = _called(_as_json, source, found)
        return measured

    return sandboxed_measure


def _as_json(found: object) -> object:
    if not isinstance(found, dict):
        raise TypeError(f"a measure returned {type(found).__name__}, not a dict")
    return orjson.loads(orjson.dumps(found))


_INT64 = range(-(2**63), 2**63)


def sandboxed_registry(registry: Registry, source: str, log: Log) -> Registry:
    """Return the registry marked as an extension, with formulas whose errors are logged.

    ``log`` records the errors and their lines in ``source``.
    """
    models = [
        replace(
            model,
            is_extension=True,
            cost=_sandboxed_formula(model.cost, "perf model", source, log),
            backward=model.backward
            and _sandboxed_formula(model.backward, "backward perf model", source, log),
        )
        for model in registry.all_models()
    ]
    return Registry(models, registry.all_categories())


def _sandboxed_formula(formula: Formula, kind: str, source: str, log: Log) -> Formula:
    def cost(op: OpSignature) -> OpCost:
        try:
            return _checked(formula(op))
        except NoModelForCallError:
            raise
        except (Exception, SystemExit) as error:
            reason = reason_of(error, source)
            log.fault(f"{kind} of `{op.name}`", reason)
            raise UnexpectedArgumentsError(reason) from error

    return cost


def _checked(cost: object) -> OpCost:
    """Return the cost as plain numbers and texts; raise TypeError or ValueError if it is
    invalid."""
    if not isinstance(cost, OpCost):
        raise TypeError(f"the formula returned {type(cost).__name__}, not an OpCost")
    if not isinstance(cost.compute, str):
        raise TypeError(f"compute is {cost.compute!r}, not a text")
    cost.compute.encode()  # raises UnicodeEncodeError for text that tables cannot store
    if not isinstance(cost.params, Mapping):
        raise TypeError(f"the parameters are {type(cost.params).__name__}, not a dict")
    params = {str(name): _literal(value) for name, value in cost.params.items()}
    orjson.dumps(params)  # the tables store them as JSON, the sheets as Python text
    literal_eval(repr(params))
    return OpCost(
        flops=_quantity("FLOPs", cost.flops),
        bytes=_quantity("bytes", cost.bytes),
        compute=cost.compute,
        params=params,
        exact_flops=_quantity("exact FLOPs", cost.exact_flops),
        exact_bytes=_quantity("exact bytes", cost.exact_bytes),
    )


def _quantity(what: str, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{what} are {value!r}, not a number")
    number = float(value)
    if not (number >= 0 and math.isfinite(number)):
        raise ValueError(f"{what} are {number}, not a finite number of at least 0")
    return number


def _literal(value: Any) -> Any:
    """Return ``value`` if its Python text can be parsed back, else its text."""
    if value is None or isinstance(value, bool):
        return value
    if type(value) is int and value in _INT64:
        return value
    if type(value) is float and math.isfinite(value):
        return value
    if type(value) in (list, tuple):
        return type(value)(_literal(item) for item in value)
    if type(value) is dict:
        return {str(name): _literal(item) for name, item in value.items()}
    return str(value)
