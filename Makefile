# The commands for development and releases. "make help" lists them.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

# The folder in which tools, images and the base of hosts are kept between runs.
export NOVA_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/cluster-api-provider-nova
# A Go in its usual folder is found even if it is not on PATH.
export PATH := $(PATH):/usr/local/go/bin

# The hypervisor that quickstart simulates: vsphere, zvirt or proxmox.
HYPERVISOR ?= vsphere
# Where the keys of the CAs of a cluster are: managed, or starvault.
PKI ?= managed
# The version of Kubernetes in a node image, and its system, one of hack/image/systems.tsv.
KUBERNETES ?= v1.36.3
SYSTEM ?= debian-13

GO_CHECK = . hack/ensure-go.sh

##@ Try it

.PHONY: quickstart
quickstart: ## Create a workload cluster on HYPERVISOR, vsphere, zvirt or proxmox: ARGS="--output json" (root, Linux)
	@hack/novabed.sh quickstart --hypervisor $(HYPERVISOR) --pki $(PKI) $(ARGS)

.PHONY: quickstart-shell
quickstart-shell: ## Run a shell with kubectl and clusterctl for both clusters of quickstart
	@hack/novabed.sh shell

.PHONY: quickstart-page
quickstart-page: ## Serve the fleet page of quickstart at http://127.0.0.1:8088 until Ctrl-C
	@hack/novabed.sh page $(ARGS)

.PHONY: quickstart-down
quickstart-down: ## Delete the environment of quickstart, also after a crash
	@hack/novabed.sh down

.PHONY: demo
demo: ## Run the managers with simulated HYPERVISOR and nodes until Ctrl-C, without root: ARGS=--exit (Linux)
	@hack/novabed.sh demo --hypervisor $(HYPERVISOR) $(ARGS)

.PHONY: demo-down
demo-down: ## Delete what a demo left that crashed
	@hack/novabed.sh down --name demo

.PHONY: recording
recording: ## Record quickstart for the README: docs/quickstart.cast and .svg (root, Linux)
	@hack/recording.sh quickstart "make quickstart HYPERVISOR=$(HYPERVISOR)"

##@ Develop

.PHONY: build
build: ## Build the managers to bin/
	@$(GO_CHECK); mkdir -p bin; CGO_ENABLED=0 go build -trimpath -o bin/ ./cmd/...; ls bin

.PHONY: generate
generate: ## Generate deep copies and CRDs from the API types
	@hack/generate.sh

.PHONY: components
components: ## Write the components for clusterctl to bin/components
	@hack/components.sh bin/components

.PHONY: release
release: ## Make a release in out/: VERSION, or the tag of this commit; REGISTRY, URL, KEY
	@hack/release.sh out "$(or $(VERSION),$(shell git describe --tags --exact-match 2>/dev/null))"

.PHONY: publish
publish: ## Push the images in out/ to REGISTRY, and the files for clusterctl to URL: CA=FILE of the servers
	@hack/publish.sh out

.PHONY: bundle
bundle: ## Make one file from the release in out/, for a closed network: VERSION, CERT_MANAGER=FILE, CHARTS=FOLDER
	@hack/bundle.sh out "$(VERSION)" "out/nova-$(VERSION).tar.zst"

.PHONY: node-image
node-image: ## Make a node image in out/: KUBERNETES, SYSTEM (root, Linux)
	@hack/node-image.sh out "$(SYSTEM)" "$(KUBERNETES)"

.PHONY: docs-site
docs-site: ## Build the documents as a static site with search to out/site: VERSION, main unless set
	@hack/site.sh out/site "$(or $(VERSION),main)"

.PHONY: lint
lint: ## Run the linters of .golangci.yml
	@hack/lint.sh

##@ Test

.PHONY: verify
verify: ## Check generated files, modules, manifests, documents and lint
	@hack/verify.sh $(RESULTS)

.PHONY: test
test: ## Run all tests: units, API servers, then hosts (root, Linux)
	@CHECKS="$(CHECKS)" hack/test.sh

.PHONY: test-unit
test-unit: ## Run the tests that boot no hosts
	@hack/test.sh unit

.PHONY: race
race: ## Run the tests of libraries, rendering, decisions and drivers under the race detector
	@$(GO_CHECK); hack/ensure-packages.sh gcc=build-essential; hack/tools/build.sh etcd kube-apiserver >/dev/null; \
		CGO_ENABLED=1 go test -race -timeout 60m ./internal/... ./controllers/controlplane/plan ./bootstrap/... ./modules/... ./providers/...

