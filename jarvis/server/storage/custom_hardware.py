"""GPUs that users described: kept beside the analyses, one file each, never over another one."""

from pathlib import Path

from sqlalchemy import delete, insert, select

from jarvis.core.errors import HardwareError, JarvisError
from jarvis.core.workspace import custom_hardware_dir, safe_name
from jarvis.hardware import HardwareSpec, load_hardware
from jarvis.server.database import HARDWARE_OWNERS, database, reading, writing
from jarvis.server.storage.shared_hardware import share, unshare

MAX_NAME_LENGTH = 60


def hardware_owners() -> dict[str, str]:
    """Return who added the description in each file, where that is known."""
    with reading(database()) as connection:
        rows = connection.execute(select(HARDWARE_OWNERS.c.file, HARDWARE_OWNERS.c.owner))
        return {row.file: row.owner for row in rows}


def store_hardware(spec: HardwareSpec, owner: str | None = None) -> Path:
    """Keep a description; from now on it can be chosen like those of the app.

    Raises HardwareError where its name is taken or cannot stand in a menu, ArtifactError where
    other machines cannot be told.
    """
    for name in (spec.name, spec.preset):
        if len(name) > MAX_NAME_LENGTH or not name.isprintable() or name != name.strip():
            raise HardwareError(
                f"{name[:MAX_NAME_LENGTH]!r} cannot be the name of a GPU or preset: take up to "
                f"{MAX_NAME_LENGTH} visible characters, without spaces around them."
            )
    hardware = load_hardware()
    if spec.name in hardware.names() and spec.preset in hardware.presets(spec.name):
        kept = hardware.custom_file(hardware.get(spec.name, spec.preset))
        by = "Jarvis" if kept is None else hardware_owners().get(kept.name) or "somebody here"
        raise HardwareError(
            f"{spec.title} is described by {by} already. Choose another preset name, or delete "
            "that description first, if it is yours."
        )
    hardware.check_new(spec)
    path = custom_hardware_dir() / f"{safe_name(f'{spec.name}-{spec.preset}')}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(spec.to_toml())
    except FileExistsError:
        raise HardwareError(
            f"The file {path.name} of another description is in the way. Choose another name."
        ) from None
    try:
        _set_owner(path, owner)
        share(path)
    except JarvisError:
        path.unlink()
        raise
    return path


def remove_hardware(spec: HardwareSpec) -> None:
    """Delete a user's own description; analyses made with it keep its figures.

    Raises HardwareError for a GPU that the app describes.
    """
    path = load_hardware().custom_file(spec)
    if path is None:
        raise HardwareError(f"{spec.title} belongs to Jarvis and cannot be deleted.")
    unshare(path)
    path.unlink(missing_ok=True)
    _set_owner(path, None)


def _set_owner(path: Path, owner: str | None) -> None:
    """Note who added a description; None removes what is noted."""
    with writing(database()) as connection:
        connection.execute(delete(HARDWARE_OWNERS).where(HARDWARE_OWNERS.c.file == path.name))
        if owner is not None:
            connection.execute(insert(HARDWARE_OWNERS).values(file=path.name, owner=owner))
