#!/usr/bin/env bash
# without_library.sh NAMES PROGRAM ARGUMENT...: runs PROGRAM as on a machine on which these libraries, joined by commas,
# do not load.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for name in ${1//,/ }; do : > "$folder/$name"; done
shift
export OMPI_MCA_mca_base_component_show_load_errors=0  # MPI tries them too, and would say so
LD_LIBRARY_PATH=$folder "$@"
