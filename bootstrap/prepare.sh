# Prepares this machine for kubeadm, before the commands of the NovaConfig run.
# The function calls are at the end.
set -eu

nova=/etc/nova
config=/etc/containerd/config.toml
snippets=/etc/containerd/conf.d
# The table that names the folder with the mirrors.
registry='^[[:space:]]*\[.*\.registry\][[:space:]]*\(#.*\)*$'
fstab=/etc/fstab
swap=/var/lib/nova.swap
mirrored=
kept=/var/lib/nova
grub=/etc/default/grub.d

# boot_with sets these kernel arguments. If one is missing, the machine reboots,
# and continues from the data that it stores for the reboot.
boot_with() {
  missing=
  for argument; do
    case " $(cat /proc/cmdline) " in
    *" $argument "*) ;;
    *) missing="$missing $argument" ;;
    esac
  done
  [ -n "$missing" ] || return 0
  if [ -e $kept/rebooted ]; then
    echo "the kernel was started without$missing: the boot loader of the image does not pass the kernel arguments" >&2
    return 1
  fi
  if command -v grubby >/dev/null; then
    grubby --update-kernel=ALL --args="${missing# }"
  elif command -v update-grub >/dev/null && [ -d "$grub" ]; then
    printf 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX%s"\n' "$missing" >$grub/90-nova.cfg
    update-grub
  else
    echo "the image has no supported boot loader, so the kernel cannot be started with$missing" >&2
    return 1
  fi
  (umask 077 && mkdir -p $kept && rm -rf $kept/first-boot && cp -a /run/nova $kept/first-boot && : >$kept/rebooted)
  systemctl enable nova-bootstrap.service
  : >/run/nova/restarting
  systemctl reboot
  # Nothing else may run until the system reboots.
  sleep infinity
}

# trust adds the CA certificates to the trust store of the system: in the folder
# for administrators or, if /usr is read-only, in the store itself.
trust() {
  for store in /usr/local/share/ca-certificates:update-ca-certificates /etc/pki/ca-trust/source/anchors:update-ca-trust /etc/pki/trust/anchors:update-ca-certificates; do
    command -v "${store#*:}" >/dev/null && [ -d "$(dirname "${store%%:*}")" ] || continue
    mkdir -p "${store%%:*}" 2>/dev/null && cp $nova/ca/*.crt "${store%%:*}/" 2>/dev/null || continue
    "${store#*:}" && return 0
    echo "the CA certificates cannot be added to the system's trust store" >&2
    return 1
  done
  command -v update-ca-certificates >/dev/null && [ -d /etc/ssl/certs ] || {
    echo "no trust store was found on this system" >&2
    return 1
  }
  if grep -q localcertsdir "$(command -v update-ca-certificates)"; then
    update-ca-certificates --localcertsdir $nova/ca
  else
    # Flatcar adds the files with this suffix.
    for file in $nova/ca/*.crt; do
      cp "$file" "/etc/ssl/certs/$(basename "$file" .crt).pem"
    done
    update-ca-certificates
  fi
}

# set_resolvers configures these name servers for this machine, and no others.
set_resolvers() {
  if systemctl is-active --quiet systemd-resolved; then
    mkdir -p /etc/systemd/resolved.conf.d
    # The domain ~. takes precedence over the servers of single links.
    printf '[Resolve]\nDNS=%s\nDomains=~.%s\n' "$1" "${2:+ $2}" >/etc/systemd/resolved.conf.d/90-nova.conf
    systemctl restart systemd-resolved
  elif systemctl is-active --quiet NetworkManager; then
    mkdir -p /etc/NetworkManager/conf.d
    printf '[global-dns]\nsearches=%s\n[global-dns-domain-*]\nservers=%s\n' "$(echo "$2" | tr ' ' ,)" "$(echo "$1" | tr ' ' ,)" >/etc/NetworkManager/conf.d/90-nova.conf
    systemctl reload NetworkManager
  else
    rm -f /etc/resolv.conf
    for server in $1; do
      echo "nameserver $server"
    done >/etc/resolv.conf
    [ -z "$2" ] || echo "search $2" >>/etc/resolv.conf
  fi
}

# set_config_path configures containerd to read only the folder with the
# mirrors: containerd 2 reads a list of two folders, which is its default, as
# the name of one folder.
set_config_path() {
  mirrored=yes
  make_config
  plugin=io.containerd.grpc.v1.cri
  ! grep -Eq '^ *version *= *([3-9]|[1-9][0-9])' "$config" || plugin=io.containerd.cri.v1.images
  sed "/$registry/,/^[[:space:]]*\[/{/^[[:space:]]*config_path[[:space:]]*=/d;}" "$config" >"$config.new"
  if grep -q "$registry" "$config.new"; then
    sed "s|$registry|&\n  config_path = \"/etc/containerd/certs.d\"|" "$config.new" >"$config"
  else
    printf '\n[plugins."%s".registry]\n  config_path = "/etc/containerd/certs.d"\n' "$plugin" >>"$config"
  fi
  rm -f "$config.new"
}

# make_config creates a configuration if containerd has none. It has the version
# that this containerd writes: the version of a snippet must not be higher.
make_config() {
  [ ! -e "$config" ] || return 0
  version=$(containerd config default | sed -n 's/^version *= *//p')
  printf 'version = %s\n' "${version:-2}" >"$config"
}

