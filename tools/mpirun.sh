#!/usr/bin/env bash
# mpirun as this project uses it on one machine: more ranks than cores is normal, root in a container is
# allowed, no rank is bound to a core, and a rank that ends with an error speaks for itself (mpirun adds no
# lines). Arguments are mpirun's own.
set -euo pipefail
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_orte_execute_quiet=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
exec "${MPIRUN:-mpirun}" "$@"
