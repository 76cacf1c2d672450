"""Options of an analysis, shared by the command line, the API, the pages and the pipeline.

To add an option, add a field to ``AnalysisOptions``. The commands, the API, the ingest page, jobs
and ssh targets derive it from the field's name, type and metadata; the run stores it.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from jarvis.core.errors import TargetsError

DEFAULT_TARGET_PCT = 80.0
PERCENTAGE: dict[str, Any] = {"gt": 0.0, "le": 100.0, "allow_inf_nan": False}
"""Constraints of a percentage above 0, as Pydantic names them."""

_PUBLIC_NAMES = {
    "model_name": "model",
    "arch_json": "gpu_arch_json_path",
    "served_model": "model_config",
}


def _described(title: str, description: str, **constraints: Any) -> dict[str, Any]:
    """Return the metadata of an option for Pydantic, the commands and the page."""
    return {"title": title, "description": description, **constraints}


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisOptions:
    """Options of an analysis that every client may set.

    ``reference`` is the id of another analysis, or the path of its run directory.
    """

    platform: str | None = field(
        default=None,
        metadata=_described(
            "Platform",
            "GPU whose peaks are used, as `jarvis hardware` lists it; by default the trace's own",
        ),
    )
    preset: str | None = field(
        default=None,
        metadata=_described("Preset", "which figures of that GPU; by default its first"),
    )
    model_name: str | None = field(
        default=None, metadata=_described("Model name", "name of the model, for the titles")
    )
    reference: str | None = field(
        default=None, metadata=_described("Reference", "id of an analysis to compare with")
    )
    target_pct: float = field(
        default=DEFAULT_TARGET_PCT,
        metadata=_described(
            "Target efficiency",
            "target efficiency that savings are projected to, in percent of the roofline",
            **PERCENTAGE,
        ),
    )
    category_targets: str = field(
        default="",
        metadata=_described(
            "Targets of categories",
            "targets of categories with their own, as gemm=70,reduce=60",
        ),
    )

    @classmethod
    def of(cls, options: "AnalysisOptions", **more: Any) -> Self:
        """Return an instance with the options of another one, overridden by ``more``."""
        names = {f.name for f in fields(cls)}
        same = {f.name: getattr(options, f.name) for f in fields(options) if f.name in names}
        return cls(**{**same, **more})

    def chosen(self) -> dict[str, Any]:
        """Return the options that differ from their defaults, by public name."""
        return {
            public_name(f.name): value
            for f in fields(AnalysisOptions)
            if (value := getattr(self, f.name)) != f.default
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisRequest(AnalysisOptions):
    """The options, and files that only the command line may name.

    ``extension_file`` is a Python file with perf models and categories, which is executed;
    ``arch_json`` describes a GPU and replaces ``platform`` (``read_arch_json``). ``capture_folder``
    has the captures of the graphs that the trace replays. ``served_model`` is the ``config.json``
    of the model, which ``tensor_parallel`` and ``expert_parallel`` ranks share.
    """

    extension_file: Path | None = field(
        default=None,
        metadata=_described(
            "Extension",
            "Python file with perf models, op categories and categories of your own; it is run",
        ),
    )
    arch_json: Path | None = field(
        default=None,
        metadata=_described(
            "GPU description", "GPU described in a JSON file as TraceLens takes it"
        ),
    )

    capture_folder: Path | None = field(
        default=None,
        metadata=_described(
            "Captures",
            "folder, .zip or file with traces of graph capture: replayed kernels get their "
            "operators and shapes",
        ),
    )
    served_model: Path | None = field(
        default=None,
        metadata=_described(
            "Model configuration",
            "config.json of the model, for FLOPs and bytes of inference steps without recorded "
            "shapes",
        ),
    )
    tensor_parallel: int = field(
        default=1,
        metadata=_described(
            "Tensor-parallel ranks",
            "ranks that share the heads and products of that model (default: 1)",
        ),
    )
    expert_parallel: int = field(
        default=1,
        metadata=_described(
            "Expert-parallel ranks", "ranks that share the experts of that model (default: 1)"
        ),
    )


DEFAULT_REQUEST = AnalysisRequest()


def public_name(name: str) -> str:
    """Return the public name of a field: the command's flag and the key in an API body."""
    return _PUBLIC_NAMES.get(name, name)


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
