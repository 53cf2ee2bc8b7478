#!/usr/bin/env python3
"""What splitting a model costs, beside what theory says: whole runs of `sinew train`, one after the other.

    bench/training/laws.py layouts|recompute|overlap|cable|row_chunks|memory|long_context [--json FILE]

layouts    one global batch on one rank with both cores, then on 4 ranks in many layouts. The bound of a step is the
           one-rank step times the work that the layout repeats (recomputation, bubble) plus what its communication
           takes alone (measured in the same run, with all ranks on these cores)
recompute  one rank: time and activations of none, selective and full recomputation. In operations, full repeats the
           forward pass of the layers: a third of their work; selective repeats no product of matrices
overlap    2 ranks under ZeRO 3 beside the same ranks under ZeRO 0 with nothing left to hide: how much of the
           communication's time, as it takes alone, the step is longer for
cable      overlap where a core is free while bytes travel: two hosts (namespaces of this machine) of one rank, each on
           a core of its own, joined by a cable that a shaper slows down. ZeRO 3: how much of the communication's time
           a rank waits for
row_chunks the same two hosts under sequence parallelism, with layers' products in 1 and 4 row chunks, in turns: how
           much of the reduce-scatters' time is hidden
memory     4 ranks that read one large text: each one's resident memory, the tokens mapped once; a rank's with moments
           in files; a step's time while checkpoints are written between steps and beside them
long_context  a sequence whose activations do not fit the address space that one rank may have trains on four such ranks

What the text says changes no time: it is made here. Nothing else should run meanwhile; each part takes less than a
minute.
"""
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODEL = {"layers": 4, "heads": 4, "channels": 128, "vocabulary": 256, "max_time": 256}
FULL_WORK = 4 / 3  # forward, input gradients, weight gradients, and forward again, over the first three


OUT = ROOT / "runs" / "laws"
MPIRUN = str(ROOT / "tools" / "mpirun.sh")


def train_command(options, steps, model, lines=4000):
    """`sinew train` of a text of so many lines, with nothing of an earlier run left in its folder."""
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    model_file = ROOT / "runs" / "laws_model.json"
    model_file.write_text(json.dumps(model))
    text = ROOT / "runs" / "laws.txt"
    text.write_text("".join(f"line {i * 7919 % 10007} of the text\n" for i in range(lines)))
    return [str(ROOT / "build" / "sinew"), "train", "--data", str(text), "--model", str(model_file), "--batch", "8",
            "--steps", str(steps), "--eval-windows", "1", "--out", str(OUT), *options]


def train(ranks, *options, steps=6, model=None, launch=None):
    """The summary of a run of a few steps; None where its launcher says that it cannot run here."""
    launch = launch or [MPIRUN, "-n", str(ranks)]
    command = [*launch, *train_command(options, steps, model or MODEL)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)
    if ": skipped: " in done.stdout:
        print(done.stdout.strip())
        return None
    if done.returncode != 0:
        sys.exit(f"laws: {' '.join(command)} failed ({done.returncode}):\n{(done.stdout + done.stderr)[-1500:]}")
    out = OUT
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


def over_cable(rate, *options, **how):
    """Two hosts of one rank."""
    two_hosts = str(ROOT / "tests" / "net" / "hosts" / "two_hosts.sh")
    return train(2, "--threads", "1", *options, launch=[two_hosts, "1", rate], **how)


# What crosses the cable takes a good half of what is computed meanwhile.
ZERO_RATE = "500mbit"
ZERO_MODEL = {**MODEL, "layers": 8}
# A layer's product takes C / t (MLP) or C / 4t (attention) operations for each byte that its reduce-scatter sends:
# the rate at which both take as long is that of GEMM over that.
CHUNKS = (1, 4)
CHUNKS_RATES = ("2gbit", "500mbit")
CHUNKS_TURNS = 3
CHUNKS_MODEL = {"layers": 2, "heads": 8, "channels": 512, "vocabulary": 256, "max_time": 64}


