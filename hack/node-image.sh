#!/usr/bin/env bash
# Makes a node image from Debian's cloud image:
#
#   hack/node-image.sh DIR vsphere|zvirt|proxmox VERSION
#
# DIR/debian-13-kube-VERSION.ova is for vSphere, .qcow2 for the others.
# VERSION is the version of Kubernetes. It needs Go, virt-customize
# (libguestfs), qemu-img and the Internet. DEBIAN_IMAGE names another cloud image of Debian 13,
# a file or a URL.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if (($# != 3)) || [[ ! $2 =~ ^(vsphere|zvirt|proxmox)$ || ! $3 =~ ^v[0-9]+\.[0-9]+\.[0-9]+$ ]]; then
	echo "node-image.sh: name a folder, a hypervisor (vsphere, zvirt or proxmox) and a version of Kubernetes, such as v1.36.3 (KUBERNETES=)" >&2
	exit 2
fi
for tool in curl virt-customize qemu-img; do
	if ! command -v "$tool" >/dev/null; then
		echo "node-image.sh: $tool is missing; on Debian: apt-get install curl libguestfs-tools qemu-utils" >&2
		exit 2
	fi
done
mkdir -p "$1"
dir=$(cd "$1" && pwd)
name=debian-13-kube-$3
base=${DEBIAN_IMAGE:-https://cloud.debian.org/images/cloud/trixie/latest/debian-13-generic-amd64.qcow2}
work=$(mktemp -d "$dir/.node-image.XXXXXX")
trap 'rm -rf "$work"' EXIT
kubevip=$(sed -nE 's/.*DefaultKubeVIPImage += "(.*)"/\1/p' "$here"/../api/*/v1beta2/*.go)

if [[ -f $base ]]; then
	cp "$base" "$work/disk.qcow2"
else
	curl -fL --retry 3 -o "$work/disk.qcow2" "$base"
fi
qemu-img resize "$work/disk.qcow2" 20G
(
	. "$here/ensure-go.sh"
	cd "$here/.." && GOOS=linux GOARCH=amd64 go build -ldflags '-s -w' -o "$work/nova-host-agent" ./cmd/nova-host-agent
)
virt-customize -a "$work/disk.qcow2" --memsize 2048 --copy-in "$here/image/node.sh:/root" --copy-in "$work/nova-host-agent:/usr/local/bin" \
	--run-command "sh /root/node.sh $2 $3 $kubevip && rm /root/node.sh"
if [[ $2 != vsphere ]]; then
	qemu-img convert -c -O qcow2 "$work/disk.qcow2" "$dir/$name.qcow2"
	echo "$dir/$name.qcow2"
	exit
fi
# An OVA is an archive of the description of a VM and of its disk, in this order.
qemu-img convert -O vmdk -o subformat=streamOptimized "$work/disk.qcow2" "$work/$name.vmdk"
sed -e "s|@NAME@|$name|g" -e "s|@SIZE@|$(stat -c %s "$work/$name.vmdk")|" "$here/image/node.ovf" >"$work/$name.ovf"
tar -C "$work" --format=ustar -cf "$dir/$name.ova" "$name.ovf" "$name.vmdk"
echo "$dir/$name.ova"
