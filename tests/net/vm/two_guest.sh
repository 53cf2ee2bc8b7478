#!/usr/bin/env bash
# two_guest.sh PROGRAM: inside each of two virtual machines, host1 and host2. The first one starts PROGRAM under mpirun
# on both; what mpirun wants started on the second goes there through the folder that both see, /vm-out.
set -uo pipefail
program=$1
root=$(cd "$(dirname "$0")/../../.." && pwd)
name=$(cat /proc/sys/kernel/hostname)
number=${name#host}
modprobe -a virtio_net rdma_rxe ib_uverbs || exit 1
for ((look = 0; look < 100; ++look)); do
  device=$(ls /sys/class/net | grep -v '^lo$' | head -n 1)
  [[ -n $device ]] && break
  sleep 0.1
done
ip link set "$device" mtu 4200  # holds the largest RDMA packet, 4096 bytes
ip address add "10.9.0.$number/24" dev "$device"
ip link set "$device" up
rdma link add soft type rxe netdev "$device" || exit 1
printf '10.9.0.%s host%s\n' 1 1 2 2 >> /etc/hosts
# On both, since what mpirun starts on the second looks for it too.
cat > /tmp/agent <<'AGENT'
#!/usr/bin/env bash
# What mpirun calls instead of ssh: agent HOST COMMAND...
host=$1
shift
if [[ $host != host2 ]]; then exec bash -c "$*"; fi
echo "$*" > "/vm-out/$$.new"
mv "/vm-out/$$.new" "/vm-out/$$.command"
until [[ -s /vm-out/$$.status ]]; do sleep 0.1; done
exit "$(cat "/vm-out/$$.status")"
AGENT
chmod +x /tmp/agent
touch "/vm-out/up$number"

if [[ $number == 2 ]]; then
  until [[ -e /vm-out/done ]]; do
    for command in /vm-out/*.command; do
      [[ -e $command ]] || continue
      mv "$command" "${command%.command}.runs"
      { bash "${command%.command}.runs"; echo $? > "${command%.command}.status"; } < /dev/null &
    done
    sleep 0.1
  done
  exit 0
fi

until [[ -e /vm-out/up2 ]]; do sleep 0.1; done
failed=0
run() {  # run RANKS_PER_HOST FILTER
  local start=$SECONDS status=0
  printf 'host%s slots=%s\n' 1 "$1" 2 "$1" > /tmp/hosts
  timeout 400 "$root/tools/mpirun.sh" -n $((2 * $1)) --hostfile /tmp/hosts --map-by "ppr:$1:node" --mca plm rsh \
    --mca plm_rsh_agent /tmp/agent --mca oob_tcp_if_include "$device" --mca btl_tcp_if_include "$device" \
    --mca pml ob1 --mca btl tcp,vader,self --mca osc pt2pt -x SINEW_NET_WIRE=verbs -x "SINEW_NET_RANKS_PER_HOST=$1" \
    -x "SINEW_NET_CABLE=$device" "$program" --gtest_brief=1 --gtest_filter="$2" > /tmp/log 2>&1 || status=$?
  echo "2 hosts x $1 over verbs: $( ((status == 0)) && echo passed || echo "failed ($status)") in $((SECONDS - start)) s"
  grep "left this host" /tmp/log
  ((status == 0)) && return
  failed=1
  tail -n 40 /tmp/log
}
run 1 '*'
run 2 'TwoHosts.Ranks*:TwoHosts.EveryAlgorithm*:TwoHosts.ALarge*'
touch /vm-out/done
exit $failed
