"""What GPUs can do: ``hardware.toml`` and the user's own as a catalog, matched by device name.

No figure is ever a stand-in for another: a precision without a figure has no peak.
"""

import hashlib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticSerializationError

from jarvis.core.errors import HardwareFileError, UnknownHardwareError
from jarvis.core.workspace import custom_hardware_dir, resource

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

DEFAULT_PRESET, CUSTOM_PRESET = "reference", "custom"
UNITS = ("matrix", "vector")
PRECISIONS = ("bf16", "fp16", "fp8", "int8", "tf32", "fp32", "fp64", "fp6", "fp4")
COMPUTE_KEYS = frozenset(f"{unit}_{precision}" for unit in UNITS for precision in PRECISIONS)
# Words that may stand around an alias in a device name without making it another GPU; any other
# word does (PCIe, NVL, Laptop, Ti, a MIG slice).
_NEUTRAL_WORDS = frozenset({"amd", "nvidia", "instinct", "tesla", "vf", "oam", "gpu"})


MAX_FIGURE = 1_000_000
"""No GPU has so many GB, GB/s or TFLOPS/s: the unit is another one."""


class HardwareSpec(BaseModel):
    """The peaks of one GPU under one preset.

    ``mem_bw_gbps`` is in GB/s (1e9 bytes), ``max_achievable_tflops`` maps a compute unit and
    precision (``"matrix_bf16"``) to dense TFLOPS/s, ``sources`` maps a figure to where it comes
    from, with ``default`` for the figures it does not name; ``doubts`` says why a figure may not
    hold, its ``default`` for the figures that ``sources`` leaves to its own.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1)
    preset: str = Field(default=DEFAULT_PRESET, min_length=1)
    vendor: str | None = None
    aliases: tuple[str, ...] = ()
    memory_gb: float = Field(gt=0, lt=MAX_FIGURE, allow_inf_nan=False)
    memory_type: str | None = None
    mem_bw_gbps: float = Field(gt=0, lt=MAX_FIGURE, allow_inf_nan=False)
    max_achievable_tflops: dict[str, float]
    sources: dict[str, str]
    doubts: dict[str, str] = {}

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        for name in (self.name, *self.aliases):
            if _words(name) <= _NEUTRAL_WORDS:
                raise ValueError(f"{name!r} does not tell one GPU from another")
        return self

    @model_validator(mode="after")
    def _check_figures(self) -> Self:
        if unknown := self.max_achievable_tflops.keys() - COMPUTE_KEYS:
            raise ValueError(f"unknown compute peak {', '.join(sorted(unknown))}")
        for key, value in self.max_achievable_tflops.items():
            if not 0 < value < MAX_FIGURE:
                raise ValueError(f"{key} must be above 0 and below {MAX_FIGURE:,.0f}, not {value}")
        for what, about in (("source", self.sources), ("doubt", self.doubts)):
            if unknown := about.keys() - set(self.figures) - {"default"}:
                raise ValueError(f"a {what} for {', '.join(sorted(unknown))}, which has no figure")
        if unsourced := [f for f in self.figures if not self.sources.get(f, self._default_source)]:
            raise ValueError(f"no source for {', '.join(unsourced)}")
        return self

    @classmethod
    def parse(cls, entry: Mapping[str, Any]) -> Self:
        """Validate one entry; HardwareFileError names the entry and each key that is wrong."""
        try:
            spec = cls.model_validate(entry)
            spec.model_dump_json()
        except ValidationError as error:
            reasons = "; ".join(map(_reason, error.errors()))
            raise HardwareFileError(str(entry.get("name", "without a name")), reasons) from error
        except (UnicodeEncodeError, PydanticSerializationError) as error:
            name = str(entry.get("name")).encode(errors="replace").decode()
            raise HardwareFileError(name, "half a character, which no file can hold") from error
        return spec

    @property
    def _default_source(self) -> str:
        return self.sources.get("default", "")

    @property
    def figures(self) -> tuple[str, ...]:
        """The names of all figures: memory, bandwidth and each compute peak."""
        return ("memory_gb", "mem_bw_gbps", *self.max_achievable_tflops)

    @property
    def title(self) -> str:
        """The name, with the preset where it is not the default one."""
        return self.name if self.preset == DEFAULT_PRESET else f"{self.name} ({self.preset})"

    @property
    def tb_per_s(self) -> float:
        """Peak memory bandwidth in TB/s."""
        return self.mem_bw_gbps / 1e3

    def peak_tflops(self, compute: str) -> float | None:
        """The peak of ``"matrix_bf16"`` and the like in TFLOPS/s, or None where it is not known."""
        return self.max_achievable_tflops.get(compute)

    def ridge(self, compute: str) -> float | None:
        """FLOP/byte above which an operation is compute bound, or None without a peak."""
        peak = self.peak_tflops(compute)
        return None if peak is None else peak / self.tb_per_s

    def source_of(self, figure: str) -> str | None:
        """Where a figure comes from, or None where there is no such figure."""
        return self.sources.get(figure, self._default_source) if figure in self.figures else None

    def doubt_of(self, figure: str) -> str | None:
        """Why a figure may not hold, or None where nothing speaks against it."""
        if figure not in self.figures:
            return None
        fallback = None if figure in self.sources else self.doubts.get("default")
        return self.doubts.get(figure, fallback)

    @property
    def sha256(self) -> str:
        """A digest of the whole description."""
        text = json.dumps(self.model_dump(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def to_arch_json(self) -> dict[str, Any]:
        """The description as TraceLens takes it (``--gpu_arch_json_path``)."""
        return self.model_dump(
            include={"name", "mem_bw_gbps", "memory_gb", "max_achievable_tflops"}
        )

    @classmethod
    def from_arch_json(cls, arch: Mapping[str, Any]) -> Self:
        """A spec from a TraceLens architecture description.

        Raises HardwareFileError where a key is missing, unknown or not a number.
        """
        source = {"default": "architecture description given by the user"}
        return cls.parse({"preset": CUSTOM_PRESET, "sources": source, **arch})

    @classmethod
    def parse_arch_json(cls, content: bytes, file_name: str) -> Self:
        """The spec of such a description as a file; its name is that of the file if it has none.

        Raises HardwareFileError where it is no JSON object, or as ``from_arch_json``.
        """
        try:
            arch = json.loads(content)
        except RecursionError as error:
            raise HardwareFileError(file_name, "the file is nested too deep") from error
        except ValueError as error:
            raise HardwareFileError(file_name, f"the file cannot be read ({error})") from error
        if not isinstance(arch, dict):
            raise HardwareFileError(file_name, "the file must hold one JSON object")
        return cls.from_arch_json({"name": Path(file_name).stem, **arch})

    def to_toml(self) -> str:
        """The entry of a hardware file that ``load_hardware`` reads back as this spec."""
        entry = self.model_dump(exclude_defaults=True)
        tables = {key: entry.pop(key) for key in list(entry) if isinstance(entry[key], dict)}
        lines = ["[[gpu]]", *_toml_lines(entry)]
        for key, table in {"max_achievable_tflops": {}, **tables}.items():
            lines += [f"[gpu.{key}]", *_toml_lines(table)]
        return "\n".join(lines) + "\n"


class Hardware:
    """The catalog: every described GPU with its presets, the default preset first.

    ``failures`` says for each file of a user's own GPUs that cannot be used why that is so.
    """

    def __init__(self, specs: tuple[HardwareSpec, ...]) -> None:
        self._by_name: dict[str, dict[str, HardwareSpec]] = {}
        self._names: dict[frozenset[str], str] = {}
        self._custom: dict[str, Path] = {}
        self.failures: dict[Path, str] = {}
        for spec in specs:
            self._add(spec)

    def _add(self, spec: HardwareSpec) -> None:
        self.check_new(spec)
        self._by_name.setdefault(spec.name, {})[spec.preset] = spec
        for alias in (spec.name, *spec.aliases):
            self._names[_words(alias)] = spec.name

    def check_new(self, spec: HardwareSpec) -> None:
        """Refuse a spec whose name and preset, or one of whose names, is taken."""
        if spec.preset in self._by_name.get(spec.name, {}):
            raise HardwareFileError(spec.title, "stands there twice")
        for alias in (spec.name, *spec.aliases):
            owner = self._names.get(_words(alias), spec.name)
            if owner != spec.name:
                raise HardwareFileError(spec.title, f"alias {alias!r} already means {owner}")

    def add_custom(self, path: Path) -> None:
        """Take in a file of a user's own GPUs; one that cannot be used goes to ``failures``."""
        try:
            for spec in _read(path):
                self._add(spec)
                self._custom[spec.title] = path
        except HardwareFileError as error:
            self.failures[path] = str(error)

    def custom_file(self, spec: HardwareSpec) -> Path | None:
        """The file that describes a user's own GPU, or None for one of the app's."""
        return self._custom.get(spec.title)

    def __iter__(self) -> Iterator[HardwareSpec]:
        for presets in self._by_name.values():
            yield from presets.values()

    def names(self) -> list[str]:
        """The names of the GPUs in the order of the file."""
        return list(self._by_name)

    def presets(self, name: str) -> list[str]:
        """The presets of a GPU, the default one first; UnknownHardwareError for another name."""
        return list(self._by_name[self._canonical(name)])

    def get(self, name: str, preset: str | None = None) -> HardwareSpec:
        """The spec of a name or alias (upper or lower case) under a preset (default: its first).

        Raises UnknownHardwareError, which lists the names or presets there are.
        """
        presets = self._by_name[self._canonical(name)]
        if preset is None:
            return next(iter(presets.values()))
        if preset not in presets:
            known = (spec.title for spec in presets.values())
            raise UnknownHardwareError(f"{name} ({preset})", known)
        return presets[preset]

    def match(self, device_name: str) -> HardwareSpec | None:
        """The default spec of the GPU that a trace calls ``device_name``, or None.

        An alias matches when the device name has all of its words and no other word that would
        tell it apart ("NVIDIA H100 PCIe" is no H100 SXM); the alias with most words wins.
        """
        device = _words(device_name)
        fitting = [
            words for words in self._names if words <= device and device - words <= _NEUTRAL_WORDS
        ]
        return self.get(self._names[max(fitting, key=len)]) if fitting else None

    def choice(self, spec: HardwareSpec, device_name: str | None) -> tuple[str | None, str | None]:
        """The platform and preset that give ``spec`` for a trace of this device; None for what
        the trace and the catalog bring by themselves."""
        found = self.match(device_name) if device_name else None
        is_found = found is not None and found.name == spec.name
        is_first = self.presets(spec.name)[0] == spec.preset
        return None if is_found else spec.name, None if is_first else spec.preset

    def _canonical(self, name: str) -> str:
        try:
            return self._names[_words(name)]
        except KeyError:
            raise UnknownHardwareError(name, self.names()) from None


