"""The parts of kernels/README.md that tools/report.py writes, from what bench/run.sh has recorded in bench/results/ISA,
a folder for each kind of machine: kernels, attention, gemm_f32, gemm_f32_llama, gemm_bf16, gemm_2 (Google Benchmark's
JSON) and step (JSON lines)."""
import json
import math
import pathlib
import re
import sys

RESULTS = pathlib.Path(__file__).resolve().parent.parent / "bench" / "results"
ISAS = ("avx512bf16", "avx512", "avx2", "plain")
GOOGLE_PARTS = ("kernels", "attention", "gemm_f32", "gemm_f32_llama", "gemm_bf16", "gemm_2")
NOT_RECORDED = "not recorded"


def size(size_bytes):
    for unit, power in (("MiB", 20), ("KiB", 10)):
        if size_bytes >= 1 << power:
            return f"{size_bytes / (1 << power):g} {unit}"
    return f"{size_bytes} B"


class Machine:
    """What was recorded on one machine, from its folder. Files of a folder that name two machines end the report."""

    def __init__(self, isa):
        self.isa = isa
        self.rows = {}  # of Google Benchmark, by name
        self.steps = []
        self.sources = []  # part, commit and date
        self.caches = None
        for part in GOOGLE_PARTS:
            path = RESULTS / isa / f"{part}.json"
            if not path.exists():
                continue
            recorded = json.loads(path.read_text())
            context = recorded["context"]
            self.is_of(path, re.match(r"isa (\w+), caches ([^;]*)", context["roofline"]).groups())
            self.sources.append(f"{part} at {context['commit']}, {context['date'][:10]}")
            for row in recorded["benchmarks"]:
                if not row["name"].startswith("ladder/"):
                    self.rows[re.sub(r"/iterations.*", "", row["name"])] = row
        path = RESULTS / isa / "step.jsonl"
        if path.exists():
            meta, *self.steps = [json.loads(line) for line in path.read_text().splitlines()]
            machine = meta["machine"]
            caches = " ".join(size(machine[f"l{level}_bytes"]) for level in (1, 2, 3))
            self.is_of(path, ((machine["vector_sets"] or ["plain"])[-1], caches))
            self.sources.append(f"step at {meta['commit']}")

    def is_of(self, path, machine):
        expected = (self.isa, self.caches or machine[1])
        if machine != expected:
            name = path.relative_to(RESULTS.parent.parent)
            sys.exit(f"report: {name} is of a machine with {machine[0]} and caches of {machine[1]}, its folder of one "
                     f"with {expected[0]} and {expected[1]}; record all parts again")
        self.caches = machine[1]


def machines():
    return [machine for machine in map(Machine, ISAS) if machine.sources]


def geomean_and_least(values):
    if not values:
        return NOT_RECORDED
    mean = math.exp(sum(map(math.log, values)) / len(values))
    return f"{mean:.2f}, least {min(values):.2f}, of {len(values)}"


def gemm(rows, dtype, threads, counter, keep=lambda extents: True):
    values = []
    for name, row in rows.items():
        found = re.fullmatch(rf"gemm/{dtype}/threads{threads}/.*/(\d+)x(\d+)x(\d+)", name)
        if found and counter in row and keep([int(extent) for extent in found.groups()]):
            values.append(row[counter])
    return geomean_and_least(values)


def attention(rows, dtype, head):
    values = [row["both_of_peak"] for name, row in rows.items()
              if re.fullmatch(rf"attention/{dtype}/(\w+/)?T2048/D{head}(/\w+)?", name)]
    return f"{max(values):.2f}" if values else NOT_RECORDED


def fractions(rows, counter="of_bound"):
    """{operation: {(dtype, is the largest size): fraction}} of the memory-bound kernels' fastest versions; of the other
    sizes the one next to it."""
    found = {}
    for name, row in rows.items():
        match = re.fullmatch(r"(\w+)/(f32|f16|bf16|e4m3|e5m2)/(\d+)/\w+", name)
        if match and counter in row:
            sizes = found.setdefault(match.group(1), {}).setdefault(match.group(2), {})
            size = int(match.group(3))
            sizes[size] = max(sizes.get(size, 0), row[counter])
    return {operation: {(dtype, size == max(sizes)): value for dtype, sizes in types.items()
                        for size, value in sorted(sizes.items())} for operation, types in found.items()}


