#!/bin/sh
# Makes this machine a node of its cluster. cloud-init writes the script and
# runs it once; its log is /var/log/nova-bootstrap.log.
set -eu

dir=/run/nova
log=/var/log/nova-bootstrap.log
kubernetes=/etc/kubernetes
sentinel=/run/cluster-api/bootstrap-success.complete
booting=/var/lib/nova/booting
restarted=nova-restarted.service
cloud=/var/lib/cloud

# Sets MODE, CONTROL_PLANE, NODE_NAME, FAMILIES, ENDPOINT, VERBOSITY,
# SKIP_PHASES, ADDRESS_INTERFACE, ADDRESS_CIDRS, KUBE_PROXY, CLUSTER_TIMEOUT, JOIN_TIMEOUT
# and HAS_TIME_SERVERS.
. "$dir/settings"
. "$dir/report.sh"

# Timeouts, in seconds.
address_timeout=300
clock_timeout=60
kube_proxy_grace=60
# The number of kubeadm attempts, and the seconds between them.
attempts=10
pause=10

exec 3>&1
(umask 077 && : >>"$log")
exec >>"$log" 2>&1

say() {
  printf '%s %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$*"
}

# clock_problem describes a problem of the machine's clock, for the report.
clock_problem=

# reported is set once the failure is reported to the hypervisor. failure_stage
# is the stage in that report: a machine that kubeadm has made a node is not
# reported as failed.
reported=
failure_stage=failed

die() {
  set -- "$*$clock_problem"
  report $failure_stage "$*"
  reported=1
  say "FAILED: $*"
  printf 'nova-bootstrap: %s; see %s\n' "$*" "$log" >&3
  exit 1
}

# now prints the uptime in seconds: the system clock is often wrong on the first
# boot.
now() {
  cut -d. -f1 /proc/uptime
}

# minutes_since prints the time since then, for messages.
minutes_since() {
  echo "$((($(now) - $1) / 60)) min"
}

# install_reset_report installs a unit that reports a reset to the hypervisor,
# if the machine is reset before this script ends: the bootstrap data is deleted
# by then, so nothing continues the bootstrap.
install_reset_report() (
  set +e
  stage=joining
  [ "$CONTROL_PLANE" != true ] || stage=failed
  umask 077
  mkdir -p $booting && cp "$dir/report.sh" "$dir/restarted.sh" $booting/ && echo $stage >$booting/stage
  cp "$dir/$restarted" /etc/systemd/system/ && chmod 0644 /etc/systemd/system/$restarted && systemctl --quiet enable $restarted
  sync
  return 0
)

# remove_reset_report removes the unit: the result of this script is reported.
remove_reset_report() (
  set +e
  systemctl --quiet disable $restarted
  rm -rf $booting /etc/systemd/system/$restarted
  return 0
)

# report_exit reports an unexpected exit of the script.
report_exit() {
  [ "$1" -eq 0 ] || [ -n "$reported" ] || report $failure_stage "The script that makes this machine a node ended with status $1"
  remove_reset_report
}
trap 'report_exit $?' EXIT
install_reset_report

# default_interface prints the interface of the default route of an IP version.
default_interface() {
  ip "-$1" -o route show default | awk '
    { for (i = 1; i < NF; i++) if ($i == "dev") { print $(i + 1); exit } }'
}

# first_address prints interface and address of the first permanent address in the
# output of ip.
first_address() {
  awk '!/ (tentative|deprecated|temporary) / { split($4, part, "/"); print $2, part[1]; exit }'
}

# node_address prints interface and address of the node for an IP version.
node_address() {
  if [ -z "$ADDRESS_CIDRS" ]; then
    interface=${ADDRESS_INTERFACE:-$(default_interface "$1")}
    [ -z "$interface" ] || ip "-$1" -o address show dev "$interface" scope global | first_address
    return
  fi
  for cidr in $ADDRESS_CIDRS; do
    case $cidr in *:*) version=6 ;; *) version=4 ;; esac
    [ "$version" = "$1" ] || continue
    found=$(ip "-$1" -o address show to "$cidr" scope global | first_address)
    [ -z "$found" ] || break
  done
  printf '%s' "${found:-}"
}

