package controlplane

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/cluster-api/util/secret"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
	"github.com/nova-platform/cluster-api-provider-nova/test/front"
)

var _ = Describe("A kubeconfig with a field that is refused", func() {
	It("ends the connection, and is named in the conditions", func(ctx SpecContext) {
		r := newRig(ctx, managed, nil)
		r.expectMachines(ctx, 3)
		f := front.New()
		made := f.Kubeconfig(r.namespace, clusterName, "first")
		// A user's kubeconfig, which the control plane does not change.
		made.Type = corev1.SecretTypeOpaque
		putKubeconfig(ctx, made)
		observed := func() facts.Cluster { return realClusters.Observe(ctx, r.key(clusterName), nil) }
		Eventually(observed).Should(HaveField("Alive", true))

		config, err := clientcmd.Load(made.Data[secret.KubeconfigDataName])
		Expect(err).NotTo(HaveOccurred())
		config.AuthInfos["u"] = &clientcmdapi.AuthInfo{TokenFile: "/var/run/secrets/kubernetes.io/serviceaccount/token"}
		data, err := clientcmd.Write(*config)
		Expect(err).NotTo(HaveOccurred())
		made.Data = map[string][]byte{secret.KubeconfigDataName: data}
		made.ResourceVersion = ""
		Expect(testEnv.Client.Update(ctx, made)).To(Succeed())

		Eventually(observed).Should(And(HaveField("Alive", false), HaveField("Problem", ContainSubstring("users[].user.tokenFile"))))
		Eventually(r.condition(ctx, controlplanev1.AvailableCondition)).WithTimeout(20 * time.Second).Should(And(
			HaveField("Status", metav1.ConditionFalse), HaveField("Message", ContainSubstring("users[].user.tokenFile"))))
	})
})

var _ = Describe("A workload cluster that hangs", func() {
	It("does not block others", func(ctx SpecContext) {
		r := newRig(ctx, managed, nil)
		r.expectMachines(ctx, 3)
		f := front.New()
		f.Hangs.Store("/")
		made := f.Kubeconfig(r.namespace, clusterName, "first")
		putKubeconfig(ctx, made)
		var slowest time.Duration
		Eventually(func() facts.Cluster {
			begun := time.Now()
			observed := realClusters.Observe(ctx, r.key(clusterName), nil)
			slowest = max(slowest, time.Since(begun))
			return observed
		}).Should(And(HaveField("Answers", false), HaveField("Pending", false)))
		Expect(slowest).To(BeNumerically("<", 2*timelimits.ReadTimeout))
		Expect(realClusters.Fresh(ctx, r.key(clusterName), nil)).To(And(HaveField("Answers", false), HaveField("Pending", false)))
	})
})
