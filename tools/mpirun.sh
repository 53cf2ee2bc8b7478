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
export HWLOC_HIDE_ERRORS=${HWLOC_HIDE_ERRORS:-2}  # where a container has no /sys, the launcher need not tell
# The first word that is a program's path, else one that is found along PATH.
program=
for word in "$@"; do
  found=$(type -P -- "$word") || continue
  program=$found
  [[ $word != */* ]] || break
done
# Of a program that is not there a quiet mpirun says nothing, and its exit code looks like that of a signal.
if [[ -z $program && ! "${1:-}" =~ ^(-h|-V|--help|--version)$ ]]; then
  echo "mpirun.sh: no word of '$*' is a program that can be run: give mpirun.sh -n P PROGRAM ..." >&2
  exit 2
fi
if [[ -z "${MPIRUN:-}" ]]; then
  MPIRUN=mpirun
  if grep -q 'libmpich\.so' "${program:-/dev/null}"; then
    MPIRUN=$(command -v mpirun.mpich || echo mpirun)
  else  # Open MPI's waits without end where its files do not fit
    folder=${OMPI_MCA_orte_tmpdir_base-${TMPDIR-${TEMP-${TMP-/tmp}}}}
    free_kib=$(df --output=avail -k -- "$folder" 2>/dev/null | tail -n 1)
    if ((${free_kib:-8192} < 8192)); then
      echo "mpirun.sh: Open MPI needs 8 MiB for temporary files and $folder has $free_kib KiB free: make room there," \
        "or name another folder by TMPDIR" >&2
      exit 1
    fi
  fi
fi
# In a session of its own the launcher gets each signal once, from here. A terminal sends Ctrl-C to a whole group of
# processes, and Open MPI takes a second one to mean that it shall leave its ranks and files where they are. When this
# script is killed the launcher is told. Ctrl-\ asks it to end, too; one that has not ended after two seconds is killed
# by the next signal.
launcher=
told=      # the exit code that follows from the first signal
tellings=0
told_s=0
tell() {  # tell EXIT_CODE SIGNAL_THAT_THE_LAUNCHER_GETS
  # The next signal may come between any two commands: one that both asks and notes.
  if ((tellings++ || (told_s = SECONDS, 0))); then
    # With its whole group, of which none may go on holding the output.
    ((SECONDS - told_s < 2)) || kill -s KILL -- "-$launcher" 2>/dev/null
    return
  fi
  told=$1
  [[ -z $launcher ]] || kill -s "$2" "$launcher" 2>/dev/null
}
for signal in INT TERM HUP; do trap "tell $((128 + $(kill -l $signal))) $signal" $signal; done
trap "tell $((128 + $(kill -l QUIT))) TERM" QUIT
# What the ranks print passes through here. Open MPI would tell at length that nobody reads it any more, or not at all
# that the disk is full.
trap "tell $((128 + $(kill -l PIPE))) TERM" PIPE
trap 'echo "mpirun.sh: standard output cannot be written" >&2; tell 1 TERM; told=1' USR1
pass_on() {
  trap '' INT TERM HUP QUIT  # until the launcher has ended
  cat 2>/dev/null && exit
  if (($? == 128 + $(kill -l PIPE))); then kill -s PIPE $$; else kill -s USR1 $$; fi
  cat > /dev/null
}
ended() {  # ended PROCESS: leaves its exit code in status
  wait "$1"
  status=$?
  while kill -0 "$1" 2>/dev/null; do  # a signal ended the wait, not the process
    wait "$1"
    status=$?
  done
}
exec {output}> >(pass_on)
reader=$!
setpriv --pdeathsig TERM setsid "$MPIRUN" "$@" <&0 >&"$output" {output}>&- &
launcher=$!
exec {output}>&-
ended "$reader"
ended "$launcher"
if ((status > 128)) && [[ -z $told ]]; then
  echo "mpirun.sh: a rank was ended by signal $((status - 128)), $(kill -l $((status - 128)))" >&2
fi
exit "${told:-$status}"
