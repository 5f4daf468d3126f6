#!/usr/bin/env bash
# Builds the named tools at the versions pinned in the modules beside this
# script and prints one path per line, in the order of the arguments.
#
#   hack/tools/build.sh kubelet kubeadm
#   hack/tools/build.sh kubelet@v1.35.4
#   hack/tools/build.sh --folders
#
# --folders builds nothing and prints the folder of the cache for each module.
#
# A program of Kubernetes has the version of workload clusters, unless another
# version follows its name.
#
# A binary is stored in $NOVA_CACHE/tools/<module>-<hash of go.mod, go.sum and
# sources>/, so a second call builds nothing and a changed pin causes a new build.
# Progress is written to stderr, one line for each module.
#
# Go compiles a package again for each version of a package below it. So programs
# that can share versions are in one module, components, and everything is
# compiled with the flags of hack/ensure-go.sh. Kubernetes and etcd keep the
# versions of their releases, because tests judge this project by them.
#
# The missing tools of a module are built by one "go build", and two callers build
# two modules at the same time.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${NOVA_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/cluster-api-provider-nova}/tools
# kubernetes_flags sets the linker's flags for a version of Kubernetes, which
# refuses to start components that do not know their own.
kubernetes_flags() {
	local package minor=${1#v1.}
	flags="-X k8s.io/component-base/version.gitTreeState=clean"
	for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
		flags+=" -X $package.gitVersion=$1 -X $package.gitMajor=1 -X $package.gitMinor=${minor%%.*}"
	done
}
capi_flags="-X sigs.k8s.io/cluster-api/version.gitVersion=v1.14.2 -X sigs.k8s.io/cluster-api/version.gitMajor=1 -X sigs.k8s.io/cluster-api/version.gitMinor=14 -X sigs.k8s.io/cluster-api/version.gitTreeState=clean"
capv_flags="-X sigs.k8s.io/cluster-api-provider-vsphere/pkg/version.gitVersion=v1.16.1"

# version prints the version of a Go module that a module here pins.
version() {
	sed -nE "s|^(require)?[[:space:]]*$2 (v[^ ]*).*|\2|p" "$here/$1/go.mod"
}

# locate sets module, package, flags and build tags of a tool, whether it needs
# C, and files that are added to its source or replace some: for each the Go module,
# the path in it, and the file here. A file of sed changes the file at the path.
locate() {
	flags= tags= cgo=0 adds=()
	case $1 in
	kube-apiserver | kube-controller-manager | kube-scheduler | kube-proxy | kubelet | kubeadm | kubectl)
		module=kubernetes package=k8s.io/kubernetes/cmd/$1
		kubernetes_flags v1.36.3 ;;
	kube*@v1.35.4)
		module=kubernetes-1.35 package=k8s.io/kubernetes/cmd/${1%@*}
		kubernetes_flags "${1#*@}" ;;
	kube*@v1.37.0)
		module=kubernetes-1.37 package=k8s.io/kubernetes/cmd/${1%@*}
		kubernetes_flags "${1#*@}" ;;
	etcd) module=etcd package=go.etcd.io/etcd/server/v3 ;;
	etcdutl) module=etcd package=go.etcd.io/etcd/etcdutl/v3 ;;
	containerd | containerd-shim-runc-v2 | ctr) module=containerd package=github.com/containerd/containerd/v2/cmd/$1
		flags="-X github.com/containerd/containerd/v2/version.Version=$(version containerd github.com/containerd/containerd/v2)" ;;
	versitygw) module=versitygw package=github.com/versity/versitygw/cmd/versitygw ;;
	capi-core) module=components package=sigs.k8s.io/cluster-api/core flags=$capi_flags ;;
	capi-kubeadm-bootstrap) module=components package=sigs.k8s.io/cluster-api/bootstrap/kubeadm flags=$capi_flags ;;
	capi-kubeadm-control-plane) module=components package=sigs.k8s.io/cluster-api/controlplane/kubeadm flags=$capi_flags ;;
	capd) module=components package=./inmemory flags=$capi_flags ;;
	capi-operator) module=operator package=sigs.k8s.io/cluster-api-operator/cmd ;;
	clusterctl) module=components package=sigs.k8s.io/cluster-api/cmd/clusterctl flags=$capi_flags ;;
	capv) module=capv package=sigs.k8s.io/cluster-api-provider-vsphere flags=$capv_flags ;;
	capk) module=capk package=sigs.k8s.io/cluster-api-provider-kubevirt ;;
	govc) module=components package=./govc ;;
	terraform) module=terraform package=github.com/hashicorp/terraform ;;
	terraform-provider-vsphere) module=terraform-provider-vsphere package=github.com/hashicorp/terraform-provider-vsphere ;;
	coredns) module=components package=github.com/coredns/coredns ;;
	source-controller | kustomize-controller | helm-controller) module=components package=github.com/fluxcd/$1 ;;
	sops) module=components package=github.com/getsops/sops/v3/cmd/sops ;;
	age-keygen) module=components package=filippo.io/age/cmd/age-keygen ;;
	# It needs libblkid, which is C. A static program runs on any host. Flatcar's
	# does not relabel files for SELinux either.
	ignition) module=ignition package=github.com/coreos/ignition/v2/internal cgo=1
		flags="-X github.com/coreos/ignition/v2/internal/version.Raw=v2.23.0 -X github.com/coreos/ignition/v2/internal/distro.selinuxRelabel=false -linkmode external -extldflags '-static -Wl,--no-warnings'" ;;
	kwok) module=kwok package=sigs.k8s.io/kwok/cmd/kwok ;;
	kube-vip) module=components package=github.com/kube-vip/kube-vip ;;
	# Programs of the catalogue's modules.
	local-path-provisioner) module=addons package=github.com/rancher/local-path-provisioner ;;
	kube-state-metrics) module=monitoring package=k8s.io/kube-state-metrics/v2 ;;
	prometheus-operator | prometheus-operator@*) module=monitoring package=github.com/prometheus-operator/prometheus-operator/cmd/operator ;;
	prometheus-config-reloader | prometheus-config-reloader@*) module=monitoring package=github.com/prometheus-operator/prometheus-operator/cmd/prometheus-config-reloader ;;
	# In a workload cluster it finds its targets through the Kubernetes API only.
	prometheus) module=monitoring package=github.com/prometheus/prometheus/cmd/prometheus tags=remove_all_sd,enable_kubernetes_sd ;;
	# It embeds pages that are built with npm and Elm and that its module lacks.
	alertmanager | alertmanager@*) module=monitoring package=github.com/prometheus/alertmanager/cmd/alertmanager
		adds=(github.com/prometheus/alertmanager ui/app/dist/README.md monitoring/alertmanager/README.md) ;;
	# It requires a version of kube-openapi that does not exist: go.mod has its replacement.
	descheduler | descheduler@*) module=monitoring package=sigs.k8s.io/descheduler/cmd/descheduler ;;
	# KEDA's own pins of Kubernetes 0.35 would compile its libraries again. Its adapter needs a newer
	# custom-metrics-apiserver for the shared ones; KEDA does not compile with a newer Prometheus.
	keda | keda@*) module=keda package=github.com/kedacore/keda/v2/cmd/operator ;;
	keda-adapter | keda-adapter@*) module=keda package=github.com/kedacore/keda/v2/cmd/adapter ;;
	keda-admission-webhooks | keda-admission-webhooks@*) module=keda package=github.com/kedacore/keda/v2/cmd/webhooks ;;
	metrics-server) module=addons package=sigs.k8s.io/metrics-server/cmd/metrics-server ;;
	cert-manager-controller* | cert-manager-webhook* | cert-manager-cainjector* | cert-manager-startupapicheck*) module=cert-manager package=./${1%@*} ;;
	metallb-controller | metallb-speaker) module=metallb package=go.universe.tf/metallb/${1#metallb-} ;;
	# The replaced package links the clients of 25 DNS services.
	external-dns) module=external-dns package=sigs.k8s.io/external-dns
		adds=(sigs.k8s.io/external-dns provider/factory/provider.go external-dns/factory/factory.go) ;;
	traefik | traefik@*) module=traefik package=github.com/traefik/traefik/v3/cmd/traefik ;;
	golangci-lint) module=lint package=./golangci-lint ;;
	controller-gen) module=generate package=sigs.k8s.io/controller-tools/cmd/controller-gen ;;
	crd-ref-docs) module=reference package=github.com/elastic/crd-ref-docs ;;
	cyclonedx-gomod) module=release package=github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod ;;
	nova-release) module=release package=./novarelease ;;
	cosign) module=cosign package=./cosign ;;
	csi-sanity) module=csi package=github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity ;;
	registry) module=registry package=./registry ;;
	# Two servers with the API of StarVault.
	vault) module=vault package=./vault
		adds=(github.com/hashicorp/vault/sdk framework/backend.go vault/backend.sed
			github.com/hashicorp/go-discover discover.go vault/discover.sed) ;;
	bao) module=openbao package=github.com/openbao/openbao
		adds=(github.com/hashicorp/go-discover discover.go openbao/discover.sed) ;;
	gotestsum) module=generate package=gotest.tools/gotestsum ;;
	# It only tests rules here; the discovery of targets in clouds would take
	# minutes to build.
	promtool) module=components package=github.com/prometheus/prometheus/cmd/promtool tags=remove_all_sd ;;
	govulncheck) module=security package=golang.org/x/vuln/cmd/govulncheck ;;
	licenses) module=security package=./licenses ;;
	promnames) module=components package=./promnames ;;
	promquery) module=monitoring package=./promquery ;;
	*)
		echo "build.sh: unknown tool \"$1\"" >&2
		exit 2
		;;
	esac
	# Another version of a module's program, which a test upgrades.
	[[ $1 != *@* || $module == kubernetes-* ]] || module+=-previous
}

