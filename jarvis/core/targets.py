"""Target efficiencies: one for an analysis, and those of categories with their own."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Self

from jarvis.core.errors import TargetsError
from jarvis.core.request import DEFAULT_TARGET_PCT, PERCENTAGE

_ITEM = re.compile(r"\s*(?P<key>[a-z][a-z0-9_]*)\s*=\s*(?P<pct>\d+(?:\.\d+)?)\s*%?\s*")


@dataclass(frozen=True, slots=True)
class Targets:
    """The efficiency that savings are projected to, in percent of the roofline.

    ``own`` are the categories with a target of their own, sorted by key; ``pct`` is that of all
    other operations, and of chains of operations of several categories.
    """

    pct: float = DEFAULT_TARGET_PCT
    own: tuple[tuple[str, float], ...] = ()

    @classmethod
    def of(cls, pct: float, own: Mapping[str, float]) -> Self:
        """Return targets; a category whose target is that of the analysis has none of its own."""
        return cls(pct, tuple(sorted((key, each) for key, each in own.items() if each != pct)))

    @classmethod
    def parse(cls, pct: float, text: str) -> Self:
        """Return targets from the option ``category_targets``, for example "gemm=70,reduce=60".

        Raises:
            TargetsError: The text has another form, or a percentage is not above 0 and at most 100.
        """
        own = {}
        for item in filter(str.strip, text.split(",")):
            found = _ITEM.fullmatch(item)
            each = float(found["pct"]) if found else 0.0
            if not found or not PERCENTAGE["gt"] < each <= PERCENTAGE["le"]:
                raise TargetsError(
                    f"{item.strip()!r} is not a category and its target, as in gemm=70"
                )
            own[found["key"]] = each
        return cls.of(pct, own)

    def check(self, categories: Collection[str]) -> None:
        """Raise TargetsError if a category with its own target is not one of ``categories``."""
        if unknown := [key for key, _ in self.own if key not in categories]:
            raise TargetsError(
                f"no category is named {', '.join(unknown)}; there are {', '.join(categories)}"
            )

    def of_category(self, key: str | None) -> float:
        """Return the target of a category's operations."""
        return dict(self.own).get(key or "", self.pct)

    @property
    def all(self) -> frozenset[float]:
        """Return all targets."""
        return frozenset({self.pct, *dict(self.own).values()})

    @property
    def own_text(self) -> str:
        """Return the targets of categories as ``parse`` reads them; empty if there are none."""
        return ",".join(f"{key}={pct:g}" for key, pct in self.own)
