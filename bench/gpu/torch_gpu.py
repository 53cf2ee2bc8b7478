"""PyTorch on the GPU beside bench_gpu and `sinew train`: scaled_dot_product_attention at bench_gpu's shapes, and a
training step of GPT-2 124M (bench/step/torch_step.py's model with that attention, compiled where it can be).

Arguments: none. One JSON line for each.
"""
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "step"))
try:
    import torch
except ImportError:
    print("skipped: PyTorch is not installed", flush=True)
    sys.exit(0)
if not torch.cuda.is_available():
    print("skipped: this PyTorch has no CUDA", flush=True)
    sys.exit(0)
import torch_step
from torch import nn
from torch.nn import functional as F

REPEATS, CALLS = 5, 10


def seconds_of(call):
    """The median of REPEATS, each of CALLS calls between two events."""
    call()
    times = []
    for _ in range(REPEATS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(CALLS):
            call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3 / CALLS)
    return sorted(times)[REPEATS // 2]


def attention(width, batch=4, length=4096, heads=16):
    q, k, v, d_o = (torch.randn(batch, heads, length, width, device="cuda", dtype=torch.bfloat16) for _ in range(4))
    for x in (q, k, v):
        x.requires_grad_()
    forward = seconds_of(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True))
    o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    backward = seconds_of(lambda: torch.autograd.grad(o, (q, k, v), d_o, retain_graph=True))
    flops = 2.0 * batch * heads * length * length * width  # causal: half of 4 B H T^2 D
    print(json.dumps({"bench": "torch attention", "head_dim": width, "forward_us": round(forward * 1e6, 1),
                      "forward_tflops": round(flops / forward * 1e-12, 1), "backward_us": round(backward * 1e6, 1),
                      "backward_tflops": round(2.5 * flops / backward * 1e-12, 1)}), flush=True)


class Block(torch_step.Block):
    def attend(self, x):
        batch, length, channels = x.shape
        split = self.qkv(x).view(batch, length, 3, self.heads, channels // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, channels))


def step(batch=8, length=1024, layers=12, heads=12, channels=768, vocabulary=50304):
    torch_step.Block = Block
    torch.set_float32_matmul_precision("high")
    model = torch_step.Model(layers, heads, channels, vocabulary, length).cuda()
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    data = torch.randint(vocabulary, (batch, length + 1), device="cuda")

    def one():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = forward(data[:, :-1], data[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    for name, forward in (("compiled", compiled), ("eager", model)):
        try:
            for _ in range(3):
                one()
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(20):
                one()
            torch.cuda.synchronize()
        except Exception as error:  # torch.compile needs a C compiler and Triton
            print(json.dumps({"bench": "torch gpt2-124m step", "mode": name, "skipped": str(error)[:200]}), flush=True)
            continue
        seconds = (time.perf_counter() - begin) / 20
        print(json.dumps({"bench": "torch gpt2-124m step", "mode": name, "ms": round(seconds * 1e3, 2),
                          "tokens_per_s": round(batch * length / seconds)}), flush=True)


for head_dim in (64, 128):
    attention(head_dim)
step()