# folder prints where the tools of a module are cached.
folder() {
	printf '%s/%s-%s\n' "$cache" "$1" "$(cd "$here/$1" && find -L . -type f | sort | xargs sha256sum | sha256sum | cut -c1-12)"
}

# path prints where a tool is cached.
path() {
	locate "$1"
	printf '%s/%s\n' "$(folder "$module")" "${1%@*}"
}

# without_dns writes a copy of lego without its clients of DNS services, which are
# most of the source of Traefik, and a go.mod that uses the copy, to a folder.
without_dns() {
	local lego=github.com/go-acme/lego/v5
	rm -rf "$1"
	mkdir -p "$1"
	go mod download $lego
	cp -r "$(go list -m -f '{{.Dir}}' $lego)" "$1/lego"
	chmod -R u+w "$1/lego"
	rm -r "$1"/lego/providers/dns/*
	cp dns/dns.go "$1/lego/providers/dns/"
	cp go.mod go.sum "$1"
	echo "replace $lego => $1/lego" >>"$1/go.mod"
}

# with_files copies the source of the Go modules of adds, with the new or changed
# files of adds, and writes a go.mod that replaces the modules with the copies.
with_files() {
	local i source copy
	cp go.mod "$1.mod"
	cp go.sum "$1.sum"
	for ((i = 0; i < ${#adds[@]}; i += 3)); do
		copy=$1/${adds[i]}
		go mod download "${adds[i]}"
		source=$(go list -mod=readonly -m -f '{{.Dir}}' "${adds[i]}")
		mkdir -p "$(dirname "$copy")"
		cp -r --no-preserve=mode "$source" "$copy"
		if [[ ${adds[i + 2]} != *.sed ]]; then
			install -D -m 0644 "$here/${adds[i + 2]}" "$copy/${adds[i + 1]}"
		else
			sed -i -f "$here/${adds[i + 2]}" "$copy/${adds[i + 1]}"
			if cmp -s "$source/${adds[i + 1]}" "$copy/${adds[i + 1]}"; then
				echo "build.sh: ${adds[i + 2]} changes nothing in ${adds[i]}" >&2
				exit 1
			fi
		fi
		go mod edit -replace "${adds[i]}=$copy" "$1.mod"
	done
}

# name prints the name that "go build" gives the program of a package.
name() {
	sed -E 's|/v[0-9]+$||; s|.*/||' <<<"$1"
}

