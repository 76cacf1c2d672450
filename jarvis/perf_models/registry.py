"""The registry of perf models: op name -> op category, and a formula for FLOPs and bytes."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from jarvis.errors import JarvisError, RegistrationError

PREFIX_MARK = "*"  # a registered name that ends in it stands for every name that begins so


@dataclass(frozen=True, slots=True)
class OpSignature:
    """The arguments of one operator call as the profiler records them.

    ``input_dims[i]`` is the shape of argument i (``()`` for a scalar or an absent tensor, a tuple
    of shapes for a tensor list), ``input_types[i]`` its dtype name (``"c10::BFloat16"``,
    ``"Scalar"``, ``""``), ``input_strides[i]`` its strides and ``concrete_inputs[i]`` its value as
    text (``""`` where it is a tensor). ``kernel_names`` are the GPU kernels of the call by start
    time; they are filled only for models that ask for them.
    """

    name: str
    input_dims: tuple[Any, ...] = ()
    input_types: tuple[str, ...] = ()
    input_strides: tuple[Any, ...] = ()
    concrete_inputs: tuple[str, ...] = ()
    annotation: str | None = None
    kernel_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OpCost:
    """What one call costs; ``None`` means not known, never 0.

    ``flops`` and ``bytes`` are those of the report sheets. Where the sheets follow a convention
    that is known to be off, ``exact_flops`` and ``exact_bytes`` hold the right values, and the
    analyses use those. ``compute`` names the peak that applies, such as ``"matrix_bf16"``;
    ``""`` where unit or precision is unknown. ``params`` are the parsed parameters (M, N, K, ...).
    """

    flops: float | None
    bytes: float | None
    compute: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    exact_flops: float | None = None
    exact_bytes: float | None = None

    def exact(self) -> "OpCost":
        """The same cost with the right values in ``flops`` and ``bytes``."""
        return replace(
            self,
            flops=self.flops if self.exact_flops is None else self.exact_flops,
            bytes=self.bytes if self.exact_bytes is None else self.exact_bytes,
        )


Formula = Callable[[OpSignature], OpCost]


class NoModelForCallError(JarvisError):
    """Raised by a formula whose model does not cover this call (the op counts as not modelled)."""


class UnexpectedArgumentsError(JarvisError, ValueError):
    """Raised by a formula that cannot make sense of the recorded arguments (no metrics)."""


@dataclass(frozen=True, slots=True)
class PerfModel:
    """One formula with its place in the report.

    ``category`` is ``""`` where the op's category comes from its kernels, ``sheet`` is ``""`` where
    no roofline sheet lists the op. ``tracelens`` is false for the models that TraceLens lacks. A
    formula raises NoModelForCallError, UnexpectedArgumentsError, or what odd arguments make of
    arithmetic and indexing (ArithmeticError, LookupError, TypeError, ValueError).
    """

    name: str
    category: str
    cost: Formula
    sheet: str
    backward: Formula | None = None
    backward_category: str | None = None
    needs_kernels: bool = False
    tracelens: bool = True


_Entry = TypeVar("_Entry")

_models: dict[str, PerfModel] = {}
_categories: dict[str, str] = {}


def perf_model(
    *names: str,
    category: str,
    sheet: str | None = None,
    backward: Formula | None = None,
    backward_category: str | None = None,
    needs_kernels: bool = False,
    tracelens: bool = True,
) -> Callable[[Formula], Formula]:
    """Register a formula for the ops ``names``; ``"triton_poi_*"`` means every op that begins so.

    ``category`` is the fine op category (``SDPA_fwd``), ``sheet`` the family of the roofline sheet
    (default: the category without ``_fwd``/``_bwd``), ``backward`` the formula of the op's backward
    pass given the *forward* signature. A name registered twice raises RegistrationError.
    """
    family = category.removesuffix("_fwd").removesuffix("_bwd") if sheet is None else sheet

    def register(cost: Formula) -> Formula:
        for name in names:
            if name in _models:
                raise RegistrationError(f"Perf model for {name} is registered twice.")
            _models[name] = PerfModel(
                name, category, cost, family, backward, backward_category, needs_kernels, tracelens
            )
        return cost

    return register


def categorize(category: str, *names: str) -> None:
    """Give ops a category without a formula, or override the category of a model.

    A name may end in ``*``, as in ``perf_model``; an exact name goes before it.
    """
    for name in names:
        if name in _categories:
            raise RegistrationError(f"Category of {name} is registered twice.")
        _categories[name] = category


def find_model(name: str, tracelens_only: bool = False) -> PerfModel | None:
    """The perf model of an op name, or None; with ``tracelens_only`` none that TraceLens lacks."""
    model = _models.get(name) or _by_prefix(_models, name)
    if model is not None and tracelens_only and not model.tracelens:
        return None
    return model


def registered_category(name: str) -> str | None:
    """The category that the registry gives this exact op name, or None."""
    category = _categories.get(name)
    if category is None and (model := _models.get(name)) is not None:
        category = model.category
    return category or None


def op_category(name: str) -> str | None:
    """The category that an op's name tells, or None where only its kernels can."""
    return registered_category(name) or _by_prefix(_categories, name)


def all_models() -> Iterator[PerfModel]:
    """Every registered model, in order of registration."""
    yield from _models.values()


def _by_prefix(table: Mapping[str, _Entry], name: str) -> _Entry | None:
    for pattern, entry in table.items():
        if pattern.endswith(PREFIX_MARK) and name.startswith(pattern.removesuffix(PREFIX_MARK)):
            return entry
    return None
