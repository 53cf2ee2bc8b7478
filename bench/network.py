#!/usr/bin/env python3
"""Benchmarks over the networks that this machine can make, recorded in bench/results/network_PART.jsonl.

    bench/network.py [PART...]     all parts, or some of: hierarchy_2 hierarchy_4 all_reduce p2p_tcp p2p_shm verbs

hierarchy_R   two hosts of R ranks, the cable shaped to a tenth of what one core copies in memory, and to a fourth of
              that, where the processors are not all that counts: all-reduce by ring and by hierarchical, and what the
              simulator says for what the cable carries and the processors' work (by bytes alone hierarchical can be
              1.5 times as fast at 2 ranks per host, 1.75 times at 4)
all_reduce    two hosts of one rank, no shaping: auto beside Open MPI over the same UCX, in the same run
p2p_tcp, _shm messages over UCX beside ucx_perftest of the same kind, one after the other; of launches between which a
              virtual machine's processors were moved, which changes times by a factor of four, only those are compared
              that found them alike
verbs         messages over soft RDMA adapters in a virtual machine beside perftest, and by how much they differ: a
              small message goes by a write, a large one by a read of its receiver

The first line of a record says on what and how it was made. Nothing else should run meanwhile; all_reduce takes less
than half a minute, the other parts one to three.
"""
import itertools
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
RUNS = ROOT / "runs"
SINEW = str(ROOT / "build" / "sinew")
MPIRUN = str(ROOT / "tools" / "mpirun.sh")
TWO_HOSTS = str(ROOT / "tests" / "net" / "hosts" / "two_hosts.sh")
LARGE = 16 << 20
# Where a virtual machine moves its processors about, one launch may take a third more or less than the next.
LAUNCHES = 3
# Of messages, which such a move makes four times as slow, and which take little time to measure.
P2P_LAUNCHES = 5


def say(command, **environment):
    """What the command printed; None where it was skipped."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT,
                          env={**os.environ, **environment})
    text = done.stdout + done.stderr
    if ": skipped: " in text:
        print(text.strip())
        return None
    if done.returncode != 0:
        sys.exit(f"network: {' '.join(command)} failed ({done.returncode}):\n{text[-2000:]}")
    return done.stdout


def lines_of(name):
    return [json.loads(line) for line in (RUNS / name).read_text().splitlines()]


def on_two_hosts(ranks, rate, *command, **environment):
    return say([TWO_HOSTS, str(ranks), rate, *command], LIMIT_S="60", **environment)


def machine():
    say([SINEW, "topo", "--json", str(RUNS / "topo.json")])
    return lines_of("topo.json")[0]


def record(part, head, rows):
    commit = subprocess.run(["git", "describe", "--always", "--dirty=-modified", "--abbrev=12"], cwd=ROOT,
                            capture_output=True, text=True).stdout.strip()
    with open(RESULTS / f"network_{part}.jsonl", "w") as file:
        for row in [{"part": f"network_{part}", "commit": commit, **head}, *rows]:
            file.write(json.dumps(row) + "\n")
    for row in rows:
        print(f"{part}: {row}")


def call_seconds(name, op):
    return next(row["t_median_us"] for row in lines_of(name) if row["op"] == op) * 1e-6


# Each algorithm, and the row that its messages inside a host are of.
INSIDE = {"ring": "ring", "hierarchical": "direct"}


def processor_work(ranks, cores, block):
    """What a byte, a message and a reduction cost a processor, each found by itself: sched/README.md derives these.
    Over the cable, which is not shaped, between two ranks with a processor each; in shared memory on one host, by as
    many ranks as meet in the algorithm: a ring leads through all, the parts of a hierarchy stay among those of a host.
    By algorithm."""
    world = 2 * ranks
    out = RUNS / "work.jsonl"

    def calls(algorithm):
        # Through lanes, as ranks that are not all on one host go: calls on one host may share a stage.
        return ["coll", "--op", "all_gather,reduce_scatter", "--algo", algorithm, "--copies", "slots", "--bytes",
                str(LARGE), "--budget-ms", "500", "--json", str(out)]

    if on_two_hosts(1, "none", SINEW, "p2p", "--bytes", str(block), "--budget-ms", "150", "--json", str(out)) is None:
        return None
    # Both ways at once, a rank does two ends for every two messages that the rate counts. Of the size of a block, since
    # a byte of a shorter message has more of what each asks and answers.
    network_s = 1 / (lines_of(out.name)[0]["both_GBps"] * 1e9)
    on_two_hosts(1, "none", SINEW, *calls("ring"))
    # On two ranks both exchange halves, and the one also reduces a half.
    network_reduce_s = (call_seconds(out.name, "reduce_scatter") - call_seconds(out.name, "all_gather")) / (LARGE / 2)
    say([MPIRUN, "-n", "2", SINEW, "p2p", "--bytes", "8", "--budget-ms", "50", "--json", str(out)])
    message_s = lines_of(out.name)[0]["latency_us"] * 1e-6 / 2
    work = {}
    for algorithm, inside in INSIDE.items():
        meet = world if inside == "ring" else ranks
        say([MPIRUN, "-n", str(meet), SINEW, *calls(inside)])
        gather_s, reduce_scatter_s = (min(cores, meet) * call_seconds(out.name, op) / ((meet - 1) * LARGE)
                                      for op in ("all_gather", "reduce_scatter"))
        # Where reducing a message costs less than putting it away, an all-reduce does as much of either.
        memory_s = min(gather_s, (gather_s + reduce_scatter_s) / 2) / 2
        reduce_s = max(0, reduce_scatter_s - gather_s)
        work[algorithm] = {"network_s_per_byte": network_s,
                           "network_reduce_s_per_byte": max(0, network_reduce_s - reduce_s),
                           "memory_s_per_byte": memory_s, "memory_message_s": message_s,
                           "reduce_s_per_byte": reduce_s}
    return work


def carried_Bps(rate):
    """What a cable of that rate carries of messages that are asked for: words wait behind data of the other way."""
    out = RUNS / "carried.jsonl"
    on_two_hosts(1, rate, SINEW, "coll", "--op", "all_gather", "--algo", "ring", "--bytes", str(LARGE), "--budget-ms",
                 "300", "--json", str(out))
    return LARGE / 2 / call_seconds(out.name, "all_gather")


def simulated_us(ranks, algorithm, work, cores, carried, block):
    """What the simulator says, and of which topology."""
    world = 2 * ranks
    first, second = f"0-{ranks - 1}", f"{ranks}-{world - 1}"
    text = f"""topology two-hosts