def cable():
    """Exposed is what a rank spends in calls and waits, those for a late peer included: an upper bound."""
    print("2 hosts of one rank of one thread, or the same ranks without a cable; times in ms")
    print(f"{'layout':<22}{'cable':>8}{'step':>9}{'alone':>9}{'exposed':>9}{'share':>7}")
    cases = [("dp2 zero3", ("--zero", "3", "--microbatches", "1"), ZERO_MODEL, ("none", ZERO_RATE))]
    for name, options, model, rates in cases:
        for rate in rates:
            if rate == "none":
                found = train(2, "--threads", "1", *options, steps=8, model=model)
            else:
                found = over_cable(rate, *options, steps=8, model=model)
            if found is None:
                return
            alone = alone_s(found)
            exposed = inside_s(found)
            print(f"{name:<22}{rate:>8}{found['step_s'] * 1e3:>9.1f}{alone * 1e3:>9.1f}{exposed * 1e3:>9.1f}"
                  f"{exposed / alone:>7.2f}", flush=True)
            yield {"layout": name, "rate": rate, "step_s": found["step_s"], "communication_alone_s": alone,
                   "exposed_s": exposed, "exposed_share": exposed / alone}


def row_chunks():
    """In turns, so that what else the machine does falls on all of them. Hidden at most: all of the reduce-scatters
    but their last pieces, by the time that whole ones take alone. (Pieces alone would tell less: a shaper lets the
    first bytes after a pause pass at once.)"""
    print("2 hosts of one rank of one thread, tp 2 with sequence parallelism; medians of the turns, times in ms")
    print(f"{'cable':>8}{'row chunks':>12}{'step':>9}{'gain':>8}{'in scatters':>13}{'hidden':>8}{'at most':>9}  steps")
    for rate in CHUNKS_RATES:
        turns = {chunks: [] for chunks in CHUNKS}
        for _ in range(CHUNKS_TURNS):
            for chunks in CHUNKS:
                found = over_cable(rate, "--tp", "2", "--sequence-parallel", "--row-chunks", str(chunks), steps=6,
                                   model=CHUNKS_MODEL)
                if found is None:
                    return
                scatter = rows(found, "tensor reduce_scatter time a step")[0]
                turns[chunks].append({"step_s": found["step_s"], "in_scatters_s": scatter["measured"],
                                      "scatters_alone_s": scatter["predicted"]})
        middle = {chunks: {key: statistics.median(one[key] for one in turns[chunks]) for key in turns[chunks][0]}
                  for chunks in CHUNKS}
        whole = middle[1]
        for chunks in CHUNKS:
            one = middle[chunks]
            steps = " ".join(f"{turn['step_s'] * 1e3:.1f}" for turn in turns[chunks])
            gain = whole["step_s"] - one["step_s"]
            hidden = whole["in_scatters_s"] - one["in_scatters_s"]
            most = whole["scatters_alone_s"] * (1 - 1 / chunks)
            print(f"{rate:>8}{chunks:>12}{one['step_s'] * 1e3:>9.1f}{gain * 1e3:>8.1f}{one['in_scatters_s'] * 1e3:>13.1f}"
                  f"{hidden * 1e3:>8.1f}{most * 1e3:>9.1f}  {steps}",
                  flush=True)
            yield {"rate": rate, "row_chunks": chunks, **one, "gain_s": gain, "hidden_s": hidden,
                   "hidden_most_s": most, "turns_s": [turn["step_s"] for turn in turns[chunks]]}


