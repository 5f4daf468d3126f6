#!/usr/bin/env bash
# Writes a clusterctl repository of all providers to a folder, and a
# clusterctl configuration beside it.
#
#   hack/components.sh DIR [VERSION]
#
#   clusterctl init --config DIR/clusterctl.yaml --infrastructure nova-vsphere \
#     --bootstrap nova --control-plane nova --addon nova
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/ensure-go.sh"
if (($# < 1)); then
	echo "components.sh: name the folder to write to" >&2
	exit 2
fi
mkdir -p "$1"
dir=$(cd "$1" && pwd)
version=${2:-v0.1.0}
kubectl=$("$here/tools/build.sh" kubectl)
cd "$here/.."
echo "providers:" >"$dir/clusterctl.yaml"

# provider FOLDER LABEL NAME TYPE FILE
provider() {
	local release=$dir/$2/$version
	mkdir -p "$release"
	"$kubectl" kustomize "config/$1/default" >"$release/$5"
	cp "config/$1/metadata.yaml" "$release/metadata.yaml"
	if [[ -d templates/$1 ]]; then
		cp templates/"$1"/*.yaml "$release/"
	fi
	printf -- '- name: %s\n  type: %s\n  url: %s\n' "$3" "$4" "$release/$5" >>"$dir/clusterctl.yaml"
	echo "$release"
}
provider nova-vsphere infrastructure-nova-vsphere nova-vsphere InfrastructureProvider infrastructure-components.yaml
provider nova-zvirt infrastructure-nova-zvirt nova-zvirt InfrastructureProvider infrastructure-components.yaml
provider nova-bootstrap bootstrap-nova nova BootstrapProvider bootstrap-components.yaml
provider nova-control-plane control-plane-nova nova ControlPlaneProvider control-plane-components.yaml
provider nova-addon addon-nova nova AddonProvider addon-components.yaml
