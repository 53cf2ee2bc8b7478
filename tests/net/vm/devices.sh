# Inside the virtual machine: two soft adapters, soft_left and soft_right, at the ends of a pair of virtual
# interfaces. To be sourced.
modprobe -a veth sch_netem rdma_rxe ib_uverbs || exit 1

# rdma_rxe looks up routes in the first network namespace only, so both ends stay there. Left alone, the kernel
# would deliver a packet between two of its own addresses over the loopback; the rules send it over the pair.
ip link add left type veth peer name right
address() { [[ $1 == left ]] && echo 10.9.0.1 || echo 10.9.0.2; }
other() { [[ $1 == left ]] && echo right || echo left; }
table=100
for end in left right; do
  table=$((table + 1))
  from=$(address "$end")
  to=$(address "$(other "$end")")
  ip link set "$end" mtu 4200  # holds the largest RDMA packet, 4096 bytes
  ip address add "$from/24" dev "$end"
  sysctl -q -w "net.ipv4.conf.$end.accept_local=1" "net.ipv4.conf.$end.rp_filter=0"
  ip link set "$end" up
  ip rule add pref 1 iif "$end" lookup local
  ip rule add pref 2 from "$from" to "$to" lookup "$table"
  ip route add "$to" dev "$end" src "$from" table "$table"
done
ip rule add pref 10 lookup local
ip rule del pref 0
for end in left right; do rdma link add "soft_$end" type rxe netdev "$end" || exit 1; done
