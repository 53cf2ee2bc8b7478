#!/usr/bin/env bash
# The unit tests and fuzzers under the address and undefined-behaviour sanitizers, and the tests of ranks that are
# threads under the thread sanitizer. Argument: parallel jobs. Prints "N passed, N failed" and fails if any failed.
set -uo pipefail
cd "$(dirname "$0")/.."
jobs=${1:-$(nproc)}
passed=0
failed=0

# MPI's own start-up leaks and is not ours to judge; everything else is an error.
export ASAN_OPTIONS=detect_leaks=0:abort_on_error=1
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1

# Builds the targets, as far as they can be built; what failed is told again where it is run.
build() {  # preset, target...
  local preset=$1 began=$SECONDS
  shift
  mkdir -p "build/$preset"
  cmake --preset "$preset" >"build/$preset/build.log" 2>&1 &&
    cmake --build --preset "$preset" -j "$jobs" --target "$@" -- -k 0 >>"build/$preset/build.log" 2>&1
  echo "sanitize: $preset built in $((SECONDS - began)) s"
}

run_alone() {  # preset, target, argument...
  local preset=$1 target=$2 log=build/$1/$2.log began=$SECONDS
  shift 2
  # Older thread sanitizers refuse some random layouts of memory.
  local fixed=()
  [[ "$preset" == tsan ]] && setarch -R true 2>/dev/null && fixed=(setarch -R)
  if timeout 1500 "${fixed[@]}" "build/$preset/tests/$target" "$@" >"$log" 2>&1; then
    grep "sanitized:" "$log"
    echo "sanitize: $preset $target passed in $((SECONDS - began)) s"
  else
    tail -n 60 "$log"
    echo "sanitize: $preset $target FAILED"
    return 1
  fi
}

running=0
finish_one() {
  if wait -n; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
  running=$((running - 1))
}

# Starts a program as soon as fewer than `jobs` run; what could not be built is told here.
run() {  # preset, target, argument...
  if ! cmake --build --preset "$1" -j "$jobs" --target "$2" >"build/$1/$2.log" 2>&1; then
    failed=$((failed + 1))
    tail -n 60 "build/$1/$2.log"
    echo "sanitize: $1 $2 NOT BUILT"
    return
  fi
  ((running < jobs)) || finish_one
  run_alone "$@" &
  running=$((running + 1))
}

units=()
for folder in base sched kernels comm net model; do
  compgen -G "tests/$folder/*_test.cc" >/dev/null && units+=("test_$folder")
done
fuzzers=()
for source in tests/fuzz/*_fuzz.cc; do
  [[ -f "$source" ]] && fuzzers+=("$(basename "$source" .cc)")
done

build asan "${units[@]}" "${fuzzers[@]}"
build tsan test_comm
run tsan test_comm --gtest_brief=1
# NetLibrary starts whole programs, which this build leaves out; `make test` has them.
for unit in "${units[@]}"; do run asan "$unit" --gtest_brief=1 --gtest_filter=-NetLibrary.*; done
for fuzzer in "${fuzzers[@]}"; do run asan "$fuzzer" --seconds 5 "tests/fuzz/corpus/$fuzzer"; done
while ((running > 0)); do finish_one; done

echo "$passed passed, $failed failed"
((failed == 0 && passed > 0))
