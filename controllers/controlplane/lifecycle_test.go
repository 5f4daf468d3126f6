package controlplane

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	utilkubeconfig "sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/kubeadm"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

// refusesEviction is a workload cluster whose policies reject evictions.
type refusesEviction struct{ fakeClusters }

func (*refusesEviction) Evict(context.Context, client.ObjectKey, *corev1.Pod) error {
	return errors.New("not allowed")
}

var _ = Describe("Certificates and kubeconfig", func() {
	kubeconfig := func(ctx context.Context, r *rig) func() (*corev1.Secret, error) {
		return func() (*corev1.Secret, error) {
			s := &corev1.Secret{}
			return s, testEnv.Client.Get(ctx, r.key(secret.Name(clusterName, secret.Kubeconfig)), s)
		}
	}

	It("creates them by the contract, and recreates a deleted kubeconfig", func(ctx SpecContext) {
		r := newRig(ctx, managed, nil)
		var s *corev1.Secret
		Eventually(func() (err error) { s, err = kubeconfig(ctx, r)(); return err }).Should(Succeed())
		Expect(s.Type).To(Equal(clusterv1.ClusterSecretType))
		Expect(s.Labels).To(HaveKeyWithValue(clusterv1.ClusterNameLabel, clusterName))
		Expect(metav1.GetControllerOf(s)).To(HaveField("Kind", scope.Kind))
		config, err := clientcmd.RESTConfigFromKubeConfig(s.Data[secret.KubeconfigDataName])
		Expect(err).NotTo(HaveOccurred())
		Expect(config.Host).To(Equal("https://127.0.0.1:1"))
		for _, purpose := range []secret.Purpose{secret.ClusterCA, secret.EtcdCA, secret.FrontProxyCA, secret.ServiceAccount} {
			Expect(testEnv.Client.Get(ctx, r.key(secret.Name(clusterName, purpose)), &corev1.Secret{})).To(Succeed())
		}
		Eventually(r.condition(ctx, controlplanev1.CertificatesAvailableCondition)).Should(HaveField("Status", metav1.ConditionTrue))

		Expect(testEnv.Client.Delete(ctx, s)).To(Succeed())
		Eventually(kubeconfig(ctx, r)).Should(HaveField("UID", Not(Equal(s.UID))))
	})

	It("publishes a kubeconfig without credentials while users can sign in", func(ctx SpecContext) {
		r := newRig(ctx, managed, nil)
		users := func() (*clientcmdapi.Config, error) {
			s := &corev1.Secret{}
			if err := testEnv.Client.Get(ctx, r.key(clusterName+"-kubeconfig-oidc"), s); err != nil {
				return nil, err
			}
			Expect(s.Type).To(Equal(clusterv1.ClusterSecretType))
			Expect(s.Labels).To(HaveKeyWithValue(clusterv1.ClusterNameLabel, clusterName))
			Expect(metav1.GetControllerOf(s)).To(HaveField("Kind", scope.Kind))
			return clientcmd.Load(s.Data[secret.KubeconfigDataName])
		}
		missing := func() error { _, err := users(); return err }
		Eventually(kubeconfig(ctx, r)).ShouldNot(BeNil())
		Consistently(missing).Should(MatchError(apierrors.IsNotFound, "not found"), "there is no issuer")

		r.update(ctx, func(c *controlplanev1.NovaControlPlane) {
			c.Spec.Platform.Authentication.Issuers = []bootstrapv1.TokenIssuer{
				{Name: "staff", URL: "https://sso.example/realms/staff", Audiences: []string{"kubectl"}, Scopes: []string{"groups"}},
				{Name: "vault", StarVault: bootstrapv1.StarVaultIssuer{Server: "https://vault.example:8200", Namespace: "blue", Provider: "c1"}, Audiences: []string{"abc"}},
			}
		})
		Eventually(users).Should(HaveField("CurrentContext", "staff@"+clusterName))
		config, err := users()
		Expect(err).NotTo(HaveOccurred())
		Expect(config.Clusters).To(HaveKeyWithValue(clusterName, HaveField("Server", "https://127.0.0.1:1")))
		Expect(config.Clusters[clusterName].CertificateAuthorityData).NotTo(BeEmpty())
		Expect(config.AuthInfos).To(HaveLen(2))
		for _, user := range config.AuthInfos {
			user.LocationOfOrigin = ""
			Expect(user).To(Equal(&clientcmdapi.AuthInfo{Exec: user.Exec, Extensions: user.Extensions}), "no credentials")
		}
		Expect(config.AuthInfos["staff"].Exec.Args).To(ContainElements(
			"--oidc-issuer-url=https://sso.example/realms/staff", "--oidc-client-id=kubectl", "--oidc-extra-scope=groups"))
		Expect(config.AuthInfos["vault"].Exec.Args).To(ContainElement(
			"--oidc-issuer-url=https://vault.example:8200/v1/blue/identity/oidc/provider/c1"))

		r.update(ctx, func(c *controlplanev1.NovaControlPlane) { c.Spec.Platform.Authentication.Issuers = nil })
		Eventually(missing).Should(MatchError(apierrors.IsNotFound, "not found"), "there is no issuer any more")
	})

	It("leaves a user's kubeconfig alone", func(ctx SpecContext) {
		r := newRig(ctx, "", nil)
		mine := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: secret.Name(clusterName, secret.Kubeconfig)},
			Data:       map[string][]byte{secret.KubeconfigDataName: usersKubeconfig()},
		}
		Expect(testEnv.Client.Create(ctx, mine)).To(Succeed())
		r.reconcileUntilIdle(ctx, direct(testEnv.Config, &fakeClusters{}))
		Expect(kubeconfig(ctx, r)()).To(HaveField("ResourceVersion", mine.ResourceVersion))
	})

	It("renews the kubeconfig before it expires", func(ctx SpecContext) {
		r := newRig(ctx, "", nil)
		reconciler := direct(testEnv.Config, &fakeClusters{})
		r.reconcileUntilIdle(ctx, reconciler)
		first, err := kubeconfig(ctx, r)()
		Expect(err).NotTo(HaveOccurred())
		reconciler.Now = func() time.Time {
			return time.Now().Add(timelimits.KubeconfigTTL*4/10 + time.Minute)
		}
		r.reconcileUntilIdle(ctx, reconciler)
		Expect(kubeconfig(ctx, r)()).To(And(HaveField("UID", first.UID), HaveField("Data", Not(Equal(first.Data)))))
	})

	It("uses a user's CA and reports the problem of a broken one", func(ctx SpecContext) {
		r := newRig(ctx, "", nil)
		// A CA of another cluster is used as the user's.
		other := newRig(ctx, "", nil)
		other.reconcileUntilIdle(ctx, direct(testEnv.Config, &fakeClusters{}))
		ca := &corev1.Secret{}
		Expect(testEnv.Client.Get(ctx, other.key(secret.Name(clusterName, secret.ClusterCA)), ca)).To(Succeed())
		mine := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: r.namespace, Name: ca.Name, Labels: map[string]string{clusterv1.ClusterNameLabel: clusterName},
			},
			Type: corev1.SecretTypeTLS,
			Data: map[string][]byte{secret.TLSCrtDataName: []byte("garbage"), secret.TLSKeyDataName: []byte("garbage")},
		}
		Expect(testEnv.Client.Create(ctx, mine)).To(Succeed())
		reconciler := direct(testEnv.Config, &fakeClusters{})
		Eventually(func() (metav1.Condition, error) {
			_, err := reconciler.Reconcile(ctx, requestFor(r))
			if err == nil {
				return metav1.Condition{}, nil
			}
			return r.condition(ctx, controlplanev1.CertificatesAvailableCondition)()
		}).Should(And(HaveField("Reason", controlplanev1.CertificatesInvalidReason), HaveField("Message", ContainSubstring("Secret c-ca"))))
		r.expectMachines(ctx, 0)

		mine.Data = ca.Data
		Expect(testEnv.Client.Update(ctx, mine)).To(Succeed())
		r.reconcileUntilIdle(ctx, reconciler)
		r.expectMachines(ctx, 3)
		s, err := kubeconfig(ctx, r)()
		Expect(err).NotTo(HaveOccurred())
		config, err := clientcmd.RESTConfigFromKubeConfig(s.Data[secret.KubeconfigDataName])
		Expect(err).NotTo(HaveOccurred())
		Expect(config.CAData).To(Equal(ca.Data[secret.TLSCrtDataName]))
		Expect(testEnv.Client.Get(ctx, client.ObjectKeyFromObject(mine), mine)).To(Succeed())
		Expect(mine.OwnerReferences).To(BeEmpty(), "a user's CA is not owned")
	})

	It("keeps machines while certificates or the infrastructure's status are missing", func(ctx SpecContext) {
		r := newRig(ctx, "", nil)
		workloadCluster := &fakeClusters{}
		reconciler := direct(testEnv.Config, workloadCluster)
		r.reconcileUntilIdle(ctx, reconciler)
		workloadCluster.Cluster = facts.Cluster{Answers: true, KubeadmConfig: true}
		r.reconcileUntilIdle(ctx, reconciler)
		available := func() (metav1.ConditionStatus, error) {
			c, err := r.condition(ctx, controlplanev1.AvailableCondition)()
			return c.Status, err
		}
		Expect(available()).To(Equal(metav1.ConditionTrue))

		By("losing the CA of the front proxy, with a kubeconfig to be issued")
		for _, purpose := range []secret.Purpose{secret.FrontProxyCA, secret.Kubeconfig} {
			Expect(testEnv.Client.Delete(ctx, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: secret.Name(clusterName, purpose)},
			})).To(Succeed())
		}
		_, err := reconciler.Reconcile(ctx, requestFor(r))
		Expect(err).To(MatchError(ContainSubstring("checking certificates")))
		_, err = kubeconfig(ctx, r)()
		Expect(err).NotTo(HaveOccurred())
		Expect(r.condition(ctx, controlplanev1.CertificatesAvailableCondition)()).To(HaveField("Message", ContainSubstring("restore it from a backup")))
		Expect(available()).To(Equal(metav1.ConditionTrue))

		By("moving to another management cluster, which takes no status along")
		cluster := &clusterv1.Cluster{}
		Expect(testEnv.Client.Get(ctx, r.key(clusterName), cluster)).To(Succeed())
		cluster.Status = clusterv1.ClusterStatus{}
		Expect(testEnv.Client.Status().Update(ctx, cluster)).To(Succeed())
		_, err = reconciler.Reconcile(ctx, requestFor(r))
		Expect(err).To(HaveOccurred())
		Expect(available()).To(Equal(metav1.ConditionTrue))
		Eventually(func() error {
			c, err := r.controlPlane(ctx)
			if err != nil {
				return err
			}
			c.Status = controlplanev1.NovaControlPlaneStatus{}
			return testEnv.Client.Status().Update(ctx, c)
		}).Should(Succeed())
		workloadCluster.Cluster = facts.Cluster{Pending: true, Problem: "no probe yet"}
		// The first reconcile only sets the Paused condition.
		_, err = reconciler.Reconcile(ctx, requestFor(r))
		Expect(err).NotTo(HaveOccurred())
		_, err = reconciler.Reconcile(ctx, requestFor(r))
		Expect(err).To(MatchError(ContainSubstring("checking certificates")))
		Expect(available()).To(Equal(metav1.ConditionUnknown))
	})

	It("creates no new CA for an initialized cluster", func(ctx SpecContext) {
		r := newRig(ctx, "", nil)
		workloadCluster := &fakeClusters{}
		reconciler := direct(testEnv.Config, workloadCluster)
		r.reconcileUntilIdle(ctx, reconciler)
		workloadCluster.Cluster = facts.Cluster{Answers: true, KubeadmConfig: true}
		r.reconcileUntilIdle(ctx, reconciler)
		Expect(initlock.Initialized(ctx, testEnv.Client, r.key(clusterName))).To(BeTrue())
		ca := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: secret.Name(clusterName, secret.ClusterCA)}}
		Expect(testEnv.Client.Delete(ctx, ca)).To(Succeed())
		// As after a move to another management cluster, which drops the
		// status.
		Eventually(func() error {
			c, err := r.controlPlane(ctx)
			if err != nil {
				return err
			}
			c.Status = controlplanev1.NovaControlPlaneStatus{}
			return testEnv.Client.Status().Update(ctx, c)
		}).Should(Succeed())

		Eventually(func() (string, error) {
			_, err := reconciler.Reconcile(ctx, requestFor(r))
			if err == nil {
				return "", nil
			}
			c, err := r.condition(ctx, controlplanev1.CertificatesAvailableCondition)()
			return c.Message, err
		}).Should(ContainSubstring("restore it from a backup"))
		Expect(apierrors.IsNotFound(testEnv.Client.Get(ctx, client.ObjectKeyFromObject(ca), ca))).To(BeTrue())
	})
})

