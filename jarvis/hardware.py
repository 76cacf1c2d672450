"""The catalog of GPUs: ``hardware.toml`` and custom GPUs, matched by device name.

No peak is derived from another one: a precision without a figure has no peak.
"""

import hashlib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

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
# Words around an alias in a device name that do not make it another GPU; any other word does (PCIe,
# NVL, Laptop, Ti, a MIG slice).
_GENERIC_WORDS = frozenset({"amd", "nvidia", "instinct", "tesla", "vf", "oam", "gpu"})


MAX_FIGURE = 1_000_000
"""No GPU has this many GB, GB/s or TFLOP/s: such a value is in another unit."""

MIN_MEMORY_SHARE, MIN_HBM_SHARE, MAX_MEMORY_SHARE = 0.9, 0.975, 1.005
"""Bounds of the memory that a device reports, as a share of ``memory_gb`` GiB. The driver reserves
some of it and, except with HBM, a sixteenth may store error-correcting codes."""

ARCHITECTURE = r"^(sm_\d{2,3}|gfx\d{1,2}[0-9a-f]{2})$"
"""Pattern of compiler targets: ``sm_90`` of CUDA, ``gfx942`` of HIP."""

_LATER_FIELDS = ("compute_units", "architecture")


class RecordedDevice(Protocol):
    """The GPU of a trace, as the profiler recorded it; None for what it did not record."""

    @property
    def device_name(self) -> str | None:
        """Return the name that the driver reports."""

    @property
    def compute_units(self) -> int | None:
        """Return the number of streaming multiprocessors or compute units."""

    @property
    def memory_bytes(self) -> int | None:
        """Return the usable memory in bytes."""

    @property
    def warp_size(self) -> int | None:
        """Return the number of threads in a warp or wavefront."""

    @property
    def compute_capability(self) -> tuple[int, int] | None:
        """Return the major and minor version of the architecture: ``(9, 0)`` for ``sm_90``."""


def has_architecture(device: RecordedDevice, architecture: str) -> bool:
    """Return whether no recorded property of a device contradicts a compiler target."""
    is_amd = architecture.startswith("gfx")
    # The last digit of an AMD target is a stepping, which HIP does not report.
    version = architecture.removeprefix("gfx")[:-1] if is_amd else architecture.removeprefix("sm_")
    capability = int(version[:-1]), int(version[-1], 16)
    warp_size = 64 if architecture.startswith("gfx9") else 32
    return device.compute_capability in (None, capability) and device.warp_size in (None, warp_size)


