package vault

import (
	"context"
	"errors"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/hashicorp/vault/api"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/certs"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/certificates"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
	vaultclient "github.com/nova-platform/cluster-api-provider-nova/internal/vault"
)

// prepared is a vault that an administrator has prepared by the script of the release,
// with both managers.
type prepared struct {
	*vault

	kube client.WithWatch
	// controlPlane and bootstrap are the authorities of the managers.
	controlPlane, bootstrap *pki.Authorities
}

var (
	blue  = client.ObjectKey{Namespace: "tenants", Name: "blue"}
	owner = metav1.OwnerReference{APIVersion: "controlplane.cluster.x-k8s.io/v1beta2", Kind: "NovaControlPlane", Name: "blue", UID: "1"}
)

func prepare(ctx context.Context, program string, clusters ...client.ObjectKey) *prepared {
	GinkgoHelper()
	p := prepareFor(ctx, program, controlplanev1.VaultAuth{Method: controlplanev1.VaultAppRole, SecretRef: controlplanev1.VaultSecretReference{Name: "vault"}})
	for _, key := range clusters {
		p.cluster(ctx, key)
	}
	p.controlPlane, p.bootstrap = p.manager(ctx, "nova-control-plane"), p.manager(ctx, "nova-bootstrap")
	return p
}

// prepareFor prepares a vault, and an identity with which managers sign in to it.
func prepareFor(ctx context.Context, program string, auth controlplanev1.VaultAuth) *prepared {
	GinkgoHelper()
	p := &prepared{vault: startVault(ctx, program)}
	for range 2 { // it can be run again
		Expect(p.Prepare(ctx)).To(Succeed())
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, clusterv1.AddToScheme, controlplanev1.AddToScheme} {
		Expect(add(scheme)).To(Succeed())
	}
	p.kube = fake.NewClientBuilder().WithScheme(scheme).Build()
	server, err := url.Parse(p.URL)
	Expect(err).NotTo(HaveOccurred())
	identity := &controlplanev1.NovaStarVaultIdentity{ObjectMeta: metav1.ObjectMeta{Name: "vault"}}
	identity.Spec = controlplanev1.NovaStarVaultIdentitySpec{
		Server: server.Host, CABundle: string(p.CA), AllowedNamespaces: controlplanev1.VaultNamespaces{List: []string{"tenants"}}, Auth: auth,
	}
	Expect(p.kube.Create(ctx, identity)).To(Succeed())
	return p
}

// cluster creates the objects of a cluster.
func (p *prepared) cluster(ctx context.Context, key client.ObjectKey) {
	GinkgoHelper()
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: controlplanev1.GroupVersion.Group, Kind: "NovaControlPlane", Name: key.Name}
	controlPlane := &controlplanev1.NovaControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	controlPlane.Spec.Platform.PKI.StarVault.IdentityName = "vault"
	Expect(p.kube.Create(ctx, cluster)).To(Succeed())
	Expect(p.kube.Create(ctx, controlPlane)).To(Succeed())
}

// manager returns the authority of a manager with the credentials of its role.
func (p *prepared) manager(ctx context.Context, name string) *pki.Authorities {
	GinkgoHelper()
	credentials, err := p.Credentials(ctx, name)
	Expect(err).NotTo(HaveOccurred())
	Expect(p.kube.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name + "-system", Name: "vault"}, Data: map[string][]byte{
		"roleID": []byte(credentials["roleID"]), "secretID": []byte(credentials["secretID"]),
	}})).To(Succeed())
	return &pki.Authorities{Kube: p.kube, Namespace: name + "-system", Manager: name}
}

// node signs in as the machine that initializes a cluster.
func (p *prepared) node(ctx context.Context, login *pki.NodeLogin) *api.Client {
	GinkgoHelper()
	c := p.as("")
	c.ClearToken()
	unwrapped, err := c.Logical().UnwrapWithContext(ctx, login.WrappedSecretID)
	Expect(err).NotTo(HaveOccurred())
	answer, err := c.Logical().WriteWithContext(ctx, "auth/"+login.AuthPath+"/login", map[string]any{"role_id": login.RoleID, "secret_id": unwrapped.Data["secret_id"]})
	Expect(err).NotTo(HaveOccurred())
	_, err = c.Logical().WriteWithContext(ctx, "auth/"+login.AuthPath+"/login", map[string]any{"role_id": login.RoleID, "secret_id": unwrapped.Data["secret_id"]})
	Expect(err).To(HaveOccurred(), "the secret ID is valid once")
	c.SetToken(answer.Auth.ClientToken)
	return c
}

