package etcd

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = describeFull("A drill, which restores a snapshot into another cluster", func() {
	original, drill := cluster("original", 16), cluster("drill", 17)
	drill.Namespace = original.Namespace

	It("has the objects of the original, and its own machines, endpoint and certificates", func(ctx context.Context) {
		create(ctx, original)
		awaitWhole(ctx, original, bootTimeout)
		write(ctx, original, "before")
		taken := snapshot(ctx, original)
		create(ctx, drill)
		awaitWhole(ctx, drill, bootTimeout)
		before := machines(ctx, drill)

		source := latest
		source.Snapshot.Cluster = original.Name
		r := restore(ctx, drill, source)
		awaitRestored(ctx, drill, r)
		awaitWhole(ctx, drill, bootTimeout)
		Expect(r.Status.Snapshot.Name).To(Equal(taken.Name))
		Expect(written(ctx, drill, "before")).To(BeTrue())
		after := machines(ctx, drill)
		Expect(after).To(HaveLen(1))
		Expect(after[0].Name).NotTo(Equal(before[0].Name))

		By("looking at the original, which is as it was")
		awaitWhole(ctx, original, reportTimeout)
		Expect(written(ctx, original, "before")).To(BeTrue())
		cp, err := controlPlane(ctx, original)
		Expect(err).NotTo(HaveOccurred())
		Expect(cp.Status.Etcd.LastSnapshot.Name).To(Equal(taken.Name))

		By("taking a snapshot of the drill, in a place of its own")
		mine := snapshot(ctx, drill)
		Expect(store.Objects()).To(ContainElements("bed/original/drill/"+mine.Name+".db", "bed/original/original/"+taken.Name+".db"))
		deleteCluster(ctx, drill)
		Expect(written(ctx, original, "before")).To(BeTrue(), "deleting the drill leaves the original alone")
		awaitWhole(ctx, original, reportTimeout)
		deleteCluster(ctx, original)
	})
})
