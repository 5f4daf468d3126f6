package bed

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nova-platform/cluster-api-provider-nova/test/bootdata"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// guestPrograms are the programs of simulated nodes, in addition to those of a
// management cluster.
var guestPrograms = []string{"kube-scheduler", "kwok"}

const (
	// guestInterval is the interval at which the VMs are listed.
	guestInterval = 500 * time.Millisecond
	// kwokAnnotation lets kwok play the kubelet of a Node.
	kwokAnnotation = "kwok.x-k8s.io/node"
	kwokValue      = "fake"
	// firstGuest is the last part of the address of the first node, and lastGuest
	// that of the last one.
	firstGuest, lastGuest = 100, 250
)

// Nodes plays the nodes of a workload cluster in a rootless bed. Each VM that
// runs reads its bootstrap data as cloud-init would and becomes a Node, whose
// kubelet kwok plays. A control plane node is a real API server and a real
// member of etcd.
type Nodes struct {
	bed        *Bed
	cluster    Cluster
	hypervisor Hypervisor
	plane      *plane
	// nodes are the VMs that were seen running, by name.
	nodes map[string]*node
}

// node is a VM that is to become a Node.
type node struct {
	name string
	// octet is the last part of its address.
	octet  byte
	joined bool
	// stopped is set when the VM ran before, and does not run any more.
	stopped bool
	member  *member
}

// outside is the address that the VM reports. It is of a network for
// documentation: hypervisors are not believed a loopback address.
func (n *node) outside() netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, n.octet}) }

// inside is the address of the node's servers.
func (n *node) inside() netip.Addr { return netip.AddrFrom4([4]byte{127, 77, 0, n.octet}) }

// SimulateNodes prepares to play the nodes of a workload cluster.
func (b *Bed) SimulateNodes(ctx context.Context, c Cluster) (*Nodes, error) {
	h, err := b.Hypervisor(c.Hypervisor)
	if err != nil {
		return nil, err
	}
	programs, err := tools.Paths(ctx, b.log, append([]string{"etcd", "kube-apiserver", "kube-controller-manager"}, guestPrograms...)...)
	if err != nil {
		return nil, err
	}
	return &Nodes{bed: b, cluster: c, hypervisor: h, plane: newPlane(b, c, programs), nodes: map[string]*node{}}, nil
}

// Run plays the nodes until the context ends. Failures of one round are
// reported to failed and tried again: a node retries too.
func (n *Nodes) Run(ctx context.Context, failed func(error)) error {
	if err := n.plane.balance(ctx); err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := n.round(ctx); err != nil && ctx.Err() == nil {
			failed(err)
		}
		if pause(ctx, guestInterval) != nil {
			break
		}
	}
	return nil //nolint:nilerr // the end of the context ends the simulation
}

// round brings all nodes to the state of their VMs.
func (n *Nodes) round(ctx context.Context) error {
	running, err := n.hypervisor.guests(ctx)
	if err != nil {
		return fmt.Errorf("listing VMs: %w", err)
	}
	machines := &clusterv1.MachineList{}
	if err := n.bed.Client.List(ctx, machines, client.InNamespace(n.cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: n.cluster.Name}); err != nil {
		return fmt.Errorf("listing machines: %w", err)
	}
	var errs []error
	now := map[string]bool{}
	for _, vm := range running {
		now[vm.vm] = true
		for i := range machines.Items {
			if m := &machines.Items[i]; m.Spec.InfrastructureRef.Name == vm.vm {
				errs = append(errs, n.play(ctx, vm, m))
			}
		}
	}
	for name := range maps.Clone(n.nodes) {
		if !now[name] {
			errs = append(errs, n.stop(ctx, name))
		}
	}
	return errors.Join(errs...)
}