var _ = Describe("The life of a control plane", func() {
	It("waits for the infrastructure and the endpoint, and reports it", func(ctx SpecContext) {
		r := newRig(ctx, managed, nil)
		r.expectMachines(ctx, 3)

		waiting := newRig(ctx, "", nil)
		cluster := &clusterv1.Cluster{}
		Expect(testEnv.Client.Get(ctx, waiting.key(clusterName), cluster)).To(Succeed())
		cluster.Status.Initialization.InfrastructureProvisioned = nil
		Expect(testEnv.Client.Status().Update(ctx, cluster)).To(Succeed())
		cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{}
		Expect(testEnv.Client.Update(ctx, cluster)).To(Succeed())
		reconciler := direct(testEnv.Config, &fakeClusters{})
		waiting.reconcileUntilIdle(ctx, reconciler)
		Expect(waiting.condition(ctx, controlplanev1.AvailableCondition)()).To(HaveField("Message", ContainSubstring("infrastructure")))
		cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
		Expect(testEnv.Client.Status().Update(ctx, cluster)).To(Succeed())
		waiting.reconcileUntilIdle(ctx, reconciler)
		Expect(waiting.condition(ctx, controlplanev1.AvailableCondition)()).To(
			HaveField("Message", ContainSubstring("spec.controlPlaneEndpoint")))
		waiting.expectMachines(ctx, 0)
	})

	It("does nothing while it is paused", func(ctx SpecContext) {
		r := newRig(ctx, managed, func(c *controlplanev1.NovaControlPlane) {
			c.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		})
		Eventually(r.condition(ctx, clusterv1.PausedCondition)).Should(HaveField("Status", metav1.ConditionTrue))
		r.expectMachines(ctx, 0)
		r.update(ctx, func(c *controlplanev1.NovaControlPlane) { c.Annotations = nil })
		r.expectMachines(ctx, 3)
	})

	It("is initialized when the workload cluster is, and gets an event", func(ctx SpecContext) {
		// The test's own API server is the workload cluster, with a user's
		// kubeconfig.
		r := newRig(ctx, "", nil)
		cluster := &clusterv1.Cluster{}
		Expect(testEnv.Client.Get(ctx, r.key(clusterName), cluster)).To(Succeed())
		Expect(testEnv.Client.Create(ctx, utilkubeconfig.GenerateSecret(cluster,
			utilkubeconfig.FromEnvTestConfig(testEnv.Config, cluster)))).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			// Open watches would keep the API server from stopping.
			Expect(testEnv.Client.Delete(ctx, cluster)).To(Succeed())
			Eventually(func() bool { return realClusters.Observe(ctx, r.key(clusterName), nil).Answers }).Should(BeFalse())
		})
		r.filter = managed
		cluster.Labels = r.labels()
		Expect(testEnv.Client.Update(ctx, cluster)).To(Succeed())
		r.update(ctx, func(c *controlplanev1.NovaControlPlane) { c.Labels = r.labels() })
		machines := r.expectMachines(ctx, 3)
		Consistently(r.condition(ctx, controlplanev1.InitializedCondition), "1s").Should(HaveField("Status", Not(Equal(metav1.ConditionTrue))))

		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: machines[0].Name, Labels: map[string]string{facts.RoleControlPlane: ""}}}
		Expect(testEnv.Client.Create(ctx, node)).To(Succeed())
		Expect(testEnv.Client.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: metav1.NamespaceSystem, Name: "kube-apiserver-" + node.Name,
				Labels: map[string]string{facts.ComponentLabel: facts.APIServerName, facts.TierLabel: facts.TierControlPlane},
			},
			Spec: corev1.PodSpec{NodeName: node.Name, Containers: []corev1.Container{{Name: "c", Image: "r/kube-apiserver:v1.35.4"}}},
		})).To(Succeed())
		Expect(testEnv.Client.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: kubeadm.ConfigName},
		})).To(Succeed())
		Eventually(r.controlPlane).WithArguments(ctx).Should(And(
			HaveField("Status.Initialization.ControlPlaneInitialized", HaveValue(BeTrue())),
			HaveField("Status.Versions", ConsistOf(
				clusterv1.StatusVersion{Version: "v1.35.4", Replicas: 1}, clusterv1.StatusVersion{Version: "v1.36.3", Replicas: 2}))))
		Expect(initlock.Initialized(ctx, testEnv.Client, r.key(clusterName))).To(BeTrue())
		// No member of etcd can be reached here, so their state is unknown; but
		// the API server reads from etcd.
		Eventually(r.condition(ctx, controlplanev1.AvailableCondition)).Should(HaveField("Status", metav1.ConditionTrue))
		Eventually(r.condition(ctx, controlplanev1.EtcdClusterHealthyCondition)).Should(HaveField("Status", metav1.ConditionUnknown))
	})

	It("records the initialization even if other steps fail", func(ctx SpecContext) {
		r := newRig(ctx, "", nil)
		workloadCluster := &fakeClusters{}
		reconciler := direct(testEnv.Config, workloadCluster)
		r.reconcileUntilIdle(ctx, reconciler)
		proxy := &corev1.Secret{}
		Expect(testEnv.Client.Get(ctx, r.key(secret.Name(clusterName, secret.FrontProxyCA)), proxy)).To(Succeed())
		proxy.Data[secret.TLSKeyDataName] = []byte("garbage")
		Expect(testEnv.Client.Update(ctx, proxy)).To(Succeed())
		workloadCluster.Cluster = facts.Cluster{Answers: true, KubeadmConfig: true}
		_, err := reconciler.Reconcile(ctx, requestFor(r))
		Expect(err).To(MatchError(ContainSubstring("c-proxy")))
		Expect(initlock.Initialized(ctx, testEnv.Client, r.key(clusterName))).To(BeTrue())
	})

	It("reports no outage before the first probe", func(ctx SpecContext) {
		// The cluster cache does not know this Cluster, as right after a start.
		r := newRig(ctx, "", nil)
		Expect(realClusters.Observe(ctx, r.key(clusterName), nil)).To(And(
			HaveField("Answers", false), HaveField("Pending", true), HaveField("Again", timelimits.CallTimeout)))
		Expect(realClusters.Fresh(ctx, r.key(clusterName), nil)).To(And(HaveField("Answers", false), HaveField("Pending", true)))
	})

	It("does not count as initialized while its only machine is being deleted", func(ctx SpecContext) {
		r := newRig(ctx, "", func(c *controlplanev1.NovaControlPlane) { c.Spec.Replicas = nil })
		workloadCluster := &fakeClusters{}
		reconciler := direct(testEnv.Config, workloadCluster)
		r.reconcileUntilIdle(ctx, reconciler)
		machine := r.expectMachines(ctx, 1)[0]
		machine.Finalizers = []string{clusterv1.MachineFinalizer}
		Expect(testEnv.Client.Update(ctx, &machine)).To(Succeed())
		Expect(testEnv.Client.Delete(ctx, &machine)).To(Succeed())
		workloadCluster.Cluster = facts.Cluster{Answers: true, KubeadmConfig: true}
		r.reconcileUntilIdle(ctx, reconciler)
		Expect(r.condition(ctx, controlplanev1.InitializedCondition)()).To(HaveField("Status", metav1.ConditionFalse))
		Expect(initlock.Initialized(ctx, testEnv.Client, r.key(clusterName))).To(BeFalse())
	})

	It("spreads CoreDNS once", func(ctx SpecContext) {
		r := newRig(ctx, "", nil)
		coreDNS := func(name string) corev1.Pod {
			return corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: "n1"},
				Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
			}
		}
		workloadCluster := &fakeClusters{
			Cluster: facts.Cluster{Answers: true, KubeadmConfig: true, Nodes: []facts.Node{
				{Name: "n1", Ready: true, Schedulable: true}, {Name: "n2", Ready: true, Schedulable: true},
			}},
			coreDNS: []corev1.Pod{coreDNS("a"), coreDNS("b")},
		}
		reconciler := direct(testEnv.Config, workloadCluster)
		r.reconcileUntilIdle(ctx, reconciler)
		r.reconcileUntilIdle(ctx, reconciler)
		Expect(workloadCluster.evicted).To(Equal([]string{"b"}), "and not again while they stay together")
	})

	It("continues with machines if CoreDNS may not be evicted", func(ctx SpecContext) {
		r := newRig(ctx, "", func(c *controlplanev1.NovaControlPlane) { c.Spec.Replicas = nil })
		pod := corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "a"},
			Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
		}
		workloadCluster := &refusesEviction{}
		reconciler := direct(testEnv.Config, workloadCluster)
		r.reconcileUntilIdle(ctx, reconciler)
		first := r.expectMachines(ctx, 1)[0].Name
		pod.Spec.NodeName = first
		workloadCluster.coreDNS = []corev1.Pod{pod, pod}
		workloadCluster.Cluster = facts.Cluster{
			Answers: true, KubeadmConfig: true, Etcd: &etcd.Health{Members: []etcd.Member{{ID: 1, Name: first, Answers: true, Leader: true}}},
			Nodes: []facts.Node{{Name: first, Ready: true, Schedulable: true}, {Name: "n2", Ready: true, Schedulable: true}},
		}
		r.update(ctx, func(c *controlplanev1.NovaControlPlane) { c.Spec.Replicas = ptr.To(int32(3)) })
		_, err := reconciler.Reconcile(ctx, requestFor(r))
		Expect(err).To(MatchError(ContainSubstring("spreading CoreDNS")))
		r.expectMachines(ctx, 3)
	})

	It("updates metadata in place and sets UpToDate on each machine", func(ctx SpecContext) {
		r := newRig(ctx, "", func(c *controlplanev1.NovaControlPlane) {
			c.Spec.MachineTemplate.ObjectMeta.Labels = map[string]string{"old": "1", "kept": "1"}
			c.Spec.Rollout.Strategy.Type = controlplanev1.OnDeleteStrategy
		})
		reconciler := direct(testEnv.Config, &fakeClusters{})
		r.reconcileUntilIdle(ctx, reconciler)
		for _, m := range r.expectMachines(ctx, 3) {
			r.adopt(ctx, &m)
		}
		r.update(ctx, func(c *controlplanev1.NovaControlPlane) {
			c.Spec.MachineTemplate.ObjectMeta.Labels = map[string]string{"new": "1", "kept": "1"}
			c.Spec.MachineTemplate.ObjectMeta.Annotations = map[string]string{"note": "1"}
			c.Spec.MachineTemplate.Spec.Deletion.NodeDrainTimeoutSeconds = ptr.To(int32(7))
			c.Spec.MachineTemplate.Spec.ReadinessGates = []clusterv1.MachineReadinessGate{{ConditionType: "Own"}}
		})
		r.reconcileUntilIdle(ctx, reconciler)
		for _, m := range r.expectMachines(ctx, 3) {
			Expect(m.Spec.ReadinessGates).To(And(HaveLen(6), ContainElement(HaveField("ConditionType", "Own")),
				ContainElement(HaveField("ConditionType", controlplanev1.MachineAPIServerPodHealthyCondition))))
			infra := &vspherev1.NovaVSphereMachine{}
			Expect(testEnv.Client.Get(ctx, r.key(m.Name), infra)).To(Succeed())
			for _, o := range []client.Object{&m, infra} {
				Expect(o.GetLabels()).To(And(HaveKey("new"), HaveKey("kept"), Not(HaveKey("old")), HaveKey(clusterv1.MachineControlPlaneLabel)))
				Expect(o.GetAnnotations()).To(HaveKeyWithValue("note", "1"))
			}
			Expect(m.Spec.Deletion.NodeDrainTimeoutSeconds).To(HaveValue(BeEquivalentTo(7)))
			Expect(conditions.IsTrue(&m, clusterv1.MachineUpToDateCondition)).To(BeTrue())
		}

		r.update(ctx, func(c *controlplanev1.NovaControlPlane) { c.Spec.Version = "v1.37.0" })
		r.reconcileUntilIdle(ctx, reconciler)
		for _, m := range r.expectMachines(ctx, 3) {
			Expect(conditions.GetMessage(&m, clusterv1.MachineUpToDateCondition)).To(ContainSubstring("version is v1.36.3 instead of v1.37.0"))
			Expect(m.Spec.Version).To(Equal("v1.36.3"))
		}
		Expect(r.condition(ctx, controlplanev1.RollingOutCondition)()).To(And(
			HaveField("Status", metav1.ConditionTrue), HaveField("Message", ContainSubstring("to be replaced when it is deleted"))))
		Expect(r.controlPlane(ctx)).To(HaveField("Status.UpToDateReplicas", HaveValue(BeEquivalentTo(0))))
	})

	It("shows a rollout before it begins", func(ctx SpecContext) {
		r := newRig(ctx, "", func(c *controlplanev1.NovaControlPlane) {
			c.Spec.Replicas, c.Spec.Version, c.Spec.Rollout.Paused = ptr.To(int32(1)), "v1.35.4", ptr.To(true)
		})
		workloadCluster, reconciler := r.runSole(ctx, "v1.35.4")

		r.update(ctx, func(c *controlplanev1.NovaControlPlane) { c.Spec.Version = "v1.36.3" })
		r.reconcileTimes(ctx, reconciler, 4)
		Expect(conditions.GetMessage(&r.expectMachines(ctx, 1)[0], clusterv1.MachineUpToDateCondition)).To(Equal("To be replaced: version is v1.35.4 instead of v1.36.3"))
		Expect(r.condition(ctx, controlplanev1.RollingOutCondition)()).To(And(
			HaveField("Reason", controlplanev1.RollingOutPausedReason),
			HaveField("Message", ContainSubstring("(to be replaced: version is v1.35.4 instead of v1.36.3)"))))
		Expect(workloadCluster.upgrades).NotTo(ContainElement(HaveField("Version", "v1.36.3")))

		r.update(ctx, func(c *controlplanev1.NovaControlPlane) { c.Spec.Rollout.Paused = nil })
		r.reconcileTimes(ctx, reconciler, 2)
		Expect(workloadCluster.upgrades).To(ContainElement(HaveField("Version", "v1.36.3")))
		workloadCluster.KubeadmVersion = "v1.36.3"
		r.reconcileTimes(ctx, reconciler, 2)
		r.expectMachines(ctx, 2)
	})

	It("ignores that a machine is deleted during a reconcile", func(ctx SpecContext) {
		r := newRig(ctx, "", nil)
		gone := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "gone"}}
		Expect(direct(testEnv.Config, &fakeClusters{}).reportUpToDate(ctx, nil, gone)).To(Succeed())
	})

	It("writes nothing at rest", func(ctx SpecContext) {
		r := newRig(ctx, "", nil)
		count := &crash{}
		reconciler := direct(count.config(), &fakeClusters{})
		r.reconcileUntilIdle(ctx, reconciler)
		before := count.writes
		_, err := reconciler.Reconcile(ctx, requestFor(r))
		Expect(err).NotTo(HaveOccurred())
		Expect(count.writes).To(Equal(before))
	})
})
