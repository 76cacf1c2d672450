"""The model of the sample: a small vision-language transformer, module by module.

Parts are slow on purpose, as in real models: one attention block is not fused, an RMS normalization
consists of single operators, the images stay in NCHW order, the window attention consists of
thousands of tiny products, a score head is a tall and narrow product, and the vocabulary has one
token more than a round number.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from jarvis.sample import matmul, pointwise
from jarvis.sample.autograd import Session
from jarvis.sample.tensors import SampleTensor

_WINDOW = 8
_WINDOW_HEAD_SIZE = 64
_SCORES = 16


@dataclass(frozen=True, slots=True)
class Scale:
    """The size of the model and its batch."""

    batch: int
    tokens: int
    hidden: int
    heads: int
    blocks: int
    vocabulary: int
    pixels: int
    image_blocks: int


SCALES = {
    "tiny": Scale(2, 256, 512, 8, 1, 2049, 64, 1),
    "wide": Scale(8, 1024, 2048, 16, 1, 8193, 64, 1),
    "small": Scale(8, 1024, 2048, 16, 3, 8193, 256, 2),
    "large": Scale(4, 2048, 4096, 32, 32, 32001, 256, 8),
}


class Build:
    """Numbers modules and collects their parameters."""

    def __init__(self) -> None:
        self.parameters: list[SampleTensor] = []
        self._modules: Counter[str] = Counter()

    def parameter(self, *shape: int) -> SampleTensor:
        """Return a new parameter."""
        self.parameters.append(SampleTensor(shape))
        return self.parameters[-1]

    def number(self, module: "Module") -> int:
        """Return the number of a module among those of its class."""
        name = type(module).__name__
        self._modules[name] += 1
        return self._modules[name] - 1


class Module:
    """A part of the model with the frames that the profiler records around it."""

    source = ""

    def __init__(self, build: Build) -> None:
        self.number = build.number(self)

    @contextmanager
    def frames(self, s: Session) -> Iterator[None]:
        """Record the Python frames of one call."""
        name = f"nn.Module: {type(self).__name__}_{self.number}"
        with (
            s.frame(name, **{"Python module id": self.number}),
            s.frame("torch/nn/modules/module.py(1747): _call_impl"),
            s.frame(f"{self.source}: forward"),
        ):
            yield


class Layer(Module, ABC):
    """A module from one tensor to one tensor."""

    def __call__(self, s: Session, tensor: SampleTensor) -> SampleTensor:
        with self.frames(s):
            return self.forward(s, tensor)

    @abstractmethod
    def forward(self, s: Session, tensor: SampleTensor) -> SampleTensor:
        """Record the operators of the layer."""


class Linear(Layer):
    """(T, K) -> (T, N)."""

    source = "torch/nn/modules/linear.py(124)"

    def __init__(self, build: Build, features_in: int, features_out: int) -> None:
        super().__init__(build)
        self.weight = build.parameter(features_out, features_in)
        self.bias = build.parameter(features_out)

    def forward(self, s: Session, tensor: SampleTensor) -> SampleTensor:
        """Record one matrix product."""
        with s.frame("<built-in function linear>"):
            return matmul.linear(s, tensor, self.weight, self.bias)


class Embedding(Layer):
    """Token ids (T) -> (T, H)."""

    source = "torch/nn/modules/sparse.py(190)"

    def __init__(self, build: Build, vocabulary: int, hidden: int) -> None:
        super().__init__(build)
        self.weight = build.parameter(vocabulary, hidden)

    def forward(self, s: Session, tensor: SampleTensor) -> SampleTensor:
        """Record one gather."""
        return pointwise.embedding(s, self.weight, tensor)


class LayerNorm(Layer):
    """(T, H) -> (T, H), one kernel."""

    source = "torch/nn/modules/normalization.py(217)"

    def __init__(self, build: Build, hidden: int) -> None:
        super().__init__(build)
        self.weight, self.bias = build.parameter(hidden), build.parameter(hidden)

    def forward(self, s: Session, tensor: SampleTensor) -> SampleTensor:
        """Record one fused kernel."""
        return pointwise.layer_norm(s, tensor, self.weight, self.bias)


class RMSNorm(Layer):
    """(T, H) -> (T, H), six kernels."""

    source = "model.py(31)"

    def __init__(self, build: Build, hidden: int) -> None:
        super().__init__(build)
        self.weight = build.parameter(hidden)

    def forward(self, s: Session, tensor: SampleTensor) -> SampleTensor:
        """Record a chain of elementwise operators and a mean."""
        return pointwise.rms_norm(s, tensor, self.weight)


class GELU(Layer):
    """(T, H) -> (T, H)."""

    source = "torch/nn/modules/activation.py(734)"

    def forward(self, s: Session, tensor: SampleTensor) -> SampleTensor:
        """Record one elementwise kernel."""
        return pointwise.gelu(s, tensor)


class Attention(Layer):
    """Self attention over (B * N, H) with a fused or an unfused core, or one of its ``shards``."""

    source = "model.py(58)"

    def __init__(self, build: Build, scale: Scale, *, fused: bool, shards: int = 1) -> None:
        super().__init__(build)
        self.batch, self.heads, self.fused = scale.batch, scale.heads // shards, fused
        width = scale.hidden // shards
        self.projections = [Linear(build, scale.hidden, width) for _ in range(3)]
        self.projections.append(Linear(build, width, scale.hidden))

    def forward(self, s: Session, tensor: SampleTensor) -> SampleTensor:
        """Record three projections, the core, and the projection of its result."""
        tokens = tensor
        *into, out = self.projections
        split = (matmul.heads(s, part(s, tokens), self.batch, self.heads) for part in into)
        core = matmul.fused_attention if self.fused else matmul.unfused_attention
        return out(s, matmul.merge_heads(s, core(s, *split)))


class TransformerBlock(Layer):
    """Attention and feed-forward part, each with normalization before and residual addition
    after."""

    source = "model.py(97)"

    def __init__(self, build: Build, scale: Scale, *, fused: bool) -> None:
        super().__init__(build)
        hidden = scale.hidden
        norm = LayerNorm if fused else RMSNorm
        self.norms: list[Layer] = [norm(build, hidden), norm(build, hidden)]
        self.attention = Attention(build, scale, fused=fused)
        self.up, self.gelu = Linear(build, hidden, 4 * hidden), GELU(build)
        self.down = Linear(build, 4 * hidden, hidden)

    def forward(self, s: Session, tensor: SampleTensor) -> SampleTensor:
        """Record x + attention(norm(x)), then x + feed-forward(norm(x))."""
        tokens = tensor
        tokens = pointwise.add(s, tokens, self.attention(s, self.norms[0](s, tokens)))
        grown = self.gelu(s, self.up(s, self.norms[1](s, tokens)))
        return pointwise.add(s, tokens, self.down(s, grown))


class Conv2d(Layer):
    """(B, C, Y, X) -> (B, K, Y, X), or half the size at stride 2."""

    source = "torch/nn/modules/conv.py(553)"

    def __init__(self, build: Build, shape: tuple[int, int, int], stride: int = 1) -> None:
        super().__init__(build)
        channels_in, channels_out, size = shape
        self.weight = build.parameter(channels_out, channels_in, size, size)
        self.stride = stride

    def forward(self, s: Session, tensor: SampleTensor) -> SampleTensor:
        """Record one convolution; the model's first one needs no gradient of its image."""
        image = tensor
        needs_gradient = image.shape[1] > 3
        with s.frame("torch/nn/modules/conv.py(536): _conv_forward"):
            return matmul.conv2d(
                s, image, self.weight, self.stride, image_needs_gradient=needs_gradient
            )


