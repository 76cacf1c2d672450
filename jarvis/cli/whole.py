"""Results that appear whole or not at all, also where the command is stopped."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4


@contextmanager
def whole(place: Path) -> Iterator[Path]:
    """Where to write the file or folder that is to stand at ``place`` when the block ends well.

    The files of a folder are put beside those that ``place`` has, and replace those of their name.
    """
    staging = place.parent / f".{place.name}.new-{uuid4().hex[:8]}"
    staging.mkdir(parents=True)
    try:
        written = staging / place.name
        yield written
        if written.is_dir():
            place.mkdir(exist_ok=True)
            for path in written.iterdir():
                path.replace(place / path.name)
        else:
            written.replace(place)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
