"""Error messages for failed remote runs, from the stderr of ssh and the remote programs."""

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
        "has another host key than in known_hosts: the machine was reinstalled, or the connection "
        "is intercepted. Nothing was sent. Verify the key with the machine's admin, then update "
        "known_hosts on this server.",
    ),
    (
        ("Host key verification failed",),
        "has an unknown host key. Connect once by ssh as the user of this server, and verify the "
        "key.",
    ),
    (
        ("Permission denied", "Too many authentication failures"),
        "rejected this server's key. Authorize the key there.",
    ),
    (
        (
            "Could not resolve",
            "Connection refused",
            "timed out",
            "No route to host",
            "unreachable",
        ),
        "cannot be reached by ssh. Check that it is running, and its name in the settings.",
    ),
)
"""Messages by substrings of ssh's stderr; the first match applies."""

_NO_CONTAINER = ("No such container", "is not running", "no container with name")
_NOT_IN_CONTAINER = ("executable file not found", "no such file or directory")
_NO_PROGRAM = ("not found", "No such file")
_FROM_JARVIS = "jarvis: "


def reason_of(name: str, target: Target, code: int, stderr: tuple[str, ...]) -> str:
    """Return why a run on the machine ``name`` failed, and what to do.

    Args:
        code: exit code of ssh.
        stderr: last lines of stderr; untrusted.
    """
    text = "\n".join(stderr)
    if code == SSH_FAILED:
        for signs, reason in _SSH:
            if any(sign in text for sign in signs):
                return f"{name} {reason}"
        return f"The connection to {name} was lost{_quoted(stderr)}. Retry the job."
    if target.container and any(sign in text for sign in _NO_CONTAINER):
        return (
            f"No container {target.container} is running on {name}. Start it there, or correct "
            "its name in the settings."
        )
    if code in (NOT_RUNNABLE, NOT_FOUND):
        return _missing(name, target, text)
    message = next((line for line in reversed(stderr) if line.startswith(_FROM_JARVIS)), None)
    if code == USAGE:
        return f"Jarvis on {name} is too old for these options. Update it there."
    if message is not None:
        return f"On {name}: {message.removeprefix(_FROM_JARVIS)}"
    if code > KILLED:
        return (
            f"The run on {name} was killed (signal {code - KILLED}), perhaps because the machine "
            "ran out of memory. Retry the job."
        )
    return f"The run on {name} failed with exit code {code}{_quoted(stderr)}. See the log."


def _missing(name: str, target: Target, text: str) -> str:
    runner = target.container_command[0] if target.container_command else ""
    is_runner = target.container and f"{runner}:" in text and "not found" in text
    if is_runner and not any(sign in text for sign in _NOT_IN_CONTAINER):
        return (
            f"{name} has no program {runner}, which is needed for the container. Install it "
            "there, or correct the settings."
        )
    where = f"in the container {target.container} on {name}" if target.container else f"on {name}"
    return (
        f"Jarvis is not installed {where}: {target.command[0]} was not found. Install it there, "
        "or set its command in the settings."
    )


def _quoted(stderr: tuple[str, ...]) -> str:
    return f" ({stderr[-1]})" if stderr else ""
