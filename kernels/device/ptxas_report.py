#!/usr/bin/env python3
"""ptxas_report.py FOLDER: what ptxas said of the kernels, one line per kernel and architecture.

FOLDER is kernels/ptxas of a build with SINEW_CUDA. Instances of a template share a line: their number and the
most registers, shared memory and spilled bytes of any of them.
"""
import collections
import pathlib
import re
import subprocess
import sys

ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")


def base_name(mangled):
    plain = subprocess.run(["c++filt", mangled], capture_output=True, text=True, check=True).stdout
    return re.sub(r"^void ", "", plain).split("<")[0].split("(")[0].replace("sinew::", "").strip()


def read(folder):
    rows = collections.defaultdict(lambda: [0, 0, 0, 0])
    for path in sorted(pathlib.Path(folder).glob("*.txt")):
        row = None
        for line in path.read_text().splitlines():
            entry = ENTRY.search(line)
            if entry:
                row = rows[(path.stem, base_name(entry.group(1)), entry.group(2))]
                row[0] += 1
            if row is None:
                continue
            for column, pattern in ((1, r"Used (\d+) registers"), (2, r"(\d+) bytes smem"),
                                    (3, r"(\d+) bytes spill stores")):
                found = re.search(pattern, line)
                if found:
                    row[column] = max(row[column], int(found.group(1)))
    return rows


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: ptxas_report.py FOLDER")
    print(f"{'file':20} {'kernel':44} {'arch':8} {'instances':>9} {'registers':>9} "
          f"{'static smem':>11} {'spill':>6}")
    for (file, kernel, arch), row in sorted(read(sys.argv[1]).items()):
        print(f"{file:20} {kernel:44} {arch:8} {row[0]:9} {row[1]:9} {row[2]:11} {row[3]:6}")


if __name__ == "__main__":
    main()
