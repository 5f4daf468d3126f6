package hostile

import (
	"context"
	"path/filepath"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/internal/workload"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// ownFiles is the folder with the token of a manager's ServiceAccount.
const ownFiles = "/var/run/secrets/kubernetes.io/serviceaccount/"

// refusedKubeconfigs are changes to a valid kubeconfig, by the field that
// managers have to name.
var refusedKubeconfigs = map[string]func(cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo){
	"users[].user.tokenFile": func(_ *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) {
		user.Token, user.TokenFile = "", ownFiles+"token"
	},
	"users[].user.exec": func(_ *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) {
		user.Token, user.Exec = "", &clientcmdapi.ExecConfig{
			APIVersion: "client.authentication.k8s.io/v1", Command: "touch", Args: []string{executed()},
			InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		}
	},
	"users[].user.auth-provider": func(_ *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) {
		user.Token, user.AuthProvider = "", &clientcmdapi.AuthProviderConfig{Name: "oidc", Config: map[string]string{"idp-issuer-url": "https://192.0.2.1"}}
	},
	"users[].user.client-certificate": func(_ *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) {
		user.Token, user.ClientCertificate, user.ClientKey = "", ownFiles+"token", ownFiles+"token"
	},
	"users[].user.as": func(_ *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) {
		user.Impersonate = "system:admin"
	},
	"users[].user.username": func(_ *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) {
		user.Token, user.Username, user.Password = "", "nova", "nova"
	},
	"clusters[].cluster.proxy-url": func(cluster *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
		cluster.ProxyURL, cluster.Server = cluster.Server, "https://kubernetes.default.svc"
	},
	"clusters[].cluster.certificate-authority": func(cluster *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
		cluster.CertificateAuthority, cluster.CertificateAuthorityData = ownFiles+"ca.crt", nil
	},
	"clusters[].cluster.insecure-skip-tls-verify": func(cluster *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
		cluster.InsecureSkipTLSVerify, cluster.CertificateAuthorityData = true, nil
	},
	"clusters[].cluster.server": func(cluster *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
		cluster.Server, cluster.CertificateAuthorityData = strings.Replace(cluster.Server, "https:", "http:", 1), nil
	},
}

// executed is created by the program that a kubeconfig names.
func executed() string { return filepath.Join(b.Dir, "executed") }

var _ = Describe("A kubeconfig of a tenant", Ordered, ContinueOnFailure, func() {
	const namespace = "red-kubeconfigs"
	var server *evil

	// clusterWith is the name of the cluster whose kubeconfig has a field.
	clusterWith := func(field string) string { return strings.ToLower(field[strings.LastIndex(field, ".")+1:]) }

	BeforeAll(func(ctx context.Context) {
		user := tenantUser(ctx, namespace)
		server = listen(ctx, nil)
		withdraw(namespace)
		for field := range refusedKubeconfigs {
			Expect(user.Create(ctx, bareClusterObject(namespace, clusterWith(field), server.Address))).To(Succeed())
		}
		for field := range refusedKubeconfigs {
			Eventually(func(g Gomega) {
				cluster := &clusterv1.Cluster{}
				g.Expect(b.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: clusterWith(field)}, cluster)).To(Succeed())
				g.Expect(cluster.Status.Initialization.InfrastructureProvisioned).To(HaveValue(BeTrue()))
			}).Should(Succeed())
		}
		// Cluster API's own manager connects wherever a kubeconfig leads. Only the
		// policy protects it, so it stops while the others are watched.
		Expect(b.Kill(bed.CoreManager, syscall.SIGSTOP)).To(Succeed())
		DeferCleanup(func() { Expect(b.Kill(bed.CoreManager, syscall.SIGCONT)).To(Succeed()) })
		for field, change := range refusedKubeconfigs {
			name := clusterWith(field)
			config := kubeconfigOf(server)
			change(config.Clusters["evil"], config.AuthInfos["evil"])
			Expect(b.Client.Create(ctx, kubeconfigSecret(namespace, name, config))).To(Succeed())
			// The stopped manager would set label and owner.
			cluster := &clusterv1.Cluster{}
			Expect(user.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, cluster)).To(Succeed())
			plane := barePlane(namespace, name)
			plane.SetLabels(map[string]string{clusterv1.ClusterNameLabel: name})
			plane.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(cluster, clusterv1.GroupVersion.WithKind("Cluster"))})
			Expect(user.Create(ctx, plane)).To(Succeed())
		}
	})

	// refusers are the controllers that recorded the refusal of a cluster's
	// kubeconfig with its field, one of each manager that connects.
	refusers := func(ctx context.Context, field string) ([]string, error) {
		list := &eventsv1.EventList{}
		err := b.Client.List(ctx, list, client.InNamespace(namespace))
		var all []string
		for i := range list.Items {
			e := &list.Items[i]
			if e.Reason == workload.KubeconfigRefusedReason && e.Regarding.Name == clusterWith(field) && strings.Contains(e.Note, " "+field+" ") {
				all = append(all, e.ReportingController)
			}
		}
		return all, err
	}

	for field := range refusedKubeconfigs {
		It("sends nothing and executes nothing with "+field+" [F1]", func(ctx context.Context) {
			plane := object(planeV, "NovaControlPlane", namespace, clusterWith(field), nil)
			Eventually(conditionsOf(plane)).WithContext(ctx).Should(ContainSubstring(" " + field + " "))
			Eventually(refusers).WithContext(ctx).WithArguments(field).
				Should(ContainElements("novaconfig", "novacontrolplane", "novamoduleset"))
			Expect(server.Connections()).To(BeEmpty())
			Expect(executed()).NotTo(BeAnExistingFile())
		})
	}
})
