#!/bin/sh
# Adds the parts to the root file system in $ROOT that only a VM needs, the kernel and guest agents,
# and removes everything that identifies a machine:
#
#   ROOT=FOLDER SYSTEM=debian-13 unshare --mount --propagation private hack/image/machine.sh
set -eu

here=$(cd "$(dirname "$0")" && pwd)
. "$here/packages.sh"
describe "$SYSTEM"

if [ "$family" = debian ]; then
	# All modules, because the machine that this runs on has other hardware than VMs.
	mkdir -p "$ROOT/etc/initramfs-tools/conf.d"
	echo MODULES=most >"$ROOT/etc/initramfs-tools/conf.d/nova"
	upgrade=yes install_packages machine "$kernel"
	# The image names the archives of the system, not the mirror that it was made from.
	write_sources "$mirror" "$security"
	ln -s ../run/systemd/resolve/stub-resolv.conf "$ROOT/etc/resolv.conf"
else
	# Files get their labels for SELinux at the first start.
	touch "$ROOT/.autorelabel"
	version=$(ls "$ROOT/lib/modules")
	chroot "$ROOT" dracut --no-hostonly --force "/boot/initramfs-$version.img" "$version"
	# The scripts of the kernel's package copy it only where a machine boots from this system.
	[ -e "$ROOT/boot/vmlinuz-$version" ] || cp "$ROOT/lib/modules/$version/vmlinuz" "$ROOT/boot/vmlinuz-$version"
fi
for service in open-vm-tools vmtoolsd qemu-guest-agent ssh sshd systemd-timesyncd systemd-resolved chronyd NetworkManager systemd-networkd; do
	if [ -e "$ROOT/usr/lib/systemd/system/$service.service" ] || [ -e "$ROOT/lib/systemd/system/$service.service" ]; then
		systemctl --root="$ROOT" enable "$service"
	fi
done
ln -sf /usr/lib/systemd/system/multi-user.target "$ROOT/etc/systemd/system/default.target"

# Nothing may identify the machine: each clone gets its own identity. systemd makes an ID if the file
# is empty.
rm -rf "$ROOT"/etc/ssh/ssh_host_* "$ROOT"/var/lib/dbus/machine-id "$ROOT"/etc/hostname "$ROOT"/root/.bash_history \
	"$ROOT"/var/lib/cloud "$ROOT"/var/lib/containerd/io.containerd.grpc.v1.introspection "$ROOT"/var/lib/systemd/random-seed
find "$ROOT/var/log" -type f -delete
: >"$ROOT/etc/machine-id"
