#!/bin/sh
# Makes this machine a node of its cluster. cloud-init writes it and runs it
# once; what it does stands in /var/log/nova-bootstrap.log.
set -eu

dir=/run/nova
log=/var/log/nova-bootstrap.log
kubernetes=/etc/kubernetes
sentinel=/run/cluster-api/bootstrap-success.complete
booting=/var/lib/nova/booting
restarted=nova-restarted.service
cloud=/var/lib/cloud

# Sets MODE, CONTROL_PLANE, NODE_NAME, FAMILIES, ENDPOINT, VERBOSITY,
# SKIP_PHASES, ADDRESS_INTERFACE, ADDRESS_CIDRS, KUBE_PROXY, WAIT_BOUND, JOIN_BOUND and FOLLOWS_CLOCKS.
. "$dir/settings"
. "$dir/report.sh"

# What a machine waits for, in seconds.
address_timeout=300
clock_timeout=60
kube_proxy_grace=60
# How often kubeadm is run, and the seconds between.
attempts=10
pause=10

exec 3>&1
(umask 077 && : >>"$log")
exec >>"$log" 2>&1

say() {
  printf '%s %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$*"
}

# clock holds a problem of the machine's clock, for the report.
clock=

# told is set once the hypervisor knows why this ended, and failed is what it
# is told then: a machine that kubeadm has made a node is no failed one.
told=
failed=failed

die() {
  set -- "$*$clock"
  report $failed "$*"
  told=1
  say "FAILED: $*"
  printf 'nova-bootstrap: %s; see %s\n' "$*" "$log" >&3
  exit 1
}

# now prints seconds of a clock that nobody sets: a machine's own is often wrong
# on its first boot.
now() {
  cut -d. -f1 /proc/uptime
}

# minutes_since prints how long ago a time was, for people.
minutes_since() {
  echo "$((($(now) - $1) / 60)) min"
}

# expect_reset leaves on the disk what tells the hypervisor if the machine is
# started anew before this ends: nothing else is left then, and nobody goes on.
expect_reset() (
  set +e
  stage=joining
  [ "$CONTROL_PLANE" != true ] || stage=failed
  umask 077
  mkdir -p $booting && cp "$dir/report.sh" "$dir/restarted.sh" $booting/ && echo $stage >$booting/stage
  cp "$dir/$restarted" /etc/systemd/system/ && chmod 0644 /etc/systemd/system/$restarted && systemctl --quiet enable $restarted
  sync
  return 0
)

# expect_no_reset takes it away: whatever this ended with was told.
expect_no_reset() (
  set +e
  systemctl --quiet disable $restarted
  rm -rf $booting /etc/systemd/system/$restarted
  return 0
)

# ended tells of an end that nobody foresaw.
ended() {
  [ "$1" -eq 0 ] || [ -n "$told" ] || report $failed "The script that makes this machine a node ended with status $1"
  expect_no_reset
}
trap 'ended $?' EXIT
expect_reset

# default_interface prints the interface of the default route of an IP version.
default_interface() {
  ip "-$1" -o route show default | awk '
    { for (i = 1; i < NF; i++) if ($i == "dev") { print $(i + 1); exit } }'
}

# first_address prints interface and address of the first lasting address in the
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

# provider_id prints the ID that the infrastructure provider knows the machine
# by, or nothing on unknown hardware.
provider_id() {
  uuid=$(dmi product_uuid | tr 'A-F' 'a-f')
  case $(dmi sys_vendor) in
  VMware*)
    # product_uuid has its first bytes swapped from virtual hardware 13
    # on. The serial number always has vCenter's order.
    hex=$(dmi product_serial | sed -n 's/^VMware-//p' | tr -d ' -' | tr 'A-F' 'a-f')
    if [ "${#hex}" -eq 32 ]; then
      uuid=$(printf '%s' "$hex" | sed 's/^\(.\{8\}\)\(.\{4\}\)\(.\{4\}\)\(.\{4\}\)/\1-\2-\3-\4-/')
    fi
    scheme=vsphere
    ;;
  oVirt* | zVirt* | "Red Hat"* | RHEV*)
    scheme=zvirt
    ;;
  *)
    return 0
    ;;
  esac
  [ -z "$uuid" ] || printf '%s://%s\n' "$scheme" "$uuid"
}

