"""Which value each number of a card's prose stands for, told from the words around it.

A rule names the facts of ``recomputed`` that a number between certain words may be, or the
documented threshold that it must be. Rules stand in order; the first whose words fit decides, so a
number can be right by one meaning only.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.arithmetic.printed import Printed, numbers
from tests.arithmetic.units import Facts


@dataclass(frozen=True)
class Rule:
    """``before`` must end, and ``after`` start, beside the number; ``unit`` is the base unit."""

    unit: str
    before: str
    after: str
    facts: tuple[str, ...] = ()
    threshold: tuple[float, ...] = ()

    def fits(self, number: Printed) -> bool:
        return (
            number.unit == self.unit
            and re.search(f"(?:{self.before})$", number.before) is not None
            and re.match(self.after, number.after) is not None
        )

    def holds(self, number: Printed, facts: Facts) -> bool:
        if any(number.value == threshold for threshold in self.threshold):
            return True
        return any(number.matches(value) for name in self.facts for value in facts.get(name, ()))


def rule(unit: str, before: str, after: str, *facts: str) -> Rule:
    """A number that is one of some facts."""
    return Rule(unit, before, after, facts)


def fixed(unit: str, before: str, after: str, *threshold: float) -> Rule:
    """A number that is one of some documented thresholds."""
    return Rule(unit, before, after, threshold=threshold)


COUNT, PCT, MS, BYTES, BAND, RATE = "", "%", "ms", "bytes", "TB/s", "TFLOPS/s"

THRESHOLDS = (
    fixed(COUNT, r"accuracy allows, ", r"-bit inputs", 8),
    fixed(MS, r"shortest kernels take (?:about )?", r"", 0.002),
    fixed(MS, r"ending a kernel takes about ", r" of each", 0.002),
    fixed(COUNT, r"channels_last\)`\); ", r"-45% of convolution time", 30),
    fixed(PCT, r"channels_last\)`\); 30-", r" of convolution time is what", 45),
    fixed(COUNT, r"within the ", r"-50% that is usual in conv", 10),
    fixed(PCT, r"(?:within|above|below) the 10-", r" that is usual in conv", 50),
    fixed(COUNT, r"(?:within|above|below) the ", r"-50% that is usual in conv", 10),
    fixed(PCT, r"more than ", r" is good", 70),
    fixed(PCT, r"cannot reach ", r": the rest needs", 70),
    fixed(PCT, r"[Ii]dle time below ", r" is the aim", 20),
    fixed(PCT, r"fused kernel reaches ", r" of its roofline", 80),
    fixed(PCT, r"Above ", r" an operator is good", 60),
    fixed(PCT, r"Simple operators stay below ", r" themselves", 70),
    fixed(COUNT, r"at best\), where ", r"-80% is to be expected", 70),
    fixed(PCT, r"at best\), where 70-", r" is to be expected", 80),
    fixed(BYTES, r"plain copy of ", r" on this GPU alone", 1e9),
    fixed(PCT, r" alone: below ", r" there too", 70),
    fixed(COUNT, r"(?:operators: |range is what )", r" to 10 times", 3),
    fixed(COUNT, r"3 to ", r" times (?:less time|as fast)", 10),
    fixed(PCT, r"replay package: ", r" to 30% of the group", 10),
    fixed(PCT, r"10 to ", r" of the group's time", 30),
    fixed(PCT, r"fused kernel at ", r" of its roofline", 80),
    fixed(COUNT, r"to a multiple of ", r",", 64),
    fixed(COUNT, r"more than (?:the )?", r" times (?:slower|that small)", 5),
    fixed(PCT, r"GPU alone: below ", r" of its bandwidth", 70),
)
"""Numbers that every such sentence has alike, as docs/checks.md and the appendix state them."""

EFFICIENCY = (
    rule(COUNT, r"roofline \(", r" of [\d.,]+ TB/s\)", "tb_per_s"),
    rule(BAND, r"roofline \(", r" of [\d.,]+ TB/s\)", "tb_per_s"),
    rule(BAND, r"roofline \([\de.,+-]+ (?:MB/s )?of ", r"\)", "peak_tb_per_s"),
    rule(COUNT, r"roofline \(", r" of [\d.,]+ TFLOPS/s\)", "tflops_per_s"),
    rule(RATE, r"roofline \([\de.,+-]+ of ", r"\)", "peak_tflops"),
    rule(PCT, r"\breach(?:es)? ", r" of the (?:memory|compute) roofline", "efficiency_pct"),
    rule(PCT, r"\breach(?:es)? ", r" of the bandwidth \(", "efficiency_pct"),
    rule(BAND, r"of the bandwidth \(", r"\), where simple", "tb_per_s"),
    rule(PCT, r"of this trace reach ", r" \(", "baseline_pct"),
    rule(BAND, r"of this trace reach [\d.]+% \(", r"\)", "baseline_tb_per_s"),
    rule(COUNT, r"TB/s\), ", r" times as much", "baseline_times"),
    rule(BAND, r"their time at ", r"", "baseline_tb_per_s"),
    rule(PCT, r"compute peak \(here ", r"\)", "compute_peak_pct"),
    rule(PCT, r"reach only ", r" of the memory bandwidth", "baseline_pct"),
    rule(BAND, r"memory bandwidth \(", r" over", "baseline_tb_per_s"),
    rule(COUNT, r"TB/s over ", r" calls?,", "baseline_calls"),
    rule(PCT, r"calls?, ", r" at best", "baseline_best_pct"),
    rule(PCT, r"bandwidth baseline: ", r"", "baseline_pct"),
    rule(PCT, r"must leave the ", r" of today", "baseline_pct"),
    rule(MS, r"calls are short \(", r" on average", "baseline_mean_ms"),
    rule(PCT, r"heaviest call reaches ", r"", "convolving_pct"),
    rule(COUNT, r"(?:where|within the) ", r"-[\d.]+% ", "band_low"),
    rule(
        PCT,
        r"(?:where|within the) [\d.]+-",
        r" (?:is to be exp|of the comp|that such)",
        "band_high",
    ),
    rule(
        PCT, r"such calls: more than ", r" of the (?:roofline|compute peak) is rarely", "band_high"
    ),
    rule(COUNT, r"[(,] ?N under ", r"(?:\)| \()", "length_below"),
    rule(COUNT, r"[(,] ?N (?:from )?", r"(?:-\d+)?(?:\)| \()", "length_from"),
    rule(COUNT, r"[(,] ?N \d+-", r"(?:\)| \()", "length_to"),
    rule(PCT, r"", r" of the heaviest call are layout transposes", "heaviest_transpose_pct"),
)

CALLS = (
    rule(COUNT, r"\b[Tt]he ", r" calls are \d+ for each", "heaviest_calls"),
    rule(COUNT, r"No perf model: `[^`]*` and ", r" more", "more_in_title"),
    rule(
        COUNT,
        r"Give each of the |each of the |(?:[Tt]he|[Ii]ts|the) ",
        r" calls?\b",
        "calls",
    ),
    rule(COUNT, r"the ", r" launches", "overhead_launches", "launches"),
    rule(COUNT, r"in ", r" launch(?:es)? are slow", "launches"),
    rule(COUNT, r"in ", r" launch(?:es)?(?: that compute nothing|[,.])", "overhead_launches"),
    rule(COUNT, r"(?:: |until then: )", r" launch(?:es)? ", "heaviest_launches"),
    rule(COUNT, r"over ", r" signatures?", "signatures"),
    rule(COUNT, r"fewer than |compare it with ", r" calls?", "calls"),
    rule(COUNT, r"fewer calls than ", r",", "heaviest_calls"),
    rule(COUNT, r"\(here ", r" calls?\)", "calls"),
    rule(COUNT, r"ms in ", r" calls?\)", "calls"),
    rule(COUNT, r"^|: |\*\* |\*: ", r" calls? of", "calls"),
    rule(COUNT, r"` \(", r" (?:calls?|launch(?:es)?)\)", "operator_calls"),
    rule(COUNT, r" and ", r" more (?:operator|kernel)s?", "more_operators"),
    rule(COUNT, r" must be gone| and ", r" more must be gone", "more_kernels"),
    rule(
        COUNT, r"` and ", r" more", "more_subjects", "more_kernels", "more_waits", "more_host_calls"
    ),
    rule(COUNT, r"calls are ", r" for each call of another", "merged"),
)

TIMES = (
    rule(MS, r"taken? ", r" each\b", "heaviest_mean_ms", "row_mean_ms"),
    rule(MS, r"calls? of ", r"", "mean_ms"),
    rule(MS, r" at ", r" per call", "mean_ms"),
    rule(MS, r"moves [\d.,]+ \w+ in ", r"", "heaviest_mean_ms"),
    rule(MS, r"(?:the )", r" of `[^`]*` itself", "heaviest_mean_ms", "mean_ms"),
    rule(
        MS,
        r"(?:signatures? takes?|together they take|less than|come from|whether the) ",
        r"",
        "time_ms",
        "category_ms",
    ),
    rule(MS, r"Layout transposes take |fill or convert tensors take ", r"", "overhead_ms"),
    rule(MS, r"launches, ", r" of it backward", "overhead_backward_ms"),
    rule(MS, r"towards ", r"", "aim_ms"),
    rule(MS, r"approach ", r" \(", "goal_ms"),
    rule(PCT, r"approach [\d.,]+ (?:ms|µs) \(", r" of the roofline", "target_pct"),
    rule(MS, r"tensors.*` take ", r" \(", "time_ms"),
    rule(MS, r"(?:slower than )", r"", "attention_ms"),
    rule(MS, r"` \(", r" in \d+ calls?\)", "attention_ms"),
)

SHARES = (
    rule(PCT, r"together they take [\d.]+ .s \(", r" of compute", "compute_pct"),
    rule(PCT, r"of convolution time \(", r" of compute", "overhead_of_compute_pct"),
    rule(PCT, r", ", r" of convolution time", "overhead_of_category_pct"),
    rule(PCT, r"(?:transposes|fills and casts) are ", r" of its time", "overhead_of_heaviest_pct"),
    rule(PCT, r"[\d.]+ .s \(", r" of compute\)", "compute_pct"),
    rule(PCT, r"normalization takes ", r" of compute in all", "batch_norm_pct"),
)

TRAFFIC = (
    rule(BYTES, r"they move ", r" each time", "step_bytes_each"),
    rule(BYTES, r"kernel would move ", r"", "fused_bytes_each"),
    rule(BYTES, r"", r"", "bytes"),
)

SHAPES = (
    rule(COUNT, r"product of N=", r"", "merged_n"),
    rule(COUNT, r"\bM=", r"", "param M"),
    rule(COUNT, r"\bN=", r"", "param N", "param N_Q"),
    rule(COUNT, r"\bK=", r"", "param K"),
    rule(COUNT, r", batch ", r"", "param B"),
    rule(COUNT, r"sequences than ", r"", "param B"),
    rule(COUNT, r"", r" queries", "param N_Q"),
    rule(COUNT, r"head dimension ", r"", "param d_h_qk"),
    rule(COUNT, r"", r" output tiles", "tiles"),
    rule(COUNT, r"need ", r" rounds", "rounds"),
    rule(PCT, r"leaves about ", r" of the whole without work", "idle_units_pct"),
    rule(COUNT, r"(?:for|over|of) ", r" compute units", "compute_units"),
    rule(COUNT, r"Only ", r" of [\d,]+ compute units", "reduced_rows"),
    rule(COUNT, r"so | most ", r" of them use at most", "norm_channels"),
    rule(COUNT, r"use at most ", r" of [\d,]+ compute units", "norm_channels"),
    rule(COUNT, r"", r" positions of a channel", "norm_positions"),
    rule(COUNT, r"only the ", r" channels", "norm_channels"),
    rule(COUNT, r"", r" rows? of [\d,]+ elements", "reduced_rows", "norm_rows", "norm_channels"),
    rule(COUNT, r"rows? of ", r" elements", "reduced_extent", "norm_extent", "norm_positions"),
    rule(COUNT, r"\(|over ", r" to \d+ channels", "channels"),
    rule(COUNT, r"\d to ", r" channels", "channels"),
    rule(COUNT, r"", r" x $", "tensors"),
    rule(COUNT, r"", r" x \[", "tensors"),
)

SYSTEM = (
    rule(MS, r"GPU idles for ", r", [\d.]+% of its wall time", "idle_ms"),
    rule(PCT, r"GPU idles for [\d.,]+ .s, ", r" of its wall time", "idle_pct"),
    rule(PCT, r"For ", r" of that time", "own_cause_of_idle_pct"),
    rule(MS, r"GPU idles for ", r" \(", "own_cause_ms"),
    rule(PCT, r"GPU idles for [\d.,]+ .s \(", r" of its wall time", "own_cause_of_total_pct"),
    rule(COUNT, r"in ", r" gaps? in which", "gap_count"),
    rule(MS, r"beside the longest stands .*` with |the host waits ", r"", "beside_longest_ms"),
    rule(
        MS, r"records of the host: .*(?:queued work that does not start|[a-z-]+) ", r"", "cause_ms"
    ),
    rule(MS, r"largest cause, [^(]*\(", r"\)", "own_cause_ms"),
    rule(MS, r"is exposed for ", r"", "exposed_comm_ms"),
    rule(PCT, r"is exposed for [\d.,]+ .s \(", r" of GPU wall time", "exposed_comm_pct"),
    rule(MS, r"of its ", r", and the GPU", "comm_ms"),
    rule(COUNT, r"most time goes to ", r" x ", "longest_collectives"),
    rule(
        BYTES,
        r" x \w+ of |Time \w+ of ",
        r" (?:over|alone|with)",
        "longest_message_bytes",
    ),
    rule(COUNT, r"over ", r" ranks", "longest_ranks"),
    rule(MS, r" with |far less than ", r"(?: each)? \(|, ranks wait", "longest_collective_ms"),
    rule(BAND, r"s(?: each)? \(|carries more than ", r"\)|\.", "longest_collective_tb_per_s"),
    rule(PCT, r"Only ", r" of [\d.,]+ .s of communication", "overlap_pct"),
    rule(MS, r"% of ", r" of communication", "comm_ms"),
    rule(MS, r"Only ", r" of compute run without", "free_compute_ms"),
    rule(
        COUNT,
        r"",
        r" (?:host-to-device |device-to-host )?copies(?: within the device| D2D| D2H| H2D| take)",
        "copies",
    ),
    rule(
        MS,
        r"(?:within the device|host-to-device copies|device-to-host copies) take ",
        r" \(",
        "copy_ms",
    ),
    rule(
        PCT,
        r"(?:within the device|host-to-device copies|device-to-host copies) take [\d.]+ .s \(",
        r" of GPU wall time",
        "copy_of_total_pct",
    ),
    rule(MS, r"wall time\), ", r" of it with nothing else", "exposed_copy_ms"),
    rule(COUNT, r": |, ", r" copies of \[", "row_copies"),
    rule(COUNT, r", ", r" for each call", "copies_each"),
    rule(COUNT, r"the ", r" copies are gone", "copies"),
)

CHAINS = (
    rule(COUNT, r"`, |as ", r" kernels?(?:, | in a row)", "kernels_each"),
    rule(COUNT, r"kernels?, ", r" instances?(?:$|\*\*)", "instances"),
    rule(COUNT, r"runs ", r" times as", "instances"),
    rule(COUNT, r"ran, ", r" kernels? must stand", "instances"),
    rule(COUNT, r"in place of ", r"", "kernels"),
    rule(MS, r"` of .*\(", r" in `", "longest_step_ms"),
    rule(COUNT, r"`, ", r" instances?(?:$|\*\*)", "instances"),
    rule(COUNT, r"operand: |its result: |the ", r" kernels?(?:, | of `)", "kernels"),
    rule(MS, r"kernels?, ", r" in all \(", "time_ms"),
    rule(PCT, r" in all \(", r" of compute", "compute_pct"),
    rule(MS, r"beside |take little more than ", r"", "product_ms"),
    fixed(PCT, r"what else they move at ", r" of the bandwidth", 80),
    fixed(PCT, r"low also ", r" of their time", 15),
    rule(COUNT, r"\. In ", r" instances? the plain result", "kept"),
)

REPORT = (
    rule(MS, r"Impact(?:\*\*)?: about ", r"(?:: | at )", "saved_ms"),
    rule(PCT, r"about [\d.,]+ .s at ", r" of the roofline", "target_pct"),
    rule(PCT, r": ", r" of compute, \S+ of GPU wall time \(range", "saved_compute_pct"),
    rule(PCT, r"[:,] ", r" of GPU wall time \(range", "saved_total_pct"),
    rule(MS, r"\(range ", r" to ", "low_ms"),
    rule(MS, r"\(range \S+(?: .s)? to ", r", ", "high_ms"),
    rule(COUNT, r"Low end impact_score: ", r"", "score_low"),
    rule(COUNT, r"High end impact_score: ", r"", "score_high"),
    rule(COUNT, r"impact_score: ", r"", "score_mid"),
    rule(MS, r"Low end impact_score: \S+ \(", r" of ", "scored_low_ms"),
    rule(MS, r"High end impact_score: \S+ \(", r" of ", "scored_high_ms"),
    rule(MS, r"impact_score: \S+ \(", r" of ", "scored_mid_ms"),
    rule(MS, r"impact_score: \S+ \([\d.,]+ .s of ", r" GPU wall time", "total_ms"),
    rule(COUNT, r"coverage ", r"/\d+ kernels", "modelled_steps"),
    rule(COUNT, r"coverage \d+/", r" kernels", "kernels_each"),
    rule(MS, r"Resolution:\*\* (?:At most )?", r" of the ", "high_ms"),
    rule(MS, r"win back up to ", r" of the ", "high_ms"),
    rule(MS, r"[\d.,]+ .s of the ", r" (?:lie between|can be won back)", "impact_ms"),
    rule(MS, r"[\d.,]+ .s of the ", r", by experience", "impact_ms"),
    rule(COUNT, r" finds ", r" rows? with", "listed_rows"),
    rule(COUNT, r" rows? with ", r" calls?: ", "listed_calls"),
    rule(MS, r" calls?: ", r", \S+ of GPU wall", "listed_ms"),
    rule(PCT, r" calls?: [\d.,]+ .s, ", r" of GPU wall time", "listed_pct"),
    rule(PCT, r"heaviest row reaches ", r" of ", "heaviest_pct"),
    rule(RATE, r"heaviest row reaches \S+ of ", r"", "listed_peak_tflops"),
    rule(BAND, r"heaviest row reaches \S+ of ", r"", "listed_peak_tb_per_s"),
    rule(COUNT, r" at ", r" FLOPS/Byte", "listed_flops_per_byte"),
    rule(MS, r"\*\*Time:\*\* |projection for the ", r" \(", "impact_ms"),
    rule(PCT, r"\*\*Time:\*\* [\d.,]+ .s \(", r" of compute", "impact_of_compute_pct"),
    rule(PCT, r"projection for the [\d.,]+ .s \(", r" of compute", "impact_of_compute_pct"),
    rule(PCT, r"\*\*Efficiency:\*\* ", r" of the roofline", "efficiency_pct"),
    rule(MS, r"^Saving: ", r" \(", "saved_ms"),
    rule(PCT, r"^Saving: [\d.,]+ .s \(", r" of wall time", "saved_total_pct"),
)

CATEGORY = (
    rule(PCT, r"^[A-Z][\w /]* \(", r" of compute\)$", "category_of_compute_pct"),
    rule(PCT, r"operations account for ", r" of compute time", "category_of_compute_pct"),
    rule(MS, r"^|of compute time: ", r" in [\d,]+ calls? over", "category_ms"),
    rule(COUNT, r" in ", r" calls? over [\d,]+ rows?", "category_calls"),
    rule(COUNT, r" over ", r" rows? of distinct", "category_rows"),
    rule(PCT, r"Average efficiency: ", r" of the roofline", "category_pct"),
    rule(PCT, r"weighted by time over the ", r" of it", "category_judged_pct"),
    rule(COUNT, r"^", r" rows? \([\d.]+ .s\): ", "unmodelled_rows"),
    rule(MS, r"^\d+ rows? \(", r"\): ", "unmodelled_ms"),
    rule(COUNT, r"^", r" further rows? with", "rows_left"),
    rule(MS, r"further rows? with ", r" in all", "left_ms"),
    fixed(PCT, r"against at most ", r" that is aimed at", 20),
    rule(COUNT, r"aimed at. ", r" of [\d,]+ kernels", "short_kernels"),
    rule(COUNT, r"aimed at. [\d,]+ of ", r" kernels", "kernel_count"),
    rule(PCT, r" kernels \(", r"\) are shorter than", "short_pct"),
    fixed(MS, r"are shorter than ", r"; the mean", 0.01),
    rule(MS, r"; the mean is ", r"", "mean_kernel_ms"),
    rule(MS, r"^The longest gap is ", r" long", "longest_of_all_ms"),
    rule(COUNT, r"Count\*\*: ", r" transfers", "copies"),
    rule(MS, r"Total Time\*\*: ", r" \(", "copy_ms"),
    rule(PCT, r"Total Time\*\*: [\d.,]+ .s \(", r" of total", "copy_of_total_pct"),
    rule(MS, r", exposed ", r"$", "exposed_copy_ms"),
    rule(MS, r"Exposed Communication Time\*\*: |compute blocked for ", r"", "exposed_comm_ms"),
    rule(PCT, r"Exposed Communication Time\*\*: .*\(", r" of total", "exposed_comm_pct"),
    rule(MS, r"Total Communication Time\*\*: ", r"$", "comm_ms"),
    rule(PCT, r"Overlap Ratio\*\*: ", r" \(", "overlap_pct"),
    fixed(PCT, r"\(target > ", r"\)", 70),
    rule(PCT, r"Impact\*\*: ", r" of communication runs", "overlap_pct"),
    rule(MS, r"the target would hide ", r" more", "wanted_ms"),
    rule(MS, r"as far as ", r" of compute without", "free_compute_ms"),
    fixed(MS, r"Less than ", r" of communication", 0.1),
)

EVIDENCE = (
    rule(MS, r"^(?:Steps, |Operators, ).*` ", r"", "step_ms"),
    rule(MS, r"^Part of the model: .*", r"", "part_ms"),
    rule(COUNT, r"^Longest kernels: (?:.*; )?", r" x ", "row_calls"),
    rule(MS, r"^Longest kernels: .* x ", r" of `", "row_mean_ms"),
    rule(MS, r"^Waits before: .*\(", r"\)", "waits_ms"),
    rule(COUNT, r"^Waits before: .* and ", r" more", "more_waits"),
    rule(COUNT, r"^Host calls: .* and ", r" more", "more_host_calls"),
    rule(COUNT, r"^Host calls: (?:.*, )?", r" x `", "host_calls"),
    rule(MS, r"^Host calls: .*\(up to ", r"\)", "host_call_ms"),
    rule(COUNT, r"^Largest by time: (?:.*; )?", r" x ", "collectives"),
    rule(BYTES, r"^Largest by time: .* of ", r"", "message_bytes"),
    rule(COUNT, r"^Largest by time: .* over ", r" ranks", "ranks"),
    rule(MS, r"^Largest by time: .* ranks, ", r"", "collective_ms"),
    rule(BAND, r"^Largest by time: .*s(?: each)? \(", r"\)", "collective_tb_per_s"),
    rule(COUNT, r"^Copied by: (?:.*, )?", r" x `", "copied_by"),
    rule(COUNT, r"^Copies: (?:.*, )?", r" copies of", "row_copies"),
)

CHECKS = (
    rule(COUNT, r"batch takes ", r" times its roofline", "roofline_times"),
    rule(COUNT, r"", r" products(?: of M=|$|\.)", "param B"),
    rule(MS, r"around the product take ", r" \(", "helper_ms"),
    rule(PCT, r"around the product take [\d.]+ .s \(", r"\) of the", "helper_pct"),
    rule(MS, r"%\) of the ", r" of `", "time_ms"),
    rule(PCT, r"appears to run at ", r" of its", "efficiency_pct"),
    rule(MS, r"/s\) over ", r",", "time_ms"),
    rule(MS, r"compare its time with the recorded ", r" per call", "mean_ms"),
    rule(MS, r"` take ", r" of GPU time on average", "mean_ms"),
    rule(MS, r"as long as the work of ", r"", "time_ms"),
    rule(COUNT, r"", r" equal calls", "calls"),
    rule(MS, r"standard deviation ", r"", "std_ms"),
    rule(MS, r"around a mean of |must fall below ", r"", "mean_ms"),
    rule(MS, r"calls of `[^`]*` take ", r"", "time_ms"),
    rule(COUNT, r"counted as ", r" passes", "passes"),
    rule(PCT, r"they reach about ", r"", "estimated_pct"),
    rule(BAND, r"memory bandwidth \(", r"\)\.", "estimated_tb_per_s"),
    rule(MS, r"(?:with the|compare with) ", r" (?:of `[^`]*` )?per call", "mean_ms"),
)

ATTENTION = (
    rule(COUNT, r"` ?, |`, ", r" calls$", "calls"),
    rule(COUNT, r"batch times heads |batch ", r",", "param B"),
    rule(COUNT, r"", r" keys", "param N_KV"),
    rule(COUNT, r"as | of the ", r" operators", "steps"),
    rule(COUNT, r"", r" heads,", "attention_heads"),
    rule(MS, r"operators each, .*` ", r"[,:]", "step_ms"),
    rule(MS, r"whole group takes ", r"", "time_ms"),
    rule(PCT, r"whole group takes [\d.]+ .s \(", r" of compute", "compute_pct"),
    rule(MS, r"of the group's time, (?:[\d.]+ .s to )?", r"", "tuned_ms"),
)

RULES = (
    *REPORT,
    *CATEGORY,
    *EVIDENCE,
    *THRESHOLDS,
    *CHECKS,
    *ATTENTION,
    *SYSTEM,
    *CHAINS,
    *SHARES,
    *EFFICIENCY,
    *CALLS,
    *TIMES,
    *SHAPES,
    *TRAFFIC,
)


def problems(text: str, facts: Facts) -> Iterator[str]:
    """The numbers of a text that are none of the facts, with what they should be."""
    for number in numbers(text):
        found = next((rule for rule in RULES if rule.fits(number)), None)
        where = f"...{number.before[-50:]}[{number.text}]{number.after[:40]}..."
        if found is None:
            yield f"nothing accounts for {where}"
        elif not found.holds(number, facts):
            expected = {name: facts.get(name, [])[:6] for name in found.facts}
            yield f"{where}: expected {expected or found.threshold}"
