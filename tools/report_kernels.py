"""The parts of kernels/README.md that tools/report.py writes, from what bench/run.sh has recorded in bench/results:
kernels, attention, gemm_f32, gemm_f32_llama, gemm_bf16, gemm_2 (Google Benchmark's JSON) and step (JSON lines)."""
import json
import math
import pathlib
import re

RESULTS = pathlib.Path(__file__).resolve().parent.parent / "bench" / "results"
GOOGLE_PARTS = ("kernels", "attention", "gemm_f32", "gemm_f32_llama", "gemm_bf16", "gemm_2")
NOT_RECORDED = "not recorded"


def google_rows():
    """Every recorded row by its name, and the machines and commits they were measured on."""
    rows, sources = {}, []
    for part in GOOGLE_PARTS:
        path = RESULTS / f"{part}.json"
        if not path.exists():
            continue
        recorded = json.loads(path.read_text())
        context = recorded["context"]
        sources.append(f"{part} at {context['commit']}, {context['date'][:10]}")
        for row in recorded["benchmarks"]:
            if not row["name"].startswith("ladder/"):
                rows[re.sub(r"/iterations.*", "", row["name"])] = row
    return rows, sources


def step_rows():
    path = RESULTS / "step.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()][1:]


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


def steps(dtype, key, peer=None):
    """The figure of each model, beside `peer` where one is given."""
    found = {row["model"]: f"{row['model']} {row[key]:.2f}" for row in step_rows()
             if row["dtype"] == dtype and key in row and peer in (None, row.get("peer"))}
    return ", ".join(found.values()) if found else NOT_RECORDED


def kernel_goals():
    rows, sources = google_rows()
    large = lambda extents: min(extents) >= 1024
    lines = ["| what | goal | f32 | bf16 |", "|---|---|---|---|"]
    both = lambda what, goal, measured: lines.append(
        f"| {what} | {goal} | {measured('f32')} | {measured('bf16')} |")
    both("GEMM over the best of oneDNN, OpenBLAS, BLIS, geometric mean", "1.0, none below 0.9",
         lambda dtype: gemm(rows, dtype, 1, "to_best"))
    both("the same on two threads", "1.0, none below 0.9", lambda dtype: gemm(rows, dtype, 2, "to_best"))
    both("GEMM over the peak of multiply-adds, no extent below 1024", "0.92",
         lambda dtype: gemm(rows, dtype, 1, "of_peak", large))
    for head in (64, 128):
        both(f"attention forward and backward over that peak, T = 2048, head {head}", "0.70",
             lambda dtype, head=head: attention(rows, dtype, head))
    both("memory-bound kernels from memory, over the time of their bytes", "0.85",
         lambda dtype: memory_bound(rows, dtype))
    both("training step over that peak", "f32 0.75, bf16 0.60", lambda dtype: steps(dtype, "of_peak"))
    both("PyTorch's step over ours, in time", "f32 1.2, bf16 1.4", lambda dtype: steps(dtype, "peer_to_ours", "torch"))
    if any(row.get("peer") == "llm.c" for row in step_rows()):
        both("llm.c's step over ours, in time", "f32 2", lambda dtype: steps(dtype, "peer_to_ours", "llm.c"))
    return f"One thread unless said; recorded: {'; '.join(sources)}.\n\n" + "\n".join(lines)


def kernel_fractions():
    columns = [("f32", True), ("bf16", True), ("f32", False), ("bf16", False)]
    lines = ["| kernel | f32, memory | bf16, memory | f32, cache | bf16, cache |", "|---|---:|---:|---:|---:|"]
    rows = google_rows()[0]
    arithmetic = fractions(rows, "of_arithmetic")
    for operation, of in sorted(fractions(rows).items()):
        cells = [f"{of[column]:.2f}" if column in of else "" for column in columns]
        for i, column in enumerate(columns):
            pace = arithmetic.get(operation, {}).get(column)
            if column[1] and pace is not None and column in of and of[column] < 0.85:
                cells[i] += f" ({pace:.2f})"
        if any(cells):
            lines.append(f"| {operation} | {' | '.join(cells)} |")
    return "\n".join(lines)


PARTS = {"kernel_goals": kernel_goals, "kernel_fractions": kernel_fractions}
