"""Costs of a step from config.json: literal figures of published models."""

import json
from pathlib import Path
from typing import Any

import pytest

from jarvis.core.errors import ModelConfigError
from jarvis.perf_models.model_config import ModelConfig, read_model_config
from jarvis.perf_models.step_annotation import Phase
from jarvis.perf_models.transformer import BlockCost, Load, ServedModel, step_costs

QWEN3_8B = {
    "model_type": "qwen3",
    "hidden_size": 4096,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 12288,
    "vocab_size": 151936,
    "torch_dtype": "bfloat16",
    "use_sliding_window": False,
    "sliding_window": None,
}
SMALL: dict[str, Any] = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "head_dim": 4,
    "intermediate_size": 16,
    "vocab_size": 32,
}
DECODE = Load(32, generation=Phase(32, 32785, 32, 32785))
ONE = Load(1, generation=Phase(1, 101, 1, 101))


def config(**changes: object) -> ModelConfig:
    return ModelConfig.model_validate(SMALL | changes)


def costs(found: ModelConfig, load: Load = ONE, **parallel: int) -> dict[str, BlockCost]:
    return {cost.block: cost for cost in step_costs(ServedModel(found, **parallel), load)}


def test_a_decode_step_of_qwen3_8b() -> None:
    found = costs(ModelConfig.model_validate(QWEN3_8B), DECODE)
    assert sum(cost.weight_bytes for cost in found.values()) / 1e9 == pytest.approx(
        15.136, abs=1e-3
    )
    assert found["attention"].flops == 36 * 537_149_440
    assert found["attention"].bytes == 36 * 128.56640625 * 2**20
    assert found["mlp"].flops == 36 * 6 * 32 * 4096 * 12288
    assert found["lm_head"].flops == 2 * 32 * 4096 * 151936
    assert found["kv_write"].bytes == 36 * 32 * 2 * 8 * 128 * (2 + 2)
    assert {cost.layers for cost in found.values()} == {36, 1}


def test_ranks_share_heads_intermediate_size_and_vocabulary() -> None:
    whole, part = costs(config()), costs(config(), tensor_parallel=2)
    for block in ("qkv", "o", "mlp", "lm_head", "attention"):
        assert part[block].flops == whole[block].flops / 2


def test_each_rank_has_at_least_one_head_of_keys() -> None:
    part = costs(config(num_key_value_heads=1), tensor_parallel=2)
    assert part["qkv"].flops == 2 * 2 * 8 * (1 + 2 * 1) * 4


def test_new_queries_see_half_of_the_new_keys() -> None:
    prefill = Load(1, context=Phase(10, 10, 100, 100))
    assert costs(config(), prefill)["attention"].flops == 2 * 2 * 2 * 50 * 8


@pytest.mark.parametrize(
    ("changes", "windows"),
    [
        ({"sliding_window": 64}, [64, 64]),
        ({"sliding_window": 64, "use_sliding_window": False}, [None, None]),
        ({"sliding_window": 64, "max_window_layers": 1}, [None, 64]),
        ({"sliding_window": 64, "sliding_window_pattern": 2}, [64, None]),
        (
            {"sliding_window": 64, "layer_types": ["full_attention", "sliding_attention"]},
            [None, 64],
        ),
        ({}, [None, None]),
    ],
)
def test_layers_with_a_window(changes: dict[str, Any], windows: list[int | None]) -> None:
    found = config(**changes)
    assert [found.window_of(layer) for layer in (0, 1)] == windows


def test_a_window_limits_keys() -> None:
    whole, part = costs(config()), costs(config(sliding_window=10))
    assert part["attention"].flops == 2 * 2 * 2 * 10 * 8
    assert part["attention"].bytes < whole["attention"].bytes


