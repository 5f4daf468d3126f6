package bed

import (
	"context"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// The names of Cluster API's own managers in a bed.
const (
	// CoreManager runs in every bed.
	CoreManager = "capi-core"
	// KubeadmBootstrap is the manager of KubeadmConfigs.
	KubeadmBootstrap = "capi-kubeadm-bootstrap"
	// KubeadmControlPlane is the manager of KubeadmControlPlanes.
	KubeadmControlPlane = "capi-kubeadm-control-plane"
	// InMemory is the manager of DevClusters and DevMachines, whose API
	// servers, etcd members and nodes are only pretended, all in this one
	// process. It pretends any number of control planes.
	InMemory = "capd"
	// CAPV is the manager of Cluster API's own provider for vSphere.
	CAPV = "capv"
	// CAPK is the manager of Cluster API's provider for KubeVirt.
	CAPK = "capk"
)

// KubeadmProviders are Cluster API's own bootstrap and control plane managers,
// for those who want them beside or instead of this project's: they go into
// Options.Providers.
func KubeadmProviders() []string { return []string{KubeadmBootstrap, KubeadmControlPlane} }

// capiManager contains the differences between Cluster API's managers.
type capiManager struct {
	// tool is the folder of hack/tools that pins its module, where that is not
	// Cluster API itself as this project has it.
	tool, module string
	// dir is where its components are in the module.
	dir string
	// webhooks is the port of its webhooks: where each pod would have an
	// address of its own, all share one network namespace.
	webhooks int
}

func capiManagers() map[string]capiManager {
	return map[string]capiManager{
		CoreManager:         {dir: "core", webhooks: 9443},
		KubeadmBootstrap:    {dir: "bootstrap/kubeadm", webhooks: 9444},
		KubeadmControlPlane: {dir: "controlplane/kubeadm", webhooks: 9445},
		InMemory:            {tool: "components", module: "sigs.k8s.io/cluster-api/test", dir: "infrastructure/docker", webhooks: 9446},
		CAPK:                {tool: "capk", module: "sigs.k8s.io/cluster-api-provider-kubevirt", webhooks: 9448},
		CAPV:                {tool: "capv", module: "sigs.k8s.io/cluster-api-provider-vsphere", webhooks: 9447},
	}
}

func isCAPI(name string) bool {
	_, is := capiManagers()[name]
	return is
}

// capiAmong are the managers of Cluster API among names, the core manager
// always.
func capiAmong(names []string) []string {
	among := []string{CoreManager}
	for _, name := range names {
		if isCAPI(name) && !slices.Contains(among, name) {
			among = append(among, name)
		}
	}
	return among
}

// components is the kustomization of the manager's components.
func (m capiManager) components(ctx context.Context) (string, error) {
	find := func() (string, error) { return tools.ModuleDir(ctx, "sigs.k8s.io/cluster-api") }
	if m.tool != "" {
		find = func() (string, error) { return tools.ToolDir(ctx, m.tool, m.module) }
	}
	dir, err := find()
	return filepath.Join(dir, filepath.FromSlash(m.dir), "config", "default"), err
}

// server is where the API server calls the manager's webhooks. There is no
// pod network in the management cluster, so it is given an address where the
// manifests name a Service.
func (m capiManager) server(port func(int) int) string {
	return "https://" + loopback(port(m.webhooks))
}

// flags let the manager serve its webhooks there.
func (m capiManager) flags(l layout, port func(int) int) []string {
	return []string{"--webhook-port=" + strconv.Itoa(port(m.webhooks)), "--webhook-cert-dir=" + l.path("pki", "webhook")}
}
