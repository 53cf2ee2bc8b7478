#!/usr/bin/env python3
"""What splitting a model costs, beside what theory says: whole runs of `sinew train`, one after the other.

    bench/training/laws.py layouts|recompute|overlap [--json FILE]

layouts    one global batch on one rank with both cores, then on 4 ranks in many layouts. The bound of a step is the
           one-rank step times the work that the layout repeats (recomputation, bubble) plus what its communication
           takes alone (measured in the same run, with all ranks on these cores)
recompute  one rank: time and activations of none, selective and full recomputation. In operations, full repeats the
           forward pass of the layers: a third of their work; selective repeats no product of matrices
overlap    2 ranks under ZeRO 3 beside the same ranks under ZeRO 0 with nothing left to hide: how much of the
           communication's time, as it takes alone, the step is longer for

What the text says changes no time: it is made here. Nothing else should run meanwhile; each part takes less than half
a minute.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODEL = {"layers": 4, "heads": 4, "channels": 128, "vocabulary": 256, "max_time": 256}
FULL_WORK = 4 / 3  # forward, input gradients, weight gradients, and forward again, over the first three


def train(ranks, *options, steps=6):
    """The summary of a run of a few steps."""
    out = ROOT / "runs" / "laws"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    model = ROOT / "runs" / "laws_model.json"
    model.write_text(json.dumps(MODEL))
    text = ROOT / "runs" / "laws.txt"
    text.write_text("".join(f"line {i * 7919 % 10007} of the text\n" for i in range(4000)))
    command = [str(ROOT / "tools" / "mpirun.sh"), "-n", str(ranks), str(ROOT / "build" / "sinew"), "train", "--data",
               str(text), "--model", str(model), "--batch", "8", "--steps", str(steps),
               "--eval-windows", "1", "--out", str(out), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)
    if done.returncode != 0:
        sys.exit(f"laws: {' '.join(command)} failed ({done.returncode}):\n{(done.stdout + done.stderr)[-1500:]}")
    summary = json.loads((out / "summary.json").read_text())
    # The shortest step: others share a machine with whatever else it does.
    times = [json.loads(line)["step_ms"] for line in (out / "metrics.jsonl").read_text().splitlines()]
    summary["step_s"] = min(times[1:]) / 1e3
    return summary


def rows(summary, part):
    return [row for row in summary["compared"] if part in row["name"]]


def alone_s(summary):
    return sum(row["predicted"] for row in rows(summary, " time a step "))


def inside_s(summary):
    return sum(row["measured"] for row in rows(summary, " time a step "))


LAYOUTS = [
    ("dp4", 1, "--dp 4"),
    ("dp4 zero1", 1, "--dp 4 --zero 1"),
    ("dp4 zero3", 1, "--dp 4 --zero 3"),
    ("tp4", 1, "--tp 4"),
    ("tp4 sp", 1, "--tp 4 --sequence-parallel"),
    ("tp2 dp2", 1, "--tp 2 --dp 2"),
    ("cp4 zigzag", 1, "--cp 4"),
    ("cp4 ulysses", 1, "--cp 4 --cp-mode ulysses"),
    ("pp4 1f1b m8", 1 + 3 / 8, "--pp 4 --microbatches 8"),
    ("pp4 zb-h1 m8", 1 + 1 / 8, "--pp 4 --microbatches 8 --schedule zb-h1"),
    ("pp2 tp2 m8", 1 + 1 / 8, "--pp 2 --tp 2 --microbatches 8"),
    ("dp4 full", FULL_WORK, "--dp 4 --recompute full"),
]
BOUND = 1.15


def layouts():
    one = train(1, "--threads", str(os.cpu_count()))
    print(f"one rank, {os.cpu_count()} threads: {one['step_s'] * 1e3:.1f} ms a step; 4 ranks of one thread, times in ms")
    print(f"{'layout':<14}{'step':>8}{'repeats':>9}{'alone':>8}{'bound':>8}{'of bound':>10}   in calls  computing")
    yield {"layout": "one rank", "step_s": one["step_s"]}
    for name, repeats, options in LAYOUTS:
        found = train(4, "--threads", "1", *options.split())
        bound = one["step_s"] * repeats + alone_s(found)
        inside = inside_s(found)
        verdict = "" if found["step_s"] <= BOUND * bound else "  above 1.15"
        print(f"{name:<14}{found['step_s'] * 1e3:>8.1f}{repeats:>9.2f}{alone_s(found) * 1e3:>8.1f}{bound * 1e3:>8.1f}"
              f"{found['step_s'] / bound:>10.2f}{inside * 1e3:>11.1f}{(found['step_s'] - inside) * 1e3:>11.1f}{verdict}",
              flush=True)
        yield {"layout": name, "step_s": found["step_s"], "repeats": repeats, "communication_alone_s": alone_s(found),
               "bound_s": bound, "of_bound": found["step_s"] / bound, "in_calls_s": inside}


def recompute():
    print(f"{'recompute':<11}{'step':>10}{'ratio':>7}{'theory':>8}{'activations':>14}{'formula':>12}{'of none':>9}")
    none = None
    for kind, theory in (("none", 1.0), ("selective", 1.0), ("full", FULL_WORK)):
        found = train(1, "--threads", str(os.cpu_count()), "--recompute", kind, "--microbatches", "1", steps=14)
        none = none or found
        memory = rows(found, "activations")[0]
        ratio = found["step_s"] / none["step_s"]
        share = memory["measured"] / rows(none, "activations")[0]["measured"]
        print(f"{kind:<11}{found['step_s'] * 1e3:>7.1f} ms{ratio:>7.2f}{theory:>8.2f}{memory['measured'] / 2**20:>10.2f} MiB"
              f"{memory['predicted'] / 2**20:>8.2f} MiB{share:>9.3f}", flush=True)
        yield {"recompute": kind, "step_s": found["step_s"], "ratio": ratio, "ratio_theory": theory,
               "activation_bytes": memory["measured"], "activation_bytes_formula": memory["predicted"]}


def overlap():
    print(f"2 ranks of one thread on {os.cpu_count()} cores")
    print(f"{'zero':<6}{'step':>10}{'in calls':>11}{'alone':>10}{'exposed':>10}{'share':>8}")
    cores = os.cpu_count()
    baseline = None
    for zero in (0, 3):
        found = train(2, "--threads", "1", "--zero", str(zero), "--microbatches", "1", steps=12)
        alone = alone_s(found)
        if baseline is None:  # what the ranks compute: their step without their communication
            baseline = found["step_s"] - inside_s(found)
        exposed = max(0.0, found["step_s"] - baseline)
        print(f"{zero:<6}{found['step_s'] * 1e3:>7.1f} ms{inside_s(found) * 1e3:>8.1f} ms{alone * 1e3:>7.1f} ms"
              f"{exposed * 1e3:>7.1f} ms{exposed / alone:>8.2f}", flush=True)
        yield {"zero": zero, "cores": cores, "ranks": 2, "step_s": found["step_s"], "in_calls_s": inside_s(found),
               "communication_alone_s": alone, "exposed_s": exposed, "exposed_share": exposed / alone}


def main():
    parts = {"layouts": layouts, "recompute": recompute, "overlap": overlap}
    arguments = sys.argv[1:]
    if not arguments or arguments[0] not in parts:
        sys.exit(f"laws: '{arguments[0] if arguments else ''}'; legal values: {', '.join(parts)}")
    records = list(parts[arguments[0]]())
    if len(arguments) == 3 and arguments[1] == "--json":
        pathlib.Path(arguments[2]).write_text("".join(json.dumps(record) + "\n" for record in records))


if __name__ == "__main__":
    main()