# wait_for_clock waits until the clock is synchronized with the time servers. With
# a clock that is an hour off, certificates are not valid yet or not any more. If
# the servers do not answer, the clock may still be right, so kubeadm is run.
wait_for_clock() {
  [ "${FOLLOWS_CLOCKS:-false}" = true ] && command -v timedatectl >/dev/null || return 0
  report running "Waiting for the clock to be synchronized"
  left=$clock_timeout
  while synchronized=$(timedatectl show --property=NTPSynchronized --value); do
    [ "$synchronized" != yes ] || return 0
    [ "$left" -gt 0 ] || {
      clock="; the clock is not synchronized with its time servers and says $(date -u +%Y-%m-%dT%H:%M:%SZ)"
      say "The clock is not synchronized after $clock_timeout seconds"
      return 0
    }
    left=$((left - 1))
    sleep 1
  done
}

# fill writes a file with what only this machine knows. A provider ID that is
# unknown is left out.
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

# run_commands runs the files of a directory in order, each in a shell of its own.
run_commands() {
  for file in "$dir/$1"/*; do
    [ -e "$file" ] || continue
    say "Running $1 $(basename "$file")"
    report running "$1 $(basename "$file")"
    sh "$file" || die "$1 $(basename "$file") failed with status $?"
  done
}

# extract writes what a field of the discovery file holds to a file.
extract() {
  (umask 077 && sed -n "s/^ *$1: //p" "$dir/discovery.conf" | base64 -d >"$dir/$2")
}

# api reads a path of the API server with the machine's own certificate, and
# keeps what is said of a failure.
api() {
  if command -v kubectl >/dev/null; then
    kubectl --kubeconfig "$dir/discovery.conf" --request-timeout=5s get --raw "$1"
  elif [ -s "$dir/token.header" ]; then
    curl --silent --show-error --fail --max-time 5 --cacert "$dir/ca.crt" --header @"$dir/token.header" "$ENDPOINT$1"
  else
    curl --silent --show-error --fail --max-time 5 --cacert "$dir/ca.crt" --cert "$dir/client.crt" --key "$dir/client.key" "$ENDPOINT$1"
  fi >/dev/null 2>"$dir/api.error"
}

# wait_for_cluster waits until kubeadm init is through. kubeadm join would
# meet missing permissions before, and give up.
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
        clock="; its certificate or this machine's is not valid at $(date -u +%Y-%m-%dT%H:%M:%SZ), the time of this machine's clock"
      die "The cluster did not let this machine join within $(minutes_since "$begun"): $ENDPOINT gives no answer, or none to this machine"
    }
    sleep 1
  done
  # kube-proxy is the last that kubeadm init installs. A cluster that skips it
  # never has it, so it is not waited for without end.
  left=$kube_proxy_grace
  [ "${KUBE_PROXY:-true}" = true ] || left=0
  until api $configmaps/kube-proxy || [ "$left" -eq 0 ]; do
    left=$((left - 1))
    sleep 1
  done
}

# recover makes a failed join repeatable and sets the phases not to repeat.
# Nothing that other nodes can see is taken back: an etcd member that was
# announced is used by the next attempt.
recover() {
  if [ -e $kubernetes/kubelet.conf ]; then
    # The kubelet has its own certificate: only what follows is left.
    skip=preflight,control-plane-prepare,kubelet-start
  elif [ "$CONTROL_PLANE" = true ] && [ -e $kubernetes/manifests/kube-scheduler.yaml ]; then
    # The control plane's files are complete, and repeating the checks
    # would only find them in the way.
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

# give_up ends for good what would go on trying to make this machine a node:
# nobody counts on it any more.
give_up() {
  [ -e $kubernetes/kubelet.conf ] || systemctl stop kubelet || true
  die "$*"
}

# bounded runs a command until a time at most.
bounded() {
  left=$(($1 - $(now)))
  shift
  timeout --kill-after=10 "$((left > 0 ? left : 1))" "$@"
}

# only_tail_left reports whether a failed kubeadm init had written all files and
# met the API server. What is left then only tells that server what it may know
# already. One that did not come up is not waited for once more: another machine
# may do better. $1 is where the words of the attempt begin in the log.
only_tail_left() {
  for file in kubelet.conf manifests/kube-apiserver.yaml manifests/kube-controller-manager.yaml manifests/kube-scheduler.yaml; do
    [ -e "$kubernetes/$file" ] || return 1
  done
  ! tail -c "+$1" "$log" | grep -q 'error execution phase wait-control-plane'
}

# init runs kubeadm init, and repeats its tail: authorities and etcd are made
# once. The kubelet is started anew, as nobody knows how far its start came.
init() {
  attempt=1
  skip=
  while true; do
    words=$(($(wc -c <"$log") + 1))
    bounded "$give_up_at" kubeadm init --config "$dir/kubeadm.yaml" --v="$VERBOSITY" ${skip:+--skip-phases="$skip"} && return
    only_tail_left "$words" || die "kubeadm init failed after $(minutes_since "$begun")"
    [ "$attempt" -lt "$attempts" ] && [ "$(($(now) + pause))" -lt "$give_up_at" ] ||
      die "kubeadm init did not get through within $(minutes_since "$begun"), in $attempt attempts"
    report retrying "kubeadm init failed, attempt $attempt of $attempts"
    say "kubeadm init failed, attempt $attempt of $attempts"
    attempt=$((attempt + 1))
    sleep "$pause"
    skip=preflight,certs,kubeconfig,etcd,control-plane${SKIP_PHASES:+,$SKIP_PHASES}
  done
}

# lower_kube_vip takes from kube-vip the rights that it needs only until kubeadm
# init has given admin.conf its own. The kubelet takes any file in the folder of
# manifests for one, so it is written beside it.
lower_kube_vip() {
  [ -e $kubernetes/manifests/kube-vip.yaml ] || return 0
  sed 's|/super-admin\.conf|/admin.conf|' $kubernetes/manifests/kube-vip.yaml >$kubernetes/kube-vip.yaml
  chmod 0600 $kubernetes/kube-vip.yaml
  mv $kubernetes/kube-vip.yaml $kubernetes/manifests/kube-vip.yaml
}

join() {
  attempt=1
  skip=$SKIP_PHASES
  since=$(now)
  join_by=$((since + JOIN_BOUND))
  [ "$join_by" -lt "$give_up_at" ] || join_by=$give_up_at
  until bounded "$join_by" kubeadm join --config "$dir/kubeadm.yaml" --v="$VERBOSITY" ${skip:+--skip-phases="$skip"}; do
    [ "$attempt" -lt "$attempts" ] || give_up "kubeadm join failed $attempts times"
    [ "$(($(now) + pause))" -lt "$join_by" ] || give_up "kubeadm join did not get through within $(minutes_since "$since"), in $attempt attempts"
    report retrying "kubeadm join failed, attempt $attempt of $attempts"
    say "kubeadm join failed, attempt $attempt of $attempts"
    attempt=$((attempt + 1))
    sleep "$pause"
    recover
  done
}

# forget_bootstrap_data removes the copies of the bootstrap data that cloud-init
# keeps on the disk, and the one that Ignition keeps in memory. cloud-init is disabled first, because it would take a machine
# without them for a new one, or write them again, on a later boot.
forget_bootstrap_data() (
  set +e
  rm -f /run/ignition.json
  [ -d $cloud ] || return 0
  mkdir -p /etc/cloud && touch /etc/cloud/cloud-init.disabled && sync || return 0
  for file in $cloud/instances/*/user-data.txt* $cloud/instances/*/vendor-data*.txt* $cloud/instances/*/cloud-config.txt \
    $cloud/instances/*/obj.pkl $cloud/seed/*/user-data $cloud/seed/*/openstack/*/user_data; do
    [ -f "$file" ] || continue
    # The drive of a hypervisor cannot be written.
    shred --iterations=1 --remove "$file" || rm -f "$file"
  done
  sync
  return 0
)

# A control plane counts on a machine for so long; what joins later could cost
# etcd its quorum.
begun=$(now)
give_up_at=$((begun + WAIT_BOUND))
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
  # The phase that makes the joiners' permissions wants a token. This one is
  # known to nobody and lives for a second.
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
  lower_kube_vip
else
  wait_for_cluster
  say "Running kubeadm join"
  report running "kubeadm join"
  join
fi
failed=unfinished
echo unfinished >$booting/stage && sync $booting/stage || true
rm -f "$dir/kubeadm.yaml" "$dir/discovery.conf" "$dir/ca.crt" "$dir/client.crt" "$dir/client.key" "$dir/token.header"
forget_bootstrap_data

run_commands postKubeadmCommands

mkdir -p "$(dirname "$sentinel")"
echo success >"$sentinel"
report done
say "Done"
