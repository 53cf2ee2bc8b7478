#!/usr/bin/env bash
# bench.sh SINEW [LAUNCHES]: inside the virtual machine. Messages between the two adapters by SINEW's p2p and, in the
# same run, by perftest: writes; sends, whose receiver learns of them from its completion queue, as p2p does, and not from
# memory; and the reads that large messages go by. Beside them the smallest message through shared
# memory, which is what an emulated processor takes for p2p itself. All that LAUNCHES times, 1. Prints a line of JSON per
# measurement.
set -uo pipefail
sinew=$1 launches=${2:-1}
root=$(cd "$(dirname "$0")/../../.." && pwd)
source "$(dirname "$0")/devices.sh"

cat > /tmp/rank <<'RANK'
#!/usr/bin/env bash
# One adapter per rank.
export SINEW_TRANSPORT=verbs:$([[ ${OMPI_COMM_WORLD_RANK:-0} == 0 ]] && echo soft_left || echo soft_right)
exec "$@"
RANK
chmod +x /tmp/rank
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader OMPI_MCA_osc=pt2pt

p2p() {  # p2p NAME ARGUMENT...
  local name=$1
  shift
  rm -f /tmp/p2p.jsonl
  timeout 120 "$root/tools/mpirun.sh" -n 2 "$@" --json /tmp/p2p.jsonl > /tmp/p2p.log 2>&1 ||
    { echo "bench: $name failed ($?)"; tail -n 8 /tmp/p2p.log; exit 1; }
  sed "s/^{/{\"launch\": $launch, \"what\": \"sinew p2p\", /" /tmp/p2p.jsonl
}

perftest() {  # perftest PROGRAM BYTES ITERATIONS COLUMN KEY
  timeout 60 "$1" -d soft_left -x 1 -F -s "$2" -n "$3" > /dev/null 2>&1 &
  local server=$! look
  for ((look = 0; look < 100; ++look)); do
    ss -ltn | grep -q ':18515 ' && break
    sleep 0.1
  done
  timeout 60 "$1" -d soft_right -x 1 -F -s "$2" -n "$3" 10.9.0.1 2>/dev/null |
    awk -v bytes="$2" -v head="{\"launch\": $launch, \"what\": \"$1\", \"bytes\": $2" -v column="$4" -v key="$5" \
      '$1 == bytes && NF > 3 {printf "%s, \"%s\": %s}\n", head, key, $column}'
  wait "$server"
}

for ((launch = 1; launch <= launches; ++launch)); do
  p2p "p2p" /tmp/rank "$sinew" p2p --bytes 8,64K,1M --budget-ms 100
  p2p "p2p in memory" "$sinew" p2p --transport shm --bytes 8 --budget-ms 50
  perftest ib_write_lat 8 1000 5 latency_us
  perftest ib_send_lat 8 1000 5 latency_us
  perftest ib_read_lat 8 1000 5 latency_us
  for program in ib_write_bw ib_read_bw; do
    perftest $program 65536 400 4 MBps
    perftest $program 1048576 60 4 MBps
  done
done
