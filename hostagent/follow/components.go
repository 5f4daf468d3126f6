package follow

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/cluster"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

// changeComponents changes the API server, the controller manager and the
// scheduler of a control plane node. kubeadm reads their settings from the cluster
// and replaces the manifests that differ, one after another. If a component does
// not become ready, the manifests are restored.
func changeComponents(ctx context.Context, m *machine.Machine, client *cluster.Client, former []*nodeconfig.Settings, s *nodeconfig.Settings) error {
	if s.Components == "" || !changed(componentSettings, former, s) {
		return nil
	}
	m.Logf("Changing the control plane components")
	// An upgrade may have begun since the settings were stored.
	version, err := client.KubernetesVersion(ctx)
	if err != nil {
		return err
	}
	if version != s.ComponentsVersion {
		return fmt.Errorf("kubeadm would deploy version %s instead of %s", version, s.ComponentsVersion)
	}
	// etcd and the certificates are those of the first boot.
	args := []string{"kubeadm", "upgrade", "node", "phase", "control-plane", "--etcd-upgrade=false", "--certificate-renewal=false"}
	if err := keepManifests(ctx, m); err != nil {
		return err
	}
	err = m.Run(ctx, append(args, patchesArgs(m)...)...)
	if err == nil {
		err = waitForComponents(ctx, m, client, s.Node)
	}
	if err != nil {
		return errors.Join(err, restoreManifests(context.WithoutCancel(ctx), m))
	}
	return forgetManifests(ctx, m)
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
