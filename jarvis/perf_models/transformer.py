"""Minimum cost of one forward step of a transformer by block, from its ``config.json``.

For models whose calls have no recorded shapes. T new tokens, h hidden size, Hq heads of queries, I
intermediate size. All costs are those of one of ``tensor_parallel`` ranks, which share heads, I and
the vocabulary; ``expert_parallel`` ranks share experts.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from jarvis.perf_models.model_config import ModelConfig
from jarvis.perf_models.step_annotation import Phase


@dataclass(frozen=True, slots=True)
class Load:
    """What a step computes: requests, and the sums over those in each phase."""

    requests: int
    context: Phase = field(default_factory=Phase)
    generation: Phase = field(default_factory=Phase)

    @property
    def tokens(self) -> int:
        """Return the new tokens of all requests."""
        return self.context.queries + self.generation.queries


@dataclass(frozen=True, slots=True)
class BlockCost:
    """FLOPs and bytes of all layers of one block in a step; ``weight_bytes`` are part of them."""

    block: str
    layers: int
    flops: float
    bytes: float
    weight_bytes: float = 0

    def least_s(self, tflops_per_s: float, tb_per_s: float) -> float:
        """Return the roofline time in seconds."""
        return max(self.flops / tflops_per_s, self.bytes / tb_per_s) / 1e12


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A configuration, and how many ranks share its weights."""

    config: ModelConfig
    tensor_parallel: int = 1
    expert_parallel: int = 1