# find_addresses sets NODE_INTERFACE, NODE_IP and ADVERTISE_ADDRESS.
find_addresses() {
  NODE_INTERFACE= NODE_IP= ADVERTISE_ADDRESS=
  for family in $FAMILIES; do
    pair=$(node_address "$family")
    [ -n "$pair" ] || return 1
    address=${pair#* }
    NODE_INTERFACE=${NODE_INTERFACE:-${pair%% *}}
    ADVERTISE_ADDRESS=${ADVERTISE_ADDRESS:-$address}
    NODE_IP=${NODE_IP:+$NODE_IP,}$address
  done
}

# provider_id prints the provider ID that the infrastructure provider sets on
# the machine, or nothing on unknown hardware.
provider_id() {
  uuid=$(dmi product_uuid | tr 'A-F' 'a-f')
  case $(dmi sys_vendor) in
  VMware*)
    # The first bytes of product_uuid are swapped from virtual hardware 13 on.
    # The serial number always has vCenter's byte order.
    hex=$(dmi product_serial | sed -n 's/^VMware-//p' | tr -d ' -' | tr 'A-F' 'a-f')
    if [ "${#hex}" -eq 32 ]; then
      uuid=$(printf '%s' "$hex" | sed 's/^\(.\{8\}\)\(.\{4\}\)\(.\{4\}\)\(.\{4\}\)/\1-\2-\3-\4-/')
    fi
    scheme=vsphere
    ;;
  oVirt* | zVirt* | "Red Hat"* | RHEV*)
    scheme=zvirt
    ;;
  Proxmox*)
    scheme=proxmox
    ;;
  *)
    return 0
    ;;
  esac
  [ -z "$uuid" ] || printf '%s://%s\n' "$scheme" "$uuid"
}

# wait_for_clock waits until the clock is synchronized with the time servers. If
# the clock is wrong by an hour, certificates are not yet valid or have expired.
# If the servers do not respond, the clock may still be correct, so kubeadm runs
# anyway.
wait_for_clock() {
  [ "${HAS_TIME_SERVERS:-false}" = true ] && command -v timedatectl >/dev/null || return 0
  report running "Waiting for the clock to be synchronized"
  left=$clock_timeout
  while synchronized=$(timedatectl show --property=NTPSynchronized --value); do
    [ "$synchronized" != yes ] || return 0
    [ "$left" -gt 0 ] || {
      clock_problem="; the clock is not synchronized with its time servers, it is at $(date -u +%Y-%m-%dT%H:%M:%SZ)"
      say "The clock is not synchronized after $clock_timeout seconds"
      return 0
    }
    left=$((left - 1))
    sleep 1
  done
}

# fill writes a file with values that are known only on this machine. An unknown
# provider ID is left out.
fill() {
  omit=
  [ -n "$PROVIDER_ID" ] || omit='/name: provider-id$/{N;/__NOVA_PROVIDER_ID__/d;}'
  (umask 077 && sed \
    -e "$omit" \
    -e "s|__NOVA_PROVIDER_ID__|$PROVIDER_ID|g" \
    -e "s|__NOVA_NODE_IP__|$NODE_IP|g" \
    -e "s|__NOVA_ADVERTISE_ADDRESS__|$ADVERTISE_ADDRESS|g" \
    -e "s|__NOVA_INTERFACE__|$NODE_INTERFACE|g" \
    -e "s|__NOVA_TOKEN__|${TOKEN:-}|g" \
    "$1" >"$2")
}

