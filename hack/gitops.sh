#!/usr/bin/env bash
# Writes a management repository to begin with: templates/gitops with the cluster
# classes of a release.
#
#   hack/gitops.sh DIR [VERSION]
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if (($# < 1)); then
	echo "gitops.sh: name the folder to write to" >&2
	exit 2
fi
version=${2:-v0.1.0}
mkdir -p "$1"
dir=$(cd "$1" && pwd)
cd "$here/.."
cp -R templates/gitops/. "$dir/"
if [[ $version != v0.1.0 ]]; then
	mv "$dir/classes/v0.1.0" "$dir/classes/$version"
fi
cp templates/nova-*/clusterclass-*.yaml "$dir/classes/$version/"
find "$dir" -name '*.yaml' -exec sed -i "s/v0\.1\.0/$version/" {} +
