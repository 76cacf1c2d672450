"""Compress screenshots for the repository."""

import io
from pathlib import Path

from PIL import Image

MAX_BYTES = 250_000


def save_picture(screenshot: bytes, path: Path) -> None:
    """Write a screenshot as PNG: in full color, or with 256 colors if that is too large.

    Raises ValueError if both are larger than ``MAX_BYTES``: capture less of the page then.
    """
    picture = Image.open(io.BytesIO(screenshot)).convert("RGB")
    # Maximum coverage keeps the few colors of marks; the median cut gives them to greys of text.
    palette = Image.Quantize.MAXCOVERAGE
    for made in (picture, picture.quantize(256, method=palette, dither=Image.Dither.NONE)):
        made.save(path, optimize=True)
        if path.stat().st_size <= MAX_BYTES:
            return
    raise ValueError(f"{path.name} is larger than {MAX_BYTES:,} bytes")