# run_commands runs the files of a directory in order, each in its own shell.
run_commands() {
  for file in "$dir/$1"/*; do
    [ -e "$file" ] || continue
    say "Running $1 $(basename "$file")"
    report running "$1 $(basename "$file")"
    sh "$file" || die "$1 $(basename "$file") failed with status $?"
  done
}

# extract writes the value of a field of the discovery file to a file.
extract() {
  (umask 077 && sed -n "s/^ *$1: //p" "$dir/discovery.conf" | base64 -d >"$dir/$2")
}

# api requests a path of the API server with the machine's own certificate, and
# stores the error message of a failure.
api() {
  if command -v kubectl >/dev/null; then
    kubectl --kubeconfig "$dir/discovery.conf" --request-timeout=5s get --raw "$1"
  elif [ -s "$dir/token.header" ]; then
    curl --silent --show-error --fail --max-time 5 --cacert "$dir/ca.crt" --header @"$dir/token.header" "$ENDPOINT$1"
  else
    curl --silent --show-error --fail --max-time 5 --cacert "$dir/ca.crt" --cert "$dir/client.crt" --key "$dir/client.key" "$ENDPOINT$1"
  fi >/dev/null 2>"$dir/api.error"
}

# wait_for_cluster waits until kubeadm init is complete. Before that kubeadm
# join would fail because permissions are missing.
wait_for_cluster() {
  configmaps=/api/v1/namespaces/kube-system/configmaps
  say "Waiting for $ENDPOINT"
  report running "Waiting for $ENDPOINT"
  extract certificate-authority-data ca.crt
  extract client-certificate-data client.crt
  extract client-key-data client.key
  (umask 077 && sed -n 's/^ *token: /Authorization: Bearer /p' "$dir/discovery.conf" >"$dir/token.header")
  until api $configmaps/kubelet-config; do
    [ "$(now)" -lt "$give_up_at" ] || {
      tail -n 1 "$dir/api.error"
      ! grep -q 'not yet valid\|has expired' "$dir/api.error" ||
        clock_problem="; its certificate or this machine's is not valid at $(date -u +%Y-%m-%dT%H:%M:%SZ), the time of this machine's clock"
      die "This machine could not join the cluster within $(minutes_since "$begun"): $ENDPOINT does not respond, or rejects this machine"
    }
    sleep 1
  done
  # kubeadm init installs kube-proxy last. A cluster that skips kube-proxy never
  # has it, so the wait is limited.
  left=$kube_proxy_grace
  [ "${KUBE_PROXY:-true}" = true ] || left=0
  until api $configmaps/kube-proxy || [ "$left" -eq 0 ]; do
    left=$((left - 1))
    sleep 1
  done
}

# prepare_retry makes a failed join repeatable and sets the phases to skip. It
# reverts nothing that other nodes can see: the next attempt uses an etcd member
# that was already added.
prepare_retry() {
  if [ -e $kubernetes/kubelet.conf ]; then
    # The kubelet has its own certificate: only the later phases are left.
    skip=preflight,control-plane-prepare,kubelet-start
  elif [ "$CONTROL_PLANE" = true ] && [ -e $kubernetes/manifests/kube-scheduler.yaml ]; then
    # The control plane's files are complete, and preflight checks would fail
    # because the files exist.
    skip=preflight,control-plane-prepare
  else
    systemctl stop kubelet || true
    rm -f $kubernetes/bootstrap-kubelet.conf
    if [ "$CONTROL_PLANE" = true ]; then
      rm -f $kubernetes/manifests/kube-apiserver.yaml $kubernetes/manifests/kube-controller-manager.yaml
    else
      rm -f $kubernetes/pki/ca.crt
    fi
    skip=
  fi
  skip=$skip${skip:+${SKIP_PHASES:+,}}$SKIP_PHASES
}

# give_up stops the kubelet, so that nothing tries to make this machine a node
# after its failure was reported.
give_up() {
  [ -e $kubernetes/kubelet.conf ] || systemctl stop kubelet || true
  die "$*"
}

# run_until runs a command with a deadline.
run_until() {
  left=$(($1 - $(now)))
  shift
  timeout --kill-after=10 "$((left > 0 ? left : 1))" "$@"
}

# only_last_phases_left reports whether a failed kubeadm init had written all
# files and reached the API server. The remaining phases only write objects to
# that server, so they can be repeated. If the API server did not start, the
# script does not wait again: another machine may succeed. $1 is the position of
# the attempt's output in the log.
only_last_phases_left() {
  for file in kubelet.conf manifests/kube-apiserver.yaml manifests/kube-controller-manager.yaml manifests/kube-scheduler.yaml; do
    [ -e "$kubernetes/$file" ] || return 1
  done
  ! tail -c "+$1" "$log" | grep -q 'error execution phase wait-control-plane'
}

# init runs kubeadm init, and repeats only its last phases: CAs and etcd are
# created once. The phase that starts the kubelet is repeated too, since it may
# have failed before the kubelet started.
init() {
  attempt=1
  skip=
  while true; do
    words=$(($(wc -c <"$log") + 1))
    run_until "$give_up_at" kubeadm init --config "$dir/kubeadm.yaml" --v="$VERBOSITY" ${skip:+--skip-phases="$skip"} && return
    only_last_phases_left "$words" || die "kubeadm init failed after $(minutes_since "$begun")"
    [ "$attempt" -lt "$attempts" ] && [ "$(($(now) + pause))" -lt "$give_up_at" ] ||
      die "kubeadm init did not succeed within $(minutes_since "$begun"), in $attempt attempts"
    report retrying "kubeadm init failed, attempt $attempt of $attempts"
    say "kubeadm init failed, attempt $attempt of $attempts"
    attempt=$((attempt + 1))
    sleep "$pause"
    skip=preflight,certs,kubeconfig,etcd,control-plane${SKIP_PHASES:+,$SKIP_PHASES}
  done
}

# restrict_kube_vip replaces the administrator permissions of kube-vip. kube-vip
# needs them only until kubeadm init has granted permissions to admin.conf. The
# file is written outside of the manifests folder and moved there, because the
# kubelet reads any file in that folder as a manifest.
restrict_kube_vip() {
  [ -e $kubernetes/manifests/kube-vip.yaml ] || return 0
  sed 's|/super-admin\.conf|/admin.conf|' $kubernetes/manifests/kube-vip.yaml >$kubernetes/kube-vip.yaml
  chmod 0600 $kubernetes/kube-vip.yaml
  mv $kubernetes/kube-vip.yaml $kubernetes/manifests/kube-vip.yaml
}

join() {
  attempt=1
  skip=$SKIP_PHASES
  since=$(now)
  join_by=$((since + JOIN_TIMEOUT))
  [ "$join_by" -lt "$give_up_at" ] || join_by=$give_up_at
  until run_until "$join_by" kubeadm join --config "$dir/kubeadm.yaml" --v="$VERBOSITY" ${skip:+--skip-phases="$skip"}; do
    [ "$attempt" -lt "$attempts" ] || give_up "kubeadm join failed $attempts times"
    [ "$(($(now) + pause))" -lt "$join_by" ] || give_up "kubeadm join did not succeed within $(minutes_since "$since"), in $attempt attempts"
    report retrying "kubeadm join failed, attempt $attempt of $attempts"
    say "kubeadm join failed, attempt $attempt of $attempts"
    attempt=$((attempt + 1))
    sleep "$pause"
    prepare_retry
  done
}

# forget_bootstrap_data deletes the copies of the bootstrap data that cloud-init
# keeps on the disk, and the copy that Ignition keeps in memory. cloud-init is
# disabled first: on a later boot without these files it would treat the machine
# as a new instance, or write them again.
forget_bootstrap_data() (
  set +e
  rm -f /run/ignition.json
  [ -d $cloud ] || return 0
  mkdir -p /etc/cloud && touch /etc/cloud/cloud-init.disabled && sync || return 0
  for file in $cloud/instances/*/user-data.txt* $cloud/instances/*/vendor-data*.txt* $cloud/instances/*/cloud-config.txt \
    $cloud/instances/*/obj.pkl $cloud/seed/*/user-data $cloud/seed/*/openstack/*/user_data; do
    [ -f "$file" ] || continue
    # The drive of a hypervisor is read-only.
    shred --iterations=1 --remove "$file" || rm -f "$file"
  done
  sync
  return 0
)

