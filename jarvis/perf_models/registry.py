"""Registry of perf models: op name -> op category, and a formula for FLOPs and bytes."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from jarvis.core.errors import JarvisError, RegistrationError

PREFIX_MARK = "*"  # suffix of a registered name that matches every name with that prefix

_FAMILY = re.compile(r"[\w .-]{0,40}")  # valid in names of sheets and files
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class OpSignature:
    """The arguments of one operator call as the profiler records them.

    ``input_dims[i]`` is the shape of argument i (``()`` for a scalar or an absent tensor, a tuple
    of shapes for a tensor list), ``input_types[i]`` its dtype name (``"c10::BFloat16"``,
    ``"Scalar"``, ``""``), ``input_strides[i]`` its strides and ``concrete_inputs[i]`` its value as
    text (``""`` where it is a tensor). ``kernel_names`` are the GPU kernels of the call by start
    time, ``annotation`` is that of the inference-engine step around the call; they are filled only
    for models that ask for them.
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
    """The cost of one call; ``None`` means unknown, never 0.

    ``flops`` and ``bytes`` are those of the report sheets. If the sheets follow a convention that
    is known to be wrong, ``exact_flops`` and ``exact_bytes`` hold the correct values, and the
    analyses use those. ``compute`` names the peak that applies, such as ``"matrix_bf16"``; ``""``
    if unit or precision is unknown. ``params`` are the parsed parameters (M, N, K, ...).
    """

    flops: float | None
    bytes: float | None
    compute: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    exact_flops: float | None = None
    exact_bytes: float | None = None

    def exact(self) -> "OpCost":
        """Return the cost with the exact values in ``flops`` and ``bytes``."""
        return replace(
            self,
            flops=self.flops if self.exact_flops is None else self.exact_flops,
            bytes=self.bytes if self.exact_bytes is None else self.exact_bytes,
        )


Formula = Callable[[OpSignature], OpCost]


class NoModelForCallError(JarvisError):
    """A formula's model does not cover this call (the op counts as not modeled)."""


class UnexpectedArgumentsError(JarvisError, ValueError):
    """A formula cannot interpret the recorded arguments (no metrics)."""


@dataclass(frozen=True, slots=True)
class PerfModel:
    """A formula with its categories and roofline sheet.

    ``category`` is ``""`` if the op's category comes from its kernels, ``sheet`` is ``""`` if no
    roofline sheet lists the op. ``is_extension`` is true for a user's own model. A formula raises
    NoModelForCallError, UnexpectedArgumentsError, or errors of arithmetic and indexing on unusual
    arguments (ArithmeticError, LookupError, TypeError, ValueError).
    """

    name: str
    category: str
    cost: Formula
    sheet: str
    backward: Formula | None = None
    backward_category: str | None = None
    needs_kernels: bool = False
    needs_annotation: bool = False
    is_extension: bool = False

    @property
    def makes_row(self) -> bool:
        """Whether a call is a report row because of this model, instead of the ops below it.

        A model without a category of its own adds costs to rows, but creates none.
        """
        return self.is_extension or bool(self.category)


_Entry = TypeVar("_Entry")