@dataclass(frozen=True, slots=True)
class _Rank:
    """A configuration as one rank has it."""

    config: ModelConfig
    load: Load
    tensor_parallel: int
    expert_parallel: int

    def product(self, block: str, k: float, n: float, *, rows: float | None = None) -> BlockCost:
        """Return the cost of rows times a (k, n) matrix: 2 rows k n FLOPs."""
        rows = self.load.tokens if rows is None else rows
        return self._weights(block, rows, k * n, rows * (k + n), self.config.weight_bytes)

    def _weights(
        self, block: str, rows: float, elements: float, activations: float, size: float
    ) -> BlockCost:
        weights = elements * size
        moved = weights + activations * self.config.element_bytes
        return BlockCost(block, 1, 2 * rows * elements, moved, weights)

    def projections(self) -> Iterator[BlockCost]:
        """Yield the products before and after attention."""
        c, h = self.config, self.config.hidden_size
        heads = c.num_attention_heads / self.tensor_parallel
        if c.kv_lora_rank is None:
            kv_heads = max(1.0, c.kv_heads / self.tensor_parallel)
            yield self.product("qkv", h, (heads + 2 * kv_heads) * c.head_size)
            yield self.product("o", heads * c.head_size, h)
            return
        width = c.qk_nope_head_dim + c.qk_rope_head_dim
        if c.q_lora_rank:
            yield self.product("qkv", h, c.q_lora_rank)
        yield self.product("qkv", c.q_lora_rank or h, heads * width)
        yield self.product("qkv", h, c.kv_lora_rank + c.qk_rope_head_dim)
        v_width = c.v_head_dim or 0
        yield self.product("qkv", c.kv_lora_rank, heads * (c.qk_nope_head_dim + v_width))
        yield self.product("o", heads * v_width, h)

    def attention(self, window: int | None) -> Iterator[BlockCost]:
        """Yield attention and the writing of keys and values.

        FLOPs 2 Hq pairs (d_qk + d_v), where a new query of the context sees half of the new keys;
        bytes of queries, new keys and outputs, and of the cached keys and values once. A window
        limits pairs and cached keys to that many for each query. Latent attention (MLA) reads
        r + p cached elements a key, and its generation takes 2 Hq (2r + p) FLOPs a pair.
        """
        c, context, generation = self.config, self.load.context, self.load.generation
        heads = c.num_attention_heads / self.tensor_parallel
        pairs = [context.pairs - context.queries_squared / 2, float(generation.pairs)]
        past = [context.keys - context.queries, generation.keys - generation.queries]
        if window is not None:
            most = [context.queries * window, generation.queries * window]
            pairs, past = list(map(min, pairs, most)), list(map(min, past, most))
        if c.kv_lora_rank is None:
            kv_heads = max(1.0, c.kv_heads / self.tensor_parallel)
            widths, cached = [2 * c.head_size] * 2, kv_heads * 2 * c.head_size
            rows = (heads + kv_heads) * 2 * c.head_size
        else:
            width = c.qk_nope_head_dim + c.qk_rope_head_dim + (c.v_head_dim or 0)
            widths = [width, 2 * c.kv_lora_rank + c.qk_rope_head_dim]
            cached = c.kv_lora_rank + c.qk_rope_head_dim
            rows = heads * width + cached
        tokens = self.load.tokens
        yield BlockCost(
            "attention",
            1,
            2 * heads * sum(n * width for n, width in zip(pairs, widths, strict=True)),
            tokens * rows * c.element_bytes + sum(past) * cached * c.cache_bytes,
        )
        yield BlockCost("kv_write", 1, 0, tokens * cached * (c.element_bytes + c.cache_bytes))

    def mlp(self, size: float) -> Iterator[BlockCost]:
        """Yield the products of an MLP: 6 T h I FLOPs with a gate, else 4 T h I."""
        h, own = self.config.hidden_size, size / self.tensor_parallel
        yield self.product("mlp", h, own * (2 if self.config.has_gate else 1))
        yield self.product("mlp", own, h)

    def experts(self) -> Iterator[BlockCost]:
        """Yield router, experts and shared experts.

        Each token uses k of E experts; uniform routing reads E (1 - (1 - k/E)^T) of them.
        """
        c, h, tokens = self.config, self.config.hidden_size, self.load.tokens
        size = (c.moe_intermediate_size or c.intermediate_size) / self.tensor_parallel
        used = c.num_experts_per_tok / self.expert_parallel
        hit = c.num_experts / self.expert_parallel
        hit *= 1 - (1 - c.num_experts_per_tok / c.num_experts) ** tokens
        parts = 3 if c.has_gate else 2
        weights = hit * parts * h * size * c.weight_bytes
        moved = tokens * used * (2 * h + parts * size) * c.element_bytes
        flops = 2 * parts * tokens * h * size * used
        yield self._weights(
            "moe_route", tokens, h * c.num_experts, tokens * (h + c.num_experts), c.element_bytes
        )
        yield BlockCost("moe_gemm", 1, flops, weights + moved, weights)
        if c.shared_expert_size:
            yield from self.mlp(c.shared_expert_size)

    def head(self) -> BlockCost:
        """Return the product with the vocabulary: one row for each request."""
        c, rows = self.config, self.load.requests
        n = c.vocab_size / self.tensor_parallel
        activations = rows * (c.hidden_size + n)
        return self._weights("lm_head", rows, c.hidden_size * n, activations, c.element_bytes)


def step_costs(model: ServedModel, load: Load) -> list[BlockCost]:
    """Return the cost of each block of a step on one rank, summed over its layers.

    Without the embedding, norms and activations, which move little. The lower bound of the time is
    the sum over blocks of ``least_s``, not that of the sums.

    Raises:
        ModelConfigError: The weights' number of bytes is not known.
    """
    config = model.config
    rank = _Rank(config, load, model.tensor_parallel, model.expert_parallel)
    summed: dict[str, BlockCost] = {}
    for layer in range(config.num_hidden_layers):
        has_experts = config.has_experts(layer)
        own = [
            *rank.projections(),
            *rank.attention(config.window_of(layer)),
            *(rank.experts() if has_experts else rank.mlp(config.intermediate_size)),
        ]
        for block in dict.fromkeys(cost.block for cost in own):
            costs = [cost for cost in own if cost.block == block]
            before = summed.get(block, BlockCost(block, 0, 0, 0))
            summed[block] = BlockCost(
                block,
                before.layers + 1,
                before.flops + sum(cost.flops for cost in costs),
                before.bytes + sum(cost.bytes for cost in costs),
                before.weight_bytes + sum(cost.weight_bytes for cost in costs),
            )
    return [*summed.values(), rank.head()]
