#!/usr/bin/env bash
# mpirun as this project uses it on one machine: more ranks than cores is normal, root in a container is
# allowed, no rank is bound to a core, and a rank that ends with an error speaks for itself (mpirun adds no
# lines). One that a signal ended cannot, nor its peers where none of them waited for it: that is said here.
# Arguments are mpirun's own. A program of a build with MPICH is started by MPICH's mpirun, any other by the mpirun
# in PATH; MPIRUN names another.
set -uo pipefail
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_orte_execute_quiet=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
if [[ -z "${MPIRUN:-}" ]]; then
  MPIRUN=mpirun
  for word in "$@"; do
    [[ -f $word && -x $word ]] || continue
    grep -q 'libmpich\.so' "$word" && MPIRUN=$(command -v mpirun.mpich || echo mpirun)
    break
  done
fi
# In a session of its own the launcher gets each signal once, from here. A terminal sends Ctrl-C to a whole group of
# processes, and Open MPI takes a second one to mean that it shall leave its ranks and files where they are. When this
# script is killed the launcher is told.
launcher=
told=
tell() {
  [[ -z $told ]] || return
  told=$((128 + $(kill -l "$1")))
  [[ -z $launcher ]] || kill -s "$1" "$launcher" 2>/dev/null
}
for signal in INT TERM HUP; do trap "tell $signal" $signal; done
setpriv --pdeathsig TERM setsid "$MPIRUN" "$@" <&0 &
launcher=$!
wait "$launcher"
status=$?
while kill -0 "$launcher" 2>/dev/null; do  # a signal ended the wait, not the launcher
  wait "$launcher"
  status=$?
done
if ((status > 128)) && [[ -z $told ]]; then
  echo "mpirun.sh: a rank was ended by signal $((status - 128)), $(kill -l $((status - 128)))" >&2
fi
exit "${told:-$status}"