// play does the next step of a VM that runs.
func (n *Nodes) play(ctx context.Context, vm guest, m *clusterv1.Machine) error {
	one := n.nodes[vm.vm]
	if one == nil {
		octet, err := n.free()
		if err != nil {
			return err
		}
		one = &node{name: vm.vm, octet: octet}
		if err := n.hypervisor.report(ctx, vm, one.outside()); err != nil {
			return err
		}
		n.nodes[vm.vm] = one
	}
	if one.stopped {
		return n.restart(ctx, vm, one)
	}
	if one.joined || m.Spec.ProviderID == "" || m.Spec.Bootstrap.DataSecretName == nil {
		return nil
	}
	boot, err := n.bootstrap(ctx, *m.Spec.Bootstrap.DataSecretName)
	if err != nil {
		return fmt.Errorf("reading bootstrap data of %s: %w", m.Name, err)
	}
	if err := n.join(ctx, one, m, boot); err != nil {
		return fmt.Errorf("joining %s: %w", m.Name, err)
	}
	one.joined = true
	return nil
}

// free returns the last part of an address that no VM has.
func (n *Nodes) free() (byte, error) {
	used := map[byte]bool{}
	for _, one := range n.nodes {
		used[one.octet] = true
	}
	for octet := firstGuest; octet <= lastGuest; octet++ {
		if !used[byte(octet)] {
			return byte(octet), nil
		}
	}
	return 0, fmt.Errorf("all %d addresses are in use", lastGuest-firstGuest+1)
}

// join makes a VM a node. Each step can be repeated.
func (n *Nodes) join(ctx context.Context, one *node, m *clusterv1.Machine, boot bootData) error {
	if util.IsControlPlaneMachine(m) {
		if one.member == nil {
			member, err := n.plane.add(ctx, one, boot)
			if err != nil {
				return err
			}
			one.member = member
		}
		if err := n.plane.ready(ctx, one.member); err != nil {
			return err
		}
		if err := n.plane.initialize(ctx, boot); err != nil {
			return err
		}
	}
	workload, err := n.plane.client()
	if err != nil {
		return err // the control plane comes first
	}
	if err := createOrKeep(ctx, workload, n.object(one, m, boot)); err != nil {
		return err
	}
	if one.member != nil {
		return n.plane.staticPods(ctx, one, m.Spec.Version)
	}
	return nil
}

// object is the Node that a kubelet would register.
func (n *Nodes) object(one *node, m *clusterv1.Machine, boot bootData) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        one.name,
			Labels:      map[string]string{corev1.LabelHostname: one.name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64"},
			Annotations: map[string]string{kwokAnnotation: kwokValue},
		},
		Spec: corev1.NodeSpec{ProviderID: m.Spec.ProviderID, Taints: boot.registration.Taints},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: one.inside().String()},
				{Type: corev1.NodeHostName, Address: one.name},
				// kwok plays all kubelets at one address.
				{Type: corev1.NodeInternalDNS, Address: RootlessEndpoint},
			},
			NodeInfo: corev1.NodeSystemInfo{
				KubeletVersion: m.Spec.Version,
				OSImage:        "simulated", OperatingSystem: "linux", Architecture: "amd64",
			},
		},
	}
	for _, argument := range boot.registration.KubeletExtraArgs {
		if argument.Name != "node-labels" {
			continue
		}
		for label := range strings.SplitSeq(argument.Value, ",") {
			key, value, _ := strings.Cut(label, "=")
			node.Labels[key] = value
		}
	}
	if one.member != nil {
		node.Labels["node-role.kubernetes.io/control-plane"] = ""
	}
	return node
}

// stop ends the programs of a VM that does not run any more. Its Node has no
// kubelet then; Cluster API deletes it with the machine.
func (n *Nodes) stop(ctx context.Context, name string) error {
	one := n.nodes[name]
	if one.stopped {
		return n.forget(ctx, one)
	}
	if one.member != nil {
		if err := n.plane.end(one.member); err != nil {
			return err
		}
	}
	one.stopped = true
	return n.kubelet(ctx, one, nil)
}

