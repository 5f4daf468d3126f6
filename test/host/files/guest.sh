# Installs $PACKAGES over the Debian in $ROOT; what is new goes to $LAYER/files.
# Runs in a mount namespace of its own, so that a killed build leaves no mount
# on the machine.
mkdir "$LAYER/files" "$LAYER/work" "$LAYER/root"
mount -t overlay -o "lowerdir=$ROOT,upperdir=$LAYER/files,workdir=$LAYER/work" overlay "$LAYER/root"
cd "$LAYER/root"
# No service starts while packages are installed.
printf '#!/bin/sh\nexit 101\n' >usr/sbin/policy-rc.d
chmod 755 usr/sbin/policy-rc.d
printf '%s' "$APT_SETTINGS" >etc/apt/apt.conf.d/00machine
cp /etc/resolv.conf etc/resolv.conf
mount -t proc proc proc
chroot . apt-get update
# shellcheck disable=SC2086 # a list of words
chroot . apt-get install -y --no-install-recommends $PACKAGES
chroot . apt-get clean
umount proc
rm -rf usr/sbin/policy-rc.d etc/apt/apt.conf.d/00machine var/lib/apt/lists/* var/cache/apt/*.bin
rm -f etc/resolv.conf etc/hostname var/lib/dbus/machine-id etc/machine-id
cd /
umount "$LAYER/root"
rm -rf "$LAYER/root" "$LAYER/work"