ranks {world}
reduce {work["reduce_s_per_byte"] * 1e9}ns/B
link * <-> * latency 0s cost 0s/B
link {first} <-> {second} latency 0s bandwidth {carried / 1e9}GB/s
share forth {first} -> {second}
share back {second} -> {first}
work * <-> * message {work["memory_message_s"] * 1e9}ns cost {work["memory_s_per_byte"] * 1e9}ns/B
work {first} <-> {second} message 0s cost {work["network_s_per_byte"] * 1e9}ns/B reduce {
work["network_reduce_s_per_byte"] * 1e9}ns/B
cores machine * {cores}
"""
    topology = RUNS / f"hierarchy_{ranks}.topology"
    topology.write_text(text)
    segments = max(1, LARGE // world // block)
    group = ["--group", str(ranks)] if algorithm == "hierarchical" else []
    say([SINEW, "simulate", "--op", "all_reduce", "--algo", algorithm, *group, "--bytes", str(LARGE), "--segments",
         str(segments), "--topology", str(topology), "--json", str(RUNS / "simulated.jsonl")])
    return lines_of("simulated.jsonl")[0]["simulated_us"], text


def hierarchy(ranks):
    part = f"hierarchy_{ranks}"
    here = machine()
    # Copied bytes: the rate that memory is measured at counts those read and those written.
    memory_Bps = here["memory_GBps"] / 2 * 1e9
    rates = [f"{int(memory_Bps / parts * 8 / 1e6)}mbit" for parts in (10, 40)]
    world = 2 * ranks
    cores = min(here["usable_cores"], world)
    out = RUNS / f"{part}.jsonl"
    launches = {rate: [] for rate in rates}
    carried = {rate: [] for rate in rates}
    works = []
    for _ in range(LAUNCHES):
        for rate in rates:
            if on_two_hosts(ranks, rate, SINEW, "coll", "--op", "all_reduce", "--algo", ",".join(INSIDE), "--bytes",
                            str(LARGE), "--budget-ms", "1000", "--check", "--json", str(out)) is None:
                return
            launches[rate].append(lines_of(out.name))
            carried[rate].append(carried_Bps(rate))
        block = launches[rates[0]][0][0]["network_block_bytes"]
        works.append(processor_work(ranks, cores, block))
    work = {algorithm: {name: statistics.median(each[algorithm][name] for each in works)
                        for name in works[0][algorithm]} for algorithm in INSIDE}
    rows, ratios = [], {}
    for rate in rates:
        cable_Bps = statistics.median(carried[rate])
        times, simulated = {}, {}
        for same in zip(*launches[rate]):
            row = sorted(same, key=lambda row: row["t_median_us"])[LAUNCHES // 2]
            algorithm = row["algo"]
            times[algorithm] = row["t_median_us"]
            simulated[algorithm], topology = simulated_us(ranks, algorithm, work[algorithm], cores, cable_Bps,
                                                                block)
            rows.append({"link": rate, "carried_Bps": cable_Bps, **row, "topology": topology,
                         "simulated_us": simulated[algorithm],
                         "measured_over_simulated": times[algorithm] / simulated[algorithm]})
            print(f"{part}, {rate}: {algorithm} {times[algorithm] / 1e3:.1f} ms, simulated "
                  f"{simulated[algorithm] / 1e3:.1f} ms, ratio {rows[-1]['measured_over_simulated']:.2f}")
        ratios[rate] = {"measured": times["ring"] / times["hierarchical"],
                        "simulated": simulated["ring"] / simulated["hierarchical"]}
    record(part, {"machine": here, "memory_Bps": memory_Bps, "link": rates[0], "slower_link": rates[1], "work": work,
                  "cores": cores, "ring_over_hierarchical": ratios}, rows)
    for rate, ratio in ratios.items():
        print(f"{part}, {rate}: ring / hierarchical {ratio['measured']:.2f}, simulated {ratio['simulated']:.2f}")


def all_reduce():
    """Of each size the launch with the median ratio is kept, and the ratios of all."""
    out = RUNS / "network_all_reduce.jsonl"
    launches = []
    for _ in range(LAUNCHES):
        out.unlink(missing_ok=True)
        text = on_two_hosts(1, "none", SINEW, "coll", "--op", "all_reduce", "--algo", "auto", "--bytes",
                            "8:16M:x8,64K,512K,1M", "--budget-ms", "40", "--baseline", "mpi", "--json", str(out),
                            MPI_OVER="ucx", PASS="UCX_TLS", UCX_TLS="tcp,self")
        if text is None:
            return
        launches.append([{**row, "mpi_over_sinew": row["mpi_us"] / row["t_median_us"]} for row in lines_of(out.name)])
    rows = []
    for same_size in zip(*launches):
        ranked = sorted(same_size, key=lambda row: row["mpi_over_sinew"])
        rows.append({**ranked[LAUNCHES // 2], "ratios": [round(row["mpi_over_sinew"], 3) for row in ranked]})
    record("all_reduce", {"machine": machine(), "launches": LAUNCHES}, sorted(rows, key=lambda row: row["bytes"]))


def line_us():
    """A message of one line between two ranks in memory: it tells where a virtual machine's processors lie."""
    say([MPIRUN, "-n", "2", SINEW, "p2p", "--transport", "shm", "--bytes", "8", "--budget-ms", "20", "--json",
         str(RUNS / "line.jsonl")])
    return lines_of("line.jsonl")[0]["latency_us"]


