#!/usr/bin/env bash
# Runs a program of the thread sanitizer without address randomisation: older runtimes refuse some random layouts.
# Where a container forbids that, the program runs as it is; where it then cannot start, the test is skipped.
set -uo pipefail
if setarch -R true 2>/dev/null; then
  exec setarch -R "$@"
fi
"$@" 2> >(tee /dev/stderr | grep -q "unexpected memory mapping" && touch /tmp/sinew-tsan-$$)
status=$?
wait
if [[ -e /tmp/sinew-tsan-$$ ]]; then
  rm -f "/tmp/sinew-tsan-$$"
  echo "skipped: the thread sanitizer needs fixed addresses (personality ADDR_NO_RANDOMIZE), forbidden here"
  exit 77
fi
exit "$status"
