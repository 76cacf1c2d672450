"""Synchronizes GPU descriptions of users with the artifact root."""

from pathlib import Path

from jarvis.core.workspace import custom_hardware_dir
from jarvis.server.storage import artifact_copies as copies
from jarvis.server.storage.artifact_root import artifact_root
from jarvis.server.storage.storage_keys import place_of


def share(path: Path) -> None:
    """Upload a new description."""
    if (root := artifact_root()) is not None:
        root.put(path, _key(path))
        copies.note(_key(path))


def unshare(path: Path) -> None:
    """Delete a description from the artifact root."""
    if (root := artifact_root()) is not None:
        root.remove(_key(path))


def follow() -> None:
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
            share(path)
        else:  # deleted on another machine
            copies.drop(key)
    for key, written in remote.items():
        with copies.only_one(key):
            if copies.local_version(key) != written:
                temporary = place_of(key).with_suffix(".new")
                root.get(key, temporary)
                temporary.replace(place_of(key))
                copies.note(key, written)


def _key(path: Path) -> str:
    return f"{custom_hardware_dir().name}/{path.name}"
