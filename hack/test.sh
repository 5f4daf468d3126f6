#!/usr/bin/env bash
# Runs the tests, and ends with a line that counts them.
#
#   hack/test.sh [unit] [hosts] [e2e] [older]
#
# unit are the tests that need at most an API server, hosts the tests that
# boot hosts or need network namespaces, e2e Cluster API's own specs on hosts:
# these need root. If no argument is set, these three run. older are the suites
# that depend on cloud-init, on hosts with the one of Debian 12. Three packages of
# unit and two of hosts run in parallel: API servers, hosts and simulated
# hypervisors are idle most of the time, and each test environment has its own
# network. NOVA_AT_ONCE sets another number. CHECKS is a file with the results of
# verify.sh, which are counted too. REPORT is a folder for reports: JUnit of each
# part, and a table of all packages.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/ensure-go.sh"
cd "$here/.."
[[ $# -gt 0 ]] || set -- unit hosts e2e
host_packages='/test/(bed|host|hostile|registry|suites)(/|$)'
hosts_timeout=40m
unit_at_once=${NOVA_AT_ONCE:-3}
hosts_at_once=${NOVA_AT_ONCE:-2}
if [[ ${NOVA_SUITES:-} == full ]]; then
	# Benchmarks measure times: nothing else may run.
	hosts_timeout=180m
	hosts_at_once=${NOVA_AT_ONCE:-1}
fi
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
started=$SECONDS
if [[ -n ${REPORT:-} ]]; then
	mkdir -p "$REPORT"
	REPORT=$(cd "$REPORT" && pwd)
fi

prepare() {
	local tools="gotestsum etcd kube-apiserver kubectl clusterctl promtool promnames promquery kube-state-metrics nova-release cyclonedx-gomod"
	# The tests run the commands of the guides, which create certificates.
	hack/ensure-packages.sh openssl || return
	if [[ " $* " == *" hosts "* || " $* " == *" e2e "* || " $* " == *" older "* ]]; then
		if [[ $(uname -s) != Linux ]] || ((EUID != 0)); then
			echo "Tests with hosts need root on Linux: run as root, or run \"make test-unit\"." >&2
			return 1
		fi
		hack/ensure-packages.sh debootstrap dnsmasq=dnsmasq-base nsenter=util-linux git mkfs.xfs=xfsprogs sfdisk=fdisk growpart=cloud-guest-utils || return
		tools+=" source-controller kustomize-controller helm-controller sops age-keygen kube-controller-manager kube-scheduler kube-proxy kubelet kubeadm containerd containerd-shim-runc-v2 ctr capi-core capd coredns kube-vip govc"
		tools+=" registry cosign csi-sanity local-path-provisioner metrics-server"
		# Clusters are upgraded from the previous minor version, and to the next
		# one.
		if [[ ${NOVA_SUITES:-} == full ]]; then
			tools+=$(printf ' %s@v1.35.4' kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubeadm kubectl)
			tools+=$(printf ' %s@v1.37.0' kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubeadm kubectl)
			tools+=" ignition terraform terraform-provider-vsphere kwok traefik vault bao"
			tools+=" cert-manager-controller cert-manager-webhook cert-manager-cainjector cert-manager-startupapicheck metallb-controller metallb-speaker external-dns"
			tools+=" descheduler prometheus-operator prometheus-config-reloader alertmanager prometheus keda keda-adapter keda-admission-webhooks"
			tools+=" descheduler@v0.35.1 prometheus-operator@v0.93.0 prometheus-config-reloader@v0.93.0 alertmanager@v0.33.1"
			tools+=" traefik@v3.7.10$(printf ' cert-manager-%s@v1.21.0' controller webhook cainjector startupapicheck)"
			tools+=$(printf ' %s@v2.20.1' keda keda-adapter keda-admission-webhooks)
			hack/ensure-packages.sh haproxy chromium zstd named=bind9 puppet=puppet-agent puppetserver || return
		fi
	fi
	# shellcheck disable=SC2086 # a list of words
	hack/tools/build.sh $tools >/dev/null
}

# tests NAME AT_ONCE TIMEOUT PACKAGES... runs the tests of packages, AT_ONCE in
# parallel. "go vet" is left to the linters of verify.sh, which run all of it, and
# no debugger reads these binaries. A failed test is repeated once: testcount reports it as flaky if it
# passes then.
tests() {
	local name=$1 at_once=$2 timeout=$3
	shift 3
	(($#)) || return 0
	printf 'test: %s, %d packages\n' "$name" $#
	"$("$here/tools/build.sh" gotestsum)" ${REPORT:+--junitfile "$REPORT/$name.xml"} --format pkgname --format-hide-empty-pkg --hide-summary skipped \
		--rerun-fails=1 --packages "$*" --jsonfile "$results/$name.json" -- -vet=off -ldflags="-s -w" -count=1 -p "$at_once" -timeout "$timeout"
}

# longest_first puts the packages first that take longest, so that none of them
# runs alone at the end.
longest_first() {
	local longest='/(controllers/(controlplane|machine|modules)|providers/(vsphere|proxmox|zvirt)|test/(hostile|manifests|suites/(tenant|modules|gitops|controlplane)))$'
	grep -E "$longest" <<<"$1"
	grep -vE "$longest" <<<"$1"
}

failed=0
cat ${CHECKS:+"$CHECKS"} </dev/null >"$results/checks"
if ! packages=$(go list ./...) || ! prepare "$@"; then
	failed=1
	echo fail >>"$results/checks"
else
	for part in "$@"; do
		case $part in
		# shellcheck disable=SC2046 # a list of words
		unit) tests unit "$unit_at_once" 25m $(longest_first "$(grep -vE "$host_packages" <<<"$packages")") || failed=1 ;;
		# shellcheck disable=SC2046 # a list of words
		hosts) tests hosts "$hosts_at_once" "$hosts_timeout" $(longest_first "$(grep -E "$host_packages" <<<"$packages")") || failed=1 ;;
		e2e) (cd e2e && tests e2e 1 "$hosts_timeout" ./...) || failed=1 ;;
		older) NOVA_SYSTEM=debian-12 tests older 1 "$hosts_timeout" ./test/suites/{bootstrap,renderers,schema,ovirtguests,proxmoxguests} || failed=1 ;;
		*)
			echo "test.sh: unknown part \"$part\"" >&2
			exit 2
			;;
		esac
	done
fi
printf 'test: %d s\n' $((SECONDS - started))

shopt -s nullglob
go run ./hack/testcount ${REPORT:+-table "$REPORT/summary.md"} -checks "$results/checks" "$results"/*.json || failed=1
exit $failed
