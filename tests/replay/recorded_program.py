"""Records a profiler trace of many operators on the CPU: python recorded_program.py TRACE.

Run by a Python that has torch; no test module, and nothing of ours is imported.
"""

import sys

import torch
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile


def calls():
    """Calls of every kind of argument: numbers, lists, indices, masks, odd dtypes and layouts."""
    x = torch.randn(8, 16)
    wide = torch.randn(4, 8, 16, 16)
    ids = torch.randint(0, 8, (5,))
    half = x.to(torch.bfloat16)
    fp8 = x.to(torch.float8_e4m3fn)
    yield from products(x, half, fp8)
    yield from indexed(x, ids)
    yield from pointwise(x, half, ids)
    yield from reduced(x, ids)
    yield from images(wide)
    yield from random(x)
    yield from losses(x, ids)
    torch._foreach_mul_([x, x.clone()], [1.0, 2.0])
    torch._foreach_add_([x.clone()], [x], alpha=2)
    torch.fft.fft(x.to(torch.complex64))
    x.to(torch.complex64) * 2j
    fp8.to(torch.float32)
    x.expand(3, 8, 16).contiguous()
    x.t().contiguous()
    torch.full((3,), float("-inf"))
    torch.arange(5, dtype=torch.int64)
    torch.zeros(3, 4, dtype=torch.bool)


def products(x, half, fp8):
    yield x @ x.t()
    yield torch.addmm(x[0], x, torch.randn(16, 16))
    yield torch.baddbmm(torch.randn(2, 8, 8), torch.randn(2, 8, 4), torch.randn(2, 4, 8), beta=0.5)
    yield half @ half.t()
    one = torch.ones(())
    yield torch._scaled_mm(fp8, fp8.t(), one, one, out_dtype=torch.bfloat16)
    yield torch._int_mm(torch.ones(8, 16, dtype=torch.int8), torch.ones(16, 8, dtype=torch.int8))
    q = torch.randn(2, 4, 8, 16)
    yield functional.scaled_dot_product_attention(q, q, q, is_causal=True)


def indexed(x, ids):
    columns = ids.unsqueeze(1)
    yield x.index_select(0, ids)
    yield x.gather(0, columns)
    yield torch.zeros(8, 16).scatter_(0, columns, 1.0)
    yield torch.zeros(8, 16).scatter_add_(0, columns, x[:5, :1])
    yield x.index_add(0, ids, x[:5])
    yield x.index_fill(0, ids, 0.0)
    yield x.index_copy(0, torch.arange(5), x[:5])
    yield x.take(ids)
    yield functional.embedding(ids, x)
    weight = x.clone().requires_grad_()
    functional.embedding(ids, weight).sum().backward()
    yield functional.embedding_bag(ids, x, torch.tensor([0, 2]))
    yield x.masked_fill(x > 0, float("-inf"))
    yield x.masked_select(x > 0)
    yield x[ids]  # its indices are not recorded
    yield torch.cat([x, x])


def pointwise(x, half, ids):
    yield x.clamp(0, 1)
    yield x.clamp(min=0)
    yield x + 1
    yield half * half
    yield ids // 2
    yield ids % ids.clamp(min=1)
    yield torch.where(x > 0, x, 0.0)
    yield torch.logical_and(x > 0, x < 1)
    yield ids & 3
    yield functional.gelu(half)
    yield functional.leaky_relu(x)
    yield functional.hardtanh_(x.clone())
    yield torch.lerp(x, x, 0.5)
    yield torch.addcmul(x, x, x, value=2)
    yield x.pow(2)
    yield x.tril()
    yield functional.pad(x, (1, 1))
    yield x.flip(0)
    yield x.roll(1, 0)


def reduced(x, ids):
    yield x.sum()
    yield x.mean(1, keepdim=True)
    yield x.amax(1)
    yield x.max(1)
    yield x.argmax(1)
    yield x.softmax(1)
    yield functional.log_softmax(x, 1)
    yield x.cumsum(0)
    yield x.topk(3)
    yield x.sort()
    yield x.std(1)
    yield torch.linalg.vector_norm(x)
    yield torch.bincount(ids)
    yield x.nonzero()
    yield torch.isfinite(x).all()
    yield x.sum().item()


def images(wide):
    weight = torch.randn(8, 8, 3, 3, requires_grad=True)
    functional.conv2d(wide, weight, padding=1).sum().backward()
    pooled = wide.clone().requires_grad_()
    functional.max_pool2d(pooled, 2).sum().backward()
    functional.avg_pool2d(pooled, 2).sum().backward()
    functional.adaptive_avg_pool2d(pooled, 4).sum().backward()
    functional.interpolate(pooled, scale_factor=2.0, mode="bilinear").sum().backward()
    functional.interpolate(pooled, scale_factor=2.0).sum().backward()
    for norm in (
        torch.nn.BatchNorm2d(8),
        torch.nn.GroupNorm(2, 8),
        torch.nn.LayerNorm(16),
        torch.nn.RMSNorm(16),
    ):
        norm(pooled).sum().backward()
    yield wide.to(memory_format=torch.channels_last)


def random(x):
    yield functional.dropout(x, 0.5)
    yield torch.randn(3, 3)
    yield x.clone().uniform_()
    yield torch.bernoulli(x.sigmoid())
    yield torch.multinomial(x.abs(), 2)
    yield torch.randperm(7)


def losses(x, ids):
    scores = x.clone().requires_grad_()
    functional.cross_entropy(scores, torch.randint(0, 16, (8,))).backward()
    functional.mse_loss(scores, x).backward()
    functional.smooth_l1_loss(scores, x).backward()
    functional.binary_cross_entropy(scores.sigmoid(), (x > 0).float()).backward()
    optimizer = torch.optim.AdamW([scores], fused=True)
    optimizer.step()
    yield ids


if __name__ == "__main__":
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        for _ in calls():
            pass
    recorded.export_chrome_trace(sys.argv[1])
