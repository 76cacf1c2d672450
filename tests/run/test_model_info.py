"""What a trace says about its model: deduced from names, types and dimensions, or not at all."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from jarvis.core.workspace import RunPaths
from jarvis.pipeline import analyze
from jarvis.run.agent_layout.model_info import UNKNOWN, model_info
from tests.builders import trace

SCHEMA = {
    "name": pl.String(),
    "category": pl.String(),
    "compute": pl.String(),
    "input_dims": pl.String(),
    "module_path": pl.List(pl.String()),
    "kernel_time_us": pl.Float64(),
}


def row(name: str, time_us: float = 100.0, category: str = "gemm", **values: Any) -> dict[str, Any]:
    return {"name": name, "category": category, "kernel_time_us": time_us, **values}


def info(*rows: dict[str, Any]) -> dict[str, str]:
    return model_info(pl.DataFrame(rows, schema=SCHEMA))


def test_nothing_is_guessed() -> None:
    unknown = {"model": UNKNOWN, "architecture": UNKNOWN, "scale": UNKNOWN, "precision": UNKNOWN}
    assert info() == unknown
    assert info(row("aten::mm", input_dims="((4096, 4096), (4096, 4096))")) == unknown


@pytest.mark.parametrize(
    ("path", "model"),
    [
        (["Qwen2Model_0", "Linear_0"], "Qwen2Model"),
        (["DistributedDataParallel_0", "CheckpointWrapper_2", "ResNet_0"], "ResNet"),
        (["Sequential_0", "ModuleList_1"], UNKNOWN),
        ([], UNKNOWN),
        (None, UNKNOWN),
    ],
)
def test_the_model_is_the_outermost_module_that_is_no_wrapper(
    path: list[str] | None, model: str
) -> None:
    assert info(row("aten::mm", module_path=path))["model"] == model


def test_a_module_with_little_of_the_time_is_not_the_model() -> None:
    head = row("aten::mm", 40.0, module_path=["Head_0"])
    assert info(head, row("aten::mm", 60.0))["model"] == UNKNOWN
    assert info(head, row("aten::mm", 30.0))["model"] == "Head"


@pytest.mark.parametrize(
    ("rows", "architecture"),
    [
        ([row("aten::mm"), row("aten::sdpa", 1.0, "sdpa_fwd")], "Transformer"),
        ([row("aten::bmm", module_path=["Net_0", "SelfAttention_0"])], "Transformer"),
        (
            [row("aten::sdpa", 1.0, "sdpa_fwd"), row("moe", 1.0, "moe_fused")],
            "Mixture-of-experts Transformer",
        ),
        ([row("aten::conv2d", 90.0, "convolution"), row("aten::mm", 10.0)], "CNN"),
        ([row("aten::conv2d", 5.0, "convolution"), row("aten::mm", 95.0)], UNKNOWN),
        (
            [
                row("aten::conv2d", 30.0, "convolution", input_dims="((1, 4, 64, 64),)"),
                row("aten::conv2d", 30.0, "convolution", input_dims="((1, 8, 32, 32),)"),
                row("aten::sdpa", 40.0, "sdpa_fwd"),
            ],
            "CNN with attention (Transformer blocks)",
        ),
        (
            [row("aten::conv2d", 50.0, "convolution"), row("aten::sdpa", 50.0, "sdpa_fwd")],
            "Transformer",
        ),
        ([row("aten::_cudnn_rnn")], "RNN"),
        ([row("aten::miopen_rnn")], "RNN"),
        ([row("aten::returned_run")], UNKNOWN),
    ],
)
def test_the_architecture_follows_from_what_runs(
    rows: list[dict[str, Any]], architecture: str
) -> None:
    assert info(*rows)["architecture"] == architecture


def test_the_scale_is_the_largest_embedding_table_and_nothing_else() -> None:
    words = row("aten::embedding", 1.0, input_dims="((30522, 512), (8, 128))")
    places = row("aten::embedding", 1.0, input_dims="((512, 512), (1, 128))")
    assert info(places, words)["scale"] == "largest embedding table 30522 x 512"
    in_module = row(
        "aten::index_select",
        input_dims="((151936, 1024), (), (8944,))",
        module_path=["Qwen2Model_0", "Embedding_0"],
    )
    assert info(in_module)["scale"] == "largest embedding table 151936 x 1024"
    elsewhere = {**in_module, "module_path": ["Net_0", "EmbeddingBag_0"]}
    assert info(elsewhere)["scale"] == UNKNOWN


def test_the_precision_is_that_of_the_matrix_units() -> None:
    matrix = row("aten::mm", 95.0, compute="matrix_bf16")
    other = row("aten::mm", 5.0, compute="matrix_fp32")
    vector = row("aten::add", 500.0, "elementwise", compute="vector_fp32")
    assert info(matrix, other, vector)["precision"] == "BF16"
    assert info({**other, "kernel_time_us": 30.0}, matrix)["precision"] == "BF16, FP32"
    assert info(vector)["precision"] == "FP32"
    assert info(vector, other)["precision"] == "FP32"
    assert info(vector, row("hipGraphLaunch", 600.0))["precision"] == UNKNOWN


def test_a_run_holds_the_file(tmp_path: Path) -> None:
    built = trace(device="MI300X").python("nn.Module: TinyNet_0")
    built.child("aten::mm", [[4096, 4096], [4096, 4096]]).launches("gemm", us=300.0)
    analyze(built.write(tmp_path / "trace.json"), output_dir=tmp_path / "run")
    found = json.loads(RunPaths(tmp_path / "run").model_info.read_text(encoding="utf-8"))
    assert found == {
        "model": "TinyNet",
        "architecture": UNKNOWN,
        "scale": UNKNOWN,
        "precision": "BF16",
    }
