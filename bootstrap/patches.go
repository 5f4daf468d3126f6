package bootstrap

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"

	"sigs.k8s.io/yaml"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

// Kinds of kubeadm's configuration documents.
const (
	// kubeadm reads InitKind and KubeProxyKind only on init.
	InitKind      = "InitConfiguration"
	KubeProxyKind = "KubeProxyConfiguration"
	// ClusterKind is the document that kubeadm stores in the cluster.
	ClusterKind = "ClusterConfiguration"
	// kubeletKind is the only kind whose patch also applies to a joining
	// machine.
	kubeletKind = "KubeletConfiguration"
)

const (
	// coreDNSMinor is the first minor version whose kubeadm patches CoreDNS.
	coreDNSMinor = 32
	// coreDNSPatch lets names resolve as soon as CoreDNS serves. It starts before
	// kube-proxy has written its rules, so that its first probe fails, and the next one
	// would come 10 seconds later. The time after which a pod is not ready stays the same.
	coreDNSPatch = `{"spec":{"template":{"spec":{"containers":[{"name":"coredns","readinessProbe":{"periodSeconds":2,"failureThreshold":15}}]}}}}` + "\n"
)

// kubeletPatch returns the kubelet settings of this machine only, or nothing. A
// joining machine gets its kubelet's settings from the cluster, so the user's
// patch of KubeletConfiguration is applied as a kubeadm patch. Our settings
// must not be stored in the cluster's configuration, as other machines may lack
// the file; the user's settings take precedence.
func kubeletPatch(in *Input) (map[string]json.RawMessage, error) {
	patch := map[string]json.RawMessage{}
	if len(in.Platform.DNS.Nodes.Servers) > 0 {
		patch["resolvConf"] = json.RawMessage(`"` + resolvConf + `"`)
	} else if in.Mode == Init {
		return patch, nil
	}
	for _, p := range in.Spec.Kubeadm.ConfigPatches {
		if p.Kind != kubeletKind {
			continue
		}
		content, err := toObject(configPatchField(p), p.Patch)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(content, &patch); err != nil {
			return nil, fmt.Errorf("reading patch of %s: %w", p.Kind, err)
		}
	}
	return patch, nil
}

// addPatches adds the patches that kubeadm applies to the components it deploys.
func addPatches(in *Input, config *nodeconfig.Config) error {
	files, err := patchFiles(in)
	config.Machine.Files = append(config.Machine.Files, files...)
	return err
}

func patchFiles(in *Input) ([]nodeconfig.File, error) {
	var files []nodeconfig.File
	kubelet, err := kubeletPatch(in)
	if err != nil {
		return nil, err
	}
	if len(kubelet) > 0 {
		content, err := json.Marshal(kubelet)
		if err != nil {
			return nil, fmt.Errorf("writing patch of %s: %w", kubeletKind, err)
		}
		files = append(files, newFile(path.Join(patchesDir, "kubeletconfiguration+merge.json"), "0600", append(content, '\n')))
	}
	if in.Mode == Init && minorOf(in.Version) >= coreDNSMinor {
		// kubeadm applies patches in the order of their names: those of the user are last.
		files = append(files, newFile(path.Join(patchesDir, "corednsdeployment+strategic.json"), "0600", []byte(coreDNSPatch)))
	}
	for i, p := range in.Spec.Kubeadm.Patches {
		content, err := yaml.YAMLToJSON([]byte(p.Patch))
		if err != nil {
			return nil, renderErrorf(fmt.Sprintf("spec.kubeadm.patches[%d]", i), "is not YAML or JSON: %s", yamlProblem(err))
		}
		name := fmt.Sprintf("%s%02d+%s.json", p.Target, i, cmp.Or(p.Type, "strategic"))
		files = append(files, newFile(path.Join(patchesDir, name), "0600", append(content, '\n')))
	}
	return files, nil
}

// addPatchesDir sets the folder of patches, if there are any.
func addPatchesDir(in *Input, content map[string]any) {
	files, err := patchFiles(in)
	if err != nil || len(files) == 0 {
		return // a malformed patch is reported where its file is written
	}
	content["patches"] = map[string]any{"directory": patchesDir}
}
