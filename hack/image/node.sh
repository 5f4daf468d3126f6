#!/bin/sh
# Makes a node image of a Debian 13 system. Run it as root in that system, which
# needs the Internet or a proxy, and nova-host-agent in /usr/local/bin:
#
#   node.sh vsphere|zvirt|proxmox VERSION IMAGE...
#
# VERSION is the version of Kubernetes, such as v1.36.3. The images of kubeadm
# and the named images are pulled, so that a machine pulls nothing when it boots.
set -eu

hypervisor=$1 version=$2
shift 2
minor=${version%.*}
export DEBIAN_FRONTEND=noninteractive
case $hypervisor in
vsphere) guest=open-vm-tools service=open-vm-tools sources='VMware, None' ;;
zvirt) guest=qemu-guest-agent service=qemu-guest-agent sources='ConfigDrive, NoCloud, None' ;;
proxmox) guest=qemu-guest-agent service=qemu-guest-agent sources='NoCloud, None' ;;
*) echo "node.sh: name vsphere, zvirt or proxmox" >&2 && exit 2 ;;
esac

if ! command -v nova-host-agent >/dev/null; then
	echo "node.sh: copy nova-host-agent to /usr/local/bin first" >&2 && exit 2
fi

# A copy has the owner of the original.
chown root:root /usr/local/bin/nova-host-agent
chmod 0755 /usr/local/bin/nova-host-agent

# The cloud image is smaller than its disk.
root=$(findmnt -no SOURCE / || true)
if [ -b "$root" ] && command -v growpart >/dev/null; then
	growpart "${root%%[0-9]*}" "${root##*[!0-9]}" || [ $? = 1 ] # 1: there is nothing to grow
	resize2fs "$root"
fi

apt-get update
apt-get install -y --no-install-recommends ca-certificates curl gpg
mkdir -p /etc/apt/keyrings
curl -fsSL "https://pkgs.k8s.io/core:/stable:/$minor/deb/Release.key" | gpg --dearmor --yes -o /etc/apt/keyrings/kubernetes.gpg
curl -fsSL https://download.docker.com/linux/debian/gpg | gpg --dearmor --yes -o /etc/apt/keyrings/docker.gpg
cat >/etc/apt/sources.list.d/kubernetes.list <<LIST
deb [signed-by=/etc/apt/keyrings/kubernetes.gpg] https://pkgs.k8s.io/core:/stable:/$minor/deb/ /
deb [signed-by=/etc/apt/keyrings/docker.gpg] https://download.docker.com/linux/debian trixie stable
LIST
apt-get update
# Debian 13 has containerd 1.7, which Kubernetes v1.36 deprecates.
apt-get install -y --no-install-recommends "containerd.io=2.2.*" \
	"kubelet=${version#v}-*" "kubeadm=${version#v}-*" "kubectl=${version#v}-*" \
	cloud-init cloud-guest-utils "$guest" \
	conntrack ethtool socat iptables iproute2 kmod openssh-server sudo systemd-timesyncd
apt-mark hold containerd.io kubelet kubeadm kubectl

printf '%s\n' overlay br_netfilter >/etc/modules-load.d/kubernetes.conf
printf '%s\n' 'net.ipv4.ip_forward = 1' 'net.bridge.bridge-nf-call-iptables = 1' >/etc/sysctl.d/90-kubernetes.conf
# The package's own file turns the plugin off that the kubelet uses. containerd's
# own pause image is not the one that kubeadm pulls.
pause=$(kubeadm config images list --kubernetes-version "$version" | grep /pause:)
containerd config default | sed -e 's/SystemdCgroup = false/SystemdCgroup = true/' \
	-e "s#registry.k8s.io/pause:[0-9.]*#$pause#" >/etc/containerd/config.toml
grep -q 'SystemdCgroup = true' /etc/containerd/config.toml
grep -q "$pause" /etc/containerd/config.toml
printf 'datasource_list: [%s]\n' "$sources" >/etc/cloud/cloud.cfg.d/90-nova.cfg
# Files of an installer keep cloud-init from its work.
rm -f /etc/cloud/cloud.cfg.d/99-installer.cfg
if [ "$hypervisor" = zvirt ]; then
	# The network configuration names the interface: always eth0.
	# The files of this folder are read last, so none of them loses the argument.
	printf '%s\n' 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX net.ifnames=0"' >/etc/default/grub.d/90-nova.cfg
	update-grub
fi
# kubeadm starts the kubelet, but does not enable it for the next boot.
systemctl enable containerd kubelet "$service"

# No service runs while an image is customized.
systemctl stop containerd 2>/dev/null || true
containerd >/var/log/containerd-pull.log 2>&1 &
containerd=$!
tries=0
until ctr version >/dev/null 2>&1; do
	tries=$((tries + 1))
	[ $tries -lt 60 ] || { cat /var/log/containerd-pull.log >&2 && exit 1; }
	sleep 1
done
kubeadm config images pull --kubernetes-version "$version"
for image; do
	ctr -n k8s.io images pull "$image"
done
kill $containerd
wait $containerd || true

# Nothing may identify the machine: each clone gets its own identity.
apt-get clean
cloud-init clean --logs --seed
rm -f /etc/ssh/ssh_host_* /var/lib/dbus/machine-id
truncate -s 0 /etc/machine-id
rm -rf /var/log/containerd-pull.log /var/log/journal/* /root/.bash_history
