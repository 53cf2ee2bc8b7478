#!/usr/bin/env bash
# launch.sh -n P COMMAND...: starts P ranks of COMMAND on this machine without MPI; they meet over sockets. When a rank
# fails the others are ended, and its exit code is this script's.
set -uo pipefail
if [[ "${1:-}" != -n || ! "${2:-}" =~ ^[1-9][0-9]*$ || $# -lt 3 ]]; then
  echo "launch.sh: usage: launch.sh -n P COMMAND..., P 1 or more" >&2
  exit 2
fi
world=$2
shift 2
meet=$(mktemp -d "${TMPDIR:-/tmp}/sinew-meet-XXXXXX" 2>/dev/null) && chmod 700 "$meet" ||
  { echo "launch.sh: ranks cannot meet in '${TMPDIR:-/tmp}': TMPDIR names a folder that you may write" >&2; exit 2; }
ranks=()
end() {
  for rank in "${ranks[@]}"; do kill "$rank" 2>/dev/null; done
  rm -rf "$meet"
}
trap end EXIT
trap 'exit 130' INT TERM
for ((rank = 0; rank < world; ++rank)); do
  SINEW_RANK=$rank SINEW_WORLD=$world SINEW_MEET=$meet "$@" &
  ranks+=($!)
done
exec 2>/dev/null  # bash would tell of a killed rank in its own words; the others say it in theirs
for ((left = world; left > 0; --left)); do
  wait -n || exit $?
done