class Registry:
    """Perf models and categories by op name.

    ``BUILTIN`` holds those of Jarvis. An analysis with extension models uses
    ``BUILTIN.extended_with(...)``, so they do not affect other analyses.
    """

    def __init__(
        self, models: Iterable[PerfModel] = (), categories: Mapping[str, str] | None = None
    ) -> None:
        self._models = {model.name: model for model in models}
        self._categories = dict(categories or {})
        # Where prefixes are looked up: among all names until no more are added.
        self._prefixed_models, self._prefixed_categories = self._models, self._categories
        self._is_frozen = False

    def freeze(self) -> None:
        """Make later registrations raise RegistrationError."""
        self._is_frozen = True
        self._prefixed_models = _with_prefixes(self._models)
        self._prefixed_categories = _with_prefixes(self._categories)

    def perf_model(
        self,
        *names: str,
        category: str = "",
        sheet: str | None = None,
        backward: Formula | None = None,
        backward_category: str | None = None,
        needs_kernels: bool = False,
        needs_annotation: bool = False,
    ) -> Callable[[Formula], Formula]:
        """Register a formula for the ops ``names``.

        Args:
            names: op names; ``"triton_poi_*"`` matches every op with that prefix.
            category: fine op category (``SDPA_fwd``); default: the category of the call's kernels.
            sheet: family of the roofline sheet; default: the category without ``_fwd``/``_bwd``;
                no sheet without a category.
            backward: formula of the op's backward pass, given the *forward* signature.
            needs_kernels: fill ``OpSignature.kernel_names``.
            needs_annotation: fill ``OpSignature.annotation``.

        Raises:
            RegistrationError: a name is already registered, or a family cannot name a sheet.
        """
        optional = [text for text in (sheet, backward_category) if text is not None]
        self._check_registration(*names, category, *optional)
        family = category.removesuffix("_fwd").removesuffix("_bwd") if sheet is None else sheet
        if not _FAMILY.fullmatch(family):
            raise RegistrationError(
                f"{family!r} can name no sheet: use up to 40 letters, digits, spaces, '.', '-', '_'"
            )

        def register(cost: Formula) -> Formula:
            for name in names:
                if name in self._models:
                    raise RegistrationError(f"Perf model for {name} is registered twice.")
                self._models[name] = PerfModel(
                    name,
                    category,
                    cost,
                    family,
                    backward,
                    backward_category,
                    needs_kernels,
                    needs_annotation,
                )
            return cost

        return register

    def categorize(self, category: str, *names: str) -> None:
        """Set the category of ops without a formula, or override the category of a model.

        A name may end in ``*``, as in ``perf_model``; an exact name takes precedence.
        """
        self._check_registration(category, *names)
        for name in names:
            if name in self._categories:
                raise RegistrationError(f"Category of {name} is registered twice.")
            self._categories[name] = category

    def extended_with(self, other: "Registry") -> "Registry":
        """Return a frozen registry of both; ``other`` takes precedence for names in both."""
        own = {name: c for name, c in self._categories.items() if name not in other._models}
        extended = Registry(
            _merged(other._models, self._models).values(), _merged(other._categories, own)
        )
        extended.freeze()
        return extended

    def find_model(self, name: str) -> PerfModel | None:
        """Return the perf model of an op, or None."""
        return self._models.get(name) or _by_prefix(self._prefixed_models, name)

    def registered_category(self, name: str) -> str | None:
        """Return the category registered for this exact op name, or None."""
        category = self._categories.get(name)
        if category is None and (model := self._models.get(name)) is not None:
            category = model.category
        return category or None

    def op_category(self, name: str) -> str | None:
        """Return the category for an op's name, or None if only its kernels determine it."""
        category = self.registered_category(name) or _by_prefix(self._prefixed_categories, name)
        if category is None and (model := _by_prefix(self._prefixed_models, name)) is not None:
            category = model.category
        return category or None

    def all_models(self) -> Iterator[PerfModel]:
        """Yield every registered model, in order of registration."""
        yield from self._models.values()

    def all_categories(self) -> Mapping[str, str]:
        """Return the categories given by ``categorize``, by op name."""
        return dict(self._categories)

    def names(self) -> set[str]:
        """Return every name that has a model or a category."""
        return self._models.keys() | self._categories.keys()

    def _check_registration(self, *texts: object) -> None:
        """Raise RegistrationError if frozen, or if one of ``texts`` is not valid Unicode text."""
        if self._is_frozen:
            raise RegistrationError(
                "This registry is complete. Register your own models in a function "
                "register(registry) of an extension file."
            )
        for text in texts:
            if not isinstance(text, str):
                raise RegistrationError(
                    f"Names and categories of ops must be strings, not {type(text).__name__}."
                )
            if _SURROGATE.search(text):
                raise RegistrationError(f"{text!r} is not valid Unicode.")


BUILTIN = Registry()
"""Models and categories of Jarvis; frozen once ``jarvis.perf_models`` is imported."""

perf_model = BUILTIN.perf_model
categorize = BUILTIN.categorize
find_model = BUILTIN.find_model
registered_category = BUILTIN.registered_category
op_category = BUILTIN.op_category
all_models = BUILTIN.all_models


def _merged(first: Mapping[str, _Entry], rest: Mapping[str, _Entry]) -> dict[str, _Entry]:
    """Return both, ``first`` taking precedence; names that end in ``*`` match in this order."""
    return {**first, **{name: entry for name, entry in rest.items() if name not in first}}


def _with_prefixes(table: Mapping[str, _Entry]) -> dict[str, _Entry]:
    return {pattern: entry for pattern, entry in table.items() if pattern.endswith(PREFIX_MARK)}


def _by_prefix(table: Mapping[str, _Entry], name: str) -> _Entry | None:
    for pattern, entry in table.items():
        if pattern.endswith(PREFIX_MARK) and name.startswith(pattern.removesuffix(PREFIX_MARK)):
            return entry
    return None
