"""Chains of recorded traces: those that are there, and none where kernels are fused already."""

from pathlib import Path

import polars as pl
import pytest

from jarvis.perf_report import PerfReport
from jarvis.trace import read_trace


def chains(root: Path, name: str) -> pl.DataFrame:
    trace = read_trace(root / "traces" / f"{name}.json.gz")
    return PerfReport(trace, None, strict=True).fusion_chains


@pytest.mark.parametrize(
    ("name", "time_us"), [("mi300-qwen1.5-0.5b", 5674.205), ("h100-qwen1.5-0.5b", 7377.993)]
)
def test_a_transformer_has_its_norm_and_its_rotary_embedding_once(
    reference_root: Path, name: str, time_us: float
) -> None:
    norm, rotary = chains(reference_root, name).head(2).iter_rows(named=True)
    assert (norm["scope_name"], len(norm["step_names"])) == ("Qwen2RMSNorm", 8)
    assert (norm["instance_count"], norm["kernel_count"]) == (49, 392)
    assert norm["kernel_time_us"] == pytest.approx(time_us)
    assert norm["attention_count"] == 24  # one of two in each layer, none for the last one
    assert (rotary["scope_name"], rotary["instance_count"]) == ("apply_rotary_pos_emb", 48)


def test_what_a_compiler_fused_is_no_chain(reference_root: Path) -> None:
    assert chains(reference_root, "torch-compile-triton").is_empty()


@pytest.mark.parametrize(
    ("name", "scopes"),
    [
        ("mi300-vit-nsfw", {"ViTLayer", "ViTEmbeddings"}),
        ("mi300-resnet-ddp-checkpoint", {"BasicBlock"}),
    ],
)
def test_chains_worth_a_look_are_those_of_layers(
    reference_root: Path, name: str, scopes: set[str]
) -> None:
    found = chains(reference_root, name)
    assert set(found.head(1)["scope_name"]) <= scopes
