"""What the user chose: the GPU to judge against, and the options that a run keeps."""

from pathlib import Path

from jarvis.core.errors import HardwareFileError, NotReprojectableError, UnknownHardwareError
from jarvis.extensions import content_sha256
from jarvis.hardware import HardwareSpec, load_hardware
from jarvis.impact import TARGET_PCT
from jarvis.run import (
    Options,
    Run,
)
from jarvis.trace import TraceInfo
from jarvis.tracelens.stored_report import NEEDED


def read_arch_json(path: Path) -> HardwareSpec:
    """The GPU that a file describes as TraceLens takes it; HardwareFileError where it is bad."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise HardwareFileError(path.name, f"the file cannot be read ({error})") from error
    return HardwareSpec.parse_arch_json(content, path.name)


def chosen_options(
    platform: str | None,
    preset: str | None,
    model_name: str | None,
    reference: str | None,
    extension_file: Path | None,
    *,
    arch_json: Path | None = None,
    figures_sha256: str | None = None,
    target_pct: float = TARGET_PCT,
) -> Options:
    """What the user chose, files by name and content.

    ``figures_sha256`` is the digest of the GPU's figures where the id is to depend on them. Raises
    ValueError for a target that is not a percentage above 0.
    """
    return Options(
        platform=platform,
        preset=preset,
        model_name=model_name,
        reference=reference,
        extension_file=None if extension_file is None else extension_file.name,
        extension_sha256=None if extension_file is None else content_sha256(extension_file),
        gpu_arch_file=None if arch_json is None else arch_json.name,
        gpu_arch_sha256=figures_sha256 if arch_json is None else read_arch_json(arch_json).sha256,
        target_pct=target_pct,
    )


def choose_hardware(
    info: TraceInfo,
    platform: str | None,
    preset: str | None,
    given: HardwareSpec | None = None,
) -> tuple[HardwareSpec | None, str | None]:
    """The GPU to judge against, and a warning where that is none or not the trace's own.

    ``given`` is the description of one that needs no choice. Raises UnknownHardwareError for a
    platform that is not described, and for a preset without a GPU to have it.
    """
    hardware = load_hardware()
    found = hardware.match(info.device_name) if info.device_name else None
    if platform is None and given is None:
        if found is None:
            if preset is not None:
                raise UnknownHardwareError(info.device_name or "(none)", hardware.names())
            device = (
                f"No GPU named {info.device_name!r} is described"
                if info.device_name
                else f"The {info.form} does not name its GPU"
            )
            return None, (
                f"{device}, so there are no peaks to judge against. Name a GPU to get efficiencies."
            )
        return hardware.get(found.name, preset), None
    chosen = given or hardware.get(platform or "", preset)
    if info.device_name and (found is None or found.name != chosen.name):
        return chosen, (
            f"The trace was recorded on {info.device_name!r}, but is judged against {chosen.title}."
        )
    return chosen, None


def reprojected_options(
    run: Run,
    platform: str | None,
    preset: str | None,
    arch_json: Path | None = None,
    figures_sha256: str | None = None,
    target_pct: float | None = None,
) -> Options:
    """The options of a run with other hardware, or with another target; ``figures_sha256`` as in
    ``chosen_options``.

    A target alone leaves the hardware as it is; no target leaves that of the run. Raises a RunError
    where the run lacks what that needs: the tables of this version, or a file with perf models,
    which a run does not keep; ValueError for a target that is not a percentage above 0.
    """
    manifest = run.manifest
    if manifest.options.extension_file is not None:
        raise NotReprojectableError(
            f"it was made with the perf models of {manifest.options.extension_file}, which it does "
            "not keep"
        )
    if missing := [name for name in NEEDED if name not in manifest.tables]:
        raise NotReprojectableError(f"an older version made it, without {' and '.join(missing)}")
    if keeps_hardware(platform, preset, arch_json, target_pct):
        return Options(**{**manifest.options.model_dump(), "target_pct": target_pct})
    target = manifest.options.target_pct if target_pct is None else target_pct
    chosen = chosen_options(
        platform,
        preset,
        None,
        None,
        None,
        arch_json=arch_json,
        figures_sha256=figures_sha256,
        target_pct=target,
    )
    kept = {"model_name": manifest.options.model_name, "reference": manifest.options.reference}
    return chosen.model_copy(update=kept)


def keeps_hardware(
    platform: str | None, preset: str | None, arch_json: Path | None, target_pct: float | None
) -> bool:
    """Whether a run is to be judged at another target and against the GPU that it has."""
    return target_pct is not None and platform is None and preset is None and arch_json is None
