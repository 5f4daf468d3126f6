# Becomes PID 1 of a host. The runner starts it in a pid and a network
# namespace of the host, with "enter" first.
#
#   HOST_DIR    the host's directory on the machine
#   HOST_LOWER  the read-only layers under its root file system
#   HOST_TREES  the control group trees of the machine: path|kind|options
#   HOST_IGNITION  Ignition, if it sets this host up

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
	for disk in "$HOST_DIR"/data/*; do
		[ -e "$disk" ] || continue
		cp -a "$(losetup --find --show "$disk")" "$root/dev/${disk##*/}"
	done
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
	# The command line of the machine's kernel is not the host's. Later versions of systemd need its
	# arguments where the machine has control groups of version 1.
	arguments='root=/dev/sda1 ro'
	[ "$(stat -f -c %T /sys/fs/cgroup)" = cgroup2fs ] || arguments="$arguments systemd.unified_cgroup_hierarchy=0 SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1"
	echo "$arguments" >"$HOST_DIR/sysctl/cmdline"
	mount --bind "$HOST_DIR/sysctl/cmdline" "$root/proc/cmdline"
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

# attach_drive makes the configuration drive a block device, which Ignition
# mounts by its label. The kernel has no file system of CDs.
attach_drive() {
	[ -d "$HOST_DIR/seed/config_drive" ] || return 0
	rm -f "$HOST_DIR/config-2.img"
	mkfs.ext4 -q -L config-2 -d "$HOST_DIR/seed/config_drive" "$HOST_DIR/config-2.img" 8M
	loop=$(losetup --find --show --read-only "$HOST_DIR/config-2.img")
	mkdir -p "$root/dev/disk/by-label"
	cp -a "$loop" "$root/dev/disk/by-label/config-2"
}

detach_drive() {
	[ -n "$loop" ] || return 0
	losetup --detach "$loop"
	rm -r "$root/dev/disk" "$HOST_DIR/config-2.img"
}

# stage runs one stage of Ignition, as the unit of that stage does.
stage() {
	chroot "$initrd/root" /usr/bin/ignition --root=/sysroot --platform="$platform" --stage="$1" --log-to-stdout >>"$HOST_DIR/console.log" 2>&1 && return
	# A real machine stays in the emergency shell of its initial RAM disk.
	echo "Ignition's stage $1 failed" >>"$HOST_DIR/console.log"
	detach_drive
	exec tail -f /dev/null
}

# ignite is the initial RAM disk on the first boot of a host that Ignition sets
# up. It has a root file system of its own, with the host's below /sysroot, and
# runs the stages in the order of Ignition's units.
ignite() {
	[ ! -e "$HOST_DIR/ignited" ] || return 0
	initrd=$HOST_DIR/initrd loop=
	case $(cat "$HOST_DIR/dmi/sys_vendor") in
	VMware*) platform=vmware ;;
	*) platform=openstack ;;
	esac
	mkdir -p "$initrd"
	mount -t tmpfs tmpfs "$initrd"
	mkdir "$initrd/up" "$initrd/work" "$initrd/root"
	mount -t overlay -o "lowerdir=$HOST_LOWER,upperdir=$initrd/up,workdir=$initrd/work" overlay "$initrd/root"
	mkdir "$initrd/root/sysroot"
	cp "$HOST_IGNITION" "$initrd/root/usr/bin/ignition"
	attach_drive
	mount --rbind "$root" "$initrd/root/sysroot"
	for dir in dev proc run sys; do mount --rbind "$root/$dir" "$initrd/root/$dir"; done
	stage fetch-offline
	if [ -e "$root/run/ignition/neednet" ] && [ ! -e "$root/run/ignition.json" ]; then stage fetch; fi
	for name in kargs disks mount files umount; do stage "$name"; done
	detach_drive
	umount -R "$initrd"
	touch "$HOST_DIR/ignited"
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
	if [ -n "$HOST_IGNITION" ]; then ignite; else mount_seeds; fi
	cd "$root"
	mkdir -p mnt/old
	pivot_root . mnt/old
	umount -l /mnt/old
	cd /
	exec env -i TERM=dumb PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
		/sbin/init </dev/null >>/dev/console.log 2>&1
}

"$1"
