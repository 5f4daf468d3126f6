#!/usr/bin/env bash
# Makes a node image from the recipe in hack/image, as a file for each kind of hypervisor:
#
#   hack/node-image.sh DIR SYSTEM VERSION
#
# DIR/SYSTEM-kube-VERSION.ova is for vSphere, .qcow2 for zVirt, oVirt and Proxmox VE. SYSTEM is a
# name in hack/image/systems.tsv, VERSION the version of Kubernetes. It needs root on Linux and the
# Internet, but no VM and no loop devices.
#
# MIRROR replaces the package archives of the system while the image is made, and MIRROR_SECURITY the
# archive with security updates; with MIRROR alone the image has no updates. PROGRAMS is a folder with containerd,
# containerd-shim-runc-v2, ctr, kubelet, kubeadm and kubectl, instead of the released ones. IMAGES is
# a data directory of containerd with the container images, instead of pulled ones. ROOT is a root
# file system that hack/image/root.sh has made.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if (($# != 3)) || [[ ! $3 =~ ^v[0-9]+\.[0-9]+\.[0-9]+$ ]]; then
	echo "node-image.sh: name a folder, a system (SYSTEM=, such as debian-13) and a version of Kubernetes (KUBERNETES=, such as v1.36.3)" >&2
	exit 2
fi
if [[ $(uname -s) != Linux ]] || ((EUID != 0)); then
	echo "node-image.sh: node images are made by root on Linux" >&2
	exit 2
fi
# Each script that mounts something does that in a mount namespace of its own. This one deletes the
# folder below which they mount, also if it is interrupted, and must not see their mounts.
apart() { unshare --mount --propagation private "$@"; }
grep -q "^$2	" "$here/image/systems.tsv" || { echo "node-image.sh: hack/image/systems.tsv has no system $2" >&2; exit 2; }
installer=debootstrap
if [[ $2 == rocky-* ]]; then installer=dnf; fi
"$here/ensure-packages.sh" "$installer" qemu-img=qemu-utils sfdisk=fdisk mkfs.vfat=dosfstools mcopy=mtools mke2fs=e2fsprogs grub-mkimage=grub-common
case $2 in
debian-*) [[ -e /usr/share/keyrings/debian-archive-keyring.gpg ]] || "$here/ensure-packages.sh" debian-archive-keyring ;;
ubuntu-*) [[ -e /usr/share/keyrings/ubuntu-archive-keyring.gpg ]] || "$here/ensure-packages.sh" ubuntu-keyring ;;
esac
[[ -d /usr/lib/grub/i386-pc ]] || "$here/ensure-packages.sh" grub-pc-bin
[[ -d /usr/lib/grub/x86_64-efi ]] || "$here/ensure-packages.sh" grub-efi-amd64-bin
mkdir -p "$1"
dir=$(cd "$1" && pwd)
export SYSTEM=$2
version=$3
name=$SYSTEM-kube-$version
work=$(mktemp -d "$dir/.node-image.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
if [[ -z ${APT_SETTINGS:-} ]] && command -v apt-config >/dev/null; then
	APT_SETTINGS=$(apt-config dump --format '%f "%v";%n' Acquire::http Acquire::https)
	export APT_SETTINGS
fi
prebuilt=${ROOT:-}
export ROOT=$work/root
mkdir "$ROOT"
if [[ -n $prebuilt ]]; then
	cp -a "$prebuilt/." "$ROOT"
else
	echo "node-image: installing $SYSTEM"
	home=$HOME
	if [[ $installer == dnf ]]; then
		# Debian's rpm has its database in the home folder of its user, where the image's own rpm
		# would not find it.
		home=$work/home
		mkdir "$home"
		echo '%_dbpath /var/lib/rpm' >"$home/.rpmmacros"
	fi
	apart env HOME="$home" "$here/image/root.sh" >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; exit 1; }
fi

# Programs.
if [[ -z ${PROGRAMS:-} ]]; then
	PROGRAMS=$work/programs
	"$here/image/programs.sh" "$PROGRAMS" "$version"
fi
install -m 0755 "$PROGRAMS"/{containerd,containerd-shim-runc-v2,ctr,kubelet,kubeadm,kubectl} "$ROOT/usr/bin/"
(
	. "$here/ensure-go.sh"
	cd "$here/.." && GOOS=linux GOARCH=amd64 go build -ldflags '-s -w' -o "$work/nova-host-agent" ./cmd/nova-host-agent
)
install -D -m 0755 "$work/nova-host-agent" "$ROOT/usr/local/bin/nova-host-agent"

# Files.
cp -R --no-dereference --preserve=links,mode "$here/image/files/." "$ROOT"
pause=$("$PROGRAMS/kubeadm" config images list --kubernetes-version "$version" | grep /pause:)
sed -i "s|@PAUSE@|$pause|" "$ROOT/etc/containerd/config.toml"
mkdir -p "$ROOT/etc/kubernetes/manifests"

# Images.
mkdir -p "$ROOT/var/lib/containerd"
if [[ -n ${IMAGES:-} ]]; then
	cp -a "$IMAGES/." "$ROOT/var/lib/containerd"
else
	kubevip=$(sed -nE 's/.*DefaultKubeVIPImage += "(.*)"/\1/p' "$here"/../api/*/v1beta2/*.go)
	echo "node-image: pulling images"
	# shellcheck disable=SC2046 # a list of words
	apart "$here/image/pull.sh" $("$PROGRAMS/kubeadm" config images list --kubernetes-version "$version") "$kubevip"
fi

echo "node-image: installing the kernel and guest agents"
apart "$here/image/machine.sh" >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; exit 1; }
echo "node-image: writing the disk"
"$here/image/disk.sh" "$work/disk.raw" >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; exit 1; }
rm -rf --one-file-system "$ROOT"
qemu-img convert -c -O qcow2 "$work/disk.raw" "$work/$name.qcow2"
# An OVA is an archive of the description of a VM and of its disk, in this order.
qemu-img convert -O vmdk -o subformat=streamOptimized "$work/disk.raw" "$work/$name.vmdk"
guest=$(grep "^$SYSTEM	" "$here/image/systems.tsv" | cut -f8)
sed -e "s|@NAME@|$name|g" -e "s|@GUEST@|$guest|" -e "s|@SIZE@|$(stat -c %s "$work/$name.vmdk")|" "$here/image/node.ovf" >"$work/$name.ovf"
tar -C "$work" --format=ustar -cf "$work/$name.ova" "$name.ovf" "$name.vmdk"
mv "$work/$name.qcow2" "$work/$name.ova" "$dir"
printf '%s\n' "$dir/$name.qcow2" "$dir/$name.ova"
