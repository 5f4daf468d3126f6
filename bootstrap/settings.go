package bootstrap

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

// maxSettings is the maximum size of the packed settings of a node: a Secret of
// the workload cluster contains them.
const maxSettings = 1<<20 - 8<<10

// Settings returns the desired settings of a node that has joined, packed, and
// their revision. They are those that a new machine with the same input has,
// without keys. A *RenderError means that the spec cannot be rendered.
func Settings(in Input) (packed []byte, revision string, err error) {
	if in.Mode == Init {
		return nil, "", fmt.Errorf("rendering settings: a running node has no mode %s", in.Mode)
	}
	if err := checkRoles(Roles(&in.Spec, in.Mode.controlPlane()), in.Mode.controlPlane()); err != nil {
		return nil, "", err
	}
	config := &nodeconfig.Config{}
	for _, part := range []func(*Input, *nodeconfig.Config) error{addSettings, addComponents} {
		if err := part(&in, config); err != nil {
			return nil, "", err
		}
	}
	settings := &nodeconfig.Settings{
		Node: in.Machine, Machine: nodeconfig.WithoutKeys(config.Machine), Kubelet: config.Kubelet, Components: config.Components, Hardware: in.Hardware,
		Kubernetes: Programs(&in),
	}
	if settings.Components != "" {
		settings.ComponentsVersion, settings.RenewCertificates = in.Version, in.RenewCertificates
	}
	settings.Authorities = in.Authorities
	if in.Keyless && in.Mode.controlPlane() {
		if settings.Certificates, err = certificates(&in); err != nil {
			return nil, "", err
		}
	}
	packed, revision, err = settings.Pack()
	if errors.Is(err, nodeconfig.ErrTooLarge) {
		return nil, "", renderErrorf("spec.files", "%v; download large files with a command", err)
	}
	if err != nil {
		return nil, "", fmt.Errorf("rendering settings: %w", err)
	}
	if len(packed) > maxSettings {
		return nil, "", renderErrorf("spec.files", "the node's settings have %d KiB, the limit is %d KiB; download large files with a command", len(packed)>>10, maxSettings>>10)
	}
	return packed, revision, nil
}

// Programs returns where a node downloads the programs of its version. They
// are empty if the platform does not have the version.
func Programs(in *Input) nodeconfig.Kubernetes {
	for _, p := range in.Platform.KubernetesPrograms {
		if p.Version == in.Version {
			return nodeconfig.Kubernetes{Version: p.Version, IgnorePreflightErrors: in.Spec.Kubeadm.IgnorePreflightErrors, Programs: []nodeconfig.Program{
				{Name: "kubeadm", URL: p.Kubeadm.URL, SHA256: p.Kubeadm.SHA256},
				{Name: "kubelet", URL: p.Kubelet.URL, SHA256: p.Kubelet.SHA256},
				{Name: "kubectl", URL: p.Kubectl.URL, SHA256: p.Kubectl.SHA256},
			}}
		}
	}
	return nodeconfig.Kubernetes{}
}

// addComponents adds a hash of the settings of control plane components, which
// kubeadm reads from the cluster.
func addComponents(in *Input, config *nodeconfig.Config) error {
	if !in.Mode.controlPlane() {
		return nil
	}
	content, err := ClusterConfiguration(in)
	if err != nil {
		return err
	}
	const length = 6
	sum := sha256.Sum256(content)
	config.Components = hex.EncodeToString(sum[:length])
	return nil
}

// addKubelet adds the arguments of the kubelet that kubeadm's configuration
// contains too.
func addKubelet(in *Input, config *nodeconfig.Config) error {
	args, err := kubeletArgs(in)
	if err != nil {
		return err
	}
	for _, a := range args {
		if fields, is := a.(map[string]any); is {
			config.Kubelet.Args = append(config.Kubelet.Args, nodeconfig.Setting{Name: fmt.Sprint(fields["name"]), Value: fmt.Sprint(fields["value"])})
		}
	}
	return nil
}