class BatchNorm2d(Layer):
    """(B, C, Y, X) -> (B, C, Y, X)."""

    source = "torch/nn/modules/batchnorm.py(172)"

    def __init__(self, build: Build, channels: int) -> None:
        super().__init__(build)
        self.weight, self.bias = build.parameter(channels), build.parameter(channels)

    def forward(self, s: Session, tensor: SampleTensor) -> SampleTensor:
        """Record statistics and transformation."""
        return matmul.batch_norm(s, tensor, self.weight, self.bias)


class ImageBlock(Layer):
    """A bottleneck: 1x1 down, 3x3, 1x1 up, and the residual connection."""

    source = "model.py(131)"

    def __init__(self, build: Build, channels: int) -> None:
        super().__init__(build)
        inner = channels // 2
        shapes = ((channels, inner, 1), (inner, inner, 3), (inner, channels, 1))
        self.layers = [(Conv2d(build, shape), BatchNorm2d(build, shape[1])) for shape in shapes]

    def forward(self, s: Session, tensor: SampleTensor) -> SampleTensor:
        """Record three convolutions, each normalized."""
        image = tensor
        inside = image
        for conv, norm in self.layers:
            inside = pointwise.relu(s, norm(s, conv(s, inside)))
        return pointwise.add(s, image, inside)


