"""Drop the actions of a finding whose preconditions the trace does not meet."""

from jarvis.findings import TEXTS, Finding, TextName
from jarvis.preconditions import Facts, Subject
from jarvis.text.messages import Message, MessageTable, to_text, without

MESSAGES = MessageTable(
    "actions",
    {
        "none.algorithmic": "The trace supports no change to the model here.",
        "none.kernel": "The trace supports no change to the kernels here.",
    },
)

REQUIRED: tuple[TextName, ...] = ("algorithmic", "kernel")
"""Texts that every finding has; one without an action states this."""


def supported(finding: Finding, facts: Facts) -> Finding:
    """Return a finding without the messages, and parts of messages, whose preconditions do not
    hold.

    A finding without an action on a path states this in one sentence.
    """
    subject = subject_of(finding)
    texts: dict[str, tuple[Message, ...]] = {}
    for name in TEXTS:
        before: tuple[Message, ...] = getattr(finding, name)
        after = [without(each, lambda m: not facts.hold(m.needs, subject)) for each in before]
        texts[name] = tuple(message for message in after if message is not None)
        if name in REQUIRED and not to_text(texts[name]):
            texts[name] = (MESSAGES(f"none.{name}"),)
    return finding.model_copy(update=texts)


def is_no_action(text: tuple[Message, ...]) -> bool:
    """Return whether the text only says that there is no action on its path."""
    return any(message.id.startswith(f"{MESSAGES.name}.none.") for message in text)


def subject_of(finding: Finding) -> Subject:
    """Return what the preconditions of a finding's actions are about."""
    uids = tuple(operation.uid for operation in finding.operations) or finding.shared_uids
    direction = finding.evidence.get("direction")
    return Subject(uids, direction if isinstance(direction, str) else None)