.PHONY: catalogue
catalogue: ## Render and check every module of the catalogue: CHARTS=FOLDER, RECORD=1 writes the facts
	@$(GO_CHECK); cd hack/tools/catalogue; go run . -charts "$(abspath $(CHARTS))" $(if $(RECORD),-record)

.PHONY: fuzz
fuzz: ## Fuzz each parser of untrusted input for FUZZTIME, 60s unless set
	@hack/fuzz.sh "$(or $(FUZZTIME),60s)"

.PHONY: vulncheck
vulncheck: ## Look for known vulnerabilities in the managers: GOVULNDB=URL of a mirror of vuln.go.dev
	@$(GO_CHECK); tool=$$(hack/tools/build.sh govulncheck); "$$tool" $(if $(GOVULNDB),-db "$(GOVULNDB)") ./cmd/...

.PHONY: e2e
e2e: ## Run Cluster API's specs and all suites on every hypervisor, report to _artifacts/report (root, Linux)
	@NOVA_SUITES=full REPORT=_artifacts/report hack/test.sh e2e hosts
	@hack/test.sh older

.PHONY: hostile
hostile: ## Run the attacks of each untrusted party (root, Linux)
	@hack/hostile.sh $(ARGS)

.PHONY: release-test
release-test: ## Build, sign, publish, install and upgrade releases in a test environment (root, Linux)
	@hack/release-test.sh $(ARGS)

.PHONY: chaos
chaos: ## Kill random components of a cluster: SEED=1 DURATION=30m (root, Linux)
	@$(GO_CHECK); go run ./test/cmd/chaos --seed $(or $(SEED),1) --duration $(or $(DURATION),30m) $(ARGS)

.PHONY: site-check
site-check: ## Check the prerequisites of a real vCenter or engine, read-only: SERVER=vcenter.example.com ARGS=…
	@$(GO_CHECK); go run ./test/cmd/sitecheck --server "$(SERVER)" $(ARGS)

.PHONY: bench-vsphere
bench-vsphere: ## Count the requests per machine to a vCenter (root, Linux)
	@$(GO_CHECK); go run ./test/cmd/novabed bench $(ARGS)

.PHONY: bench-zvirt
bench-zvirt: ## Count the requests per machine to an oVirt engine (root, Linux)
	@$(GO_CHECK); go run ./test/cmd/novabed bench-zvirt $(ARGS)

.PHONY: bench-proxmox
bench-proxmox: ## Count the requests per machine to a Proxmox VE cluster (root, Linux)
	@$(GO_CHECK); go run ./test/cmd/novabed bench-proxmox $(ARGS)

.PHONY: bench-vsphere-compare
bench-vsphere-compare: ## Measure this provider and CAPV against the same vCenter (root, Linux)
	@$(GO_CHECK); go run ./test/cmd/vspherecompare $(ARGS)

.PHONY: bench-controlplane
bench-controlplane: ## Measure clusters of this control plane and of KubeadmControlPlane (root, Linux)
	@$(GO_CHECK); go run ./test/cmd/novabed bench-controlplane $(ARGS)

.PHONY: rotate-test
rotate-test: ## Replace the CAs of a cluster on hosts, and count the requests that fail meanwhile (root, Linux)
	@$(GO_CHECK); go run ./test/cmd/novabed rotate $(ARGS)

.PHONY: bench-inplace
bench-inplace: ## Measure upgrades of a cluster, in place and by replacement (root, Linux)
	@$(GO_CHECK); go run ./test/cmd/novabed bench-inplace $(ARGS)

.PHONY: bench-fleet
bench-fleet: ## Measure 200 control planes of both kinds on simulated machines (root, Linux)
	@$(GO_CHECK); go run ./test/cmd/novabed bench-fleet $(ARGS)

.PHONY: bench-modules
bench-modules: ## Measure the add-on provider with many clusters
	@$(GO_CHECK); go run ./test/cmd/modulesbench $(ARGS)

.PHONY: bench-starvault
bench-starvault: ## Count the requests of 100 clusters to a StarVault
	@$(GO_CHECK); go run ./test/cmd/starvaultbench $(ARGS)

.PHONY: ovirtsim-conformance
ovirtsim-conformance: ## Test the oVirt simulator with a client's own live suite
	@$(GO_CHECK); hack/ovirtsim-conformance.sh

##@ Tidy up

.PHONY: clean
clean: ## Delete the build results in the work tree; the cache stays
	@rm -rf bin out

.PHONY: prune
prune: ## Delete tools and images of hosts in NOVA_CACHE that this commit does not use
	@hack/prune.sh

.PHONY: help
help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "} \
		/^##@ / {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z0-9-]+:.*## / {printf "  %-22s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