class WindowAttention(Layer):
    """Scores within windows of 8 patches: thousands of products of 8 x 64 with 64 x 8."""

    source = "model.py(166)"

    def forward(self, s: Session, tensor: SampleTensor) -> SampleTensor:
        """Record two tiny batched products around a softmax."""
        image = tensor
        count = image.numel // (_WINDOW * _WINDOW_HEAD_SIZE)
        patches = image.view(count, _WINDOW, _WINDOW_HEAD_SIZE)
        weights = pointwise.softmax(s, matmul.bmm(s, patches, patches.swap(1, 2)))
        return matmul.bmm(s, weights, patches).view(*image.shape)


class ImageEncoder(Layer):
    """Images (B, 3, Y, X) -> (B, H)."""

    source = "model.py(190)"

    def __init__(self, build: Build, scale: Scale) -> None:
        super().__init__(build)
        self.stem, self.stem_norm = Conv2d(build, (3, 64, 7), stride=2), BatchNorm2d(build, 64)
        self.widen = Conv2d(build, (64, 512, 1))
        self.blocks = [ImageBlock(build, 512) for _ in range(scale.image_blocks)]
        self.windows = WindowAttention(build)
        self.head = Linear(build, 512, scale.hidden)

    def forward(self, s: Session, tensor: SampleTensor) -> SampleTensor:
        """Record stem, bottlenecks, window attention, mean over the pixels."""
        image = pointwise.relu(s, self.stem_norm(s, self.stem(s, tensor)))
        image = self.widen(s, matmul.max_pool2d(s, image))
        for block in self.blocks:
            image = block(s, image)
        return self.head(s, matmul.global_average(s, self.windows(s, image)))


class VisionLanguageModel(Module):
    """Token ids (T) and images (B, 3, Y, X) -> logits (T, V)."""

    source = "model.py(224)"

    def __init__(self, build: Build, scale: Scale) -> None:
        super().__init__(build)
        self.images = ImageEncoder(build, scale)
        self.embedding = Embedding(build, scale.vocabulary, scale.hidden)
        self.blocks = [
            TransformerBlock(build, scale, fused=number > 0) for number in range(scale.blocks + 1)
        ]
        self.scores = Linear(build, scale.hidden, _SCORES)
        self.mix = Linear(build, _SCORES, scale.hidden)
        self.head = Linear(build, scale.hidden, scale.vocabulary)

    def __call__(self, s: Session, ids: SampleTensor, images: SampleTensor) -> SampleTensor:
        with self.frames(s):
            encoded = self.images(s, images)
            tokens = self.embedding(s, ids)
            batch, hidden = encoded.shape
            by_image = tokens.view(batch, tokens.shape[0] // batch, hidden)
            pointwise.add(s, by_image, encoded.view(batch, 1, hidden))
            for block in self.blocks:
                tokens = block(s, tokens)
            mixed = self.mix(s, self.scores(s, tokens))
            return self.head(s, pointwise.mul(s, tokens, mixed))


def build_model(scale: Scale) -> tuple[VisionLanguageModel, list[SampleTensor]]:
    """Return the model and its parameters."""
    build = Build()
    return VisionLanguageModel(build, scale), build.parameters
