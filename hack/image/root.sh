#!/bin/sh
# Makes the root file system of a node image: a system of systems.tsv with its "root" packages. The
# hosts of the tests boot from one of these.
#
#   ROOT=FOLDER SYSTEM=debian-13 unshare --mount --propagation private hack/image/root.sh
#
# It needs root, and runs in a mount namespace of its own, so that no mount is left if it is killed.
# MIRROR replaces the package archives of the system, and MIRROR_SECURITY the archive with security
# updates; with MIRROR alone there are no updates. APT_SETTINGS are settings for apt while
# packages are installed, such as a proxy. It needs debootstrap, or dnf for the family "redhat".
set -eu

here=$(cd "$(dirname "$0")" && pwd)
. "$here/packages.sh"
describe "$SYSTEM"

debian() {
	proxy=$(printf '%s' "${APT_SETTINGS:-}" | sed -n 's/^Acquire::http::Proxy "\(.*\)";$/\1/p')
	if [ -n "$proxy" ] && [ -z "${http_proxy:-}" ]; then export http_proxy="$proxy"; fi
	# An older debootstrap does not know the names of newer releases of Ubuntu.
	script=
	case $SYSTEM in ubuntu-*) script=gutsy ;; esac
	# shellcheck disable=SC2086 # no word if it is not set
	debootstrap --force-check-gpg --variant=minbase --components="$sections" "$release" "$ROOT" "${MIRROR:-$mirror}" $script

	# Documentation and translations are half of what would be unpacked.
	cat >"$ROOT/etc/dpkg/dpkg.cfg.d/slim" <<-SLIM
		force-unsafe-io
		path-exclude=/usr/share/doc/*
		path-exclude=/usr/share/man/*
		path-exclude=/usr/share/info/*
		path-exclude=/usr/share/locale/*
	SLIM
	if [ -z "${MIRROR:-}" ]; then
		write_sources "$mirror" "$security"
	elif [ -n "${MIRROR_SECURITY:-}" ]; then
		write_sources "$MIRROR" "$MIRROR_SECURITY ${security#* }"
	else
		write_sources "$MIRROR"
	fi
	install_packages root
}

redhat() {
	set -- --releasever="$release" --setopt=reposdir=/dev/null --setopt=install_weak_deps=False --setopt=tsflags=nodocs
	for section in $(printf '%s' "$sections" | tr , ' '); do
		set -- "$@" --repofrompath="$section,${MIRROR:-$mirror}/$release/$section/x86_64/os/" \
			--setopt="$section.gpgkey=${MIRROR:-$mirror}/RPM-GPG-KEY-Rocky-$release" --setopt="$section.gpgcheck=1"
	done
	mkdir -p "$ROOT/proc"
	mount -t proc proc "$ROOT/proc"
	mount_devices
	# shellcheck disable=SC2046 # a list of words
	dnf --assumeyes --installroot="$ROOT" "$@" install $(packages root) $(packages machine) "$kernel"
	dnf --installroot="$ROOT" clean all
	umount "$ROOT/dev" "$ROOT/proc"
}

"$family"
# Nothing may identify the machine: each one gets its own identity.
rm -f "$ROOT"/etc/resolv.conf "$ROOT"/etc/hostname "$ROOT"/var/lib/dbus/machine-id "$ROOT"/etc/machine-id
