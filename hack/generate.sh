#!/usr/bin/env bash
# Generates files from the code: deep copies and CRDs from the
# API types, roles from the markers of the reconcilers, docs/reference from the
# comments of the fields, conditions and reasons.
#
#   hack/generate.sh [ROOT]
#
# ROOT is the work tree to write to. If not set, it is this work tree.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/ensure-go.sh"
controller_gen=$("$here/tools/build.sh" controller-gen)
crd_ref_docs=$("$here/tools/build.sh" crd-ref-docs)
cd "${1:-$here/..}"

"$controller_gen" object paths=./api/...

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# definitions GROUP PREFIX PROVIDER writes the CRDs of the kinds of a group
# whose names begin with PREFIX. CRDs of removed kinds are deleted.
definitions() {
	local bases=config/$3/crd/bases
	[[ -d $scratch/$1 ]] || "$controller_gen" crd paths="./api/$1/..." output:crd:artifacts:config="$scratch/$1"
	mkdir -p "$bases"
	rm -f "$bases"/*.yaml
	mv "$scratch/$1"/*_"$2"*.yaml "$bases/"
}
while read -r manager kinds; do
	definitions infrastructure "$kinds" "$manager"
done < <(go run ./hack/providers list)
definitions bootstrap nova nova-bootstrap
definitions controlplane nova nova-control-plane
definitions addons nova nova-addon

# kinds GROUP fails if a kind of a group belongs to no provider.
kinds() {
	local left
	left=$(find "$scratch/$1" -name '*.yaml' -printf '%f ')
	[[ -z $left ]] || {
		echo "generate.sh: no provider takes $left" >&2
		return 1
	}
}
kinds infrastructure

# The files of each infrastructure provider: roles, policies, parts of scripts.
go run ./hack/providers write .

# The release series of the other managers; metadata.yaml is the source.
for manager in nova-bootstrap nova-control-plane nova-addon; do
	cp metadata.yaml "config/$manager/metadata.yaml"
done

# role PROVIDER NAME PATHS... writes the role of a manager from markers.
role() {
	"$controller_gen" "rbac:roleName=$2" "${@:3}" output:rbac:dir="config/$1/rbac"
}
role nova-control-plane manager-role paths=./controllers/controlplane/...
role nova-addon manager paths=./controllers/modules/... paths=./controllers/clusterprofile/...

# reference GROUP writes the page of a group's kinds and fields.
reference() {
	mkdir -p docs/reference
	"$crd_ref_docs" --log-level=ERROR --source-path="./api/$1" --config="$here/reference/config.yaml" \
		--renderer=markdown --output-path="docs/reference/$1.md"
	# The generator leaves spaces on empty lines.
	sed -i 's/[ \t]*$//' "docs/reference/$1.md"
}
reference infrastructure
reference bootstrap
reference controlplane
reference addons
go run ./hack/conditions . >docs/reference/conditions.md

# The alerts in the format of the Prometheus operator.
{
	printf '%s\n' "# Made of rules.yaml by hack/generate.sh." "apiVersion: monitoring.coreos.com/v1" "kind: PrometheusRule" \
		"metadata:" "  name: nova" "spec:"
	sed -n '/^groups:/,$s/^/  /p' config/monitoring/rules.yaml
} >config/monitoring/prometheusrule.yaml
