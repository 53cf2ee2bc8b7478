#!/usr/bin/env bash
# two_hosts.sh RANKS RATE PROGRAM ARGUMENT...: runs PROGRAM under mpirun on two hosts that are namespaces of this
# machine, RANKS on each, joined by a virtual cable that carries RATE each way (as tc writes it, 2gbit; or none).
# Every namespace that makes ranks one host is taken away: network, host name, processes, and /dev/shm, so ranks of
# different hosts can only reach each other over the cable. Ranks find its end under the name cable0; its packets hold
# 9000 bytes, so that headers are less than a hundredth of what crosses. TCP's congestion control is reno, which every
# kernel lets a namespace choose: one that paces by timers (bbr) makes the same exchange take 100 us or 250.
#
# MPI's own messages go over TCP; with MPI_OVER=ucx over UCX. Names of variables in PASS reach the ranks. LIMIT_S ends
# all of it. Prints the reason and succeeds where namespaces may not be made. Leaves nothing behind.
set -euo pipefail
ranks=$1 rate=$2
shift 2
root=$(cd "$(dirname "$0")/../../.." && pwd)
skip() {
  echo "two hosts: skipped: $1"
  exit 0
}
for tool in ip tc unshare mpirun; do
  command -v "$tool" >/dev/null || skip "$tool is not installed (apt-get install iproute2 util-linux openmpi-bin)"
done
mpirun --version 2>&1 | grep -q 'Open MPI' || skip "the launch across namespaces is written for Open MPI's mpirun"

name=sinew$$
folder=$(mktemp -d)
clean() {
  local end
  for end in a b; do
    [[ -e /run/netns/$name$end ]] || continue
    ip netns pids "$name$end" | xargs -r kill -KILL 2>/dev/null || true
    ip netns del "$name$end" || true
  done
  rm -rf "$folder"
}
trap clean EXIT
trap 'exit 130' INT TERM

error=$(ip netns add "${name}a" 2>&1) || skip "this process may not make network namespaces: $error"
ip netns add "${name}b"
error=$(unshare --uts --ipc --mount --pid --fork mount -t tmpfs shm /dev/shm 2>&1) ||
  skip "this process may not make the other namespaces of a host: $error"
error=$(ip link add cable0 netns "${name}a" type veth peer name cable0 netns "${name}b" 2>&1) ||
  skip "this kernel makes no virtual cable: $error"
for end in a b; do
  at=$([[ $end == a ]] && echo 1 || echo 2)
  ip -n "$name$end" addr add "10.99.1.$at/24" dev cable0
  ip -n "$name$end" link set lo up
  ip netns exec "$name$end" sysctl -q -w net.ipv4.tcp_congestion_control=reno
  ip -n "$name$end" link set cable0 mtu 9000 up
  [[ $rate == none ]] ||
    tc -n "$name$end" qdisc add dev cable0 root tbf rate "$rate" burst 256kb latency 400ms
done
# The kernel takes up to a second to say that a cable is up, and what looks for interfaces skips one that is not.
for end in a b; do
  for ((look = 0; look < 100; ++look)); do
    ip -n "$name$end" -brief link show cable0 | grep -q ' UP ' && break
    sleep 0.05
  done
done

cat > "$folder/enter" <<ENTER
#!/usr/bin/env bash
# enter END COMMAND...: runs the command on that host.
exec ip netns exec "$name\$1" unshare --uts --ipc --mount --pid --fork --kill-child=KILL --mount-proc \\
  bash -c 'hostname host-\$0; mount -t tmpfs shm /dev/shm; exec "\$@"' "\$@"
ENTER
cat > "$folder/agent" <<AGENT
#!/usr/bin/env bash
# What mpirun calls instead of ssh: agent HOST COMMAND...
host=\$1
shift
case \$host in 10.99.1.1) end=a ;; 10.99.1.2) end=b ;; *) echo "agent: unknown host \$host" >&2; exit 1 ;; esac
exec "$folder/enter" "\$end" bash -c "\$*"
AGENT
chmod +x "$folder/enter" "$folder/agent"
printf '10.99.1.%s slots=%s\n' 1 "$ranks" 2 "$ranks" > "$folder/hosts"

options=(-n $((2 * ranks)) --hostfile "$folder/hosts" --map-by "ppr:$ranks:node" --mca plm rsh
  --mca plm_rsh_agent "$folder/agent" --mca oob_tcp_if_include cable0 --mca btl_tcp_if_include cable0
  -x UCX_NET_DEVICES=cable0 -x "SINEW_NET_RANKS_PER_HOST=$ranks" -x SINEW_NET_CABLE=cable0)
if [[ ${MPI_OVER:-tcp} == ucx ]]; then
  options+=(--mca pml ucx --mca osc ucx --mca btl '^openib,vader,tcp' --mca pml_ucx_tls any
    --mca pml_ucx_devices any)
else
  options+=(--mca pml ob1 --mca btl tcp,vader,self)
fi
for variable in ${PASS:-}; do options+=(-x "$variable"); done
timeout -k 5 "${LIMIT_S:-120}" "$folder/enter" a "$root/tools/mpirun.sh" "${options[@]}" "$@"
