"""Uploads as a browser leaves them behind: a page test has no browser that could send them."""

from jarvis.server.ingest.upload_writer import resume_upload
from jarvis.server.ingest.uploads import create


def uploaded(name: str, content: bytes, owner: str | None = None) -> str:
    """The id of a whole upload."""
    upload = create(name, len(content), owner)
    with resume_upload(upload.id, 0) as arrival:
        arrival.write(content)
        arrival.end()
    return upload.id
