# Functions of the scripts in this folder, which read the tables beside them.
# shellcheck shell=sh disable=SC2034,SC2154 # scripts that include this use the variables

# describe sets the variables of a system in systems.tsv.
describe() {
	if ! grep -q "^$1	" "$here/systems.tsv"; then
		echo "unknown system $1: name one of $(grep -v '^#' "$here/systems.tsv" | cut -f1 | tr '\n' ' ')" >&2
		exit 2
	fi
	IFS='	' read -r system family release mirror sections security kernel guest <<-ROW
		$(grep "^$1	" "$here/systems.tsv")
	ROW
}

# packages prints the packages for "root" or "machine" of the system.
packages() {
	awk -F '\t' -v use="$1" -v column="$([ "$family" = debian ] && echo 2 || echo 3)" \
		'$1 == use && $column != "-" { print $column }' "$here/packages.tsv"
}

# mount_devices mounts the devices that programs need in $ROOT. They are not those of this machine, so
# that nothing there can be deleted with them.
mount_devices() {
	mkdir -p "$ROOT/dev"
	mount -t tmpfs -o mode=755 dev "$ROOT/dev"
	for device in null:3 zero:5 full:7 random:8 urandom:9; do
		mknod -m 666 "$ROOT/dev/${device%:*}" c 1 "${device#*:}"
	done
}

# write_sources writes the package archives of Debian's family: write_sources ARCHIVE [SECURITY].
write_sources() {
	list=$(printf '%s' "$sections" | tr , ' ')
	printf 'deb %s %s %s\n' "$1" "$release" "$list" >"$ROOT/etc/apt/sources.list"
	if [ $# -gt 1 ]; then
		printf 'deb %s %s\n' "$1" "$release-updates $list" "$2" "$list" >>"$ROOT/etc/apt/sources.list"
	fi
}

# install_packages installs packages of Debian's family in $ROOT, and starts no service. With upgrade
# set, it first upgrades the others.
install_packages() {
	printf '#!/bin/sh\nexit 101\n' >"$ROOT/usr/sbin/policy-rc.d"
	chmod 755 "$ROOT/usr/sbin/policy-rc.d"
	printf '%s' "${APT_SETTINGS:-}" >"$ROOT/etc/apt/apt.conf.d/00machine"
	# Archives are found by name.
	rm -f "$ROOT/etc/resolv.conf"
	cp /etc/resolv.conf "$ROOT/etc/resolv.conf"
	mount -t proc proc "$ROOT/proc"
	chroot "$ROOT" apt-get update
	if [ -n "${upgrade:-}" ]; then
		DEBIAN_FRONTEND=noninteractive LC_ALL=C chroot "$ROOT" apt-get dist-upgrade -y --no-install-recommends
	fi
	use=$1 && shift
	# shellcheck disable=SC2046 # a list of words
	DEBIAN_FRONTEND=noninteractive LC_ALL=C chroot "$ROOT" apt-get install -y --no-install-recommends $(packages "$use") "$@"
	chroot "$ROOT" apt-get clean
	umount "$ROOT/proc"
	rm -f "$ROOT/usr/sbin/policy-rc.d" "$ROOT/etc/apt/apt.conf.d/00machine" "$ROOT/etc/resolv.conf"
	rm -rf "$ROOT"/var/lib/apt/lists/* "$ROOT"/var/cache/apt/*.bin "$ROOT"/var/cache/debconf/*-old
}