// forget frees the address of a VM that was deleted.
func (n *Nodes) forget(ctx context.Context, one *node) error {
	names, err := n.hypervisor.VMs(ctx)
	if err != nil {
		return fmt.Errorf("listing VMs: %w", err)
	}
	if !slices.Contains(names, one.name) {
		delete(n.nodes, one.name)
	}
	return nil
}

// restart starts the programs of a VM that was off.
func (n *Nodes) restart(ctx context.Context, vm guest, one *node) error {
	if err := n.hypervisor.report(ctx, vm, one.outside()); err != nil {
		return err
	}
	if one.member != nil {
		if err := n.plane.start(ctx, one.member); err != nil {
			return err
		}
	}
	one.stopped = false
	return n.kubelet(ctx, one, ptr.To(kwokValue))
}

// kubelet lets kwok play the kubelet of a node, or not.
func (n *Nodes) kubelet(ctx context.Context, one *node, value *string) error {
	workload, err := n.plane.client()
	if err != nil || !one.joined {
		return nil //nolint:nilerr // without an API server there is no Node to change
	}
	patch, err := yaml.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{kwokAnnotation: value}}})
	if err == nil {
		patch, err = yaml.YAMLToJSON(patch)
	}
	if err != nil {
		return fmt.Errorf("changing node %s: %w", one.name, err)
	}
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: one.name}}
	if err := workload.Patch(ctx, object, client.RawPatch("application/merge-patch+json", patch)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("changing node %s: %w", one.name, err)
	}
	return nil
}

// createOrKeep creates an object unless it exists.
func createOrKeep(ctx context.Context, c client.Client, object client.Object) error {
	if err := c.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating %T %s: %w", object, object.GetName(), err)
	}
	return nil
}

// bootData is the part of its bootstrap data that a simulated node uses.
type bootData struct {
	// configuration is kubeadm's ClusterConfiguration; empty for a node that joins.
	configuration []byte
	// network has the fields of it that the API server needs.
	network struct {
		ServiceSubnet string `json:"serviceSubnet"`
		PodSubnet     string `json:"podSubnet"`
	}
	registration registration
}

// registration is kubeadm's nodeRegistration.
type registration struct {
	Taints           []corev1.Taint `json:"taints"`
	KubeletExtraArgs []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"kubeletExtraArgs"`
}

// bootstrap reads the bootstrap data of a machine.
func (n *Nodes) bootstrap(ctx context.Context, name string) (bootData, error) {
	s := &corev1.Secret{}
	if err := n.bed.Client.Get(ctx, client.ObjectKey{Namespace: n.cluster.Namespace, Name: name}, s); err != nil {
		return bootData{}, err
	}
	return parseBootData(s.Data["value"])
}

// parseBootData reads kubeadm's configuration from bootstrap data.
func parseBootData(data []byte) (bootData, error) {
	var boot bootData
	config, err := bootdata.Config(data)
	if err != nil {
		return boot, errors.New("parsing bootstrap data") // the data is a credential
	}
	return boot, boot.read(config.Join.Kubeadm)
}

// read reads the documents of kubeadm's configuration.
func (d *bootData) read(content string) error {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(content)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading configuration of kubeadm: %w", err)
		}
		fields := struct {
			Kind         string       `json:"kind"`
			Registration registration `json:"nodeRegistration"`
			Networking   any          `json:"networking"`
		}{}
		if err := yaml.Unmarshal(document, &fields); err != nil {
			return errors.New("parsing configuration of kubeadm") // it has credentials
		}
		switch fields.Kind {
		case "InitConfiguration", "JoinConfiguration":
			d.registration = fields.Registration
		case "ClusterConfiguration":
			d.configuration = bytes.Clone(document)
			network, err := yaml.Marshal(fields.Networking)
			if err == nil {
				err = yaml.Unmarshal(network, &d.network)
			}
			if err != nil {
				return fmt.Errorf("parsing networks of kubeadm: %w", err)
			}
		}
	}
}
