"""Link findings of single operators to the fusible chain that they are part of.

The same time can be saved by a better kernel or by fusing the chain, but only once.
"""

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from jarvis.analyses.chains import ATTENTION, Chain
from jarvis.findings import AnalysisResult, Finding, Status
from jarvis.schemas.names import C
from jarvis.text.messages import Message, MessageTable

NEIGHBORS = frozenset({"elementwise.chain", "elementwise.alone"})
"""Ids of the advice to fuse a row with operators of its category, which a chain makes precise."""

PART_OF_CHAIN = "part_of_chain"
"""Name of the evidence that lists the chains of a finding's operations."""

MESSAGES = MessageTable(
    "chain_context",
    {
        "evidence": "{parts:list}",
        "evidence.part": "{time_ms} in {chain}",
        "fuse": "Fuse {name} with the rest of its chain: {parts:list}.",
        "composition": "{chain} computes {composition} with single operators; see the findings "
        "on kernel fusion.",
        "attention": "{chain} produces the input of attention{part}; see the findings on kernel "
        "fusion.",
        "attention.part": " in {instances:,} of its instances ({time_ms})",
    },
)
_CHAIN_NOTES = ("chain_context.composition", "chain_context.attention")


def with_chains(result: AnalysisResult, chains: Sequence[Chain]) -> AnalysisResult:
    """Return a category's result with the fusible ``chains`` named in its findings and notes."""
    if result.tier != "compute" or result.status is Status.ERROR or not chains:
        return result
    findings = tuple(_with_evidence(finding, chains) for finding in result.findings)
    notes = [note for chain in chains for note in _notes(chain, result.key)]
    return result.model_copy(update={"findings": findings, "notes": (*result.notes, *notes)})


def fusion_findings_of(
    results: Mapping[str, AnalysisResult], result: AnalysisResult
) -> dict[int, Finding]:
    """Return the findings on kernel fusion about the chains that the notes of a category name, by
    position."""
    fusion = results.get("kernel_fusion")
    if fusion is None:
        return {}
    of_notes = (note.values.get("chain") for note in result.notes if note.id in _CHAIN_NOTES)
    named = {
        _key(chain, chain.values["subject"]) for chain in of_notes if isinstance(chain, Message)
    }
    titles = [finding.title[0] for finding in fusion.findings]
    return {
        place: finding
        for place, (finding, title) in enumerate(zip(fusion.findings, titles, strict=True))
        if _key(title, title) in named
    }


def _key(counts: Message, subject: object) -> tuple[object, ...]:
    name = subject.values.get("name") if isinstance(subject, Message) else None
    return name, counts.values.get("kernels"), counts.values.get("instances")


def _notes(chain: Chain, key: str) -> Iterator[Message]:
    """Yield the notes on a chain that concern the category of this key."""
    found = chain.composition
    if found is not None and found.category == key:
        yield MESSAGES("composition", chain=chain.summary, composition=found.named)
    count, time_ms = chain.before_attention
    if key == ATTENTION and count:
        is_part = count != chain.instances
        part = MESSAGES("attention.part", instances=count, time_ms=time_ms) if is_part else None
        yield MESSAGES("attention", chain=chain.summary, part=part)


def _with_evidence(finding: Finding, chains: Sequence[Chain]) -> Finding:
    uids = [reference.uid for reference in finding.operations]
    parts, time_us = [], 0.0
    for chain in chains:
        shared_steps = chain.steps.filter(pl.col(C.operation_uid).is_in(uids))
        if shared_us := float(shared_steps[C.kernel_time_us].sum()):
            parts.append(MESSAGES("evidence.part", time_ms=shared_us / 1000, chain=chain.summary))
            time_us += shared_us
    if not parts:
        return finding
    evidence = {**finding.evidence, PART_OF_CHAIN: MESSAGES("evidence", parts=parts)}
    own_ms = finding.evidence.get("gpu_time_ms")
    if not isinstance(own_ms, int | float) or time_us < 1000 * own_ms / 2:
        return finding.model_copy(update={"evidence": evidence})
    fuse = MESSAGES("fuse", name=finding.operations[0].name, parts=parts)
    advice = tuple(_in_chain(message, fuse) for message in finding.algorithmic)
    return finding.model_copy(update={"evidence": evidence, "algorithmic": advice})


def _in_chain(message: Message, fuse: Message) -> Message:
    """Return the message with the advice on neighbors replaced by ``fuse``."""
    inner = message.values.get(C.chain)
    is_on_neighbors = isinstance(inner, Message) and inner.id in NEIGHBORS
    return fuse if is_on_neighbors else message
