#!/usr/bin/env python3
"""Golden values of a small GPT-2, computed by PyTorch in float64.

Writes gpt2_golden.safetensors beside this script: initial parameters (Hugging Face GPT-2 names, Conv1D weights
stored [in, out]), one batch of tokens and targets, and what PyTorch makes of them: logits, per-token losses,
the mean loss, the gradient of every parameter, the global gradient norm, and the losses of ten training steps
with clipping and AdamW. One target is -1: a position without loss.

The C++ tests read the file; PyTorch is only needed to make it again:
    /usr/bin/python3 tests/golden/gpt2_golden.py
"""
import json
import math
import pathlib
import struct

import torch

VOCABULARY, TIME, CHANNELS, HEADS, LAYERS, BATCH = 37, 12, 16, 2, 2, 3
LR, BETAS, EPSILON, WEIGHT_DECAY, CLIP, STEPS = 3e-3, (0.9, 0.95), 1e-8, 0.1, 1.0, 10

torch.set_default_dtype(torch.float64)
torch.manual_seed(1234)


def make_parameters():
    def normal(*shape, std=0.2):  # larger than GPT-2's 0.02, so that every nonlinearity matters
        return (torch.randn(*shape) * std).requires_grad_()

    def near_one(*shape):
        return (1 + torch.randn(*shape) * 0.1).requires_grad_()

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
    write_safetensors(pathlib.Path(__file__).with_name("gpt2_golden.safetensors"), out, metadata)
    print(f"loss {losses[0]:.12f} -> {losses[-1]:.12f}, norm {norms[0]:.12f}")


if __name__ == "__main__":
    main()
