"""What the scripts of this folder that train a model share: parameters drawn, ten steps of AdamW, the file."""
import json
import pathlib
import struct

import torch

VOCABULARY, TIME, BATCH = 37, 12, 3
LR, BETAS, EPSILON, WEIGHT_DECAY, CLIP, STEPS = 3e-3, (0.9, 0.95), 1e-8, 0.1, 1.0, 10

torch.set_default_dtype(torch.float64)
torch.manual_seed(1234)


def normal(*shape, std=0.2):  # larger than the usual 0.02, so that every nonlinearity matters
    return (torch.randn(*shape) * std).requires_grad_()


def near_one(*shape):
    return (1 + torch.randn(*shape) * 0.1).requires_grad_()


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


def record(name, p, forward, layers, heads):
    """Trains the parameters p of forward(p, tokens) and writes NAME.safetensors beside this script."""
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
    metadata = {"torch": torch.__version__, "layers": str(layers), "heads": str(heads), "lr": str(LR),
                "beta1": str(BETAS[0]), "beta2": str(BETAS[1]), "epsilon": str(EPSILON),
                "weight_decay": str(WEIGHT_DECAY), "clip": str(CLIP)}
    write_safetensors(pathlib.Path(__file__).with_name(f"{name}.safetensors"), out, metadata)
    print(f"loss {losses[0]:.12f} -> {losses[-1]:.12f}, norm {norms[0]:.12f}")