func haveProblem(problem vaultclient.Problem) OmegaMatcher {
	return WithTransform(func(err error) vaultclient.Problem {
		if found, is := errors.AsType[*vaultclient.Error](err); is {
			return found.Problem
		}
		return ""
	}, Equal(problem))
}

var _ = Describe("The certificates of clusters", func() {
	for _, program := range programs() {
		It("are signed with the rights that the managers and nodes have: "+program, func(ctx SpecContext) {
			other := client.ObjectKey{Namespace: "tenants", Name: "blue.x"}
			p := prepare(ctx, program, blue, other)
			By("making the authorities once")
			_, err := p.controlPlane.ClusterCA(ctx, blue)
			Expect(err).To(MatchError(pki.ErrNotFound))
			Expect(p.controlPlane.Ensure(ctx, blue, owner, 0)).To(Succeed())
			Expect(p.controlPlane.Ensure(ctx, other, owner, 0)).To(Succeed())
			ca, err := p.bootstrap.ClusterCA(ctx, blue)
			Expect(err).NotTo(HaveOccurred())
			for _, name := range []string{"blue-ca", "blue-etcd", "blue-proxy"} {
				s := &corev1.Secret{}
				Expect(p.kube.Get(ctx, client.ObjectKey{Namespace: "tenants", Name: name}, s)).To(Succeed())
				Expect(s.Data).To(And(HaveKey("tls.crt"), Not(HaveKey("tls.key"))))
				Expect(p.kube.Delete(ctx, s)).To(Succeed())
			}
			Expect(p.controlPlane.Ensure(ctx, blue, owner, 0)).To(Succeed(), "as after a crash before the Secrets")
			Expect(p.controlPlane.ClusterCA(ctx, blue)).To(Equal(ca))

			By("signing for the managers")
			for _, group := range []string{"nova:managers", "system:masters"} {
				pair, err := p.controlPlane.Client(ctx, blue, pki.ClientRequest{CommonName: "nova-control-plane", Organizations: []string{group}, TTL: time.Hour})
				Expect(err).NotTo(HaveOccurred())
				certificate, err := certs.DecodeCertPEM(pair.Certificate)
				Expect(err).NotTo(HaveOccurred())
				Expect(certificate.Subject.Organization).To(Equal([]string{group}))
				Expect(time.Until(certificate.NotAfter)).To(BeNumerically("~", time.Hour, time.Minute))
			}
			_, err = p.controlPlane.Client(ctx, blue, pki.ClientRequest{CommonName: "kubernetes-admin", Organizations: []string{"nova:cluster-admins"}, TTL: time.Hour})
			Expect(err).NotTo(HaveOccurred())
			etcd := pki.ClientRequest{CommonName: "nova-control-plane", TTL: time.Minute}
			pair, _, err := p.controlPlane.EtcdClient(ctx, blue, etcd)
			Expect(err).NotTo(HaveOccurred())
			again, _, err := p.controlPlane.EtcdClient(ctx, blue, etcd)
			Expect(err).NotTo(HaveOccurred())
			Expect(again).To(Equal(pair), "etcd is queried often: no request for each query")
			different, _, err := p.controlPlane.EtcdClient(ctx, other, etcd)
			Expect(err).NotTo(HaveOccurred())
			Expect(different).NotTo(Equal(pair))
			_, err = p.bootstrap.Client(ctx, blue, pki.ClientRequest{CommonName: "nova:machine:1", Organizations: []string{"system:bootstrappers:nova"}, TTL: time.Hour})
			Expect(err).NotTo(HaveOccurred())
			_, err = p.bootstrap.Client(ctx, blue, pki.ClientRequest{CommonName: "kubernetes-admin", Organizations: []string{"nova:cluster-admins"}, TTL: time.Hour})
			Expect(err).To(haveProblem(vaultclient.Forbidden))
			_, err = p.controlPlane.Client(ctx, blue, pki.ClientRequest{CommonName: "eve", Organizations: []string{"system:masters"}, TTL: time.Hour})
			Expect(err).To(MatchError(ContainSubstring("no role")))

			By("signing for nodes")
			names := certificates.Names{Node: "blue-1", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.5")}, DNSNames: []string{"api.example.com"}, IPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")}}
			for _, c := range certificates.Of(true, false) {
				request := pki.SignRequest{Role: c.Name, Authority: c.Authority, Request: []byte(certificateRequest()), CommonName: c.Subject("blue-1"), Client: c.Client, Server: c.Server, TTL: 24 * time.Hour}
				if c.Organization != "" {
					request.Organizations = []string{c.Organization}
				}
				request.DNSNames, request.IPs = names.Of(c)
				_, err := p.bootstrap.Sign(ctx, blue, request)
				Expect(err).NotTo(HaveOccurred(), c.Name)
				_, err = p.controlPlane.Sign(ctx, blue, request)
				Expect(err).To(haveProblem(vaultclient.Forbidden), c.Name)
			}
			serving := pki.SignRequest{Role: pki.RoleKubeletServing, Authority: certificates.Kubernetes, Request: []byte(certificateRequest()), CommonName: "system:node:blue-1", Organizations: []string{"system:nodes"}, Server: true, DNSNames: []string{"blue-1"}, IPs: names.Addresses, TTL: time.Hour}
			_, err = p.bootstrap.Sign(ctx, blue, serving)
			Expect(err).NotTo(HaveOccurred())

			By("letting the first machine sign for its own cluster, once")
			_, err = p.controlPlane.NodeLogin(ctx, blue, time.Hour)
			Expect(err).To(haveProblem(vaultclient.Forbidden))
			login, err := p.bootstrap.NodeLogin(ctx, blue, time.Hour)
			Expect(err).NotTo(HaveOccurred())
			node := p.node(ctx, login)
			sign := func(mount, role, name string) error {
				_, err := node.Logical().WriteWithContext(ctx, mount+"/sign/"+role, map[string]any{"csr": certificateRequest(), "common_name": name, "exclude_cn_from_sans": true, "ttl": "1h"})
				return err
			}
			Expect(sign(login.MountPath+"/kubernetes", "scheduler", "system:kube-scheduler")).To(Succeed())
			Expect(sign(login.MountPath+"/kubernetes", "scheduler", "system:kube-controller-manager")).To(MatchError(ContainSubstring("not allowed")))
			Expect(sign(login.MountPath+"/kubernetes", "permissions", "nova-bootstrap")).To(MatchError(ContainSubstring("403")))
			Expect(sign("nova/tenants.blue.x/kubernetes", "scheduler", "system:kube-scheduler")).To(MatchError(ContainSubstring("403")))
			for _, path := range []string{login.MountPath + "/kubernetes/sign-verbatim", login.MountPath + "/kubernetes/root/generate/internal", login.MountPath + "/kubernetes/issue/scheduler", "sys/policies/acl/x"} {
				_, err := node.Logical().WriteWithContext(ctx, path, map[string]any{"csr": certificateRequest(), "common_name": "x"})
				Expect(err).To(MatchError(ContainSubstring("403")), path)
			}
			_, err = p.as("").Logical().UnwrapWithContext(ctx, login.WrappedSecretID)
			Expect(err).To(HaveOccurred(), "the wrapped secret ID can be read once")

			By("refusing managers what they do not need")
			manager := p.as(p.token(ctx, "nova-control-plane"))
			for path, data := range map[string]map[string]any{
				"sys/policies/acl/nova-node":                          {"policy": ""},
				"sys/mounts/nova/tenants.blue/other":                  {"type": "pki"},
				"sys/mounts/nova/tenants.green/kubernetes":            {"type": "kv"},
				"auth/nova-nodes/role/tenants.blue":                   {"token_policies": "root"},
				"auth/nova-nodes/role/tenants.blue/secret-id":         {},
				"nova/tenants.blue/kubernetes/root/generate/exported": {"common_name": "x"},
				"nova/tenants.blue/kubernetes/root/rotate/exported":   {"common_name": "x"},
				"nova/tenants.blue/kubernetes/sign-verbatim":          {"csr": certificateRequest()},
				"nova/tenants.blue/kubernetes/root/sign-intermediate": {"csr": certificateRequest(), "common_name": "kubernetes", "max_path_length": "0"},
				"nova/tenants.blue/kubernetes/root/sign-self-issued":  {"certificate": "x"},
				"nova/tenants.blue/kubernetes/issuers/import/bundle":  {"pem_bundle": "x"},
				"nova/tenants.blue/kubernetes/issuer/default":         {"leaf_not_after_behavior": "permit"},
				"nova/tenants.blue/etcd/intermediate/cross-sign":      {"common_name": "etcd-ca"},
				"auth/approle/role/nova-bootstrap/secret-id":          {},
			} {
				_, err := manager.Logical().WriteWithContext(ctx, path, data)
				Expect(err).To(MatchError(ContainSubstring("403")), path)
			}
			for _, data := range []map[string]any{{"common_name": "kubernetes"}, {"common_name": "kubernetes", "max_path_length": "1"}, {"common_name": "x", "max_path_length": "0"}, {"common_name": "kubernetes", "max_path_length": "0", "use_csr_values": true}} {
				data["csr"] = certificateRequest()
				_, err := manager.Logical().WriteWithContext(ctx, "nova/tenants.blue/kubernetes/issuer/default/sign-intermediate", data)
				Expect(err).To(MatchError(ContainSubstring("403")), "%v", data)
			}
			_, err = manager.Logical().DeleteWithContext(ctx, "nova/tenants.blue/kubernetes/key/default")
			Expect(err).To(MatchError(ContainSubstring("403")), "the key of a CA")
			manager = p.as(p.token(ctx, "nova-bootstrap"))
			_, err = manager.Logical().WriteWithContext(ctx, "auth/nova-nodes/role/tenants.blue/secret-id", map[string]any{})
			Expect(err).To(MatchError(ContainSubstring("403")), "a secret ID that is not wrapped")

			By("reporting problems")
			write(ctx, p.root, "nova/tenants.blue/kubernetes/roles/scheduler", map[string]any{"allow_any_name": true, "enforce_hostnames": false, "key_type": "any", "client_flag": true, "organization": "system:masters"})
			_, err = p.bootstrap.NodeLogin(ctx, blue, time.Hour)
			Expect(err).To(haveProblem(vaultclient.Unsuitable))
			_, err = p.bootstrap.Sign(ctx, blue, pki.SignRequest{Role: "scheduler", Authority: certificates.Kubernetes, Request: []byte(certificateRequest()), CommonName: "system:kube-scheduler", Client: true, TTL: time.Hour})
			Expect(err).To(haveProblem(vaultclient.Unsuitable))
			Expect(p.root.Sys().SealWithContext(ctx)).To(Succeed())
			_, err = p.bootstrap.Sign(ctx, blue, serving)
			Expect(err).To(haveProblem(vaultclient.Sealed))
			Expect(p.bootstrap.Check(ctx, blue, owner)).To(Succeed(), "a vault that is away")
			p.Stop()
			_, err = p.bootstrap.Sign(ctx, blue, serving)
			Expect(err).To(haveProblem(vaultclient.Unreachable))
			Expect(err.Error()).NotTo(ContainSubstring("hvs."))
			Expect(p.Restart(ctx)).To(Succeed())
			_, err = p.bootstrap.Sign(ctx, blue, serving)
			Expect(err).NotTo(HaveOccurred())
			s := &corev1.Secret{}
			Expect(p.kube.Get(ctx, client.ObjectKey{Namespace: "nova-bootstrap-system", Name: "vault"}, s)).To(Succeed())
			s.Data["secretID"] = []byte("wrong")
			Expect(p.kube.Update(ctx, s)).To(Succeed())
			_, err = p.bootstrap.Sign(ctx, blue, serving)
			Expect(err).To(haveProblem(vaultclient.CredentialsRejected))
			Expect(err.Error()).NotTo(ContainSubstring("wrong"))
			identity := &controlplanev1.NovaStarVaultIdentity{}
			Expect(p.kube.Get(ctx, client.ObjectKey{Name: "vault"}, identity)).To(Succeed())
			identity.Spec.AllowedNamespaces.List = []string{"others"}
			Expect(p.kube.Update(ctx, identity)).To(Succeed())
			_, err = p.bootstrap.Sign(ctx, blue, serving)
			Expect(err).To(MatchError(ContainSubstring("does not allow the namespace")))
		}, SpecTimeout(buildTimeout+changeTimeout))
	}
})

// token returns a token of a manager.
func (p *prepared) token(ctx context.Context, name string) string {
	GinkgoHelper()
	credentials, err := p.Credentials(ctx, name)
	Expect(err).NotTo(HaveOccurred())
	answer, err := p.as("").Logical().WriteWithContext(ctx, "auth/approle/login", map[string]any{"role_id": credentials["roleID"], "secret_id": credentials["secretID"]})
	Expect(err).NotTo(HaveOccurred())
	Expect(strings.TrimSpace(answer.Auth.ClientToken)).NotTo(BeEmpty())
	return answer.Auth.ClientToken
}
