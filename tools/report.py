#!/usr/bin/env python3
"""Writes the generated parts of the READMEs, or checks that they are up to date.

A part stands between the lines `<!-- begin NAME -->` and `<!-- end NAME -->`. What does not depend on a
measurement is made anew by build/sinew; numbers and recorded output come from bench/results. So every number in
the README is one that was measured or generated.

    tools/report.py            rewrites them
    tools/report.py --check    fails and names the parts that differ
    tools/report.py --plot     also draws bench/results as SVG, where matplotlib is installed
"""
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import report_kernels
from report_kernels import size

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
SINEW = pathlib.Path(os.environ.get("SINEW", ROOT / "build" / "sinew"))


def run(*arguments):
    done = subprocess.run([str(SINEW), *arguments], check=True, capture_output=True, text=True, timeout=60)
    return done.stdout.rstrip("\n")


def fenced(text):
    return "```text\n" + text.strip("\n") + "\n```"


def command(arguments, until=None):
    output = run(*arguments.split())
    if until:
        output = output[:output.index(until)] + "\n  ..."
    return fenced(f"$ build/sinew {arguments}\n" + output)


def records(name):
    lines = (RESULTS / f"{name}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def recorded(name, keep=lambda line: True):
    """The output of a recorded command: the file's first line is the command. Lines left out are a line of dots."""
    lines = []
    for line in (RESULTS / f"{name}.txt").read_text().strip("\n").splitlines():
        if keep(line):
            lines.append(line)
        elif line and lines[-1] != "...":
            lines.append("...")
    return fenced("\n".join(lines))


LEFT_OUT_OF_TRAINING = ("validation loss", "median step", "gradients", "optimizer state", "working buffers",
                        "peak live", "tensor all_reduce a step", "tensor all_reduce payload")


def listed():
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        run("explain", "--list", "--json", file.name)
        return [json.loads(line) for line in open(file.name)]


def algorithms():
    names = {}
    for row in listed():
        name = f"`{re.sub(r'_[0-9]+$', '_R', row['algo'])}`"
        if name not in names.setdefault(row["op"], []):
            names[row["op"]].append(name)
    table = ["| operation | algorithms |", "|---|---|"]
    table += [f"| {op} | {', '.join(of)} |" for op, of in names.items()]
    return "\n".join(table)


def algorithm_costs():
    table = ["| operation | algorithm | cost | source |", "|---|---|---|---|"]
    table += [f"| {r['op']} | `{r['algo']}` | {r['formula']} | {r['source']} |" for r in listed()
              if r["op"] != "pipeline"]
    return "\n".join(table)


def recorded_collective():
    meta, *rows = records("collectives_2")
    table = ["| size | median us | bus GB/s | predicted us | MPI us | MPI / Sinew |", "|---:|---:|---:|---:|---:|---:|"]
    for r in rows[::2]:
        table.append(f"| {size(r['bytes'])} | {three(r['t_median_us'])} | {three(r['busbw_GBps'])} | "
                     f"{three(r['predicted_us'])} | {three(r['mpi_us'])} | {three(r['mpi_us'] / r['t_median_us'])} |")
    machine = meta["machine"]
    return (f"`{meta['command']}`, over shm on {machine['usable_cores']} cores of {machine['processor']}, "
            f"commit {meta['commit']}; median of {min(r['iterations'] for r in rows)} to "
            f"{max(r['iterations'] for r in rows)} repetitions, MPI in the same run; every second size:\n\n" + "\n".join(table))


# What is wanted of MPI's time over ours: geometric means. Nothing is to be below 0.95 anywhere.
REDUCTIONS = ("all_reduce", "reduce_scatter")
MOVES = ("all_gather", "broadcast", "all_to_all")
GOALS = [  # operations, buffers, least and most bytes, of 2 ranks, of more
    (REDUCTIONS, "plain", 0, 2 << 10, 1.2, 2.0),
    (REDUCTIONS, "plain", 1 << 20, 1 << 62, 2.0, 1.5),
    (REDUCTIONS, "symmetric", 1 << 20, 1 << 62, 4.5, 7.0),
    *(((op,), "plain", 0, 1 << 62, 1.3, 1.3) for op in MOVES),
]
GOAL_FILES = ("collectives_2", "operations_2", "symmetric_2", "operations_4", "symmetric_4", "collectives_8",
              "operations_8", "symmetric_8", "collectives_mpich_2", "operations_mpich_2", "collectives_mpich_4",
              "operations_mpich_4", "collectives_mpich_8", "operations_mpich_8")


def collective_goals():
    measured = {}
    for name in GOAL_FILES:
        if not (RESULTS / f"{name}.jsonl").exists():
            continue
        for r in records(name)[1:]:
            if r.get("mpi_us"):
                ratio = r["mpi_us"] / r["t_median_us"]
                library = re.sub(r" (v|Version).*", "", r["mpi_library"])
                measured.setdefault((library, r["ranks"]), []).append((r, ratio))
    table = ["| MPI | ranks | operations | sizes | geometric mean | wanted | least |",
             "|---|---:|---|---|---:|---:|---:|"]
    for (library, ranks), rows in sorted(measured.items(), key=lambda item: (item[0][0] != "Open MPI", item[0])):
        for ops, buffers, least, most, of_two, of_more in GOALS:
            chosen = [(ratio, r) for r, ratio in rows
                      if r["op"] in ops and r["buffers"] == buffers and least <= r["bytes"] <= most]
            if not chosen:
                continue
            mean = math.exp(sum(math.log(ratio) for ratio, _ in chosen) / len(chosen))
            worst, where = min(chosen, key=lambda pair: pair[0])
            sizes = f"from {size(least)}" if least else f"up to {size(most)}" if most < 1 << 62 else "all"
            names = list(dict.fromkeys(r["op"] for _, r in chosen)) + ["symmetric"] * (buffers == "symmetric")
            table.append(f"| {library} | {ranks} | {', '.join(names)} | {sizes}, {len(chosen)} | {three(mean)} | "
                         f"{of_two if ranks == 2 else of_more} | {three(worst)} at {size(where['bytes'])} |")
        worst, where = min(((ratio, r) for r, ratio in rows), key=lambda pair: pair[0])
        table.append(f"| {library} | {ranks} | all | all, {len(rows)} | | 0.95 at least | {three(worst)} at "
                     f"{where['op']}, {size(where['bytes'])} |")
    return "\n".join(table)


def three(value):
    decimals = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3
    return f"{value:.{decimals}f}"


def commands():
    return fenced("\n".join(line for line in run("--help").splitlines() if line.startswith("  ")))


PARTS = {
    "ring": lambda: command("explain --op all_reduce --algo ring --world 4", until="\n\n  held"),
    "algorithms": algorithms,
    "algorithm_costs": algorithm_costs,
    "commands": commands,
    "verify": lambda: command("verify --op reduce_scatter --world 1:64"),
    "simulate": lambda: command("simulate --op pipeline --algo 1f1b --world 4 --microbatches 8"),
    "coll": recorded_collective,
    "collective_goals": collective_goals,
    "train": lambda: recorded("training", lambda line: line and not line.startswith(LEFT_OUT_OF_TRAINING) and
                              ("/40 " not in line or line.split()[1] in ("1/40", "40/40"))),
    "sample": lambda: recorded("sample"),
    **report_kernels.PARTS,
}


def rendered(readme):
    def replace(match):
        name = match.group(1)
        if name not in PARTS:
            sys.exit(f"report: a README has a part '{name}' that nothing makes; parts: {', '.join(PARTS)}")
        return f"<!-- begin {name} -->\n{PARTS[name]()}\n<!-- end {name} -->"
    return re.sub(r"<!-- begin (\S+) -->\n.*?<!-- end \1 -->", replace, readme, flags=re.DOTALL)


def differing(before, after):
    parts = r"<!-- begin (\S+) -->\n(.*?)<!-- end \1 -->"
    old = dict(re.findall(parts, before, flags=re.DOTALL))
    return [name for name, text in re.findall(parts, after, flags=re.DOTALL) if old.get(name) != text]


# What to draw of a recorded part: a title, the key of the x axis, and the keys of the curves.
PLOTS = {
    "collectives_2": ("all-reduce, 2 ranks, shm", "microseconds",
                      {"t_median_us": "Sinew", "mpi_us": "MPI", "predicted_us": "closed form", "bound_us": "bound"}),
    "collectives_8": ("all-reduce, 8 ranks, shm", "microseconds",
                      {"t_median_us": "Sinew", "mpi_us": "MPI", "predicted_us": "closed form", "bound_us": "bound"}),
    "symmetric_2": ("all-reduce, 2 ranks, symmetric buffers", "microseconds",
                    {"t_median_us": "Sinew", "mpi_us": "MPI, plain buffers"}),
    "p2p": ("messages between 2 ranks, shm", "GB/s",
            {"forth_GBps": "one way", "both_GBps": "both ways"}),
}


def plot():
    try:
        import matplotlib
    except ImportError:
        print("report: not plotted: needs python3-matplotlib")
        return
    matplotlib.use("svg")
    from matplotlib import pyplot
    for name, (title, unit, curves) in PLOTS.items():
        if not (RESULTS / f"{name}.jsonl").exists():
            print(f"report: {name} not plotted: bench/run.sh {name} records it")
            continue
        _, *rows = records(name)
        figure, axes = pyplot.subplots(figsize=(7, 4.5))
        for key, label in curves.items():
            points = [(r["bytes"], r[key]) for r in rows if r.get(key)]
            axes.loglog([x for x, _ in points], [y for _, y in points], marker="o", label=label)
        axes.set_xlabel("bytes")
        axes.set_ylabel(unit)
        axes.set_title(title)
        axes.legend()
        figure.savefig(RESULTS / f"{name}.svg", metadata={"Date": None})
        pyplot.close(figure)


def main():
    for word in sys.argv[1:]:
        if word not in ("--check", "--plot"):
            print(f"report: '{word}'; legal: --check, --plot", file=sys.stderr)
            sys.exit(2)
    for name in ("README.md", "sched/README.md", "kernels/README.md", "bench/README.md"):
        path = ROOT / name
        before = path.read_text()
        after = rendered(before)
        if "--check" not in sys.argv:
            path.write_text(after)
        elif parts := differing(before, after):
            sys.exit(f"report: {name} is out of date in: {', '.join(parts)}; run tools/report.py")
    if "--plot" in sys.argv:
        plot()


if __name__ == "__main__":
    main()