def memory_bound(rows, dtype):
    values = {operation: of[(dtype, True)] for operation, of in fractions(rows).items() if (dtype, True) in of}
    if not values:
        return NOT_RECORDED
    arithmetic = fractions(rows, "of_arithmetic")
    computing = [operation for operation, value in values.items()
                 if value < 0.85 <= arithmetic.get(operation, {}).get((dtype, True), 0)]
    text = f"{sum(value >= 0.85 for value in values.values())} of {len(values)} reach it"
    return text + (f", {len(computing)} more compute at their pace in the first level" if computing else "")


def steps(rows, dtype, key, peer=None):
    """The figure of each model, beside `peer` where one is given."""
    found = {row["model"]: f"{row['model']} {row[key]:.2f}" for row in rows
             if row["dtype"] == dtype and key in row and peer in (None, row.get("peer"))}
    return ", ".join(found.values()) if found else NOT_RECORDED


def kernel_goals():
    large = lambda extents: min(extents) >= 1024
    found = machines()
    lines = ["| what | goal | machine | f32 | bf16 |", "|---|---|---|---|---|"]

    def row(what, goal, measured, keep=lambda machine: True):
        for machine in filter(keep, found):
            figures = [measured(machine, dtype) for dtype in ("f32", "bf16")]
            lines.append(f"| {' | '.join([what, goal, machine.isa, *figures])} |")

    row("GEMM over the best of oneDNN, OpenBLAS, BLIS, geometric mean", "1.0, none below 0.9",
        lambda machine, dtype: gemm(machine.rows, dtype, 1, "to_best"))
    row("the same on two threads", "1.0, none below 0.9",
        lambda machine, dtype: gemm(machine.rows, dtype, 2, "to_best"))
    row("GEMM over the peak of multiply-adds, no extent below 1024", "0.92",
        lambda machine, dtype: gemm(machine.rows, dtype, 1, "of_peak", large))
    for head in (64, 128):
        row(f"attention forward and backward over that peak, T = 2048, head {head}", "0.70",
            lambda machine, dtype, head=head: attention(machine.rows, dtype, head))
    row("memory-bound kernels from memory, over the time of their bytes", "0.85",
        lambda machine, dtype: memory_bound(machine.rows, dtype))
    row("training step over that peak", "f32 0.75, bf16 0.60",
        lambda machine, dtype: steps(machine.steps, dtype, "of_peak"))
    row("PyTorch's step over ours, in time", "f32 1.2, bf16 1.4",
        lambda machine, dtype: steps(machine.steps, dtype, "peer_to_ours", "torch"))
    row("llm.c's step over ours, in time", "f32 2",
        lambda machine, dtype: steps(machine.steps, dtype, "peer_to_ours", "llm.c"),
        lambda machine: any(step.get("peer") == "llm.c" for step in machine.steps))
    recorded = [f"- {machine.isa}, caches of {machine.caches}: {'; '.join(machine.sources)}." for machine in found]
    return "One thread unless said. A machine is named by its widest vector set; recorded:\n\n" + "\n".join(
        [*recorded, "", *lines])


def fraction_table(machine):
    columns = [("f32", True), ("bf16", True), ("f32", False), ("bf16", False)]
    lines = [f"| kernel, {machine.isa} | f32, memory | bf16, memory | f32, cache | bf16, cache |",
             "|---|---:|---:|---:|---:|"]
    arithmetic = fractions(machine.rows, "of_arithmetic")
    for operation, of in sorted(fractions(machine.rows).items()):
        cells = [f"{of[column]:.2f}" if column in of else "" for column in columns]
        for i, column in enumerate(columns):
            pace = arithmetic.get(operation, {}).get(column)
            if column[1] and pace is not None and column in of and of[column] < 0.85:
                cells[i] += f" ({pace:.2f})"
        if any(cells):
            lines.append(f"| {operation} | {' | '.join(cells)} |")
    return "\n".join(lines)


def kernel_fractions():
    return "\n\n".join(fraction_table(machine) for machine in machines() if machine.rows)


PARTS = {"kernel_goals": kernel_goals, "kernel_fractions": kernel_fractions}
