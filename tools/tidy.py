#!/usr/bin/env python3
"""clang-tidy over the sources named: tools/tidy.py BUILD FILE..., with the flags of BUILD/compile_commands.json.

Most of its time goes to the headers that a source includes, so it looks at several sources of a folder at once, as
one that includes them. A source that does not compile after others, since it has names of its own in common with
them, is looked at apart.
"""

import concurrent.futures
import itertools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

TOGETHER = 8  # from here on a source more costs what it costs alone, its headers aside


def flags_of(build):
    """Of each source, what its compiler is told apart from source and output."""
    root = pathlib.Path.cwd()
    known = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])[1:]
        skipped = {i + d for i, word in enumerate(words) if word in ("-o", "-c") for d in (0, 1)}
        source = os.path.relpath(entry["file"], root)
        known[source] = tuple(word for i, word in enumerate(words) if i not in skipped)
    return known


def clang_tidy(source, flags, *options):
    run = subprocess.run(["clang-tidy", "--quiet", *options, source, "--", *flags], capture_output=True, text=True)
    return run.returncode == 0, run.stdout or run.stderr


def findings(sources, flags, folder):
    """What clang-tidy says of these sources, an empty text for nothing."""
    if len(sources) == 1:
        passed, said = clang_tidy(sources[0], flags)
        return "" if passed else said
    together = folder / f"{sources[0].replace('/', '_')}_{len(sources)}.cc"
    together.write_text("".join(f'#include "{source}"\n' for source in sources))
    compiles, said = clang_tidy(together, (*flags, "-ferror-limit=0"), "--checks=-*,misc-unused-alias-decls")
    if not compiles:
        apart = [source for source in sources[1:] if re.search(rf"{re.escape(source)}:\d+:\d+: error:", said)]
        apart = apart or sources[1:]
        rest = [source for source in sources if source not in apart]
        return findings(rest, flags, folder) + findings(apart, flags, folder)
    passed, said = clang_tidy(together, flags, "--checks=-bugprone-suspicious-include")
    return "" if passed else said


def groups(files, known):
    """The files by folder and flags, each group cut to what is looked at together."""
    def key(file):
        return os.path.dirname(file), known[file]
    for (_, flags), group in itertools.groupby(sorted(files, key=key), key=key):
        group = list(group)
        for first in range(0, len(group), TOGETHER):
            yield group[first:first + TOGETHER], flags


def main():
    build = pathlib.Path(sys.argv[1])
    known = flags_of(build)
    unknown = [file for file in sys.argv[2:] if file not in known]
    if unknown:
        print(f"check: not analysed, since this build has none of them: {' '.join(unknown)}")
    folder = build / "tidy"
    folder.mkdir(exist_ok=True)
    failed = False
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(findings, group, flags, folder)
                for group, flags in groups([file for file in sys.argv[2:] if file in known], known)]
        for job in concurrent.futures.as_completed(jobs):
            failed = failed or bool(job.result())
            print(job.result(), end="", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
