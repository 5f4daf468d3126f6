package gitops

import (
	"context"
	"fmt"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// ready reports whether a wave is reconciled at the newest commit, with the message of Flux.
func ready(ctx context.Context, wave string) (string, error) {
	k := &kustomizev1.Kustomization{}
	if err := b.Client.Get(ctx, client.ObjectKey{Namespace: fluxNamespace, Name: wave}, k); err != nil {
		return "", err
	}
	newest, err := b.Head(ctx, "management")
	if err != nil {
		return "", err
	}
	condition := meta.FindStatusCondition(k.Status.Conditions, "Ready")
	if condition == nil || k.Status.LastAttemptedRevision != "main@sha1:"+newest {
		return "not yet at " + newest, nil
	}
	return fmt.Sprintf("%s %s %s", condition.Status, condition.Reason, condition.Message), nil
}

// message is the message of Flux about a wave.
func message(ctx context.Context, wave string) (string, error) {
	k := &kustomizev1.Kustomization{}
	if err := b.Client.Get(ctx, client.ObjectKey{Namespace: fluxNamespace, Name: wave}, k); err != nil {
		return "", err
	}
	if condition := meta.FindStatusCondition(k.Status.Conditions, "Ready"); condition != nil {
		return condition.Message, nil
	}
	return "", nil
}

// report stores the message of Flux about a wave: the guide quotes it.
func report(ctx context.Context, wave string) {
	GinkgoHelper()
	status, err := ready(ctx, wave)
	Expect(err).NotTo(HaveOccurred())
	AddReportEntry("status of Flux for "+wave, status)
}

// clusters are the names of all Clusters.
func clusters(ctx context.Context) ([]string, error) {
	list := &clusterv1.ClusterList{}
	err := b.Client.List(ctx, list)
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, err
}

func uid(ctx context.Context, c bed.Cluster) string {
	GinkgoHelper()
	cluster := &clusterv1.Cluster{}
	Expect(b.Client.Get(ctx, c.Key(), cluster)).To(Succeed())
	return string(cluster.UID)
}

// stays expects a customer's cluster to be unchanged, with all its machines and none of its objects
// being deleted, now and for a while.
func stays(ctx context.Context, c bed.Cluster, identity string) {
	GinkgoHelper()
	Consistently(func(g Gomega, ctx context.Context) {
		cluster := &clusterv1.Cluster{}
		g.Expect(b.Client.Get(ctx, c.Key(), cluster)).To(Succeed())
		g.Expect(string(cluster.UID)).To(Equal(identity))
		g.Expect(cluster.DeletionTimestamp).To(BeNil())
		namespace := &corev1.Namespace{}
		g.Expect(b.Client.Get(ctx, client.ObjectKey{Name: c.Namespace}, namespace)).To(Succeed())
		g.Expect(namespace.DeletionTimestamp).To(BeNil())
		machines := &clusterv1.MachineList{}
		g.Expect(b.Client.List(ctx, machines, client.InNamespace(c.Namespace))).To(Succeed())
		g.Expect(machines.Items).NotTo(BeEmpty())
		for i := range machines.Items {
			g.Expect(machines.Items[i].DeletionTimestamp).To(BeNil())
		}
		account := &corev1.Secret{}
		g.Expect(b.Client.Get(ctx, client.ObjectKey{Namespace: "nova-vsphere-system", Name: "vcenter-one"}, account)).To(Succeed())
	}).WithContext(ctx).WithTimeout(stayTime).Should(Succeed())
}
