"""Exit codes of all commands."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes; ``meaning`` is their description in the documentation."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> "ExitCode":
        """Create a code with its meaning."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    OK = 0, "success"
    FAILED = 1, "error; a message on stderr says why and what to do"
    USAGE = 2, "invalid command or option; a message on stderr says which"
    CHECK_FAILED = 3, "the command ran, and a check, or a rank of several, failed"
    INTERRUPTED = 130, "stopped by Ctrl-C; partial output is removed"
