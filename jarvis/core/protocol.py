"""What programs and the server say to each other: where the API is, how files are sent to it."""

API = "/api"
UPLOADS = f"{API}/uploads"

BEARER = "Bearer"
"""What stands before a token in the header ``Authorization``."""

TOKEN_VARIABLE = "JARVIS_TOKEN"
"""Where a program finds its token."""

TUS_HEADER, TUS_VERSION = "Tus-Resumable", "1.0.0"
"""The protocol of uploads (https://tus.io)."""

PIECE_TYPE = "application/offset+octet-stream"
"""The type of a piece of an upload."""
