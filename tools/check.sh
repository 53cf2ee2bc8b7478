#!/usr/bin/env bash
# Format and static checks of the tracked sources. Uses clang-format and clang-tidy where installed; a check
# that cannot run says what it needs. With arguments, clang-tidy looks at those files only.
set -euo pipefail
cd "$(dirname "$0")/.."
failed=0

if command -v clang-format >/dev/null; then
  git ls-files '*.h' '*.cc' '*.cu' | xargs clang-format --dry-run -Werror || failed=1
else
  echo "check: format not checked: needs clang-format"
fi

if ! command -v clang-tidy >/dev/null; then
  echo "check: sources not analysed: needs clang-tidy"
elif ! cmake --preset dev >/dev/null; then  # without precompiled headers, which are gcc's
  echo "check: sources not analysed: the dev preset cannot be configured (make setup)"
  failed=1
else
  files=("$@")
  ((${#files[@]})) || mapfile -t files < <(git ls-files 'sched/*.cc' 'comm/*.cc' 'kernels/*.cc' 'model/*.cc' 'tools/*.cc')
  tools/tidy.py build/dev "${files[@]}" || failed=1
fi

((failed == 0)) && echo "check: passed"
exit "$failed"
