#!/usr/bin/env bash
# guest.sh PROGRAM: inside the virtual machine. Two soft adapters at the ends of a pair of virtual interfaces; ranks
# take them in turn. The tests run over them as they are, then with a slow link, then with one that loses packets.
set -uo pipefail
program=$1
source "$(dirname "$0")/devices.sh"

export SINEW_NET_WIRES=verbs SINEW_NET_DEVICES=soft_left,soft_right
failed=0
run() {  # run NAME FILTER
  local start=$SECONDS status=0
  timeout 240 "$program" --gtest_brief=1 --gtest_filter="$2" > /tmp/log 2>&1 || status=$?
  echo "$1: $( ((status == 0)) && echo passed || echo "failed ($status)") in $((SECONDS - start)) s"
  ((status == 0)) && return
  failed=1
  grep -v '^left out here' /tmp/log | tail -n 40
}
shape() {  # shape NETEM_ARGUMENTS
  for end in left right; do tc qdisc replace dev "$end" root netem "$@" || failed=1; done
}
sent() { cat /sys/class/net/left/statistics/tx_bytes; }

before=$(sent)
run "every operation, type and algorithm" 'NetLaws.*'
(($(sent) - before > 1000000)) || { echo "the link carried too little"; failed=1; }
run "failures" 'NetFailure.*'
run "receives of all peers" 'NetReceives.*'
shape delay 1ms rate 100mbit limit 10000
run "1 ms, 100 Mbit/s" 'NetLaws.EveryOperation*:NetLaws.Large*'
shape loss 1%
run "1 % lost" 'NetLaws.EveryOperation*:NetLaws.Large*'
tc qdisc del dev left root
tc qdisc del dev right root
SINEW_NET_LINK=left run "link down" 'NetFailure.ALink*'
exit $failed