# build puts tools of one module, with the same flags and tags, into the folder of
# the module: one "go build" reads the module once, and links while it compiles.
build() {
	local tool new arguments=(-mod=readonly) packages=()
	for tool; do
		locate "$tool"
		packages+=("$package")
	done
	new=$(folder "$module")/.new-$(name "$package")
	if ((cgo)); then
		"$here/../ensure-packages.sh" gcc=build-essential
		[[ -e /usr/include/blkid/blkid.h ]] || "$here/../ensure-packages.sh" libblkid-dev
	fi
	rm -rf "$new"*
	mkdir -p "$new"
	if [[ $module == traefik* ]]; then
		(cd "$here/$module" && without_dns "$new.source")
		# The go.sum in the repository has only what "go mod tidy" leaves there.
		arguments=(-mod=mod "-modfile=$new.source/go.mod")
	elif ((${#adds[@]})); then
		(cd "$here/$module" && with_files "$new.source")
		arguments=("-modfile=$new.source.mod")
	fi
	(cd "$here/$module" && GOFLAGS= CGO_ENABLED=$cgo go build "${arguments[@]}" -trimpath -buildvcs=false -tags "$tags" -ldflags "-s -w $flags" -o "$new/" "${packages[@]}") \
		2> >(grep -v '^go: downloading ' >&2)
	for tool; do
		locate "$tool"
		mv "$new/$(name "$package")" "$(path "$tool")"
	done
	rm -rf "$new"*
}

# remaining prints an estimate, as soon as one of the missing tools is built.
remaining() {
	((built)) || return 0
	printf ', about %d min left' $(((SECONDS * (total - built) / built + 59) / 60))
}

if [[ ${1:-} == --folders ]]; then
	for module in "$here"/*/; do
		folder "$(basename "$module")"
	done
	exit
fi
paths=() groups=()
# The missing tools that one "go build" can build, by the settings that they share.
declare -A members=()
for tool in "$@"; do
	paths+=("$(path "$tool")")
	[[ ! -x ${paths[-1]} ]] || continue
	locate "$tool"
	group="$module $flags $tags $cgo ${adds[*]}"
	# Two programs with one name need a folder each.
	while [[ " ${members[$group]:-} " == *" $(name "$package"):"* ]]; do
		group+=+
	done
	[[ -v members[$group] ]] || groups+=("$group")
	members[$group]+=" $(name "$package"):$tool"
done
if ((${#groups[@]})); then
	mkdir -p "$cache"
	built=0 total=$(wc -w <<<"${members[*]}") wait=--nonblock SECONDS=0
	while ((${#groups[@]})); do
		locked=()
		for group in "${groups[@]}"; do
			# One builder of a module at a time: two would compile the same packages. A builder
			# that finds a module locked builds the others first.
			exec 9>"$cache/.lock-${group%% *}"
			if ! flock $wait 9; then
				locked+=("$group")
				continue
			fi
			wait=--nonblock missing=()
			for member in ${members[$group]}; do
				[[ -x $(path "${member#*:}") ]] || missing+=("${member#*:}")
			done
			if ((${#missing[@]})); then
				printf 'tools: building %d/%d %s%s\n' $((built + 1)) "$total" "${missing[*]}" "$(remaining)" >&2
				build "${missing[@]}"
			fi
			built=$((built + $(wc -w <<<"${members[$group]}")))
			exec 9>&-
		done
		groups=("${locked[@]}") wait=
	done
	if ((total > 1)); then
		printf 'tools: built %d in %dm%ds\n' "$total" $((SECONDS / 60)) $((SECONDS % 60)) >&2
	fi
fi
printf '%s\n' "${paths[@]}"
