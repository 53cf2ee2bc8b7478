#!/usr/bin/env python3
"""Golden values of a small Llama (grouped-query attention, untied head), computed by PyTorch in float64.

Writes llama_golden.safetensors beside this script: initial parameters (Hugging Face Llama names, weights stored
[out, in], rotary halves), one batch of tokens and targets, and what PyTorch makes of them: logits, per-token losses,
the mean loss, the gradient of every parameter, the global gradient norm, and the losses of ten training steps
with clipping and AdamW. One target is -1: a position without loss.

The C++ tests read the file; PyTorch is only needed to make it again:
    /usr/bin/python3 tests/golden/llama_golden.py
"""
import json
import math
import pathlib
import struct

import torch

VOCABULARY, TIME, CHANNELS, HEADS, KV_HEADS, HIDDEN, LAYERS, BATCH = 37, 12, 16, 4, 2, 24, 2, 3
THETA, NORM_EPSILON = 1e4, 1e-5
LR, BETAS, EPSILON, WEIGHT_DECAY, CLIP, STEPS = 3e-3, (0.9, 0.95), 1e-8, 0.1, 1.0, 10

torch.set_default_dtype(torch.float64)
torch.manual_seed(1234)


def make_parameters():
    def normal(*shape, std=0.2):  # larger than the usual 0.02, so that every nonlinearity matters
        return (torch.randn(*shape) * std).requires_grad_()

    def near_one(*shape):
        return (1 + torch.randn(*shape) * 0.1).requires_grad_()

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


def token_losses(logits, targets):
    return torch.nn.functional.cross_entropy(
        logits.view(-1, VOCABULARY), targets.view(-1), ignore_index=-1, reduction="none").view(targets.shape)


def write_safetensors(path, tensors, metadata):
    names = {torch.float64: "F64", torch.int32: "I32"}
    header, data, offset = {"__metadata__": metadata}, [], 0
    for name, tensor in tensors.items():
        raw = tensor.detach().contiguous().numpy().tobytes()
        header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [offset, offset + len(raw)]}
        offset += len(raw)
        data.append(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data))


def main():
    p = make_parameters()
    tokens = torch.randint(0, VOCABULARY, (BATCH, TIME))
    targets = torch.randint(0, VOCABULARY, (BATCH, TIME))
    targets[1, 5] = -1
    count = int((targets >= 0).sum())
    out = {"tokens": tokens.to(torch.int32), "targets": targets.to(torch.int32)}
    out |= {"init." + name: value.detach().clone() for name, value in p.items()}

    optimizer = torch.optim.AdamW(
        [{"params": [v for v in p.values() if v.dim() >= 2], "weight_decay": WEIGHT_DECAY},
         {"params": [v for v in p.values() if v.dim() < 2], "weight_decay": 0.0}],
        lr=LR, betas=BETAS, eps=EPSILON)
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        logits = forward(p, tokens)
        per_token = token_losses(logits, targets)
        loss = per_token.sum() / count
        loss.backward()
        if step == 0:
            out |= {"logits": logits.detach(), "token_losses": per_token.detach()}
            out |= {"grad." + name: value.grad.clone() for name, value in p.items()}
        norm = torch.sqrt(sum((v.grad**2).sum() for v in p.values()))
        losses.append(loss.item())
        norms.append(norm.item())
        coefficient = min(1.0, CLIP / (norm.item() + 1e-6))
        for value in p.values():
            value.grad *= coefficient
        optimizer.step()
    out |= {"losses": torch.tensor(losses), "grad_norms": torch.tensor(norms)}
    out |= {"final." + name: value.detach() for name, value in p.items()}
    metadata = {"torch": torch.__version__, "layers": str(LAYERS), "heads": str(HEADS), "lr": str(LR),
                "beta1": str(BETAS[0]), "beta2": str(BETAS[1]), "epsilon": str(EPSILON),
                "weight_decay": str(WEIGHT_DECAY), "clip": str(CLIP)}
    write_safetensors(pathlib.Path(__file__).with_name("llama_golden.safetensors"), out, metadata)
    print(f"loss {losses[0]:.12f} -> {losses[-1]:.12f}, norm {norms[0]:.12f}")


if __name__ == "__main__":
    main()
