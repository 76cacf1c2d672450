"""Rename the event categories that PyTorch wrote before 1.12 to those of today."""

import re
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from jarvis.trace.event_store import EventGroup, EventStore
from jarvis.trace.layout import ARGUMENT_KEY, CAT, NAME, STRING
from jarvis.trace.texts import used_codes

CATEGORIES = {
    "Operator": "cpu_op",
    "Python": "python_function",
    "Runtime": "cuda_runtime",
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
}
"""Category names before PyTorch 1.12, and those of today."""

ARROWS = "async"
"""The category of the arrows from launches to kernels before PyTorch 1.12."""

ARGUMENTS = {"Input dims": "Input Dims", "external id": "External id"}
"""Names of arguments that were spelled differently."""

ANNOTATION = re.compile(r"#|^[^:]* ")
"""Names of annotations, which were recorded as operators. The name of an operator has no ``#``, and
no space before a colon; annotations without both look like operators."""


def rename_old_categories(store: EventStore) -> None:
    """Rename old categories and their arguments in place; keep those of today.

    Annotations of the host become ``user_annotation`` unless the trace has that category.
    """
    found = set(store.categories())
    renamed = {old: new for old, new in CATEGORIES.items() if old in found and new not in found}
    if not renamed.keys() & {"Operator", "Kernel", "Runtime"}:
        return
    if ARROWS in found and "ac2g" not in found:
        renamed[ARROWS] = "ac2g"
    for old, new in renamed.items():
        group = store.take(old)
        _rename_arguments(store, group, ARGUMENTS)
        if old == "Operator" and "user_annotation" not in found:
            is_annotation = _is_annotation(store, group)
            _put(store, "user_annotation", group.rows(is_annotation))
            group = group.rows(~is_annotation)
        _put(store, new, group)


def _put(store: EventStore, category: str, group: EventGroup) -> None:
    code = store.texts.intern(category.encode(), STRING)
    group.codes[CAT][:] = [np.full(group.height, code, np.int32)]
    store.put(category, group)


def _rename_arguments(store: EventStore, group: EventGroup, names: Mapping[str, str]) -> None:
    for code in list(group.pairs):
        key, in_arguments = store.texts.key(code)
        if in_arguments and key in names:
            new = store.texts.intern(names[key].encode(), ARGUMENT_KEY)
            group.pairs.setdefault(new, group.pairs.pop(code))


def _is_annotation(store: EventStore, group: EventGroup) -> NDArray[np.bool_]:
    codes = group.text(NAME)
    distinct = used_codes(codes, len(store.texts))
    names = store.texts.values(distinct, store.repairs)
    annotations = [
        code
        for code, name in zip(distinct, names, strict=True)
        if isinstance(name, str) and ANNOTATION.search(name)
    ]
    return np.isin(codes, annotations)
