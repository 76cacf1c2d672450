"""Create uploads directly, as page tests have no browser."""

from jarvis.server.ingest.upload_writer import resume_upload
from jarvis.server.ingest.uploads import create


def uploaded(name: str, content: bytes, owner: str | None = None) -> str:
    """Return the id of a complete upload."""
    upload = create(name, len(content), owner)
    with resume_upload(upload.id, 0) as arrival:
        arrival.write(content)
        arrival.end()
    return upload.id
