#!/usr/bin/env python3
"""Golden values of a small Llama (grouped-query attention, untied head), computed by PyTorch in float64.

Writes llama_golden.safetensors beside this script: initial parameters (Hugging Face Llama names, weights stored
[out, in], rotary halves), one batch of tokens and targets, and what PyTorch makes of them: logits, per-token losses,
the mean loss, the gradient of every parameter, the global gradient norm, and the losses of ten training steps
with clipping and AdamW. One target is -1: a position without loss.

The C++ tests read the file; PyTorch is only needed to make it again:
    /usr/bin/python3 tests/golden/llama_golden.py
"""
import math

import torch

from training import VOCABULARY, near_one, normal, record

CHANNELS, HEADS, KV_HEADS, HIDDEN, LAYERS = 16, 4, 2, 24, 2
THETA, NORM_EPSILON = 1e4, 1e-5


def make_parameters():
    c, kv = CHANNELS, KV_HEADS * (CHANNELS // HEADS)
    p = {"model.embed_tokens.weight": normal(VOCABULARY, c)}
    for i in range(LAYERS):
        h = f"model.layers.{i}."
        p[h + "input_layernorm.weight"] = near_one(c)
        p[h + "self_attn.q_proj.weight"] = normal(c, c)
        p[h + "self_attn.k_proj.weight"] = normal(kv, c)
        p[h + "self_attn.v_proj.weight"] = normal(kv, c)
        p[h + "self_attn.o_proj.weight"] = normal(c, c)
        p[h + "post_attention_layernorm.weight"] = near_one(c)
        p[h + "mlp.gate_proj.weight"] = normal(HIDDEN, c)
        p[h + "mlp.up_proj.weight"] = normal(HIDDEN, c)
        p[h + "mlp.down_proj.weight"] = normal(c, HIDDEN)
    p["model.norm.weight"], p["lm_head.weight"] = near_one(c), normal(VOCABULARY, c)
    return p


def rms_norm(x, weight):
    return x / torch.sqrt((x**2).mean(-1, keepdim=True) + NORM_EPSILON) * weight


def turn(x):  # [batch, heads, time, channels]; channel i pairs with i + channels / 2
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[2])[:, None] * THETA ** (-torch.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def forward(p, tokens):
    batch, time = tokens.shape
    linear = torch.nn.functional.linear
    x = p["model.embed_tokens.weight"][tokens]
    mask = torch.full((time, time), -math.inf).triu(1)
    for i in range(LAYERS):
        h = f"model.layers.{i}."

        def heads(name, count):
            return linear(a, p[h + f"self_attn.{name}_proj.weight"]).view(batch, time, count, -1).transpose(1, 2)

        a = rms_norm(x, p[h + "input_layernorm.weight"])
        q, k, v = turn(heads("q", HEADS)), turn(heads("k", KV_HEADS)), heads("v", KV_HEADS)
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, 1) for t in (k, v))
        scores = q @ k.transpose(2, 3) / math.sqrt(CHANNELS // HEADS) + mask
        o = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, time, CHANNELS)
        x = x + linear(o, p[h + "self_attn.o_proj.weight"])
        m = rms_norm(x, p[h + "post_attention_layernorm.weight"])
        gate = linear(m, p[h + "mlp.gate_proj.weight"])
        up = linear(m, p[h + "mlp.up_proj.weight"])
        x = x + linear(gate * torch.sigmoid(gate) * up, p[h + "mlp.down_proj.weight"])
    return linear(rms_norm(x, p["model.norm.weight"]), p["lm_head.weight"])


if __name__ == "__main__":
    record("llama_golden", make_parameters(), forward, LAYERS, HEADS)
