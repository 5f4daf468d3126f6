package follow

import (
	"context"
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

// changeComponents changes the API server, the controller manager and the
// scheduler of a control plane node. kubeadm reads their settings from the cluster
// and replaces the manifests that differ, one after another. If a component does
// not become ready, kubeadm restores its manifest.
func changeComponents(ctx context.Context, m *machine.Machine, former []*nodeconfig.Settings, s *nodeconfig.Settings) error {
	if s.Components == "" || !changed(componentSettings, former, s) {
		return nil
	}
	m.Logf("Changing the control plane components")
	// The version, etcd and the certificates are those of the first boot.
	args := []string{"kubeadm", "upgrade", "node", "phase", "control-plane", "--etcd-upgrade=false", "--certificate-renewal=false"}
	return m.Run(ctx, append(args, patchesArgs(m)...)...)
}

// componentSettings are the settings from which kubeadm makes the manifests.
func componentSettings(s *nodeconfig.Settings) any {
	var patches []nodeconfig.File
	for _, f := range filesBelow(&s.Machine, patchesDir+"/") {
		if !strings.HasPrefix(f.Path, kubeletPatchesPrefix) {
			patches = append(patches, f)
		}
	}
	return []any{s.Components, patches}
}

// patchesArgs returns the arguments for kubeadm's patches, if there are any.
func patchesArgs(m *machine.Machine) []string {
	if !m.Exists(patchesDir) {
		return nil
	}
	return []string{"--patches", m.At(patchesDir)}
}