# The control plane waits this long for a machine; a machine that joins later
# could cost etcd its quorum.
begun=$(now)
give_up_at=$((begun + CLUSTER_TIMEOUT))
say "Making $NODE_NAME a node ($MODE)"
left=$address_timeout
until find_addresses; do
  [ "$left" -gt 0 ] || die "no address on ${ADDRESS_CIDRS:-${ADDRESS_INTERFACE:-an interface with a default route}}"
  left=$((left - 1))
  sleep 1
done
PROVIDER_ID=$(provider_id)
say "Address $NODE_IP on $NODE_INTERFACE, provider ID ${PROVIDER_ID:-unknown}"
export NODE_NAME NODE_IP NODE_INTERFACE PROVIDER_ID

run_commands preKubeadmCommands
wait_for_clock

if [ "$MODE" = Init ]; then
  # The phase that creates the permissions for joining nodes requires a token.
  # This one is random, and expires after a second.
  TOKEN=$(kubeadm token generate)
fi
fill "$dir/kubeadm.template" "$dir/kubeadm.yaml"
if [ -e "$dir/kube-vip.template" ]; then
  mkdir -p $kubernetes/manifests
  fill "$dir/kube-vip.template" $kubernetes/manifests/kube-vip.yaml
fi

# From here on, a reset ends the attempt to make this machine a node.
clear_guestinfo

if [ "$MODE" = Init ]; then
  say "Running kubeadm init"
  report running "kubeadm init"
  init
  restrict_kube_vip
else
  wait_for_cluster
  say "Running kubeadm join"
  report running "kubeadm join"
  join
fi
failure_stage=unfinished
echo unfinished >$booting/stage && sync $booting/stage || true
rm -f "$dir/kubeadm.yaml" "$dir/discovery.conf" "$dir/ca.crt" "$dir/client.crt" "$dir/client.key" "$dir/token.header"
forget_bootstrap_data

run_commands postKubeadmCommands

mkdir -p "$(dirname "$sentinel")"
echo success >"$sentinel"
report done
say "Done"
