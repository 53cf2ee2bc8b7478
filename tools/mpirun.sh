#!/usr/bin/env bash
# mpirun as this project uses it on one machine: more ranks than cores is normal, root in a container is
# allowed, and no rank is bound to a core. Arguments are mpirun's own.
set -euo pipefail
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
exec "${MPIRUN:-mpirun}" "$@"
