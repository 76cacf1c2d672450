"""Errors of the server; the API answers them with the statuses of ``http.api.errors``.

Access: ForbiddenError · UnknownPersonError · UnknownCallerError · TokenError · TicketError ·
    TooManyRequestsError
Settings and database: SettingsError · DatabaseError · NewerDatabaseError · NotReadyError
Input: IntakeError · AddressError · FetchError · InterruptedFetchError · RemoteError ·
    UnknownUploadError · UnfinishedUploadError · TooLargeUploadError · TooManyUploadsError ·
    BusyUploadError · NoSpaceError · OffsetError · ChecksumError · TooMuchError
Jobs: UnknownJobError · UnknownFileError · OutdatedJobError · MissingInputError · RefusedError ·
    SingleJobError
Analyses and files: UnknownAnalysisError · UnknownArtifactError · PrivateAnalysisError ·
    OthersAnalysisError · StaleNotesError · UnknownNoteError · RemovalRefusedError · CopyError ·
    ArchiveError · RunLimitError · ReceivedRunError · ArtifactError · MissingArtifactError ·
    DamagedArtifactError · FullDiskError
"""

from pathlib import Path

from jarvis.core.errors import JarvisError
from jarvis.core.workspace import ARTIFACT_ROOT_VARIABLE, analyses_dir
from jarvis.text.format import byte_size


class ForbiddenError(JarvisError):
    """The person may not do this."""


class UnknownPersonError(JarvisError):
    """The identity of a person cannot be determined."""


class UnknownCallerError(JarvisError):
    """The request has no credentials."""

    def __init__(self, header: str) -> None:
        super().__init__(
            "This server requires authentication. Create a token on the Access page and send it "
            f"in the header `{header}`."
        )


class TokenError(JarvisError):
    """A token cannot be created, found or used."""


class TicketError(JarvisError):
    """The ticket is not valid."""

    def __init__(self) -> None:
        super().__init__("The page has been open for too long. Reload it, then try again.")


class TooManyRequestsError(JarvisError):
    """The caller exceeded the rate limit; ``retry_s`` is the time until the next window."""

    def __init__(self, limit: int, retry_s: int) -> None:
        self.retry_s = retry_s
        super().__init__(f"Rate limit exceeded: {limit} requests per minute. Retry in {retry_s} s.")


class SettingsError(JarvisError):
    """A setting is not valid."""


class DatabaseError(JarvisError):
    """The database cannot be used."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"The database of this server cannot be used: {reason}. Check that it is running and "
            f"writable (JARVIS_DATABASE_URL, by default a file in JARVIS_HOME), then try again."
        )


class NewerDatabaseError(JarvisError):
    """The database was migrated by a newer Jarvis."""

    def __init__(self, current: str, supported: str) -> None:
        super().__init__(
            f"The database of this server has version {current}, but this Jarvis supports version "
            f"{supported}. Use the newer Jarvis, or another database."
        )


class NotReadyError(JarvisError):
    """A dependency of the server is not available."""


class IntakeError(JarvisError):
    """The file is not accepted."""


class AddressError(JarvisError):
    """The URL is invalid or not allowed."""


class FetchError(JarvisError):
    """A trace cannot be downloaded."""


class InterruptedFetchError(FetchError):
    """The connection was lost; a retry may succeed."""


class RemoteError(JarvisError):
    """A trace cannot be analyzed on another machine."""


class UnknownUploadError(JarvisError):
    """There is no such upload."""

    def __init__(self) -> None:
        super().__init__(
            "There is no such upload on this server: it was deleted, or expired a day after its "
            "last byte. Upload the file again."
        )


class UnfinishedUploadError(JarvisError):
    """The upload is not complete."""

    def __init__(self, name: str, offset_bytes: int, size_bytes: int) -> None:
        super().__init__(
            f"The upload of {name} is incomplete: {byte_size(offset_bytes)} of "
            f"{byte_size(size_bytes)} received. Send the rest first."
        )


class TooLargeUploadError(JarvisError):
    """The file exceeds the size limit."""

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"The file has {byte_size(size_bytes)}; the limit of this server is "
            f"{byte_size(limit_bytes)}. Compress it, ask an admin to raise "
            "JARVIS_MAX_UPLOAD_GB, or analyze it by its path on the server."
        )


class TooManyUploadsError(JarvisError):
    """There are too many incomplete uploads."""


class BusyUploadError(JarvisError):
    """Another connection is sending the same upload."""


class NoSpaceError(JarvisError):
    """The disk has not enough free space."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"{reason} Received bytes are stored for a day. Ask an admin to free disk space on "
            "the server (`jarvis prune`), then resume."
        )


class OffsetError(JarvisError):
    """The offset of a chunk is not the current offset of the upload."""

    def __init__(self, sent: int, has: int) -> None:
        super().__init__(f"The offset of the upload is {has}, not {sent}. Resume at {has}.")


class ChecksumError(JarvisError):
    """The checksum of a chunk does not match."""

    def __init__(self) -> None:
        super().__init__("The checksum of the chunk does not match. Send it again.")


