package bootstrap

import (
	"bytes"
	"fmt"
	"strings"

	"k8s.io/utils/ptr"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

// maxNodeName is the maximum length of the label kubernetes.io/hostname,
// without which a kubelet does not start.
const maxNodeName = 63

// maxDocument is the maximum size of a document. It is the limit of a Secret;
// if a hypervisor has a lower limit, its driver rejects the document.
const maxDocument = 1<<20 - 1<<10

// Render returns the machine's document in the format of its spec. A
// *RenderError means that the spec cannot be rendered.
func Render(in Input) ([]byte, error) {
	if err := validate(&in); err != nil {
		return nil, err
	}
	config, err := nodeConfig(&in)
	if err != nil {
		return nil, err
	}
	write := cloudConfigDocument
	if in.Spec.GetFormat() == bootstrapv1.FormatIgnition {
		write = ignitionDocument
	}
	out, err := write(&in, config)
	if err != nil {
		return nil, err
	}
	if len(out) > maxDocument {
		return nil, renderErrorf("spec.files", "the machine's %s document has %d KiB, the limit is %d KiB; download large files with a command",
			in.Spec.GetFormat(), len(out)>>10, maxDocument>>10)
	}
	return out, nil
}

// nodeConfig returns the configuration of the machine's host agent.
func nodeConfig(in *Input) (*nodeconfig.Config, error) {
	config := &nodeconfig.Config{
		Node: nodeconfig.Node{
			Name: in.Machine, ControlPlane: in.Mode.controlPlane(), IPVersions: ipVersions(in.Network),
			Interface: in.Spec.NodeAddress.Interface, CIDRs: in.Spec.NodeAddress.CIDRs,
		},
		Follow: in.Follow,
	}
	for _, part := range []func(*Input, *nodeconfig.Config) error{addJoin, addKubeVIP, addRestore, addSettings, addConfigurationManager, addCertificates} {
		if err := part(in, config); err != nil {
			return nil, err
		}
	}
	if !in.Follow {
		config.Kubelet = nodeconfig.Kubelet{}
		return config, nil
	}
	config.Kubernetes = Programs(in)
	return config, addComponents(in, config)
}

// addSettings adds the settings of the machine, which also apply while it runs.
// The files of the user come last, so that they replace a file of ours at the same
// path.
func addSettings(in *Input, config *nodeconfig.Config) error {
	config.Machine = machineSettings(in)
	for _, part := range []func(*Input, *nodeconfig.Config) error{
		addPKI, addAuthentication, addBalancer, addPatches, addPlatform, addAccounts, addSnippets, addUserFiles, addKubelet,
	} {
		if err := part(in, config); err != nil {
			return err
		}
	}
	return nil
}

// validate rejects input from which no node can be created.
func validate(in *Input) error {
	if len(in.Machine) > maxNodeName {
		return renderErrorf("metadata.name", "the Machine's name %q, which is also the node's name, is longer than %d characters", in.Machine, maxNodeName)
	}
	if err := checkRoles(Roles(&in.Spec, in.Mode.controlPlane()), in.Mode.controlPlane()); err != nil {
		return err
	}
	if in.Mode == Init {
		return checkVersion(in.Version)
	}
	if in.Join == nil {
		return fmt.Errorf("rendering %s: no credentials to join with", in.Mode)
	}
	return nil
}

// oldestMinor is the oldest minor version of Kubernetes 1 whose kubeadm reads
// v1beta4.
const oldestMinor = 31

func checkVersion(version string) error {
	var major, minor, fix int
	if n, err := fmt.Sscanf(version, "v%d.%d.%d", &major, &minor, &fix); err != nil || n != 3 {
		return renderErrorf("spec.version", "the Machine's version %q is not a full Kubernetes version such as v1.36.3", version)
	}
	if major == 1 && minor < oldestMinor {
		return renderErrorf("spec.version", "Kubernetes %s is too old, v1.%d.0 is the oldest supported", version, oldestMinor)
	}
	return nil
}

// addJoin adds how the machine becomes a node.
func addJoin(in *Input, config *nodeconfig.Config) error {
	documents, err := kubeadmDocuments(in)
	if err != nil {
		return err
	}
	all := make([][]byte, 0, len(documents))
	for _, d := range documents {
		out, err := d.marshal()
		if err != nil {
			return err
		}
		all = append(all, out)
	}
	config.Join = nodeconfig.Join{
		Init:           in.Mode == Init,
		Endpoint:       "https://" + in.Endpoint.String(),
		Kubeadm:        string(bytes.Join(all, []byte("---\n"))),
		Verbosity:      int(ptr.Deref(in.Spec.Kubeadm.Verbosity, 0)),
		SkipPhases:     skipPhases(documents[0]),
		KubeProxy:      usesKubeProxy(in),
		ClusterSeconds: int(max(in.ClusterTimeout, in.Platform.GetJoinTimeout()).Seconds()),
		JoinSeconds:    int(in.Platform.GetJoinTimeout().Seconds()),
		Before:         in.Spec.PreKubeadmCommands,
		After:          in.Spec.PostKubeadmCommands,
	}
	if in.Mode == Init {
		return nil
	}
	kubeconfig, err := discoveryFile(in)
	config.Join.Kubeconfig = string(kubeconfig)
	return err
}

// ipVersions returns the IP versions of the cluster, the API server's first.
func ipVersions(network Network) []int {
	ranges := network.Services
	if len(ranges) == 0 {
		ranges = network.Pods
	}
	var versions []int
	for _, cidr := range ranges {
		version := 4
		if strings.Contains(cidr, ":") {
			version = 6
		}
		versions = append(versions, version)
	}
	if len(versions) == 0 {
		return []int{4}
	}
	return versions
}

// addPKI adds the certificates of a control plane machine.
func addPKI(in *Input, config *nodeconfig.Config) error {
	if !in.Mode.controlPlane() {
		return nil
	}
	for _, f := range in.PKI {
		config.Machine.Files = append(config.Machine.Files, newFile(f.Path, f.Permissions, f.Content))
	}
	return nil
}
