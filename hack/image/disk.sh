#!/bin/sh
# Writes the root file system in $ROOT as a disk that BIOS and UEFI start, without a VM and without
# loop devices:
#
#   ROOT=FOLDER hack/image/disk.sh FILE
#
# The disk has a partition for UEFI, and at the end the root partition, which cloud-init extends to
# the size of the VM's disk. Secure Boot needs a signed boot loader, which the disk does not have.
set -eu

file=$1
size=20480 # MiB, most of it without content
start=129 # MiB, where the root partition begins
uuid=$(cat /proc/sys/kernel/random/uuid)
kernel=$(cd "$ROOT" && find boot -name 'vmlinuz-*' | sort -V | tail -n 1)
initrd=$(cd "$ROOT" && find boot -name 'init*img*' | sort -V | tail -n 1)
if [ -z "$kernel" ] || [ -z "$initrd" ]; then
	echo "disk.sh: $ROOT/boot has no kernel, or no initial RAM disk" >&2
	exit 1
fi
modules='part_msdos ext2 search search_fs_uuid normal configfile linux echo test all_video'

printf 'UUID=%s / ext4 defaults,errors=remount-ro 0 1\n' "$uuid" >"$ROOT/etc/fstab"
mkdir -p "$ROOT/boot/grub" "$ROOT/etc/default/grub.d"
cp -R /usr/lib/grub/i386-pc "$ROOT/boot/grub/"
# The network configuration of a machine names its interfaces eth0, eth1 and so on. update-grub reads
# this file when a kernel is installed.
arguments='console=tty0 console=ttyS0,115200 net.ifnames=0'
printf 'GRUB_CMDLINE_LINUX="%s"\nGRUB_TIMEOUT=1\n' "$arguments" >"$ROOT/etc/default/grub.d/90-nova.cfg"
cat >"$ROOT/boot/grub/grub.cfg" <<GRUB
set timeout=1
search --no-floppy --fs-uuid --set=root $uuid
menuentry "Linux" {
	linux /$kernel root=UUID=$uuid ro $arguments
	initrd /$initrd
}
GRUB

rm -f "$file"
truncate -s "${size}M" "$file"
sfdisk --quiet "$file" <<TABLE
label: dos
1MiB 128MiB ef
${start}MiB - L *
TABLE

# Later features of the file system are unknown to older boot loaders.
mke2fs -q -t ext4 -U "$uuid" -L root -O ^orphan_file,^metadata_csum_seed -E "offset=$((start * 1048576)),root_owner=0:0" -d "$ROOT" "$file" "$((size - start))M"

# The boot loader for BIOS: its first sector starts the program in the sectors before the first
# partition. Byte 440 and the following belong to the partition table.
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# shellcheck disable=SC2086 # a list of words
grub-mkimage -O i386-pc -o "$tmp/core.img" -p '(hd0,msdos2)/boot/grub' biosdisk $modules
if [ "$(stat -c %s "$tmp/core.img")" -gt $((2047 * 512)) ]; then
	echo "disk.sh: the boot loader does not fit before the first partition" >&2
	exit 1
fi
dd if=/usr/lib/grub/i386-pc/boot.img of="$file" bs=440 count=1 conv=notrunc status=none
dd if="$tmp/core.img" of="$file" bs=512 seek=1 conv=notrunc status=none

# The boot loader for UEFI.
cat >"$tmp/early.cfg" <<EARLY
search --no-floppy --fs-uuid --set=root $uuid
set prefix=(\$root)/boot/grub
configfile /boot/grub/grub.cfg
EARLY
# shellcheck disable=SC2086 # a list of words
grub-mkimage -O x86_64-efi -c "$tmp/early.cfg" -o "$tmp/bootx64.efi" -p /boot/grub $modules
truncate -s 128M "$tmp/esp"
mkfs.vfat -n ESP "$tmp/esp" >/dev/null
mmd -i "$tmp/esp" ::EFI ::EFI/BOOT
mcopy -i "$tmp/esp" "$tmp/bootx64.efi" ::EFI/BOOT/BOOTX64.EFI
dd if="$tmp/esp" of="$file" bs=1M seek=1 conv=notrunc,sparse status=none