def of_one_kind(launches):
    """P2P_LAUNCHES of the launches in which the processors stayed where they were, and lay alike, or those of the most
    frequent kind if they move all the time; None: more are needed."""
    kinds = []
    for launch in sorted(launches, key=lambda launch: min(launch["line_us"])):
        if max(launch["line_us"]) > 1.5 * min(launch["line_us"]):
            continue
        if kinds and max(launch["line_us"]) < 1.5 * min(kinds[-1][0]["line_us"]):
            kinds[-1].append(launch)
        else:
            kinds.append([launch])
    most = max(kinds, key=len, default=[])
    return most if len(most) >= P2P_LAUNCHES else (most or launches) if len(launches) >= 4 * P2P_LAUNCHES else None


# Sizes with as many messages as take tenths of a second.
PORTS = itertools.count(random.randrange(13000, 30000))
P2P_SIZES = ((8, 20000), (65536, 4000), (524288, 800), (1 << 20, 400))


def perftest(run, address, size_bytes, count):
    """ucx_perftest's latency in us and rate in MB/s. It prints counts, then times in us (typical, average, overall),
    then rates in MB/s, then messages per second. Typical is the median, as p2p prints it too, but of single messages
    and not of windows. Now and then it hangs, and is asked again."""
    for _ in range(4):
        server, client = [], []
        for test in ("tag_lat", "tag_bw"):
            # A server serves one client; a client asks again until it is there. The kernel keeps a port for a minute.
            port = next(PORTS)
            server.append(f"timeout 5 ucx_perftest -p {port} > /dev/null 2>&1")
            client.append(f"for i in $(seq 100); do timeout 5 ucx_perftest {address} -p {port} -t {test} "
                          f"-s {size_bytes} -n {count} -w {count // 10} 2> /dev/null && break; sleep 0.05; done")
        text = run("bash", "-c",
                   f"if [ $OMPI_COMM_WORLD_RANK = 0 ]; then {'; '.join(server)}; else {'; '.join(client)}; fi; true")
        if text is None:
            return None
        last = [line.split() for line in text.splitlines() if line.startswith("Final:")]
        if len(last) == 2:
            return float(last[0][2]), float(last[1][6])
    sys.exit(f"network: ucx_perftest gave {len(last)} results of 2:\n{text[-2000:]}")