class GpuLink(BaseModel):
    """The link of a GPU to others in its node, in GB/s (1e9 bytes) of one direction.

    ``gbps_per_direction`` is what it moves to all ``peers`` together, ``pair_gbps`` to one of them,
    and ``beyond_gbps`` to GPUs that the link does not reach. On a mesh each peer has links of its
    own; a switch gives all of them to any peer; a bridge joins few GPUs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["switch", "mesh", "bridge", "pcie"]
    gbps_per_direction: float = Field(gt=0, lt=MAX_FIGURE, allow_inf_nan=False)
    peers: int | None = Field(default=None, gt=0)
    pair_gbps: float | None = Field(default=None, gt=0, lt=MAX_FIGURE, allow_inf_nan=False)
    beyond_gbps: float | None = Field(default=None, gt=0, lt=MAX_FIGURE, allow_inf_nan=False)
    source: str = Field(min_length=1)
    doubt: str | None = None

    def peak_gbps(self, ranks: int) -> float | None:
        """Return the peak of a group of ``ranks`` GPUs of one node; None if it is not known."""
        others = ranks - 1
        if others < 1:
            return None
        if self.kind == "mesh":
            if self.peers is None or others > self.peers:
                return None
            if others == self.peers:
                return self.gbps_per_direction
            return None if self.pair_gbps is None else others * self.pair_gbps
        if self.peers is not None and others > self.peers:
            return self.beyond_gbps
        return self.gbps_per_direction


def preset_label(preset: str) -> str:
    """Return the name of a preset for readers."""
    return "default" if preset == DEFAULT_PRESET else preset


def peak_label(compute: str | None) -> str:
    """Return the label of a compute unit: ``bf16 matrix`` for ``matrix_bf16``."""
    unit, _, precision = (compute or "").partition("_")
    return f"{precision} {unit}".strip()


class HardwareSpec(BaseModel):
    """The peaks of one GPU under one preset.

    ``compute_units`` counts streaming multiprocessors or compute units, ``architecture`` is the
    compiler's name of their generation (``"sm_90"``, ``"gfx942"``).

    ``mem_bw_gbps`` is in GB/s (1e9 bytes), ``max_achievable_tflops`` maps a compute unit and
    precision (``"matrix_bf16"``) to dense TFLOP/s, ``sources`` maps a figure to its source, with
    ``default`` for unlisted figures; ``doubts`` says why a figure may be wrong, its ``default``
    applies to figures without their own source.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1)
    preset: str = Field(default=DEFAULT_PRESET, min_length=1)
    vendor: str | None = None
    aliases: tuple[str, ...] = ()
    memory_gb: float = Field(gt=0, lt=MAX_FIGURE, allow_inf_nan=False)
    memory_type: str | None = None
    mem_bw_gbps: float = Field(gt=0, lt=MAX_FIGURE, allow_inf_nan=False)
    compute_units: int | None = Field(default=None, gt=0, lt=MAX_FIGURE)
    architecture: str | None = Field(default=None, pattern=ARCHITECTURE)
    max_achievable_tflops: dict[str, float]
    sources: dict[str, str]
    doubts: dict[str, str] = {}

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        for name in (self.name, *self.aliases):
            if _words(name) <= _GENERIC_WORDS:
                raise ValueError(f"{name!r} does not identify a GPU")
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
        """Validate one entry; HardwareFileError names the entry and each invalid key."""
        try:
            spec = cls.model_validate(entry)
            spec.model_dump_json()
        except ValidationError as error:
            reasons = "; ".join(map(_reason, error.errors()))
            raise HardwareFileError(str(entry.get("name", "without a name")), reasons) from error
        except (UnicodeEncodeError, PydanticSerializationError) as error:
            name = str(entry.get("name")).encode(errors="replace").decode()
            raise HardwareFileError(
                name, "an unpaired surrogate character, which cannot be stored"
            ) from error
        return spec

    @property
    def _default_source(self) -> str:
        return self.sources.get("default", "")

    @property
    def figures(self) -> tuple[str, ...]:
        """Return the names of all known figures: memory, bandwidth, compute units and each peak."""
        units = () if self.compute_units is None else ("compute_units",)
        return ("memory_gb", "mem_bw_gbps", *units, *self.max_achievable_tflops)

    def has_properties_of(self, device: RecordedDevice) -> bool:
        """Return whether a recorded device has these compute units, memory and architecture.

        Compute units and memory must be recorded; the architecture may be missing on either side.
        """
        if device.compute_units is None or device.memory_bytes is None:
            return False
        least = MIN_HBM_SHARE if (self.memory_type or "").startswith("HBM") else MIN_MEMORY_SHARE
        share = device.memory_bytes / 2**30 / self.memory_gb
        return (
            device.compute_units == self.compute_units
            and least <= share <= MAX_MEMORY_SHARE
            and (self.architecture is None or has_architecture(device, self.architecture))
        )

    def is_current(self, stored: Self) -> bool:
        """Return whether an analysis made with ``stored`` has the figures of this description.

        Aliases do not matter, nor fields that the version that made the analysis did not have.
        """
        ignored: dict[str, Any] = {"aliases": True}
        if all(getattr(stored, field) is None for field in _LATER_FIELDS):
            ignored |= dict.fromkeys(_LATER_FIELDS, True)
            ignored["sources"] = set(_LATER_FIELDS)
        return self.model_dump(exclude=ignored) == stored.model_dump(exclude=ignored)

    @property
    def title(self) -> str:
        """Return the name, with the preset unless it is the default."""
        return self.name if self.preset == DEFAULT_PRESET else f"{self.name} ({self.preset})"

    @property
    def tb_per_s(self) -> float:
        """Return the peak memory bandwidth in TB/s."""
        return self.mem_bw_gbps / 1e3

    def peak_tflops(self, compute: str) -> float | None:
        """Return the peak of ``"matrix_bf16"`` and the like in TFLOP/s, or None if it is not
        known."""
        return self.max_achievable_tflops.get(compute)

    def ridge(self, compute: str) -> float | None:
        """Return the FLOP/byte above which an operation is compute bound, or None without a
        peak."""
        peak = self.peak_tflops(compute)
        return None if peak is None else peak / self.tb_per_s

    def source_of(self, figure: str) -> str | None:
        """Return the source of a figure, or None if there is no such figure."""
        return self.sources.get(figure, self._default_source) if figure in self.figures else None

    def doubt_of(self, figure: str) -> str | None:
        """Return why a figure may be wrong, or None without a doubt."""
        if figure not in self.figures:
            return None
        fallback = None if figure in self.sources else self.doubts.get("default")
        return self.doubts.get(figure, fallback)

    @property
    def sha256(self) -> str:
        """Return a digest of the whole description.

        Fields of later versions count if they have a value: digests are part of stored ids.
        """
        unset = {field for field in _LATER_FIELDS if getattr(self, field) is None}
        text = json.dumps(self.model_dump(exclude=unset), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @classmethod
    def from_arch_json(cls, arch: Mapping[str, Any]) -> Self:
        """Return the spec of a TraceLens architecture description.

        Raises:
            HardwareFileError: A key is missing, unknown or not a number.
        """
        source = {"default": "architecture description given by the user"}
        return cls.parse({"preset": CUSTOM_PRESET, "sources": source, **arch})

    @classmethod
    def parse_arch_json(cls, content: bytes, file_name: str) -> Self:
        """Return the spec of such a description in a file, named after the file if it has no name.

        Raises:
            HardwareFileError: It is no JSON object, or as in ``from_arch_json``.
        """
        try:
            arch = json.loads(content)
        except RecursionError as error:
            raise HardwareFileError(file_name, "the file is nested too deeply") from error
        except ValueError as error:
            raise HardwareFileError(file_name, f"the file cannot be read ({error})") from error
        if not isinstance(arch, dict):
            raise HardwareFileError(file_name, "the file must contain one JSON object")
        return cls.from_arch_json({"name": Path(file_name).stem, **arch})

    def to_toml(self) -> str:
        """Return the entry of a hardware file that ``load_hardware`` reads back as this spec."""
        entry = self.model_dump(exclude_defaults=True)
        tables = {key: entry.pop(key) for key in list(entry) if isinstance(entry[key], dict)}
        lines = ["[[gpu]]", *_toml_lines(entry)]
        for key, table in {"max_achievable_tflops": {}, **tables}.items():
            lines += [f"[gpu.{key}]", *_toml_lines(table)]
        return "\n".join(lines) + "\n"


class Hardware:
    """The catalog: every GPU with its presets, the default preset first.

    ``failures`` gives the error of each custom hardware file that cannot be used.
    """

    def __init__(
        self, specs: tuple[HardwareSpec, ...], links: Mapping[str, GpuLink] | None = None
    ) -> None:
        self._links = dict(links or {})
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
        """Raise HardwareFileError if the name and preset, or an alias, already exist."""
        if spec.preset in self._by_name.get(spec.name, {}):
            raise HardwareFileError(spec.title, "is defined twice")
        for alias in (spec.name, *spec.aliases):
            owner = self._names.get(_words(alias), spec.name)
            if owner != spec.name:
                raise HardwareFileError(spec.title, f"alias {alias!r} already refers to {owner}")

    def add_custom(self, path: Path) -> None:
        """Add a file of custom GPUs; record an unusable one in ``failures``."""
        try:
            specs, links = _read(path)
            for spec in specs:
                self._add(spec)
                self._custom[spec.title] = path
            self._links |= links
        except HardwareFileError as error:
            self.failures[path] = str(error)

    def custom_file(self, spec: HardwareSpec) -> Path | None:
        """Return the file that describes a custom GPU, or None for a built-in one."""
        return self._custom.get(spec.title)

    def __iter__(self) -> Iterator[HardwareSpec]:
        for presets in self._by_name.values():
            yield from presets.values()

    def names(self) -> list[str]:
        """Return the names of the GPUs in the order of the file."""
        return list(self._by_name)

    def presets(self, name: str) -> list[str]:
        """Return the presets of a GPU, the default one first; raise UnknownHardwareError for other
        names."""
        return list(self._by_name[self._canonical(name)])

    def get(self, name: str, preset: str | None = None) -> HardwareSpec:
        """Return the spec of a name or alias (case-insensitive) under a preset (default: its
        first).

        Raises:
            UnknownHardwareError: Lists the existing names or presets.
        """
        presets = self._by_name[self._canonical(name)]
        if preset is None:
            return next(iter(presets.values()))
        if preset not in presets:
            known = (spec.title for spec in presets.values())
            raise UnknownHardwareError(f"{name} ({preset})", known)
        return presets[preset]

    def match(self, device_name: str) -> HardwareSpec | None:
        """Return the default spec of the GPU that a trace calls ``device_name``, or None.

        An alias matches if the device name has all of its words and no other distinguishing word
        ("NVIDIA H100 PCIe" is no H100 SXM); the alias with most words wins.
        """
        device = _words(device_name)
        fitting = [
            words for words in self._names if words <= device and device - words <= _GENERIC_WORDS
        ]
        return self.get(self._names[max(fitting, key=len)]) if fitting else None

    def link(self, device_name: str) -> GpuLink | None:
        """Return the link of the GPU that a trace calls ``device_name``, or None."""
        spec = self.match(device_name)
        return self._links.get(spec.name) if spec is not None else None

    def candidates(self, device: RecordedDevice) -> tuple[HardwareSpec, ...]:
        """Return the default specs that the GPU of a trace may be: that of its name or, without a
        match, every one with its recorded properties."""
        by_name = self.match(device.device_name) if device.device_name else None
        if by_name is not None:
            return (by_name,)
        defaults = (self.get(name) for name in self.names())
        return tuple(spec for spec in defaults if spec.has_properties_of(device))

    def recognize(self, device: RecordedDevice) -> HardwareSpec | None:
        """Return the only candidate for the GPU of a trace, or None."""
        found = self.candidates(device)
        return found[0] if len(found) == 1 else None

    def choice(self, spec: HardwareSpec, device: RecordedDevice) -> tuple[str | None, str | None]:
        """Return the platform and preset options that give ``spec`` for a trace of this device;
        None for defaults."""
        found = self.recognize(device)
        is_matched = found is not None and found.name == spec.name
        is_first = self.presets(spec.name)[0] == spec.preset
        return None if is_matched else spec.name, None if is_first else spec.preset

    def _canonical(self, name: str) -> str:
        try:
            return self._names[_words(name)]
        except KeyError:
            raise UnknownHardwareError(name, self.names()) from None


def load_hardware(path: Path | None = None) -> Hardware:
    """Read a hardware file; raise HardwareFileError if it is invalid.

    Without ``path``, read the app's file and add the custom GPUs.
    """
    hardware = shipped_hardware() if path is None else Hardware(*_read(path))
    if path is None:
        for file in sorted(custom_hardware_dir().glob("*.toml")):
            hardware.add_custom(file)
    return hardware


def shipped_hardware() -> Hardware:
    """Read the app's hardware file; raise HardwareFileError if it is invalid."""
    return Hardware(*_read(resource("hardware.toml")))


_Read = tuple[tuple[HardwareSpec, ...], Mapping[str, GpuLink]]


def _read(path: Path) -> _Read:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise HardwareFileError(path.name, f"the file cannot be read ({error})") from error
    return _specs(text, path.name)


@lru_cache(maxsize=16)
def _specs(text: str, file_name: str) -> _Read:
    try:
        content = tomllib.loads(text)
    except RecursionError as error:
        raise HardwareFileError(file_name, "the file is nested too deeply") from error
    except ValueError as error:
        raise HardwareFileError(file_name, f"the file cannot be read ({error})") from error
    if set(content) != {"gpu"} or not isinstance(content["gpu"], list):
        raise HardwareFileError(file_name, "the file must contain [[gpu]] tables and nothing else")
    links = {}
    specs = []
    for entry in content["gpu"]:
        link = entry.pop("link", None) if isinstance(entry, dict) else None
        specs.append(HardwareSpec.parse(entry))
        if link is not None:
            links[specs[-1].name] = _link(specs[-1].name, link)
    return tuple(specs), links


def _link(name: str, entry: Any) -> GpuLink:
    try:
        return GpuLink.model_validate(entry)
    except ValidationError as error:
        reasons = "; ".join(f"link.{_reason(problem)}" for problem in error.errors())
        raise HardwareFileError(name, reasons) from error


def _reason(problem: "ErrorDetails") -> str:
    """Return the error of one key of an entry."""
    key = ".".join(map(str, problem["loc"]))
    if problem["type"] == "missing":
        return f"{key} is missing"
    if problem["type"] == "extra_forbidden":
        return f"{key} is not a valid key"
    message = problem["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return f"{key} {message}" if key else message


def _toml_lines(table: Mapping[str, Any]) -> list[str]:
    """Format strings, numbers and lists of strings as TOML, which equals JSON except for DEL."""
    texts = {key: json.dumps(value, ensure_ascii=False) for key, value in table.items()}
    return [f"{key} = {text}".replace("\x7f", "\\u007f") for key, text in texts.items()]


def _words(name: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z0-9]+", name.lower()))