def load_hardware(path: Path | None = None) -> Hardware:
    """Read a hardware file; HardwareFileError where it is bad.

    Without ``path`` it is that of the app, and the user's own GPUs come on top.
    """
    hardware = Hardware(_read(path or resource("hardware.toml")))
    if path is None:
        for file in sorted(custom_hardware_dir().glob("*.toml")):
            hardware.add_custom(file)
    return hardware


def _read(path: Path) -> tuple[HardwareSpec, ...]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise HardwareFileError(path.name, "the file is nested too deep") from error
    except (OSError, ValueError) as error:
        raise HardwareFileError(path.name, f"the file cannot be read ({error})") from error
    if set(content) != {"gpu"} or not isinstance(content["gpu"], list):
        raise HardwareFileError(path.name, "the file must hold [[gpu]] tables and nothing else")
    return tuple(HardwareSpec.parse(entry) for entry in content["gpu"])


def _reason(problem: "ErrorDetails") -> str:
    """What is wrong with one key of an entry."""
    key = ".".join(map(str, problem["loc"]))
    if problem["type"] == "missing":
        return f"{key} is missing"
    if problem["type"] == "extra_forbidden":
        return f"{key} is not a key of a description"
    message = problem["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return f"{key} {message}" if key else message


def _toml_lines(table: Mapping[str, Any]) -> list[str]:
    """Strings, numbers and lists of strings: TOML writes these as JSON does, but for DEL."""
    texts = {key: json.dumps(value, ensure_ascii=False) for key, value in table.items()}
    return [f"{key} = {text}".replace("\x7f", "\\u007f") for key, text in texts.items()]


def _words(name: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z0-9]+", name.lower()))
