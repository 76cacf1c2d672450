"""Import extension files written for TraceLens: register their models and categories."""

from collections.abc import Callable, Mapping
from typing import Any

from jarvis.core.errors import RegistrationError
from jarvis.core.extension_log import Log
from jarvis.perf_models import Formula, NoModelForCallError, OpCost, OpSignature, Registry

MODELS, CATEGORIES = "perf_model_extension", "op_category_extension"
_NEEDS_TREE = "needs TraceLens's call tree, which Jarvis does not have, and is ignored"
_IGNORED = {
    "tree_postprocess_extension": _NEEDS_TREE,
    "get_additional_dataframes_extension": _NEEDS_TREE,
}
_WITHOUT_EFFECT = "dict_cat2names_extension"

HOOKS = (MODELS, CATEGORIES, *_IGNORED, _WITHOUT_EFFECT)
"""Names that TraceLens reads from an extension file."""


def register_hooks(content: Mapping[str, Any], registry: Registry, source: str, log: Log) -> None:
    """Register the models and categories of a module; record unusable entries in ``log``.

    Args:
        content: Names of the module.
        source: File name, for messages.
    """
    for op, model in _entries(content, MODELS, source, log):
        _try(log, f"{MODELS} of {source}, `{op}`", _add_model, registry, op, model)
    for op, category in _entries(content, CATEGORIES, source, log):
        _try(log, f"{CATEGORIES} of {source}, `{op}`", registry.categorize, category, op)
    for hook, reason in _IGNORED.items():
        if hook in content:
            log.failures.append(f"{hook} of {source} {reason}.")
    if _WITHOUT_EFFECT in content:
        log.notes.append(
            f"{_WITHOUT_EFFECT} of {source} has no effect: models define their own category."
        )


def _entries(content: Mapping[str, Any], hook: str, source: str, log: Log) -> list[tuple[Any, Any]]:
    entries = content.get(hook, {})
    if isinstance(entries, Mapping):
        return list(entries.items())
    log.failures.append(f"{hook} of {source} is {type(entries).__name__}, not a dict.")
    return []


def _try(log: Log, what: str, add: Callable[..., None], *arguments: Any) -> None:
    try:
        add(*arguments)
    except RegistrationError as error:
        log.failures.append(f"{what}: {error} It is ignored.")


def _add_model(registry: Registry, op: str, model: Any) -> None:
    if not isinstance(model, type):
        raise RegistrationError(f"A class was expected, not {type(model).__name__}.")
    category = getattr(model, "category", None)
    if category is None:
        raise RegistrationError(f"The class {model.__name__} has no category.")
    registry.perf_model(
        op,
        category=category,
        sheet=getattr(model, "sheet_category", None),
        backward=_formula(model, "flops_bwd", "bytes_bwd") if hasattr(model, "flops_bwd") else None,
        backward_category=getattr(model, "bwd_category", None),
    )(_formula(model, "flops", "bytes"))


def _formula(model: Any, flops: str, moved: str) -> Formula:
    """Return a formula that calls the methods ``flops`` and ``moved`` (bytes) of a ``model``."""

    def cost(op: OpSignature) -> OpCost:
        event = _event(op)
        try:
            if not getattr(model, "can_model", _always)(event):
                raise NoModelForCallError(op.name)
            instance = model(event)
            return OpCost(
                flops=getattr(instance, flops)(),
                bytes=getattr(instance, moved)(),
                compute=_compute(instance),
                params=instance.param_details,
            )
        except NotImplementedError as error:
            raise NoModelForCallError(op.name) from error

    return cost


def _always(_: object) -> bool:
    return True


def _compute(model: Any) -> str:
    unit, precision = (
        getattr(model, name, lambda: None)() for name in ("get_maf_type", "get_compute_precision")
    )
    return f"{unit}_{precision}" if unit and precision else ""


def _event(op: OpSignature) -> dict[str, Any]:
    """Return the call as a trace event, without UID: a formula runs once for equal calls."""
    arguments = {
        "Input Dims": op.input_dims,
        "Input type": op.input_types,
        "Input Strides": op.input_strides,
        "Concrete Inputs": op.concrete_inputs,
    }
    lists = {name: _nested_list(value) for name, value in arguments.items()}
    return {"name": op.name, "cat": "cpu_op", "UID": None, "args": lists}


def _nested_list(value: Any) -> Any:
    return [_nested_list(item) for item in value] if isinstance(value, tuple) else value