def memory_of_ranks(ranks, *options, lines):
    """[{Rss, Pss, Anonymous, ...} in bytes] of the ranks of a run, after its second step."""
    run = subprocess.Popen([MPIRUN, "-n", str(ranks), *train_command(("--threads", "1", *options), 60, MODEL, lines)],
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    metrics = OUT / "metrics.jsonl"
    deadline = time.monotonic() + 100
    while not (metrics.exists() and metrics.read_text().count("\n") >= 2):
        if run.poll() is not None or time.monotonic() > deadline:
            run.kill()
            sys.exit(f"laws: a run ended before its second step:\n{run.communicate()[1][-1500:]}")
        time.sleep(0.02)
    found = []
    for process in pathlib.Path("/proc").iterdir():
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            if not words[0].endswith(b"/sinew") or str(OUT).encode() not in words:
                continue
            lines_of = (process / "smaps_rollup").read_text().splitlines()[1:]
            found.append({line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines_of})
        except (OSError, ValueError, IndexError):
            continue  # of another kind, or gone
    run.terminate()
    run.wait(timeout=30)
    return found


def memory():
    text_lines = 2_000_000
    print("resident MiB of each rank: all of it, its share of it, and what is its own")
    for name, ranks, options in (("1 rank", 1, ()), ("4 ranks", 4, ("--zero", "1"))):
        found = memory_of_ranks(ranks, *options, lines=text_lines)
        size = (ROOT / "runs" / "laws.txt").stat().st_size
        print(f"{name}, a text of {size / 2**20:.0f} MiB: " + ", ".join(
            f"{one['Rss'] / 2**20:.0f}/{one['Pss'] / 2**20:.0f}/{one['Anonymous'] / 2**20:.0f}" for one in found) +
              f"; together {sum(one['Pss'] for one in found) / 2**20:.0f}", flush=True)
        yield {"memory": name, "text_bytes": size, "ranks": [
            {key: one[key] for key in ("Rss", "Pss", "Anonymous")} for one in found]}
    states = ROOT / "runs" / "laws_states"
    states.mkdir(exist_ok=True)
    for name, options in (("moments in memory", ()), ("moments in files", ("--offload", str(states)))):
        found = memory_of_ranks(1, *options, lines=4000)[0]
        print(f"{name}: {found['Rss'] / 2**20:.1f} MiB resident, {found['Anonymous'] / 2**20:.1f} of them its own",
              flush=True)
        yield {"memory": name, **{key: found[key] for key in ("Rss", "Pss", "Anonymous")}}
    quiet = None
    for name, options in (("no checkpoints", ()), ("written between steps", ("--save-every", "2")),
                          ("written beside steps", ("--save-every", "2", "--async-save"))):
        began = time.monotonic()
        found = train(2, "--threads", "1", *options, steps=24)
        took = time.monotonic() - began
        quiet = quiet or took
        saves = 12 if options else 1
        print(f"24 steps with {saves} checkpoints, {name}: {took:.2f} s, a step {found['step_s'] * 1e3:.1f} ms",
              flush=True)
        yield {"checkpoints": name, "run_s": took, "over_none_s": took - quiet, "step_s": found["step_s"]}


LONG_MODEL = {"layers": 4, "heads": 4, "channels": 64, "vocabulary": 256, "max_time": 16384}


def long_context():
    """The address space of a rank is what is left of its limit when the program has started."""
    limit_KiB = 512 << 10
    print(f"a sequence of {LONG_MODEL['max_time']} positions, ranks of {limit_KiB >> 10} MiB of address space")
    for ranks in (1, 4):
        options = ("--batch", "1", "--cp", str(ranks), "--threads", "1")
        command = train_command(options, 1, LONG_MODEL)
        limited = ["bash", "-c", f"ulimit -v {limit_KiB}; exec \"$@\"", "limited", *command]
        done = subprocess.run([MPIRUN, "-n", str(ranks), *limited], capture_output=True, text=True, timeout=120,
                              cwd=ROOT)
        last = ((done.stdout + done.stderr).strip().splitlines() or [""])[-1]
        record = {"ranks": ranks, "positions": LONG_MODEL["max_time"], "limit_bytes": limit_KiB << 10,
                  "exit_code": done.returncode}
        if done.returncode == 0:
            summary = json.loads((OUT / "summary.json").read_text())
            kept = rows(summary, "activations")[0]
            record |= {"loss": summary["loss"], "step_s": summary["step_ms_median"] / 1e3,
                       "activation_bytes": kept["measured"]}
            print(f"{ranks} ranks: trains, {kept['measured'] / 2**20:.0f} MiB of activations a rank, "
                  f"{summary['step_ms_median'] / 1e3:.1f} s a step", flush=True)
        else:
            print(f"{ranks} rank: exit code {done.returncode}: {last}", flush=True)
        yield record


def main():
    parts = {"layouts": layouts, "recompute": recompute, "overlap": overlap, "cable": cable, "row_chunks": row_chunks,
             "memory": memory, "long_context": long_context}
    arguments = sys.argv[1:]
    saves = len(arguments) == 3 and arguments[1] == "--json"
    if not (len(arguments) == 1 or saves) or arguments[0] not in parts:
        print(f"laws: '{' '.join(arguments)}'; legal: one of {', '.join(parts)}, and then --json FILE", file=sys.stderr)
        sys.exit(2)
    records = list(parts[arguments[0]]())
    if saves:
        pathlib.Path(arguments[2]).write_text("".join(json.dumps(record) + "\n" for record in records))


if __name__ == "__main__":
    main()
