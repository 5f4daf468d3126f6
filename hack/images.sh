#!/usr/bin/env bash
# Prints all images of a management cluster and of a workload cluster. A closed
# network has to mirror them.
#
#   hack/images.sh VERSION MANAGER...
#
# REGISTRY is the registry of the managers' images.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/ensure-go.sh"
if (($# < 2)); then
	echo "images.sh: name a version and the managers" >&2
	exit 2
fi
version=$1
shift
registry=${REGISTRY:-ghcr.io/nova-platform}
kubeadm=$("$here/tools/build.sh" kubeadm)
cd "$here/.."

# pinned VERSION_OF FOLDER prints the pinned version of a module in a folder.
pinned() { (cd "$2" && go list -m -f '{{.Version}}' "$1"); }

for manager in "$@"; do
	echo "$registry/$manager:$version"
done
echo "registry.k8s.io/cluster-api/cluster-api-controller:$(pinned sigs.k8s.io/cluster-api .)"
certmanager=$(sed -nE 's/.*CertManagerDefaultVersion = "(.*)"/\1/p' \
	"$(go list -m -f '{{.Dir}}' sigs.k8s.io/cluster-api)/cmd/clusterctl/client/config/cert_manager_client.go")
for manager in controller cainjector webhook; do
	echo "quay.io/jetstack/cert-manager-$manager:$certmanager"
done
for manager in source kustomize helm; do
	echo "ghcr.io/fluxcd/$manager-controller:$(pinned "github.com/fluxcd/$manager-controller" hack/tools/components)"
done
sed -nE 's/^ +image: (registry\..*)/\1/p' config/monitoring/kube-state-metrics.yaml
# The defaults of fields.
sed -nE 's/.*Default[A-Za-z]*Image += "(.*)"/\1/p' api/*/v1beta2/*.go
sed -nE 's/.*CLUSTER_AUTOSCALER_IMAGE:=(.*)\}.*/\1/p' templates/flavors/autoscaled/autoscaler.yaml
"$kubeadm" config images list --kubernetes-version "$("$kubeadm" version -o short)"
