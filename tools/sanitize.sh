#!/usr/bin/env bash
# The unit tests and fuzzers under the address and undefined-behaviour sanitizers, and the tests with threads
# under the thread sanitizer. Argument: parallel jobs. Prints "N passed, N failed" and fails if any failed.
set -uo pipefail
cd "$(dirname "$0")/.."
jobs=${1:-$(nproc)}
passed=0
failed=0

# MPI's own start-up leaks and is not ours to judge; everything else is an error.
export ASAN_OPTIONS=detect_leaks=0:abort_on_error=1
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1

corpus_of() {  # target: where a fuzzer begins; nothing for a unit test
  [[ -d "tests/fuzz/corpus/$1" ]] && echo "tests/fuzz/corpus/$1"
}

run() {  # preset, target...: builds the targets and runs each
  local preset=$1 target
  shift
  cmake --preset "$preset" >/dev/null || { failed=$((failed + $#)); return; }
  for target in "$@"; do
    if cmake --build --preset "$preset" -j "$jobs" --target "$target" >"build/$preset/$target.log" 2>&1 &&
       timeout 600 "build/$preset/tests/$target" "${arguments[@]}" $(corpus_of "$target"); then
      passed=$((passed + 1))
      echo "sanitize: $preset $target passed"
    else
      failed=$((failed + 1))
      tail -n 30 "build/$preset/$target.log"
      echo "sanitize: $preset $target FAILED"
    fi
  done
}

units=()
for folder in base sched kernels comm model; do
  compgen -G "tests/$folder/*_test.cc" >/dev/null && units+=("test_$folder")
done
fuzzers=()
for source in tests/fuzz/*_fuzz.cc; do
  [[ -f "$source" ]] && fuzzers+=("$(basename "$source" .cc)")
done

arguments=(--gtest_brief=1)
run asan "${units[@]}"
((${#fuzzers[@]})) && { arguments=(--seconds 5); run asan "${fuzzers[@]}"; }
arguments=(--gtest_brief=1)
[[ " ${units[*]} " == *" test_comm "* ]] && run tsan test_comm

echo "$passed passed, $failed failed"
((failed == 0 && passed > 0))
