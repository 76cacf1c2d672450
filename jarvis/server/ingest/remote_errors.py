"""Why a run on another machine failed, from what ssh and the programs there said."""

from jarvis.core.errors import JarvisError
from jarvis.server.settings import Target

SSH_FAILED = 255
NOT_RUNNABLE, NOT_FOUND = 126, 127
USAGE = 2
KILLED = 128


class RemoteError(JarvisError):
    """A trace cannot be analyzed on another machine."""


_SSH = (
    (
        ("REMOTE HOST IDENTIFICATION HAS CHANGED",),
        "shows another key than the one that is known here: it was set up anew, or somebody stands "
        "between. Nothing was sent. Ask who runs it, then mend the known_hosts of this server.",
    ),
    (
        ("Host key verification failed",),
        "has a key that is not known here. Connect once by ssh as the user of this server, and "
        "check the key.",
    ),
    (
        ("Permission denied", "Too many authentication failures"),
        "does not let this server in: its key is refused. Have the key allowed there.",
    ),
    (
        (
            "Could not resolve",
            "Connection refused",
            "timed out",
            "No route to host",
            "unreachable",
        ),
        "cannot be reached by ssh. Check that it runs, and its name in the settings.",
    ),
)
"""By what ssh says; the first that fits."""

_NO_CONTAINER = ("No such container", "is not running", "no container with name")
_NOT_IN_CONTAINER = ("executable file not found", "no such file or directory")
_NO_PROGRAM = ("not found", "No such file")
_FROM_JARVIS = "jarvis: "


def reason_of(name: str, target: Target, code: int, said: tuple[str, ...]) -> str:
    """What happened on the machine ``name``, and what to do; ``said`` may be a stranger's words."""
    text = "\n".join(said)
    if code == SSH_FAILED:
        for signs, reason in _SSH:
            if any(sign in text for sign in signs):
                return f"{name} {reason}"
        return f"The connection to {name} broke{_quoted(said)}. Retry the job."
    if target.container and any(sign in text for sign in _NO_CONTAINER):
        return (
            f"There is no container {target.container} that runs on {name}. Start it there, or "
            "mend its name in the settings."
        )
    if code in (NOT_RUNNABLE, NOT_FOUND):
        return _missing(name, target, text)
    sentence = next((line for line in reversed(said) if line.startswith(_FROM_JARVIS)), None)
    if code == USAGE:
        return (
            f"Jarvis on {name} is older than here, and does not know what it is asked. Update it."
        )
    if sentence is not None:
        return f"On {name}: {sentence.removeprefix(_FROM_JARVIS)}"
    if code > KILLED:
        return (
            f"The run on {name} was killed (signal {code - KILLED}), perhaps because the machine "
            "ran out of memory. Retry the job."
        )
    return f"The run on {name} ended with the code {code}{_quoted(said)}. The log has the details."


def _missing(name: str, target: Target, text: str) -> str:
    runner = target.container_command[0] if target.container_command else ""
    is_runner = target.container and f"{runner}:" in text and "not found" in text
    if is_runner and not any(sign in text for sign in _NOT_IN_CONTAINER):
        return (
            f"{name} has no program {runner}, which is to reach the container. Install it there, "
            "or mend the settings."
        )
    where = f"in the container {target.container} on {name}" if target.container else f"on {name}"
    return (
        f"There is no Jarvis {where}: {target.command[0]} is not found. Install it there, or say "
        "in the settings what starts it."
    )


def _quoted(said: tuple[str, ...]) -> str:
    return f" ({said[-1]})" if said else ""