class TooMuchError(JarvisError):
    """More bytes are sent than the declared size."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(
            f"More bytes were sent than the declared {size_bytes}. Start a new upload."
        )


class UnknownJobError(JarvisError):
    """There is no such job."""

    def __init__(self, job_id: str) -> None:
        super().__init__(
            f"There is no job {job_id[:40]!r} on this server: it was deleted, or the link is from "
            "another server. The existing jobs are listed below."
        )


class UnknownFileError(JarvisError):
    """The job has no file."""

    def __init__(self, job_id: str) -> None:
        super().__init__(
            f"The job {job_id} has no file: it created none, or the file was deleted. Request it "
            "again."
        )


class OutdatedJobError(JarvisError):
    """The parameters of a stored job do not match its request class."""

    def __init__(self) -> None:
        super().__init__(
            "This job was submitted by another version of Jarvis and is not compatible with this "
            "one. Submit it again."
        )


class MissingInputError(JarvisError):
    """An input file of a job cannot be read."""

    def __init__(self, error: OSError) -> None:
        name = Path(str(error.filename)).name
        super().__init__(
            f"{name} cannot be read: {error.strerror or error}. Select or upload it again."
        )


class RefusedError(JarvisError):
    """The job cannot start on this Dask worker."""


class SingleJobError(JarvisError):
    """The job failed; the message is the job's."""


class UnknownAnalysisError(JarvisError):
    """There is no such analysis."""

    def __init__(self, analysis_id: str) -> None:
        super().__init__(
            f"There is no analysis {analysis_id[:64]!r} on this server: it was deleted, or the "
            "link is from another server. Choose another analysis, or analyze the trace again."
        )


class UnknownArtifactError(JarvisError):
    """The analysis has no such file."""

    def __init__(self, analysis_id: str) -> None:
        super().__init__(
            f"The analysis {analysis_id} has no such file. /api/analyses/{analysis_id}/artifacts "
            "lists its files."
        )


class UnknownInstanceError(JarvisError):
    """The distributed run has no such collective."""

    def __init__(self, distributed_id: str, instance: int) -> None:
        super().__init__(
            f"The distributed run {distributed_id} has no collective {instance}. "
            f"/api/distributed/{distributed_id}/instances lists them."
        )


class RankCountError(JarvisError):
    """Too few or too many traces are given as ranks."""

    def __init__(self, least: int, most: int) -> None:
        super().__init__(
            f"A distributed run has {least} to {most:,} ranks: give a trace or analysis of each."
        )


class PrivateAnalysisError(JarvisError):
    """The same analysis exists as a private one of another person."""

    def __init__(self) -> None:
        super().__init__(
            "Another user has a private analysis of this trace with these options. Use a "
            "different model name, or ask an admin of this server."
        )


class OthersAnalysisError(JarvisError):
    """An analysis of another person would be replaced."""

    def __init__(self, analysis_id: str) -> None:
        super().__init__(
            f"Analysis {analysis_id} of this trace with these options belongs to another user, so "
            "you cannot run it again. Open it, use a different model name, or ask its owner or an "
            "admin of this server."
        )


class StaleNotesError(JarvisError):
    """Notes were changed after the revision that the caller has seen."""

    def __init__(self, changes: str) -> None:
        super().__init__(f"Changed meanwhile: {changes}. Read the notes again, then repeat this.")


class UnknownNoteError(JarvisError):
    """The report has no such finding or comment."""


class RemovalRefusedError(JarvisError):
    """The analysis cannot be deleted."""

    def __init__(self, analysis_id: str, reason: str, remedy: str) -> None:
        super().__init__(f"Analysis {analysis_id} cannot be deleted: {reason}. {remedy}")


class CopyError(JarvisError):
    """The analysis is stored, but the output folder could not be written."""

    def __init__(self, folder: Path, error: OSError) -> None:
        super().__init__(
            f"The trace was analyzed, but the run could not be written to {folder}: "
            f"{error.strerror or error}. Choose another output folder."
        )


class ArchiveError(JarvisError):
    """An archive cannot be imported."""

    def __init__(self, path: Path, reason: str, remedy: str) -> None:
        super().__init__(f"{path.name} cannot be imported: {reason}. {remedy}")


class RunLimitError(JarvisError):
    """A run directory is rejected; the message is the reason, without the run's name."""


class ReceivedRunError(JarvisError):
    """An untrusted run directory is rejected; the message is the reason."""


class ArtifactError(JarvisError):
    """The artifact root cannot be used."""

    def __init__(self, root: str, reason: str) -> None:
        super().__init__(
            f"The artifact root {root} cannot be used: {reason}. Check that it exists, is "
            f"reachable and is writable for this server ({ARTIFACT_ROOT_VARIABLE}), then try again."
        )


class MissingArtifactError(JarvisError):
    """A file is not in the artifact root."""

    def __init__(self, root: str, key: str) -> None:
        super().__init__(
            f"The artifact root {root} no longer has {artifact_name(key)}: it was deleted. "
            "Create or upload it again."
        )


class DamagedArtifactError(JarvisError):
    """A file in the artifact root is damaged."""

    def __init__(self, root: str, key: str) -> None:
        super().__init__(
            f"In the artifact root {root}, {artifact_name(key)} is damaged ({key}). Delete "
            "the file there, then analyze or upload the trace again."
        )


class FullDiskError(JarvisError):
    """The local disk has no space for a download."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"The disk of this server is full: {artifact_name(key)} cannot be downloaded "
            "from the artifact root. Free disk space (`jarvis prune --dry-run` lists what can be "
            "deleted), or lower JARVIS_ARTIFACT_CACHE_GB, then try again."
        )


def artifact_name(key: str) -> str:
    """Return the name of a file of the artifact root for messages."""
    kind, name, *rest = key.split("/")
    return f"the analysis {name}" if kind == analyses_dir().name else (rest or [name])[-1]