# import_snippets adds the snippets to the imports of containerd's
# configuration.
import_snippets() {
  make_config
  if grep -q "^ *imports *=.*$snippets/" "$config"; then
    :
  elif grep -q '^ *imports *= *\[' "$config"; then
    sed -i "s|^ *imports *= *\[|&\"$snippets/*.toml\", |" "$config"
  else
    sed -i "1i imports = [\"$snippets/*.toml\"]" "$config"
  fi
}

# has_mirrors reports whether containerd uses the mirrors, by the output of this
# subcommand.
has_mirrors() {
  containerd --config "$config" config "$1" | sed -n "/$registry/,/^[[:space:]]*\[/p" |
    grep -Eq "^ *config_path *= *[\"']/etc/containerd/certs\.d[\"'] *$"
}

# check_mirrors fails if a snippet removes the mirrors: imported files take
# precedence, and in an older containerd an imported file replaces all settings
# of a plugin. Then images would be pulled from other registries without an
# error.
check_mirrors() {
  # For tables of an older version, only "migrate" of containerd 2.0 prints
  # them; older releases have no such subcommand.
  [ -z "$mirrored" ] || has_mirrors dump || has_mirrors migrate 2>/dev/null || {
    echo "a snippet removes the mirrors: also set config_path = \"/etc/containerd/certs.d\" for the registry in the snippet" >&2
    return 1
  }
}

restart_containerd() {
  check_mirrors
  systemctl restart containerd
}

# wait_for_device waits until a device exists.
wait_for_device() {
  left=60
  until [ -e "$1" ] || [ "$left" -eq 0 ]; do
    left=$((left - 1))
    sleep 1
  done
}

