"""Say beside the findings of single operators which chain worth fusing they are part of.

The same time can be saved by a better kernel or by fusing the chain that the kernel belongs to, and
is saved only once.
"""

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from jarvis.analyses.chains import ATTENTION, Chain
from jarvis.analyses.wording import counted, listed, ms
from jarvis.findings import AnalysisResult, Finding, Status

PART_OF_CHAIN = "Part of a chain to fuse"
"""The evidence that names the chains that a finding's operations belong to."""


def with_chains(result: AnalysisResult, chains: Sequence[Chain]) -> AnalysisResult:
    """A category's result whose findings, and whose notes, name the ``chains`` worth fusing."""
    if result.tier != "compute" or result.status is Status.ERROR or not chains:
        return result
    findings = tuple(_with_evidence(finding, chains) for finding in result.findings)
    notes = [note for chain in chains for note in _notes(chain, result.key)]
    return result.model_copy(update={"findings": findings, "notes": (*result.notes, *notes)})


def _notes(chain: Chain, key: str) -> Iterator[str]:
    """What the category of this key should know of a chain."""
    if chain.composition is not None and chain.composition.category == key:
        yield (
            f"{chain_text(chain)} computes a {chain.composition.title} by single operators; see "
            "the findings on kernel fusion."
        )
    count, time_ms = chain.before_attention
    if key == ATTENTION and count:
        part = "" if count == chain.instances else f" in {count:,} of them, {ms(time_ms)}"
        yield (
            f"{chain_text(chain)} makes what attention reads{part}; see the findings on kernel "
            "fusion."
        )


def chain_text(chain: Chain) -> str:
    """The chain with its kernels, instances and time."""
    kernels = counted(chain.kernels // chain.instances, "kernel")
    return (
        f"{chain.phrase} ({kernels}, {counted(chain.instances, 'instance')}, "
        f"{ms(chain.time_ms)} in all)"
    )


def _with_evidence(finding: Finding, chains: Sequence[Chain]) -> Finding:
    uids = [reference.uid for reference in finding.operations]
    parts = []
    for chain in chains:
        mine = chain.steps.filter(pl.col("operation_uid").is_in(uids))
        if time_us := float(mine["kernel_time_us"].sum()):
            parts.append(f"{ms(time_us / 1000)} in {chain_text(chain)}")
    if not parts:
        return finding
    evidence: Mapping[str, float | int | str] = {**finding.evidence, PART_OF_CHAIN: listed(parts)}
    return finding.model_copy(update={"evidence": evidence})
