"""Findings with impact and priority, and the result of one analysis."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import chain
from operator import attrgetter
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, model_validator
from pydantic.dataclasses import dataclass

from jarvis.text.messages import Message, MessageTable, Text, Value, literal, to_text
from jarvis.text.quantities import QUANTITIES, Quantity, name_of, title_of

Tier = Literal["compute", "fusion", "system"]
"""Kinds of analyses: of the rows that they claim, of chains across them, of the whole GPU."""

IDLE_POOL, COMMUNICATION_POOL, COPIES_POOL = "idle", "exposed communication", "exposed copies"
"""Pools of time that findings without operations save from. Copies also have one for each
direction, whose name begins with this one."""


def _by_quantity_name(evidence: object) -> object:
    if not isinstance(evidence, Mapping):
        return evidence
    return {name_of(name): value for name, value in evidence.items() if value is not None}


EvidenceValue = float | int | str | Message
"""A number, a text, or a message: a text with numbers."""

Evidence = Annotated[dict[str, EvidenceValue], BeforeValidator(_by_quantity_name)]
"""Values by the names of ``jarvis.text.quantities``, in display order; None values are dropped.
Plugins may use their own labels."""


class Priority(StrEnum):
    """How urgent a finding is, most urgent first."""

    CRITICAL = "Critical"
    HIGH = "High"
    MEDIUM = "Medium"
    LOW = "Low"

    @property
    def icon(self) -> str:
        """Return a colored dot; the word is always shown next to it."""
        return _PRIORITY_ICONS[self]

    @property
    def rank(self) -> int:
        """Return 0 for the most urgent."""
        return list(Priority).index(self)

    def lowered(self) -> "Priority":
        """Return the priority one step less urgent."""
        return list(Priority)[min(self.rank + 1, len(Priority) - 1)]

    def at_most(self, cap: "Priority") -> "Priority":
        """Return this priority, but no more urgent than ``cap``."""
        return max(self, cap, key=lambda priority: priority.rank)

    def at_least(self, floor: "Priority") -> "Priority":
        """Return this priority, but no less urgent than ``floor``."""
        return min(self, floor, key=lambda priority: priority.rank)


_PRIORITY_ICONS = {
    Priority.CRITICAL: "🔴",
    Priority.HIGH: "🟡",
    Priority.MEDIUM: "🟢",
    Priority.LOW: "⚪",
}


class Severity(StrEnum):
    """The grade of a system-level symptom."""

    CRITICAL = "CRITICAL"
    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"
    ACCEPTABLE = "ACCEPTABLE"
    GOOD = "GOOD"
    NOT_AVAILABLE = "NOT AVAILABLE"


class Status(StrEnum):
    """The outcome of an analysis."""

    OK = "OK"
    NO_DATA = "NO_DATA"
    ERROR = "ERROR"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


_UID = attrgetter("uid")


@dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(extra="forbid"))
class OpRef:
    """One row of the operations table; ``uid`` is the join key, the other fields are
    display-only. Findings have tens of thousands, so it is not a model, which takes 400 bytes
    more."""

    uid: int
    name: str
    input_dims: str | None = None
    operation_count: int


class Range(_Frozen):
    """A low, a middle and a high estimate."""

    low: float
    mid: float
    high: float


class Impact(_Frozen):
    """The estimated gain of a finding.

    ``time_ms`` is the time that it concerns, ``saved_ms`` the estimate, ``compute_pct`` and
    ``e2e_pct`` the same as a percentage of compute time, which idle time and communication may
    exceed, and as a share of the GPU window. ``method`` is the source of the numbers: the perf
    model, an upper bound measured in the trace, or experience.

    ``step_ms`` is the step time saved, ``step_pct`` its share of the steps; None if the input does
    not tell. It is that of replays if ``is_replayed``, else within what bounds the recorded steps
    (``StepBounds``). An interval is a saving of which a trace of one rank shows only the ends: its
    high end counts.
    """

    time_ms: float
    efficiency_pct: float | None = None
    target_pct: float | None = None
    saved_ms: Range
    compute_pct: Range
    e2e_pct: Range
    method: Literal["perf model", "upper bound", "heuristic"]
    step_ms: Range | None = None
    step_pct: Range | None = None
    is_interval: bool = False
    is_replayed: bool = False

    @property
    def gain_ms(self) -> float:
        """Return the saving of the finding: of step time if it is known, else of GPU time."""
        return self._counting(self.step_ms or self.saved_ms)

    @property
    def gain_pct(self) -> float:
        """Return the saving as a share of the steps, if it is known, else of the GPU window."""
        return self._counting(self.step_pct or self.e2e_pct)

    def _counting(self, saving: Range) -> float:
        return saving.high if self.is_interval else saving.mid


TextName = Literal[
    "title",
    "issue",
    "algorithmic",
    "kernel",
    "hypothesis",
    "caveat",
    "verify",
    "capture",
    "priority_reason",
]


class Finding(_Frozen):
    """A performance problem as data: its check, subject, numbers, evidence and actions.

    Its texts are messages; ``jarvis.text.messages.to_text`` renders them. ``algorithmic`` may
    change the model, ``kernel`` does not change its code. ``hypothesis`` is a likely cause that a
    trace cannot prove, ``verify`` how to check that the action worked, ``capture`` which profiler
    settings or measurements would show what this trace cannot. ``time_pool`` names the time that a
    finding without operations saves from, and ``shared_uids`` the rows of the operations table that
    include part of that time too: savings from one pool or one row do not add up.
    ``priority_before`` is its priority before the step time that it saves changed it, and
    ``priority_reason`` why. A finding that ``leads`` makes the others uncertain or incomplete and
    comes before them. ``kernels`` are the names of those of its operations that it concerns,
    ``events`` the uids of their GPU events; empty for all.
    """

    check: str
    category: str
    title: Text
    operations: tuple[OpRef, ...] = ()
    evidence: Evidence = Field(default_factory=dict)
    issue: Text
    algorithmic: Text
    kernel: Text
    priority_local: Priority
    priority: Priority
    severity: Severity | None = None
    impact: Impact | None = None
    hypothesis: Text = ()
    caveat: Text = ()
    verify: Text = ()
    capture: Text = ()
    time_pool: str | None = None
    shared_uids: tuple[int, ...] = ()
    priority_before: Priority | None = None
    priority_reason: Text = ()
    leads: bool = False
    kernels: tuple[str, ...] = ()
    events: tuple[int, ...] = ()

    @property
    def row_uids(self) -> frozenset[int]:
        """Return the rows of the operations table that it concerns or shares."""
        return frozenset(self.each_row_uid())

    def each_row_uid(self) -> Iterator[int]:
        """Yield ``row_uids``, which can be thousands."""
        return chain(map(_UID, self.operations), self.shared_uids)

    @property
    def subject_key(self) -> str:
        """Return a key of its subject, equal at every target and in a repeated analysis.

        It depends on category, check, pool and the names in the title, not on numbers or order.
        """
        names = json.dumps([self.time_pool, *_names(self.title)], ensure_ascii=False)
        digest = hashlib.sha256(names.encode(errors="replace")).hexdigest()[:_DIGEST_CHARS]
        return f"{self.category}.{self.check}.{digest}"

    @property
    def has_agent_card(self) -> bool:
        """Return whether files in the layout of TraceLens's agent have a card of it: unless its
        priority is low, before and after the step time changed it."""
        return {self.priority, self.priority_before or Priority.LOW} != {Priority.LOW}

    @model_validator(mode="before")
    @classmethod
    def _from_data(cls, stored: object) -> object:
        """Accept the output of ``as_data``."""
        if not isinstance(stored, Mapping) or "messages" not in stored:
            return stored
        data = _Data.model_validate({name: stored.get(name) for name in _Data.model_fields})
        fields = {name: value for name, value in stored.items() if name not in _Data.model_fields}
        evidence = {each.name: each.message or each.value for each in data.quantities}
        return {**fields, **data.messages, "evidence": evidence}


def _names(values: Iterable[Value]) -> Iterator[str]:
    """Yield the texts among the values of messages, recursively and in order of their names."""
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, Message):
            yield from _names(value.values[name] for name in sorted(value.values))
        elif isinstance(value, tuple):
            yield from _names(value)


_DIGEST_CHARS = 10


class _StoredQuantity(_Frozen):
    name: str
    label: str
    unit: str
    value: float | int | str
    message: Message | None = None


class _Data(_Frozen):
    """The fields that ``as_data`` adds to the texts of a finding."""

    messages: dict[TextName, Text]
    quantities: tuple[_StoredQuantity, ...]


TEXTS: tuple[TextName, ...] = get_args(TextName)
"""The fields of a finding that are messages."""


def texts_of(
    table: MessageTable,
    values: Mapping[str, object] | None = None,
    *,
    prefix: str = "",
    suffix: str = "",
) -> dict[str, Any]:
    """Return the texts of a finding by field: the messages of ``table`` under the field's name.

    Args:
        table: Messages; those of other keys are ignored.
        values: What the messages may name.
        prefix, suffix: What the keys begin and end with: ``cache.title``, ``title.padding``.
    """
    keys = {name: ".".join(filter(None, (prefix, name, suffix))) for name in TEXTS}
    made = {name: table.texts(key, **(values or {})) for name, key in keys.items()}
    return {name: messages for name, messages in made.items() if messages}


def shown_evidence(finding: Finding) -> dict[str, float | int | str]:
    """Return the evidence with its messages as texts."""
    return {
        name: to_text(value) if isinstance(value, Message) else value
        for name, value in finding.evidence.items()
    }


def worded(finding: Finding) -> dict[str, JsonValue]:
    """Return a finding as JSON for readers: its messages as sentences, its evidence by label."""
    sentences: dict[str, JsonValue] = {
        name: to_text(getattr(finding, name)) or None for name in TEXTS
    }
    evidence: dict[str, JsonValue] = {
        title_of(name): value for name, value in shown_evidence(finding).items()
    }
    left_out = {*sentences, "evidence"} if finding.events else {*sentences, "evidence", "events"}
    fields = finding.model_dump(mode="json", exclude=left_out)
    found = {**fields, **sentences, "evidence": evidence}
    return {name: found[name] for name in Finding.model_fields if name in found}


def as_data(finding: Finding) -> dict[str, JsonValue]:
    """Return a finding as JSON: ``worded``, its ``messages`` by field, and its ``quantities``.

    Each quantity has its name, label, unit and value, and the message that a text is made from.
    ``Finding.model_validate`` reads it back.
    """
    messages: dict[str, JsonValue] = {
        name: [message.model_dump(mode="json") for message in getattr(finding, name)]
        for name in TEXTS
    }
    quantities: list[JsonValue] = [
        {
            "name": name,
            **QUANTITIES.get(name, Quantity(name))._asdict(),
            "value": value,
            "message": _as_json(finding.evidence[name]),
        }
        for name, value in shown_evidence(finding).items()
    ]
    return {**worded(finding), "messages": messages, "quantities": quantities}


def _as_json(value: EvidenceValue) -> JsonValue:
    return value.model_dump(mode="json") if isinstance(value, Message) else None


def with_literal_messages(finding: Finding) -> Finding:
    """Return the finding with literal messages, which need no message table to be rendered."""
    texts = {name: to_text(getattr(finding, name)) for name in TEXTS}
    return finding.model_copy(
        update={
            **{name: (literal(text),) if text else () for name, text in texts.items()},
            "evidence": shown_evidence(finding),
        }
    )


def _as_messages(notes: object) -> object:
    if not isinstance(notes, list | tuple):
        return notes
    return tuple(literal(note) if isinstance(note, str) else note for note in notes)


Notes = Annotated[tuple[Message, ...], BeforeValidator(_as_messages)]
"""Sentences next to the findings; strings become literal messages."""


class AnalysisResult(_Frozen):
    """The outcome of one analysis: numbers, findings, or the reason for having none."""

    key: str
    title: str
    tier: Tier
    status: Status
    gpu_time_ms: float = 0.0
    percent_of_compute: float | None = None
    percent_of_total: float | None = None
    efficiency_pct: float | None = None
    mean_efficiency_pct: float | None = None
    efficiency_coverage_pct: float | None = None
    row_count: int = 0
    invocation_count: int = 0
    findings: tuple[Finding, ...] = ()
    metrics: dict[str, JsonValue] = Field(default_factory=dict)
    notes: Notes = ()
    error: str | None = None
    traceback: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_data(cls, stored: object) -> object:
        """Accept the output of ``result_data``."""
        if not isinstance(stored, Mapping) or NOTES not in stored:
            return stored
        fields = {name: value for name, value in stored.items() if name != NOTES}
        return {**fields, "notes": stored[NOTES]}


NOTES = "note_messages"
"""The field of ``result_data`` that has the messages of the notes."""


def result_data(result: AnalysisResult) -> dict[str, JsonValue]:
    """Return a result as JSON: its findings ``as_data``, its notes as sentences and messages.

    ``AnalysisResult.model_validate`` reads it back.
    """
    return {
        **result.model_dump(mode="json", exclude={"findings", "notes"}),
        "notes": [to_text(note) for note in result.notes],
        NOTES: [note.model_dump(mode="json") for note in result.notes],
        "findings": [as_data(finding) for finding in result.findings],
    }
