"""Each rule that pairs replayed events with captured calls."""

import random
from itertools import pairwise

import pytest

from jarvis.capture.alignment import (
    COPY,
    FILL,
    Captured,
    Replayed,
    Rule,
    align,
    common_subsequence,
    coverage,
    token,
)

LAYER = ("norm", "gemm", "attention", "gemm", "act")


def replayed(
    *tokens: str, streams: list[int] | None = None, nodes: list[int] | None = None
) -> Replayed:
    count = len(tokens)
    return Replayed(
        tokens, (10,) * count, tuple(streams or [0] * count), tuple(nodes or [None] * count)
    )


def captured(*tokens: str | None, ops: list[str] | None = None) -> Captured:
    return Captured(tokens, tuple(ops or [None] * len(tokens)), (None,) * len(tokens))


def test_names_in_one_stream_pair_around_a_missing_call() -> None:
    tokens = LAYER * 6
    calls = list(tokens)
    del calls[7]
    found = align(replayed(*tokens), captured(*calls))
    assert found.rule is Rule.NAMES
    assert dict(found.pairs) == {at: at - (at > 7) for at in range(30) if at != 7}


def test_node_ids_come_before_names() -> None:
    tokens = LAYER * 2
    order = list(range(10))
    random.Random(1).shuffle(order)
    shuffled = replayed(*(tokens[at] for at in order), nodes=[100 + at for at in order])
    found = align(shuffled, captured(*tokens))
    assert found.rule is Rule.NODE_IDS
    assert [to for _, to in found.pairs] == order


def test_node_ids_that_contradict_names_are_not_used() -> None:
    tokens = LAYER * 2
    found = align(replayed(*tokens, nodes=list(range(10, 0, -1))), captured(*tokens))
    assert found.rule is Rule.NAMES


def test_streams_are_queues_of_their_own() -> None:
    calls = ("a", "b", "a", "c", "b", "d")
    streams = [0, 1, 0, 0, 1, 1]
    # The second stream runs late: by start its events are behind those of the first.
    late = [0, 2, 3, 1, 4, 5]
    found = align(
        replayed(*(calls[at] for at in late), streams=[streams[at] for at in late]),
        captured(*calls),
    )
    assert found.rule is Rule.STREAMS
    assert [late[at] for at, _ in found.pairs] == [to for _, to in found.pairs]


def test_another_order_pairs_occurrences() -> None:
    tokens = tuple(f"k{at % 40}" for at in range(80))
    found = align(replayed(*tokens[::-1]), captured(*tokens))
    assert found.rule is Rule.OCCURRENCES
    assert coverage(replayed(*tokens), found.pairs) == 1
    assert all(tokens[::-1][at] == tokens[to] for at, to in found.pairs)


def test_calls_without_names_pair_by_position_if_operators_fit() -> None:
    kernels = ("Cijk_Alik_Bljk", "flash_fwd_kernel", "Cijk_Ailk_Bljk")
    right = captured(None, None, None, ops=["aten::mm", "aten::attention", "aten::mm"])
    found = align(replayed(*kernels), right)
    assert (found.rule, found.is_verified) == (Rule.TYPES, True)
    wrong = captured(None, None, None, ops=["aten::attention", "aten::mm", "aten::rms_norm"])
    refused = align(replayed(*kernels), wrong)
    assert refused.rule is None
    assert "without graphs" in refused.reason


def test_calls_without_names_and_known_operators_are_unverified() -> None:
    found = align(replayed("x", "y"), captured(None, None))
    assert (found.rule, found.is_verified) == (Rule.TYPES, False)


def test_triton_kernels_are_anchors_if_counts_differ() -> None:
    ops = ["aten::mm", "triton_poi_fused_add_0", "triton_red_fused_sum_1"]
    found = align(
        replayed("triton_poi_fused_add_0", "triton_red_fused_sum_1"),
        captured(None, None, None, ops=ops),
    )
    assert found.pairs == ((0, 1), (1, 2))


def test_the_capture_of_another_model_is_refused() -> None:
    found = align(replayed(*LAYER), captured("conv", "pool", "conv", "pool", "fc"))
    assert found.rule is None
    assert found.reason == "0% of the kernel names are the same"


def test_copies_and_fills_compare_as_such() -> None:
    assert token("Memcpy DtoD (Device -> Device)") == COPY
    assert token("__amd_rocclr_copyBuffer.kd") == COPY
    assert token("Memset (Device)") == FILL
    assert token("__amd_rocclr_fillBufferAligned") == FILL
    assert token("gemm") == "gemm"


def length_by_table(left: list[int], right: list[int]) -> int:
    lengths = [[0] * (len(right) + 1) for _ in range(len(left) + 1)]
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            longer = max(lengths[i][j + 1], lengths[i + 1][j])
            lengths[i + 1][j + 1] = lengths[i][j] + 1 if a == b else longer
    return lengths[-1][-1]


@pytest.mark.parametrize("seed", range(20))
def test_it_is_common_and_longest(seed: int) -> None:
    source = random.Random(seed)
    for _ in range(50):
        left, right = (
            [source.randint(0, 3) for _ in range(source.randint(0, 12))] for _ in range(2)
        )
        pairs = common_subsequence(left, right, 24)
        assert pairs is not None
        assert len(pairs) == length_by_table(left, right)
        assert all(left[i] == right[j] for i, j in pairs)
        assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(pairs))


def test_too_many_edits_give_none() -> None:
    assert common_subsequence([1, 2, 3], [4, 5, 6], 5) is None
    assert common_subsequence([1, 2, 3], [4, 5, 6], 6) == []
