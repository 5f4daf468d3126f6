# Becomes PID 1 of a host. The runner starts it in a pid and a network
# namespace of the host, with "enter" first.
#
#   HOST_DIR    the host's directory on the machine
#   HOST_LOWER  the read-only layers under its root file system
#   HOST_TREES  the control group trees of the machine: path|kind|options

enter() {
	# The runner writes a line once this is in the host's control groups and
	# the network cards are in. End of file means that the runner is gone.
	read -r _ || exit 1
	# From here on the groups that it is in are the roots that it sees.
	exec unshare --mount --uts --ipc --cgroup --propagation private /bin/sh -eu "$0" boot </dev/null
}

mount_groups() {
	mount -t tmpfs -o mode=755 tmpfs "$root/sys/fs/cgroup"
	for tree in $HOST_TREES; do
		path=${tree%%|*} rest=${tree#*|}
		kind=${rest%%|*} options=${rest#*|}
		mkdir -p "$root$path"
		mount -t "$kind" ${options:+-o "$options"} "$kind" "$root$path"
	done
}

# The machine's devices belong to the machine: they can be looked at, and no
# uevent is sent. The tables of the BIOS are those of the virtual machine.
mount_sys() {
	mount -t sysfs sysfs "$root/sys"
	mount_groups
	mkdir -p "$HOST_DIR/class"
	mount --rbind "$root/sys/class" "$HOST_DIR/class"
	mount -t tmpfs -o mode=755 tmpfs "$root/sys/class"
	for class in "$HOST_DIR"/class/*; do
		name=${class##*/}
		mkdir "$root/sys/class/$name"
		[ "$name" = dmi ] || mount --bind "$class" "$root/sys/class/$name"
	done
	umount -l "$HOST_DIR/class"
	mkdir -p "$root/sys/class/dmi/id"
	cp "$HOST_DIR"/dmi/* "$root/sys/class/dmi/id/"
	mount -o remount,bind,ro "$root/sys"
}

mount_dev() {
	mount -t tmpfs -o mode=755 tmpfs "$root/dev"
	for node in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0 fuse:10:229; do
		name=${node%%:*} numbers=${node#*:}
		mknod -m 666 "$root/dev/$name" c "${numbers%:*}" "${numbers#*:}"
	done
	mkdir -p "$root/dev/pts" "$root/dev/shm" "$root/dev/net"
	mknod -m 666 "$root/dev/net/tun" c 10 200
	mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts "$root/dev/pts"
	ln -s pts/ptmx "$root/dev/ptmx"
	ln -s /proc/self/fd "$root/dev/fd"
	ln -s /proc/self/fd/0 "$root/dev/stdin"
	ln -s /proc/self/fd/1 "$root/dev/stdout"
	ln -s /proc/self/fd/2 "$root/dev/stderr"
	# The kernel's log is the machine's. There is no terminal; what is logged
	# goes to a file, which those who empty a console must not find.
	touch "$root/dev/kmsg" "$root/dev/console" "$root/dev/console.log"
	mount --bind /dev/null "$root/dev/kmsg"
	mount --bind /dev/null "$root/dev/console"
	mount --bind "$HOST_DIR/console.log" "$root/dev/console.log"
}

# Only settings that are the host's own can be changed. Kubelet insists on
# some of the others: it gets files that look like them.
mount_proc() {
	mount -t proc proc "$root/proc"
	mount --bind "$root/proc/sys" "$root/proc/sys"
	mount --bind "$root/proc/sys/net" "$root/proc/sys/net"
	mount -o remount,bind,ro "$root/proc/sys"
	mkdir -p "$HOST_DIR/sysctl"
	for key in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
		[ -e "/proc/sys/$key" ] || continue
		file=$HOST_DIR/sysctl/$(echo "$key" | tr / .)
		cat "/proc/sys/$key" >"$file"
		mount --bind "$file" "$root/proc/sys/$key"
	done
	# Every boot of a host is one of its own.
	cat /proc/sys/kernel/random/uuid >"$HOST_DIR/sysctl/boot_id"
	mount --bind "$HOST_DIR/sysctl/boot_id" "$root/proc/sys/kernel/random/boot_id"
	# A virtual machine has no swap, whatever the machine has.
	printf 'Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n' >"$HOST_DIR/sysctl/swaps"
	mount --bind "$HOST_DIR/sysctl/swaps" "$root/proc/swaps"
	[ ! -e "$root/proc/sysrq-trigger" ] || mount --bind /dev/null "$root/proc/sysrq-trigger"
}

# Drives with settings are directories. One that is gone leaves none behind,
# not even an empty one: cloud-init would take it for a broken drive.
mount_seeds() {
	for name in config_drive nocloud; do
		seed=$root/var/lib/cloud/seed/$name
		if [ -d "$HOST_DIR/seed/$name" ]; then
			mkdir -p "$seed"
			mount --bind "$HOST_DIR/seed/$name" "$seed"
			mount -o remount,bind,ro "$seed"
		elif [ -d "$seed" ]; then
			rmdir "$seed"
		fi
	done
}

boot() {
	root=$HOST_DIR/root
	# Until the host knows its name it must not have the machine's.
	echo localhost >/proc/sys/kernel/hostname
	mount -t overlay -o "lowerdir=$HOST_LOWER,upperdir=$HOST_DIR/up,workdir=$HOST_DIR/work" overlay "$root"
	mount_proc
	mount_sys
	mount_dev
	mkdir -p "$root/var/lib/containerd"
	# Containerd's own overlays cannot lie on an overlay.
	mount --bind "$HOST_DIR/containerd" "$root/var/lib/containerd"
	mount -t tmpfs -o mode=755 tmpfs "$root/run"
	mkdir -p "$root/run/guestinfo"
	mount --bind "$HOST_DIR/guestinfo" "$root/run/guestinfo"
	mount_seeds
	cd "$root"
	mkdir -p mnt/old
	pivot_root . mnt/old
	umount -l /mnt/old
	cd /
	exec env -i TERM=dumb PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
		/sbin/init </dev/null >>/dev/console.log 2>&1
}

"$1"
