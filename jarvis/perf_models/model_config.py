"""The ``config.json`` of a transformer on Hugging Face: sizes, kinds of layers, element sizes."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from jarvis.core.dtypes import element_bytes
from jarvis.core.errors import ModelConfigError
from jarvis.perf_models.dtypes import HALF_PRECISION_BYTES, MX_BLOCK, compute_spec

MAX_BYTES = 1 << 20
"""Larger files are not read: configurations have some kB."""

FULL, SLIDING = "full_attention", "sliding_attention"
"""Kinds of attention layers, as ``layer_types`` names them."""

_WINDOWED = {"sliding_attention": SLIDING, "chunked_attention": SLIDING, "full_attention": FULL}
_WITHOUT_GATE = ("gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "relu", "quick_gelu")
"""Activations of the models whose MLP has two products instead of three. Gemma's has a gate."""

_NVFP4_BLOCK = 16  # elements that share a one-byte scale
_EIGHT_BITS = ("fp8", "fbgemm_fp8", "w8a8", "int8")


class ModelConfig(BaseModel):
    """Sizes of a transformer, under the names of ``config.json``.

    Raises:
        ValueError: A size is missing or not positive, or the layers have no known formula.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, protected_namespaces=())

    model_type: str = ""
    hidden_size: int = Field(gt=0)
    num_hidden_layers: int = Field(gt=0, le=10_000)
    num_attention_heads: int = Field(gt=0)
    num_key_value_heads: int | None = Field(default=None, gt=0)
    head_dim: int | None = Field(default=None, gt=0)
    intermediate_size: int = Field(gt=0)
    vocab_size: int = Field(gt=0)
    hidden_act: str = "silu"
    dtype: str = "bfloat16"
    quantization_config: Mapping[str, Any] = Field(default_factory=dict)

    sliding_window: int | None = None
    use_sliding_window: bool = True
    sliding_window_pattern: int | None = Field(default=None, gt=0)
    max_window_layers: int = 0
    layer_types: tuple[str, ...] = ()

    num_experts: int = Field(default=0, ge=0)
    num_experts_per_tok: int = Field(default=0, ge=0)
    moe_intermediate_size: int | None = Field(default=None, gt=0)
    shared_expert_size: int = Field(default=0, ge=0)
    first_k_dense_replace: int = 0
    moe_layer_freq: int | tuple[int, ...] = 1
    decoder_sparse_step: int = Field(default=1, gt=0)
    mlp_only_layers: tuple[int, ...] = ()

    q_lora_rank: int | None = None
    kv_lora_rank: int | None = None
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    v_head_dim: int | None = None

    @model_validator(mode="before")
    @classmethod
    def _with_one_name(cls, found: Any) -> Any:
        """Give fields that families name differently one name."""
        if not isinstance(found, dict):
            return found
        values = {**found, **(found.get("text_config") or {})}  # of models with several inputs
        values = {name: value for name, value in values.items() if value is not None}
        for name, others in _OTHER_NAMES.items():
            for other in others:
                if name not in values and other in values:
                    values[name] = values[other]
        if shared := values.get("n_shared_experts"):
            values.setdefault("shared_expert_size", shared * values.get("moe_intermediate_size", 0))
        return values

    @model_validator(mode="after")
    def _has_formulas(self) -> "ModelConfig":
        if unknown := sorted({*self.layer_types} - {*_WINDOWED}):
            raise ValueError(f"layers of the kind {', '.join(unknown)} have no formula")
        per_layer: list[tuple[object, ...]] = [self.layer_types]
        if isinstance(self.moe_layer_freq, tuple):
            per_layer.append(self.moe_layer_freq)
        elif self.moe_layer_freq <= 0:
            raise ValueError("moe_layer_freq is not positive")
        if any(0 < len(each) < self.num_hidden_layers for each in per_layer):
            raise ValueError("layer_types or moe_layer_freq do not name every layer")
        if self.num_experts and not self.num_experts_per_tok:
            raise ValueError("num_experts_per_tok is missing")
        if self.kv_lora_rank and not (self.qk_rope_head_dim and self.v_head_dim):
            raise ValueError("qk_rope_head_dim or v_head_dim is missing")
        return self

    @property
    def sha256(self) -> str:
        """Return a digest of the sizes."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    @property
    def kv_heads(self) -> int:
        """Return the number of heads of keys and values."""
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def head_size(self) -> int:
        """Return the width of a head."""
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def has_gate(self) -> bool:
        """Return whether the MLP multiplies an activation and a second product."""
        return self.hidden_act not in _WITHOUT_GATE or "gemma" in self.model_type

    def window_of(self, layer: int) -> int | None:
        """Return the maximum number of keys that a query of a layer attends to; None: all."""
        if not self.sliding_window or not self.use_sliding_window:
            return None
        if self.layer_types:
            has_window = _WINDOWED[self.layer_types[layer]] == SLIDING
        elif self.sliding_window_pattern:
            has_window = (layer + 1) % self.sliding_window_pattern != 0
        else:
            has_window = layer >= self.max_window_layers
        return self.sliding_window if has_window else None

    def has_experts(self, layer: int) -> bool:
        """Return whether the MLP of a layer consists of experts."""
        if not self.num_experts or layer in self.mlp_only_layers:
            return False
        if isinstance(self.moe_layer_freq, tuple):
            return self.moe_layer_freq[layer] > 0
        is_turn = layer % self.moe_layer_freq == 0 and (layer + 1) % self.decoder_sparse_step == 0
        return layer >= self.first_k_dense_replace and is_turn

    @property
    def element_bytes(self) -> int:
        """Return the bytes of an element of activations and of weights that are not quantized."""
        return element_bytes(self.dtype.removeprefix("torch.")) or HALF_PRECISION_BYTES

    @property
    def weight_bytes(self) -> float:
        """Return the bytes of an element of the quantized weights, with its part of the scales.

        Raises:
            ModelConfigError: The method of quantization is not known.
        """
        found = self.quantization_config
        method = str(found.get("quant_method", "")).lower().replace("-", "_")
        if not found:
            return self.element_bytes
        if method == "mxfp4":
            return 0.5 + 1 / MX_BLOCK
        if method in _EIGHT_BITS or found.get("quant_algo") == "FP8":
            return 1
        if found.get("quant_algo") == "NVFP4":
            return 0.5 + 1 / _NVFP4_BLOCK
        weights: Mapping[str, Any] = found
        if groups := found.get("config_groups"):
            weights = next(iter(groups.values())).get("weights") or {}
        bits = weights.get("bits") or weights.get("num_bits") or weights.get("w_bit")
        if not isinstance(bits, int):
            raise ModelConfigError(f"its quantization {method or 'method'} is not known")
        size = weights.get("group_size") or 0
        return bits / 8 + (HALF_PRECISION_BYTES / size if size > 0 else 0)

    @property
    def compute(self) -> str:
        """Return the name of the peak of its products, for example ``"matrix_bf16"``."""
        method = str(self.quantization_config.get("quant_method", ""))
        is_fp8 = "fp8" in method or self.quantization_config.get("quant_algo") == "FP8"
        return compute_spec("matrix", "fp8" if is_fp8 else self.dtype.removeprefix("torch."))

    @property
    def cache_bytes(self) -> int:
        """Return the bytes of an element of cached keys and values."""
        found = self.quantization_config
        scheme = found.get("kv_cache_scheme") or {}
        is_eight = found.get("kv_cache_quant_algo") == "FP8" or scheme.get("num_bits") == 8
        return 1 if is_eight else self.element_bytes


_OTHER_NAMES = {
    "dtype": ("torch_dtype",),
    "num_experts": ("num_local_experts", "n_routed_experts"),
    "num_experts_per_tok": ("experts_per_token", "moe_topk"),
    "decoder_sparse_step": ("interleave_moe_layer_step",),
    "shared_expert_size": ("shared_expert_intermediate_size",),
    "hidden_act": ("hidden_activation", "activation_function"),
    "hidden_size": ("n_embd", "d_model"),
    "num_hidden_layers": ("n_layer", "num_layers"),
    "num_attention_heads": ("n_head",),
    "intermediate_size": ("n_inner", "ffn_dim"),
}


def read_model_config(path: Path) -> ModelConfig:
    """Read a ``config.json``.

    Raises:
        ModelConfigError: It cannot be read, or is not the configuration of a transformer.
    """
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise ModelConfigError(f"it has more than {MAX_BYTES >> 20} MiB")
        return ModelConfig.model_validate(json.loads(text))
    except OSError as error:
        raise ModelConfigError(f"{path}: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        reason = f"{where}: {first['msg']}" if where else first["msg"]
        raise ModelConfigError(reason) from error
    except ValueError as error:
        raise ModelConfigError("it is not JSON") from error
