package etcd

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
)

var _ = describeFull("A control plane of three machines, one of them on a dead host", func() {
	c := cluster("fenced", 15)
	c.ControlPlanes = 3

	It("is restored once a person declares that machine dead", func(ctx context.Context) {
		create(ctx, c)
		awaitWhole(ctx, c, bootTimeout)
		write(ctx, c, "before")
		AddReportEntry("snapshot", snapshot(ctx, c))
		all := machines(ctx, c)
		Expect(all).To(HaveLen(3))
		dead := all[0].Name
		Expect(b.SetLinks(dead, false)).To(Succeed())
		Expect(b.SetConnected(ctx, dead, false)).To(Succeed())
		lose(ctx, all[1:]...)

		By("waiting for the machine, whose VM cannot be deleted")
		r := restore(ctx, c, latest)
		Eventually(func(g Gomega, ctx context.Context) {
			g.Expect(b.Client.Get(ctx, client.ObjectKeyFromObject(r), r)).To(Succeed())
			g.Expect(conditions.GetMessage(r, controlplanev1.EtcdRestoreReadyCondition)).To(Equal("Waiting for machines to be deleted: " + dead))
		}).WithContext(ctx).WithTimeout(bootTimeout).Should(Succeed(), func() string { return describe(ctx, c) })

		By("declaring it dead")
		kubectl("-n", c.Namespace, "patch", "novaetcdrestore", r.Name, "--type=merge", "-p", `{"spec":{"fencing":{"machines":["`+dead+`"]}}}`)
		begun := time.Now()
		awaitRestored(ctx, c, r)
		AddReportEntry("restored after", time.Since(begun).String())
		awaitWhole(ctx, c, bootTimeout)
		Expect(written(ctx, c, "before")).To(BeTrue())
		machine := &clusterv1.Machine{}
		Expect(b.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: dead}, machine)).To(Succeed(), "its VM is there, so the Machine is")
		Expect(machine.DeletionTimestamp.IsZero()).To(BeFalse())

		By("deleting its VM once the host is back")
		Expect(b.SetConnected(ctx, dead, true)).To(Succeed())
		Eventually(func(ctx context.Context) bool {
			return apierrors.IsNotFound(b.Client.Get(ctx, client.ObjectKeyFromObject(machine), machine))
		}).WithContext(ctx).WithTimeout(deleteTimeout).Should(BeTrue(), func() string { return describe(ctx, c) })
		awaitWhole(ctx, c, bootTimeout)
		deleteCluster(ctx, c)
	})
})
