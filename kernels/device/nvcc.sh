#!/usr/bin/env bash
# nvcc.sh REPORT NVCC ARGUMENTS...: compiles; what ptxas says of each kernel goes to REPORT, anything else is shown.
set -uo pipefail
report=$1
shift
"$@" >"$report" 2>&1
status=$?
# Products that ptxas makes wait for one another cost a factor; it only mentions it.
if grep "wgmma.mma_async instructions are serialized" "$report" >&2; then status=1; fi
if ((status != 0)); then
  grep -v -e "^ptxas info" -e "bytes stack frame" "$report" >&2
fi
exit "$status"
