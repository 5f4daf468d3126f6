package bootstrap

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// The remounting of the disk after a restart is not part of it: systemd waits
// for udev there, which hosts do not have.
var _ = Describe("A cluster with etcd on a disk of its own and kube-proxy in the mode iptables", Ordered, func() {
	if !everything {
		return
	}
	c := bed.Cluster{Name: "disks", Namespace: "disks", Hypervisor: bed.VSphere, ControlPlanes: 1, Workers: 2, Endpoint: "10.77.0.62"}
	var masters, workers []corev1.Node

	It("comes up", func(ctx context.Context) {
		objects, err := b.Generate(ctx, c)
		Expect(err).NotTo(HaveOccurred())
		for _, o := range objects {
			switch {
			case o.GetKind() == "NovaControlPlane":
				change(o, func(spec *bootstrapv1.NodeConfigSpec) {
					spec.Disks = []bootstrapv1.Disk{{Device: "/dev/sdb", MountPath: "/var/lib/etcd", MountOptions: []string{"noatime"}}}
				}, "spec", "config")
				change(o, func(p *bootstrapv1.PlatformSpec) { p.KubeProxy.Mode = bootstrapv1.KubeProxyModeIPTables }, "spec", "platform")
			case o.GetKind() == "NovaVSphereMachineTemplate" && strings.HasSuffix(o.GetName(), "-control-plane"):
				Expect(unstructured.SetNestedSlice(o.Object, []any{map[string]any{"name": "etcd", "sizeGiB": int64(2)}},
					"spec", "template", "spec", "disks", "data")).To(Succeed())
			}
		}
		Expect(b.Credentials(ctx, c)).To(Succeed())
		Expect(bed.Apply(ctx, b.Client, objects...)).To(Succeed())
		masters, workers = awaitNodes(ctx, c, 1, 2)
	})

	It("keeps etcd's data on the disk", func(ctx context.Context) {
		vm := masters[0].Name
		Expect(on(ctx, vm, "findmnt", "--noheadings", "--output", "FSTYPE,OPTIONS", "/var/lib/etcd")).To(MatchRegexp(`^ext4\s+\S*noatime`))
		Expect(on(ctx, vm, "stat", "-c", "%a", "/var/lib/etcd")).To(Equal("700"))
		Expect(on(ctx, vm, "ls", "/var/lib/etcd/member")).To(ContainSubstring("wal"))
		Expect(on(ctx, vm, "grep", "/var/lib/etcd", "/etc/fstab")).To(MatchRegexp(`^UUID=\S+ /var/lib/etcd ext4 noatime 0 2$`))
	})

	It("answers for a Service by rules of iptables", func(ctx context.Context) {
		_, err := b.DeployWorkload(ctx, c)
		Expect(err).NotTo(HaveOccurred())
		Expect(on(ctx, workers[0].Name, "iptables-save", "-t", "nat")).To(ContainSubstring("KUBE-SERVICES"))
		Expect(on(ctx, workers[0].Name, "nft", "list", "tables")).NotTo(ContainSubstring("kube-proxy"))
	})
})
