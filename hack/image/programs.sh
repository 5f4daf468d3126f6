#!/usr/bin/env bash
# Downloads the released programs of a node image, and compares their checksums:
#
#   hack/image/programs.sh FOLDER VERSION
#
# VERSION is the version of Kubernetes. The version of containerd is the one in hack/tools, which the
# hosts of the tests run.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$1"
cd "$1"
containerd=$(sed -nE 's|.*github.com/containerd/containerd/v2 v([^ ]*).*|\1|p' "$here/../tools/containerd/go.mod")
# fetch URL FILE CHECKSUM compares FILE with the SHA-256 at the other URL.
fetch() {
	curl -fsSL --retry 3 -o "$2" "$1"
	printf '%s  %s\n' "$(curl -fsSL --retry 3 "$3" | cut -d ' ' -f 1)" "$2" | sha256sum --check --quiet
}
for program in kubelet kubeadm kubectl; do
	url=https://dl.k8s.io/release/$2/bin/linux/amd64/$program
	fetch "$url" "$program" "$url.sha256"
	chmod 0755 "$program"
done
url=https://github.com/containerd/containerd/releases/download/v$containerd/containerd-$containerd-linux-amd64.tar.gz
fetch "$url" containerd.tar.gz "$url.sha256sum"
tar -xzf containerd.tar.gz --strip-components=1 bin
rm containerd.tar.gz