def p2p(kind):
    tls = "tcp,self" if kind == "tcp" else "posix,self"
    address = "10.99.1.1" if kind == "tcp" else "127.0.0.1"
    out = RUNS / f"p2p_{kind}.jsonl"

    def run(*command):
        if kind == "tcp":
            return on_two_hosts(1, "none", *command, PASS="UCX_TLS", UCX_TLS=tls)
        return say([MPIRUN, "-n", "2", *command], UCX_TLS=tls)

    def launch(size_bytes, count):
        lines = [line_us()]
        theirs = perftest(run, address, size_bytes, count)
        lines.append(line_us())
        if theirs is None or run(SINEW, "p2p", "--transport", "ucx", "--bytes", str(size_bytes), "--budget-ms", "100",
                                 "--json", str(out)) is None:
            return None
        lines.append(line_us())
        ours = lines_of(out.name)[0]
        latency_us, MBps = ours["latency_us"], ours["forth_GBps"] * 1e9 / 2**20
        return {"line_us": lines, "latency_us": latency_us, "perftest_latency_us": theirs[0], "MBps": MBps,
                "perftest_MBps": theirs[1], "latency_over_perftest": latency_us / theirs[0],
                "rate_over_perftest": MBps / theirs[1]}

    rows = []
    for size_bytes, count in P2P_SIZES:
        launches = []
        while (same := of_one_kind(launches)) is None:
            launches.append(launch(size_bytes, count))
            if launches[-1] is None:
                return
        medians = {key: statistics.median(each[key] for each in same) for key in same[0] if key != "line_us"}
        rows.append({"bytes": size_bytes, **medians, "launches": len(launches),
                     "line_us": [each["line_us"] for each in same]})
    record(f"p2p_{kind}", {"machine": machine(), "UCX_TLS": tls}, rows)


def verbs():
    """All launches are recorded; a ratio is the median of those of each launch."""
    text = say([str(ROOT / "tests" / "net" / "vm" / "run.sh"), SINEW, "bench.sh", str(LAUNCHES)])
    if text is None:
        return
    rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    ours = {(row["launch"], row["bytes"]): row for row in rows if row.get("transport") == "verbs"}
    ratios = {}
    for row in rows:
        if not row["what"].startswith("ib_"):
            continue
        same = ours[row["launch"], row["bytes"]]
        ratios.setdefault(f"p2p / {row['what']}, {row['bytes']} B", []).append(
            same["latency_us"] / row["latency_us"] if "latency_us" in row
            else same["forth_GBps"] * 1e9 / 2**20 / row["MBps"])
    ratios = {what: statistics.median(each) for what, each in ratios.items()}
    record("verbs", {"machine": machine(), "where": "virtual machine, 2 emulated processors, rdma_rxe",
                     "launches": LAUNCHES, "ratios": ratios}, rows)
    print(f"verbs: {ratios}")


PARTS = {"hierarchy_2": lambda: hierarchy(2), "hierarchy_4": lambda: hierarchy(4), "all_reduce": all_reduce,
         "p2p_tcp": lambda: p2p("tcp"), "p2p_shm": lambda: p2p("shm"), "verbs": verbs}

if __name__ == "__main__":
    RUNS.mkdir(exist_ok=True)
    for name in sys.argv[1:] or PARTS:
        if name not in PARTS:
            sys.exit(f"network: part '{name}' is unknown; legal: {', '.join(PARTS)}")
        PARTS[name]()
