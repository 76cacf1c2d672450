"""What the exit code of a command means: the same for every command."""

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes; ``meaning`` is what the documentation says of each."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> "ExitCode":
        """A code with what it means."""
        made = int.__new__(cls, code)
        made._value_ = code
        made.meaning = meaning
        return made

    OK = 0, "what was asked for is done"
    FAILED = 1, "it cannot be done; one sentence on stderr says why and what to do"
    USAGE = 2, "the command or an option is not understood; stderr says which"
    CHECK_FAILED = 3, "it was done, and what was to be checked does not hold"
    INTERRUPTED = 130, "stopped by Ctrl-C; nothing half-made is left behind"
