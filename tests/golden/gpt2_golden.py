#!/usr/bin/env python3
"""Golden values of a small GPT-2, computed by PyTorch in float64.

Writes gpt2_golden.safetensors beside this script: initial parameters (Hugging Face GPT-2 names, Conv1D weights
stored [in, out]), one batch of tokens and targets, and what PyTorch makes of them: logits, per-token losses,
the mean loss, the gradient of every parameter, the global gradient norm, and the losses of ten training steps
with clipping and AdamW. One target is -1: a position without loss.

The C++ tests read the file; PyTorch is only needed to make it again:
    /usr/bin/python3 tests/golden/gpt2_golden.py
"""
import math

import torch

from training import TIME, VOCABULARY, near_one, normal, record

CHANNELS, HEADS, LAYERS = 16, 2, 2


def make_parameters():
    c = CHANNELS
    p = {"wte.weight": normal(VOCABULARY, c), "wpe.weight": normal(TIME, c)}
    for i in range(LAYERS):
        p[f"h.{i}.ln_1.weight"], p[f"h.{i}.ln_1.bias"] = near_one(c), normal(c)
        p[f"h.{i}.attn.c_attn.weight"], p[f"h.{i}.attn.c_attn.bias"] = normal(c, 3 * c), normal(3 * c)
        p[f"h.{i}.attn.c_proj.weight"], p[f"h.{i}.attn.c_proj.bias"] = normal(c, c), normal(c)
        p[f"h.{i}.ln_2.weight"], p[f"h.{i}.ln_2.bias"] = near_one(c), normal(c)
        p[f"h.{i}.mlp.c_fc.weight"], p[f"h.{i}.mlp.c_fc.bias"] = normal(c, 4 * c), normal(4 * c)
        p[f"h.{i}.mlp.c_proj.weight"], p[f"h.{i}.mlp.c_proj.bias"] = normal(4 * c, c), normal(c)
    p["ln_f.weight"], p["ln_f.bias"] = near_one(c), normal(c)
    return p


def layer_norm(x, weight, bias):
    return torch.nn.functional.layer_norm(x, (CHANNELS,), weight, bias, 1e-5)


def gelu(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def forward(p, tokens):
    batch, time = tokens.shape
    x = p["wte.weight"][tokens] + p["wpe.weight"][:time]
    mask = torch.full((time, time), -math.inf).triu(1)
    for i in range(LAYERS):
        h = f"h.{i}."
        a = layer_norm(x, p[h + "ln_1.weight"], p[h + "ln_1.bias"])
        qkv = a @ p[h + "attn.c_attn.weight"] + p[h + "attn.c_attn.bias"]
        q, k, v = (t.view(batch, time, HEADS, -1).transpose(1, 2) for t in qkv.split(CHANNELS, dim=2))
        scores = q @ k.transpose(2, 3) / math.sqrt(CHANNELS // HEADS) + mask
        o = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, time, CHANNELS)
        x = x + o @ p[h + "attn.c_proj.weight"] + p[h + "attn.c_proj.bias"]
        m = layer_norm(x, p[h + "ln_2.weight"], p[h + "ln_2.bias"])
        m = gelu(m @ p[h + "mlp.c_fc.weight"] + p[h + "mlp.c_fc.bias"])
        x = x + m @ p[h + "mlp.c_proj.weight"] + p[h + "mlp.c_proj.bias"]
    return layer_norm(x, p["ln_f.weight"], p["ln_f.bias"]) @ p["wte.weight"].T


if __name__ == "__main__":
    record("gpt2_golden", make_parameters(), forward, LAYERS, HEADS)
