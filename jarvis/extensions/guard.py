"""Third-party formulas, wrapped so that their errors do not abort a report."""

import math
from ast import literal_eval
from collections.abc import Mapping
from dataclasses import replace
from numbers import Real
from typing import Any

import orjson

from jarvis.core.extension_log import Log, reason_of
from jarvis.perf_models import (
    Formula,
    NoModelForCallError,
    OpCost,
    OpSignature,
    Registry,
    UnexpectedArgumentsError,
)

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
    def price(op: OpSignature) -> OpCost:
        try:
            return _checked(formula(op))
        except NoModelForCallError:
            raise
        except (Exception, SystemExit) as error:
            reason = reason_of(error, source)
            log.fault(f"{kind} of `{op.name}`", reason)
            raise UnexpectedArgumentsError(reason) from error

    return price


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
