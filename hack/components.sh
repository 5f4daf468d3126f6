#!/usr/bin/env bash
# Writes a clusterctl repository of all providers to a folder, and a
# clusterctl configuration beside it.
#
#   hack/components.sh DIR [VERSION]
#
#   clusterctl init --config DIR/clusterctl.yaml --infrastructure nova-vsphere \
#     --bootstrap nova --control-plane nova --addon nova
#
# REGISTRY is where the managers' images are, if not where the project has them.
# DIGESTS is a file with the digests of the images: one manager and its digest
# per line. If not set, images are named by their version only.
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
registry=ghcr.io/nova-platform
kubectl=$("$here/tools/build.sh" kubectl)
cd "$here/.."
# The classes need the feature gate. An upgrade without the variable would turn
# it off again, so the configuration sets it. The environment overrides it.
printf 'CLUSTER_TOPOLOGY: "true"\nproviders:\n' >"$dir/clusterctl.yaml"

# quote restores quotes that kustomize removes: YAML could parse the value of a
# variable as a number. Counts and sizes are numbers, except in annotations.
quote() {
	sed -E -e '/-size: /!{' -e '/\$\{[A-Z_]*_(COUNT|CPUS|MIB|PORT)[:}]/b' -e '}' \
		-e 's/^( *(- )?([^ "]+: )?)(\$\{[^}]*\}[^"]*)$/\1"\4"/'
}

# templates FOLDER RELEASE writes the cluster templates of a provider, one per
# flavor, and its cluster classes.
templates() {
	local flavor
	cp templates/"$1"/cluster*.yaml "$2/"
	for flavor in templates/"$1"/flavors/*/; do
		flavor=$(basename "$flavor")
		"$kubectl" kustomize --load-restrictor LoadRestrictionsNone "templates/$1/flavors/$flavor" | quote \
			>"$2/cluster-template-$flavor.yaml"
	done
}

# image MANAGER prints the name of its image.
image() {
	local digest
	digest=$([[ -z ${DIGESTS:-} ]] || awk -v "name=$1" '$1 == name {print "@" $2}' "$DIGESTS")
	printf '%s/%s:%s%s' "${REGISTRY:-$registry}" "$1" "$version" "$digest"
}

# provider FOLDER LABEL NAME TYPE FILE
provider() {
	local release=$dir/$2/$version minor=${version#v}
	minor=${minor%.*}
	if ! tr -d '\n' <"config/$1/metadata.yaml" | grep -qE "major: ${minor%.*} +minor: ${minor#*.} +contract: v1beta2"; then
		echo "components.sh: config/$1/metadata.yaml has no series ${minor}: add it to metadata.yaml and run \"make generate\", or name a version of a series that is there" >&2
		return 1
	fi
	mkdir -p "$release"
	"$kubectl" kustomize "config/$1/default" |
		sed -E "s|image: $registry/$1:[^ ]+|image: $(image "$1")|" >"$release/$5"
	# The same restricted to one namespace, for "clusterctl generate yaml".
	"$kubectl" kustomize "config/$1/namespaced" |
		sed -E -e "s|image: $registry/$1:[^ ]+|image: $(image "$1")|" \
			-e "s|$1-system|\${MANAGER_NAMESPACE}|" >"$release/namespaced-components.yaml"
	cp "config/$1/metadata.yaml" "$release/metadata.yaml"
	if [[ -d templates/$1 ]]; then
		templates "$1" "$release"
	fi
	printf -- '- name: %s\n  type: %s\n  url: %s\n' "$3" "$4" "$dir/$2/latest/$5" >>"$dir/clusterctl.yaml"
}
infrastructure=$(go run ./hack/providers list)
while read -r manager _; do
	provider "$manager" "infrastructure-$manager" "$manager" InfrastructureProvider infrastructure-components.yaml
done <<<"$infrastructure"
provider nova-bootstrap bootstrap-nova nova BootstrapProvider bootstrap-components.yaml
provider nova-control-plane control-plane-nova nova ControlPlaneProvider control-plane-components.yaml
# For the administrator of a StarVault: docs/starvault.md.
cp templates/starvault/* "$dir/control-plane-nova/$version/"
provider nova-addon addon-nova nova AddonProvider addon-components.yaml
