# Fills $ROOT with a Debian of $SUITE and $PACKAGES. Runs in a mount namespace
# of its own, so that a killed build leaves no mount on the machine.
proxy=$(printf '%s' "$APT_SETTINGS" | sed -n 's/^Acquire::http::Proxy "\(.*\)";$/\1/p')
if [ -n "$proxy" ] && [ -z "${http_proxy:-}" ]; then export http_proxy="$proxy"; fi

debootstrap --variant=minbase "$SUITE" "$ROOT" "$MIRROR"

# Documentation and translations are half of what would be unpacked.
cat >"$ROOT/etc/dpkg/dpkg.cfg.d/slim" <<'X'
force-unsafe-io
path-exclude=/usr/share/doc/*
path-exclude=/usr/share/man/*
path-exclude=/usr/share/info/*
path-exclude=/usr/share/locale/*
X
# No service starts while packages are installed.
printf '#!/bin/sh\nexit 101\n' >"$ROOT/usr/sbin/policy-rc.d"
chmod 755 "$ROOT/usr/sbin/policy-rc.d"
printf '%s' "$APT_SETTINGS" >"$ROOT/etc/apt/apt.conf.d/00machine"

mount -t proc proc "$ROOT/proc"
chroot "$ROOT" apt-get update
# shellcheck disable=SC2086 # a list of words
chroot "$ROOT" apt-get install -y --no-install-recommends $PACKAGES
chroot "$ROOT" apt-get clean
umount "$ROOT/proc"

rm -f "$ROOT/usr/sbin/policy-rc.d" "$ROOT/etc/apt/apt.conf.d/00machine"
rm -rf "$ROOT"/var/lib/apt/lists/* "$ROOT"/var/cache/apt/*.bin "$ROOT"/var/cache/debconf/*-old
rm -f "$ROOT"/etc/resolv.conf "$ROOT"/etc/hostname "$ROOT"/var/lib/dbus/machine-id "$ROOT"/etc/machine-id
