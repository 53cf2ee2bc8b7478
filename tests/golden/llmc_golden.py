#!/usr/bin/env python3
"""Model files of llm.c and what PyTorch makes of them.

Writes llmc_f32.bin (version 3) and llmc_bf16.bin (version 5) beside this script, a small GPT-2 of random weights in the
layout that llm.c's own export script has (matrices [out, in], every tensor for all layers, the vocabulary padded to a
multiple of 128), and llmc_golden.safetensors: a batch of tokens and the logits of both files in float64, of the
vocabulary without its padding. Padded rows hold zeros, so that a file written from what was read has the same bytes.

The C++ tests read the files; PyTorch is only needed to make them again:
    /usr/bin/python3 tests/golden/llmc_golden.py
"""
import math
import pathlib
import struct

import torch

from training import write_safetensors

VOCABULARY, PADDED, TIME, CHANNELS, HEADS, LAYERS, BATCH = 53, 128, 8, 16, 4, 2, 2
C = CHANNELS
HERE = pathlib.Path(__file__).resolve().parent

# In the file's order: name, shape of one layer's, whether each layer has one.
TENSORS = [
    ("wte", (PADDED, C), False), ("wpe", (TIME, C), False),
    ("ln1w", (C,), True), ("ln1b", (C,), True),
    ("qkvw", (3 * C, C), True), ("qkvb", (3 * C,), True),
    ("attprojw", (C, C), True), ("attprojb", (C,), True),
    ("ln2w", (C,), True), ("ln2b", (C,), True),
    ("fcw", (4 * C, C), True), ("fcb", (4 * C,), True),
    ("fcprojw", (C, 4 * C), True), ("fcprojb", (C,), True),
    ("lnfw", (C,), False), ("lnfb", (C,), False),
]


def make_parameters():
    parameters = {}
    for name, shape, per_layer in TENSORS:
        whole = (LAYERS, *shape) if per_layer else shape
        center = 1.0 if name in ("ln1w", "ln2w", "lnfw") else 0.0
        parameters[name] = center + 0.2 * torch.randn(*whole, dtype=torch.float32)
    parameters["wte"][VOCABULARY:] = 0
    return parameters


def write_model(path, parameters, version, dtype):
    header = [20240326, version, TIME, VOCABULARY, LAYERS, HEADS, CHANNELS, PADDED] + [0] * 248
    raw = struct.pack("<256i", *header)
    for name, _, _ in TENSORS:
        values = parameters[name].to(dtype)
        if dtype == torch.bfloat16:
            values = values.view(torch.int16)
        raw += values.contiguous().numpy().tobytes()
    path.write_bytes(raw)


def logits_of(parameters, tokens):
    p = {name: value.to(torch.float64) for name, value in parameters.items()}
    functional = torch.nn.functional
    batch, time = tokens.shape
    x = p["wte"][tokens] + p["wpe"][:time]
    for i in range(LAYERS):
        a = functional.layer_norm(x, (C,), p["ln1w"][i], p["ln1b"][i], 1e-5)
        q, k, v = functional.linear(a, p["qkvw"][i], p["qkvb"][i]).split(C, dim=2)
        q, k, v = (t.view(batch, time, HEADS, C // HEADS).transpose(1, 2) for t in (q, k, v))
        scores = q @ k.transpose(2, 3) / math.sqrt(C // HEADS)
        scores = scores + torch.full((time, time), -math.inf, dtype=torch.float64).triu(1)
        o = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, time, C)
        x = x + functional.linear(o, p["attprojw"][i], p["attprojb"][i])
        m = functional.layer_norm(x, (C,), p["ln2w"][i], p["ln2b"][i], 1e-5)
        m = functional.gelu(functional.linear(m, p["fcw"][i], p["fcb"][i]), approximate="tanh")
        x = x + functional.linear(m, p["fcprojw"][i], p["fcprojb"][i])
    x = functional.layer_norm(x, (C,), p["lnfw"], p["lnfb"], 1e-5)
    return x @ p["wte"][:VOCABULARY].T


def main():
    torch.manual_seed(20240326)
    parameters = make_parameters()
    rounded = {name: value.to(torch.bfloat16).to(torch.float32) for name, value in parameters.items()}
    write_model(HERE / "llmc_f32.bin", parameters, 3, torch.float32)
    write_model(HERE / "llmc_bf16.bin", parameters, 5, torch.bfloat16)
    tokens = torch.randint(0, VOCABULARY, (BATCH, TIME))
    write_safetensors(HERE / "llmc_golden.safetensors",
                      {"tokens": tokens.to(torch.int32), "logits_f32": logits_of(parameters, tokens),
                       "logits_bf16": logits_of(rounded, tokens)},
                      {"torch": torch.__version__})


if __name__ == "__main__":
    main()
