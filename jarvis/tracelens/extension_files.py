"""Extension files that were written for TraceLens: their dicts and classes become ours."""

from collections.abc import Callable, Mapping
from typing import Any

from jarvis.core.errors import RegistrationError
from jarvis.core.extension_log import Log
from jarvis.perf_models import Formula, NoModelForCallError, OpCost, OpSignature, Registry

MODELS, CATEGORIES = "perf_model_extension", "op_category_extension"
_NEEDS_TREE = "works on TraceLens's call tree, which Jarvis does not have, and is left out"
_LEFT_OUT = {
    "tree_postprocess_extension": _NEEDS_TREE,
    "get_additional_dataframes_extension": _NEEDS_TREE,
}
_WITHOUT_EFFECT = "dict_cat2names_extension"

HOOKS = (MODELS, CATEGORIES, *_LEFT_OUT, _WITHOUT_EFFECT)
"""What TraceLens looks for in an extension file."""


def adopt(content: Mapping[str, Any], registry: Registry, source: str, log: Log) -> None:
    """Register what the hooks among the names of a module give; ``log`` has what cannot be used."""
    for op, model in _entries(content, MODELS, source, log):
        _try(log, f"{MODELS} of {source}, `{op}`", _add_model, registry, op, model)
    for op, category in _entries(content, CATEGORIES, source, log):
        _try(log, f"{CATEGORIES} of {source}, `{op}`", registry.categorize, category, op)
    for hook, reason in _LEFT_OUT.items():
        if hook in content:
            log.failures.append(f"{hook} of {source} {reason}.")
    if _WITHOUT_EFFECT in content:
        log.notes.append(
            f"{_WITHOUT_EFFECT} of {source} has no effect: the category of a model says it."
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
        log.failures.append(f"{what}: {error} It is left out.")


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
    """What the methods ``flops`` and ``moved`` (bytes) of a new ``model`` say about a call."""

    def cost(op: OpSignature) -> OpCost:
        event = _event(op)
        try:
            if not getattr(model, "can_model", _always)(event):
                raise NoModelForCallError(op.name)
            found = model(event)
            return OpCost(
                flops=getattr(found, flops)(),
                bytes=getattr(found, moved)(),
                compute=_compute(found),
                params=found.param_details,
            )
        except NotImplementedError as error:
            raise NoModelForCallError(op.name) from error

    return cost


def _always(_: object) -> bool:
    return True


def _compute(found: Any) -> str:
    unit, precision = (
        getattr(found, name, lambda: None)() for name in ("get_maf_type", "get_compute_precision")
    )
    return f"{unit}_{precision}" if unit and precision else ""


def _event(op: OpSignature) -> dict[str, Any]:
    """The call as the trace has it. A formula runs once for all calls alike, so it has no UID."""
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