def test_experts_that_no_token_uses_are_not_read() -> None:
    experts = {"num_experts": 4, "num_experts_per_tok": 1, "moe_intermediate_size": 6}
    found = costs(config(**experts))
    assert found["moe_gemm"].weight_bytes == 2 * 1 * 3 * 8 * 6 * 2
    assert found["moe_gemm"].flops == 2 * 6 * 1 * 8 * 6
    assert found["moe_route"].flops == 2 * 2 * 1 * 8 * 4
    assert "mlp" not in found
    many = costs(config(**experts), Load(1000, generation=Phase(1000, 2000, 1000, 2000)))
    assert many["moe_gemm"].weight_bytes == pytest.approx(2 * 4 * 3 * 8 * 6 * 2)
    half = costs(config(**experts), expert_parallel=2)
    assert half["moe_gemm"].weight_bytes == found["moe_gemm"].weight_bytes / 2


@pytest.mark.parametrize(
    ("changes", "layers"),
    [
        ({"first_k_dense_replace": 1}, [False, True]),
        ({"mlp_only_layers": [1]}, [True, False]),
        ({"decoder_sparse_step": 2}, [False, True]),
        ({"moe_layer_freq": 2}, [True, False]),
        ({"moe_layer_freq": [0, 1]}, [False, True]),
    ],
)
def test_layers_with_experts(changes: dict[str, Any], layers: list[bool]) -> None:
    found = config(num_local_experts=4, num_experts_per_tok=2, **changes)
    assert [found.has_experts(layer) for layer in (0, 1)] == layers


def test_shared_experts_are_always_read() -> None:
    found = config(
        n_routed_experts=4, num_experts_per_tok=1, moe_intermediate_size=6, n_shared_experts=2
    )
    assert costs(found)["mlp"].flops == 2 * 6 * 1 * 8 * 12


def test_latent_attention_reads_one_compressed_row_a_key() -> None:
    found = config(
        kv_lora_rank=6,
        q_lora_rank=5,
        qk_nope_head_dim=4,
        qk_rope_head_dim=2,
        v_head_dim=4,
        num_hidden_layers=1,
    )
    cost = costs(found)["attention"]
    assert cost.flops == 2 * 2 * (2 * 6 + 2) * 101
    assert cost.bytes == 1 * (2 * (4 + 2 + 4) + 8) * 2 + 100 * (6 + 2) * 2


@pytest.mark.parametrize(
    ("quantization", "size"),
    [
        ({}, 2),
        ({"quant_method": "fp8"}, 1),
        ({"quant_method": "mxfp4"}, 0.53125),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 0.5 + 2 / 128),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 1),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 0.5625),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 8, "group_size": None}}},
            },
            1,
        ),
    ],
)
def test_bytes_of_weights(quantization: dict[str, Any], size: float) -> None:
    assert config(quantization_config=quantization).weight_bytes == size


def test_an_unknown_quantization_is_named() -> None:
    with pytest.raises(ModelConfigError, match="its quantization quip is not known"):
        costs(config(quantization_config={"quant_method": "quip"}))


def test_an_mlp_without_a_gate_has_two_products() -> None:
    assert costs(config(hidden_act="gelu"))["mlp"].flops == 2 * 4 * 1 * 8 * 16
    assert costs(config(hidden_act="gelu", model_type="gemma2"))["mlp"].flops == 2 * 6 * 1 * 8 * 16


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "it is not JSON"),
        ("[]", "Input should be"),
        (json.dumps({**SMALL, "hidden_size": 0}), "hidden_size"),
        (json.dumps({**SMALL, "layer_types": ["linear_attention"] * 2}), "linear_attention"),
        (json.dumps({**SMALL, "layer_types": ["full_attention"]}), "do not name every layer"),
        (json.dumps({**SMALL, "num_experts": 8}), "num_experts_per_tok"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ModelConfigError, match=reason):
        read_model_config(path)


def test_sizes_of_a_model_with_several_inputs(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "vl", "text_config": SMALL}), encoding="utf-8")
    assert read_model_config(path).hidden_size == 8
    with pytest.raises(ModelConfigError, match="No such file"):
        read_model_config(tmp_path / "none.json")
