# Puts HAProxy of $DEBIAN's release, a shell and the few programs that go with
# it, and only the libraries they need, into the image root $ROOT. Runs in a
# mount namespace of its own: $DEBIAN is not written to.
mount -t tmpfs tmpfs "$DEBIAN/mnt"
mkdir "$DEBIAN/mnt/up" "$DEBIAN/mnt/work" "$DEBIAN/mnt/root"
system=$DEBIAN/mnt/root
mount -t overlay -o "lowerdir=$DEBIAN,upperdir=$DEBIAN/mnt/up,workdir=$DEBIAN/mnt/work" overlay "$system"
mount -t proc proc "$system/proc"
printf '#!/bin/sh\nexit 101\n' >"$system/usr/sbin/policy-rc.d"
chmod 755 "$system/usr/sbin/policy-rc.d"
printf '%s' "$APT_SETTINGS" >"$system/etc/apt/apt.conf.d/00machine"
cp /etc/resolv.conf "$system/etc/resolv.conf"
chroot "$system" apt-get update
chroot "$system" apt-get install -y --no-install-recommends haproxy
mkdir -p "$ROOT/usr/bin" "$ROOT/usr/sbin" "$ROOT/usr/lib64" "$ROOT/etc"
ln -s usr/bin "$ROOT/bin"
ln -s usr/lib "$ROOT/lib"
ln -s usr/lib64 "$ROOT/lib64"
echo 'nobody:x:65534:65534:nobody:/:/sbin/nologin' >"$ROOT/etc/passwd"
for program in /usr/sbin/haproxy /usr/bin/dash /usr/bin/cksum /usr/bin/sleep; do
	cp "$system$program" "$ROOT$program"
	chroot "$system" ldd "$program" | grep -o '/[^ ]*' | while read -r library; do
		target=$ROOT/usr${library#/usr}
		mkdir -p "${target%/*}"
		cp -L "$system$library" "$target"
	done
done
ln -s dash "$ROOT/usr/bin/sh"
