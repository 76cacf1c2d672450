"""GPUs that users described, the same on all machines that share an artifact root."""

from pathlib import Path

from jarvis.core.workspace import custom_hardware_dir
from jarvis.server.storage import artifact_copies as copies
from jarvis.server.storage.artifact_root import artifact_root
from jarvis.server.storage.storage_keys import place_of


def share(path: Path) -> None:
    """Put a description there that was kept here."""
    if (root := artifact_root()) is not None:
        root.put(path, _key(path))
        copies.note(_key(path))


def unshare(path: Path) -> None:
    """Remove a description there that was removed here."""
    if (root := artifact_root()) is not None:
        root.remove(_key(path))


def follow() -> None:
    """Have the descriptions here that all machines have; what is only here is shared."""
    if (root := artifact_root()) is None:
        return
    folder = custom_hardware_dir()
    folder.mkdir(parents=True, exist_ok=True)
    there = {
        found.key: str(found.written) for found in root.below(folder.name) if not found.is_half
    }
    for path in folder.glob("*.toml"):
        key = _key(path)
        if key in there:
            continue
        if copies.local_version(key) is None:
            share(path)
        else:  # it was removed elsewhere
            copies.drop(key)
    for key, written in there.items():
        with copies.only_one(key):
            if copies.local_version(key) != written:
                half = place_of(key).with_suffix(".new")
                root.get(key, half)
                half.replace(place_of(key))
                copies.note(key, written)


def _key(path: Path) -> str:
    return f"{custom_hardware_dir().name}/{path.name}"