# partition_disk DEVICE SIZE... creates a partition table on an empty disk. Sizes are
# in MiB; 0 is the rest of the disk.
partition_disk() {
  disk=$1
  shift
  wait_for_device "$disk"
  if ! blkid -p "$disk" >/dev/null; then
    for size; do
      [ "$size" -eq 0 ] && echo , || echo ",${size}MiB"
    done | sfdisk --quiet --label gpt "$disk"
    udevadm settle || true
  fi
  if [ "$(sfdisk --dump "$disk" | grep -c ' start= ')" -ne $# ]; then
    echo "$disk does not have a partition table with $# partitions" >&2
    return 1
  fi
}

# mount_filesystem SOURCE PATH TYPE OPTIONS mounts a file system now and at each boot.
mount_filesystem() {
  mkdir -p "$2"
  grep -q "^[^ ]* $2 " $fstab || printf '%s %s %s %s 0 0\n' "$1" "$2" "$3" "$4" >>$fstab
  mountpoint -q "$2" || mount "$2"
}

# make_etcd_dir creates the data directory of etcd, which only its user may read.
make_etcd_dir() {
  mkdir -p "$1"
  chmod 0700 "$1"
}

# use_disk mounts a disk. It makes a file system on an empty one only.
use_disk() {
  wait_for_device "$1"
  if ! blkid -p "$1" >/dev/null; then
    "mkfs.$2" "$1"
  fi
  if [ "$(blkid -p -o value -s TYPE "$1")" != "$2" ]; then
    echo "$1 contains data that is not $2" >&2
    return 1
  fi
  mkdir -p "$3"
  uuid=$(blkid -p -o value -s UUID "$1")
  grep -q "^UUID=$uuid " $fstab || printf 'UUID=%s %s %s %s 0 2\n' "$uuid" "$3" "$2" "$4" >>$fstab
  mountpoint -q "$3" || mount "$3"
  # kubeadm requires an empty etcd folder, and etcd requires to own it.
  rmdir "$3/lost+found" 2>/dev/null || true
  [ "$3" != /var/lib/etcd ] || chmod 0700 "$3"
}

# add_swap creates a swap file of this size in MiB.
add_swap() {
  [ ! -e $swap ] || return 0
  (umask 077 && dd if=/dev/zero of=$swap bs=1M count="$1" 2>/dev/null)
  mkswap $swap
  swapon $swap
  printf '%s none swap sw 0 0\n' $swap >>$fstab
}

load_modules() {
  for module; do
    modprobe "$module"
  done
}

apply_sysctls() {
  sysctl -p /etc/sysctl.d/90-nova.conf
}

# add_user makes sure that a user exists, with groups and keys.
add_user() {
  user=$1 shell=$2
  shift 2
  id "$user" >/dev/null 2>&1 || {
    useradd -m -s "$shell" "$user"
    # A file that was written to the home directory has made root its owner.
    chown "$user:$(id -gn "$user")" "$(getent passwd "$user" | cut -d: -f6)"
  }
  for group; do
    groupadd -f "$group"
    usermod -a -G "$group" "$user"
  done
  [ ! -e "/run/nova/users/$user.hash" ] || chpasswd -e <"/run/nova/users/$user.hash"
  [ -e "/run/nova/users/$user" ] || return 0
  home=$(getent passwd "$user" | cut -d: -f6)
  mkdir -p "$home/.ssh"
  cat "/run/nova/users/$user" >>"$home/.ssh/authorized_keys"
  chmod 0700 "$home/.ssh"
  chmod 0600 "$home/.ssh/authorized_keys"
  chown -R "$user:$(id -gn "$user")" "$home/.ssh"
}

# set_owner sets the user and group of a file.
set_owner() {
  mode=$(stat -c %a "$1")
  chown -- "$2" "$1"
  # chown clears setuid and setgid.
  chmod "$mode" "$1"
}

use_proxy() {
  sed -i "s|__NOVA_NODE_IP__|$NODE_IP|g" $nova/proxy.env
  systemctl daemon-reload
}

# set_time_servers configures the time synchronization service of the system.
set_time_servers() {
  if command -v chronyd >/dev/null; then
    file=/etc/chrony.conf
    [ -e "$file" ] || file=/etc/chrony/chrony.conf
    sed -i '/^ *\(pool\|server\|sourcedir\) /d' "$file"
    printf 'server %s iburst\n' "$@" >>"$file"
    systemctl restart chronyd || systemctl restart chrony || no_clock
  else
    mkdir -p /etc/systemd/timesyncd.conf.d
    printf '[Time]\nNTP=%s\n' "$*" >/etc/systemd/timesyncd.conf.d/90-nova.conf
    systemctl restart systemd-timesyncd || no_clock
  fi
}

no_clock() {
  echo "no time synchronization service could be started" >&2
}
