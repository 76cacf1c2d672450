"""Descriptions of GPUs from users: one file each, shared by machines with one artifact root."""

from pathlib import Path

from sqlalchemy import delete, insert, select

from jarvis.core.errors import HardwareError, JarvisError
from jarvis.core.workspace import custom_hardware_dir, safe_name
from jarvis.hardware import HardwareSpec, load_hardware
from jarvis.server.database import HARDWARE_OWNERS, database, reading, writing
from jarvis.server.storage import artifact_copies as copies
from jarvis.server.storage.artifact_root import artifact_root
from jarvis.server.storage.storage_keys import place_of


def _upload(path: Path) -> None:
    """Copy a new description to the artifact root, if there is one."""
    if (root := artifact_root()) is not None:
        root.put(path, _key(path))
        copies.record(_key(path))


def _delete_shared(path: Path) -> None:
    """Delete a description from the artifact root, if there is one."""
    if (root := artifact_root()) is not None:
        root.remove(_key(path))


def synchronize() -> None:
    """Download new descriptions, delete those deleted elsewhere, and upload new local ones."""
    if (root := artifact_root()) is None:
        return
    folder = custom_hardware_dir()
    folder.mkdir(parents=True, exist_ok=True)
    remote = {
        artifact.key: str(artifact.written)
        for artifact in root.below(folder.name)
        if not artifact.is_half
    }
    for path in folder.glob("*.toml"):
        key = _key(path)
        if key in remote:
            continue
        if copies.local_version(key) is None:
            _upload(path)
        else:  # deleted on another machine
            copies.delete(key)
    for key, written in remote.items():
        with copies.locked(key):
            if copies.local_version(key) != written:
                temporary = place_of(key).with_suffix(".new")
                root.get(key, temporary)
                temporary.replace(place_of(key))
                copies.record(key, written)


def _key(path: Path) -> str:
    return f"{custom_hardware_dir().name}/{path.name}"


MAX_NAME_LENGTH = 60


def hardware_owners() -> dict[str, str]:
    """Return the known owners of GPU descriptions by file name."""
    with reading(database()) as connection:
        rows = connection.execute(select(HARDWARE_OWNERS.c.file, HARDWARE_OWNERS.c.owner))
        return {row.file: row.owner for row in rows}


def store_hardware(spec: HardwareSpec, owner: str | None = None) -> Path:
    """Store a GPU description, which can then be selected like built-in ones.

    Raises:
        HardwareError: its name is in use or not valid.
        ArtifactError: it cannot be copied to the artifact root.
    """
    for name in (spec.name, spec.preset):
        if len(name) > MAX_NAME_LENGTH or not name.isprintable() or name != name.strip():
            raise HardwareError(
                f"{name[:MAX_NAME_LENGTH]!r} is not a valid name of a GPU or preset: use up to "
                f"{MAX_NAME_LENGTH} printable characters without surrounding spaces."
            )
    hardware = load_hardware()
    if spec.name in hardware.names() and spec.preset in hardware.presets(spec.name):
        existing = hardware.custom_file(hardware.get(spec.name, spec.preset))
        by = "Jarvis" if existing is None else hardware_owners().get(existing.name, "another user")
        raise HardwareError(
            f"{spec.title} is already described by {by}. Choose another preset name, or delete "
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
            f"The file {path.name} of another description already exists. Choose another name."
        ) from None
    try:
        _set_owner(path, owner)
        _upload(path)
    except JarvisError:
        path.unlink()
        raise
    return path


def remove_hardware(spec: HardwareSpec) -> None:
    """Delete a GPU description; existing analyses keep its values.

    Raises:
        HardwareError: the description is built in.
    """
    path = load_hardware().custom_file(spec)
    if path is None:
        raise HardwareError(f"{spec.title} is built into Jarvis and cannot be deleted.")
    _delete_shared(path)
    path.unlink(missing_ok=True)
    _set_owner(path, None)


def _set_owner(path: Path, owner: str | None) -> None:
    """Set the owner of a description; None deletes the entry."""
    with writing(database()) as connection:
        connection.execute(delete(HARDWARE_OWNERS).where(HARDWARE_OWNERS.c.file == path.name))
        if owner is not None:
            connection.execute(insert(HARDWARE_OWNERS).values(file=path.name, owner=owner))
