"""PyTorch's training step of a GPT-2 of the given shape, for bench_step (bench/step/peer.h).

Arguments: LAYERS HEADS CHANNELS VOCABULARY MAX_TIME BATCH TIME DTYPE. One thread. The same step as ours: loss,
gradients, clipping to norm 1, AdamW; f32, or bf16 by autocast over f32 weights.
"""
import sys
import time
from pathlib import Path

try:
    import torch
except ImportError:
    print("skipped: needs PyTorch (python3-torch)", flush=True)
    sys.exit(0)
if sys.argv[8] == "bf16" and "avx512_bf16" not in Path("/proc/cpuinfo").read_text():
    print("skipped: bf16 needs AVX512-BF16", flush=True)
    sys.exit(0)
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, channels, heads, max_time):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(channels)
        self.qkv = nn.Linear(channels, 3 * channels)
        self.out = nn.Linear(channels, channels)
        self.norm2 = nn.LayerNorm(channels)
        self.up = nn.Linear(channels, 4 * channels)
        self.down = nn.Linear(4 * channels, channels)
        mask = torch.ones(max_time, max_time, dtype=torch.bool).triu(1)
        self.register_buffer("mask", mask, persistent=False)

    def attend(self, x):
        batch, length, channels = x.shape
        split = self.qkv(x).view(batch, length, 3, self.heads, channels // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) * (channels // self.heads) ** -0.5
        scores = scores.masked_fill(self.mask[:length, :length], float("-inf"))
        mixed = F.softmax(scores, dim=-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, channels))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, layers, heads, channels, vocabulary, max_time):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, channels)
        self.positions = nn.Embedding(max_time, channels)
        self.blocks = nn.ModuleList(Block(channels, heads, max_time) for _ in range(layers))
        self.norm = nn.LayerNorm(channels)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions.weight[:tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def main():
    layers, heads, channels, vocabulary, max_time, batch, length = map(int, sys.argv[1:8])
    is_bf16 = sys.argv[8] == "bf16"
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = Model(layers, heads, channels, vocabulary, max_time)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    data = torch.randint(vocabulary, (batch, length + 1))
    print("ready", flush=True)
    for _ in sys.stdin:
        begin = time.process_time()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_bf16):
            loss = model(data[:, :-1], data[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(time.process_time() - begin, flush=True)


if __name__ == "__main__":
    main()
