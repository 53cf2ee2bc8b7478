#!/usr/bin/env bash
# Installs the Debian packages of tools/packages.txt that are missing, and writes the demo's text to
# data/kjv.txt once. Asks for sudo only when a package is missing and the user is not root. Needs no network
# when all are there.
set -euo pipefail
cd "$(dirname "$0")/.."

install_packages() {
  local missing=() package
  while read -r package; do
    [[ -z "$package" || "$package" == \#* ]] && continue
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q '^install ok installed$' || missing+=("$package")
  done < tools/packages.txt
  ((${#missing[@]} == 0)) && return

  echo "setup: installing ${missing[*]}"
  local as_root=()
  if ((EUID != 0)); then
    command -v sudo >/dev/null || { echo "setup: need root to install: ${missing[*]} (no sudo here)" >&2; exit 1; }
    as_root=(sudo)
  fi
  local log
  log=$(mktemp)
  if ! { "${as_root[@]}" apt-get update -qq &&
         "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
           apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "setup: apt-get could not install: ${missing[*]}" >&2
    exit 1
  fi
  rm -f "$log"
}

# One verse a line with its place before it: "Ge1:1 In the beginning God created ...". Plain ASCII.
write_text() {
  [[ -s data/kjv.txt ]] && return
  mkdir -p data
  bible -f gen1:1-rev22:21 > data/kjv.txt.part
  local lines
  lines=$(wc -l < data/kjv.txt.part)
  ((lines == 31102)) || { echo "setup: the King James Bible has 31102 verses, but 'bible' printed $lines" >&2; exit 1; }
  mv data/kjv.txt.part data/kjv.txt
}

install_packages
write_text
