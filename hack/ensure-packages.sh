#!/usr/bin/env bash
# Installs the Debian packages of the programs that this machine lacks, asking
# apt for its lists at most once.
#
#   hack/ensure-packages.sh debootstrap ip=iproute2
#
# A word is a program, or program=package where the names differ.
set -euo pipefail

PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
missing=()
for word in "$@"; do
	command -v "${word%%=*}" >/dev/null || missing+=("${word##*=}")
done
((${#missing[@]})) || exit 0
if ! command -v apt-get >/dev/null; then
	echo "This machine lacks ${missing[*]} and has no apt-get: install them by hand." >&2
	exit 1
fi
if ((EUID != 0)); then
	echo "This machine lacks ${missing[*]}: install them, or run this as root." >&2
	exit 1
fi
echo "packages: installing ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { apt-get update && apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
	tail -n 20 "$log" >&2
	echo "Installing ${missing[*]} failed: see above." >&2
	exit 1
fi
