"""Perf models: FLOPs and bytes of one operator call, computed from its recorded arguments.

Every module of this folder is imported, so a new formula needs no registration elsewhere.
"""

import pkgutil
from importlib import import_module

from jarvis.perf_models.registry import (
    BUILTIN,
    Formula,
    NoModelForCallError,
    OpCost,
    OpSignature,
    PerfModel,
    Registry,
    UnexpectedArgumentsError,
    all_models,
    categorize,
    find_model,
    op_category,
    perf_model,
    registered_category,
)

for _module in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
BUILTIN.freeze()

__all__ = [
    "BUILTIN",
    "Formula",
    "NoModelForCallError",
    "OpCost",
    "OpSignature",
    "PerfModel",
    "Registry",
    "UnexpectedArgumentsError",
    "all_models",
    "categorize",
    "find_model",
    "op_category",
    "perf_model",
    "registered_category",
]
