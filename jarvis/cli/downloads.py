"""URLs in place of the traces of a command: they are downloaded to a temporary folder."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from jarvis.cli.output import print_progress
from jarvis.text.format import byte_size


def path_or_url(text: str) -> Path | str:
    """Return a path, or a URL as it is."""
    return text if "://" in text else Path(text)


@contextmanager
def downloaded(urls: Sequence[str]) -> Iterator[list[Path]]:
    """Yield the downloaded traces that URLs name: of one its file, of several their folder.

    Raises:
        AddressError: A URL is not valid, or redirects to a private network.
        FetchError: A trace is not sent or too large, or a folder cannot be listed or has no trace.
        TooManyFilesError: There are more than a job may have ranks.
    """
    from jarvis.server.ingest.addresses import typed_here
    from jarvis.server.ingest.fetch import download_trace, trace_urls

    with TemporaryDirectory(prefix="jarvis-download-") as scratch, typed_here(urls):
        found = [each.url for url in urls for each in trace_urls(url)]
        places = _places(found)
        paths = []
        for number, (url, place) in enumerate(zip(found, places, strict=True), start=1):
            folder = Path(scratch) / place
            folder.mkdir(parents=True, exist_ok=True)
            of = f"[{number}/{len(found)}] " if len(found) > 1 else ""

            def on_bytes(done: int, total: int | None, begin: str = of) -> None:
                of_total = "" if total is None else f" of {byte_size(total)}"
                print_progress(f"{begin}Download: {byte_size(done)}{of_total}")

            paths.append(download_trace(url, folder, on_bytes))
            size = byte_size(paths[-1].stat().st_size)
            print_progress(f"{of}Downloaded {paths[-1].name}, {size}", is_last=True)
        yield paths if len(paths) == 1 else [Path(scratch)]


def _places(urls: Sequence[str]) -> list[str]:
    """Return the folders of URLs below their common one, as they may tell the ranks."""
    parts = map(urlsplit, urls)
    folders = [str(PurePosixPath(f"/{each.netloc}{each.path}").parent) for each in parts]
    common = os.path.commonpath(folders)
    return [os.path.relpath(folder, common) for folder in folders]
