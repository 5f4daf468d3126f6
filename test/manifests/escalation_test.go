package manifests

import (
	"cmp"
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

// asManager returns the configuration of a manager's ServiceAccount, with a
// token of its own.
func asManager(ctx context.Context, p Provider) *rest.Config {
	GinkgoHelper()
	return asAccount(ctx, p.Namespace(), p.Dir+"-manager")
}

func asAccount(ctx context.Context, namespace, name string) *rest.Config {
	GinkgoHelper()
	request := &authenticationv1.TokenRequest{}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	Expect(server.Client.SubResource("token").Create(ctx, account, request)).To(Succeed())
	config := rest.AnonymousClientConfig(server.Config)
	config.BearerToken = request.Status.Token
	return config
}

func clientFor(config *rest.Config) client.Client {
	GinkgoHelper()
	c, err := client.New(config, client.Options{Scheme: server.Scheme, Mapper: server.Client.RESTMapper()})
	Expect(err).NotTo(HaveOccurred())
	return c
}

func providerOf(dir string) Provider {
	GinkgoHelper()
	for _, p := range Providers() {
		if p.Dir == dir {
			return p
		}
	}
	Fail("no provider " + dir)
	return Provider{}
}

var forbidden = Satisfy(apierrors.IsForbidden)

var _ = DescribeTable("a manager with its own token gets no other identity:", func(ctx SpecContext, p Provider) {
	config := asManager(ctx, p)
	c := clientFor(config)
	namespace := newNamespace(ctx)

	By("creating no token of a ServiceAccount")
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace(), Name: p.Dir + "-manager"}}
	Expect(c.SubResource("token").Create(ctx, account, &authenticationv1.TokenRequest{})).To(forbidden)

	By("creating no Secret that Kubernetes fills with such a token")
	for _, kind := range []corev1.SecretType{corev1.SecretTypeServiceAccountToken, corev1.SecretTypeBootstrapToken, corev1.SecretTypeOpaque} {
		Eventually(func() error {
			return c.Create(ctx, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: namespace, GenerateName: "token-", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"},
				},
				Type: kind,
			}, client.DryRunAll)
		}).WithTimeout(policyTimeout).Should(forbidden, "%s", kind)
	}

	By("impersonating no other user, group or ServiceAccount")
	for _, other := range []rest.ImpersonationConfig{
		{UserName: "admin"}, {UserName: p.ServiceAccount(), Groups: []string{"system:masters"}},
		{UserName: "system:serviceaccount:kube-system:namespace-controller"},
	} {
		as := rest.CopyConfig(config)
		as.Impersonate = other
		Expect(clientFor(as).List(ctx, &corev1.SecretList{}, client.InNamespace(namespace))).To(forbidden, other.UserName)
	}
}, entries())

// write is a request that a manager sends. It changes nothing.
type write func(ctx context.Context, c client.Client, namespace string) error

func secretOf(kind corev1.SecretType) write {
	return func(ctx context.Context, c client.Client, namespace string) error {
		return c.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "new"}, Type: kind}, client.DryRunAll)
	}
}

// certificateOf creates a certificate with its key, in the namespace of the test if
// none is set.
func certificateOf(name, in string) write {
	return namedSecret(name, in, corev1.SecretTypeTLS, map[string][]byte{corev1.TLSCertKey: nil, corev1.TLSPrivateKeyKey: nil})
}

// keyOf creates a key in the same way.
func keyOf(name, in string) write {
	return namedSecret(name, in, corev1.SecretTypeOpaque, nil)
}

func namedSecret(name, in string, kind corev1.SecretType, data map[string][]byte) write {
	return func(ctx context.Context, c client.Client, namespace string) error {
		return c.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: cmp.Or(in, namespace), Name: name}, Type: kind, Data: data,
		}, client.DryRunAll)
	}
}

// stored is an object that an administrator has created and a manager changes.
func stored(o func() client.Object, change func(context.Context, client.Client, client.Object) error) write {
	return func(ctx context.Context, c client.Client, namespace string) error {
		object := o()
		if namespaced, err := server.Client.IsObjectNamespaced(object); err != nil || namespaced {
			object.SetNamespace(namespace)
		}
		if err := server.Client.Create(ctx, object); client.IgnoreAlreadyExists(err) != nil {
			return err
		}
		return change(ctx, c, object)
	}
}

// machineReady is the condition of a Machine that has a status.
const machineReady = `{"type":"Ready","status":"False","reason":"NotReady","message":"","lastTransitionTime":"2026-11-27T12:00:00Z"}`

// machineWithStatus is a Machine with a Node and a condition.
func machineWithStatus() client.Object {
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{GenerateName: "some-"}}
	machine.Spec.ClusterName = "blue"
	machine.Spec.Bootstrap.DataSecretName = ptr.To("data")
	machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infraGroup, Kind: "NovaVSphereMachine", Name: "w-1"}
	return machine
}

// statusPatch gives a Machine a status as its administrator, and patches it as the manager.
func statusPatch(patch string) func(context.Context, client.Client, client.Object) error {
	return func(ctx context.Context, c client.Client, o client.Object) error {
		before := client.RawPatch(types.MergePatchType, []byte(`{"status":{"nodeRef":{"name":"w-1"},"conditions":[`+machineReady+`]}}`))
		if err := server.Client.Status().Patch(ctx, o, before); err != nil {
			return err
		}
		return c.Status().Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"status":`+patch+`}`)), client.DryRunAll)
	}
}

func annotated(ctx context.Context, c client.Client, o client.Object) error {
	return c.Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"a":"b"}}}`)), client.DryRunAll)
}

func updated(ctx context.Context, c client.Client, o client.Object) error {
	return c.Update(ctx, o, client.DryRunAll)
}

func deleted(ctx context.Context, c client.Client, o client.Object) error {
	return c.Delete(ctx, o, client.DryRunAll)
}

func someSecret(kind corev1.SecretType) func() client.Object {
	return func() client.Object {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "some-"}, Type: kind}
	}
}

func kubeconfigForUsers() client.Object {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "blue-kubeconfig-oidc"}, Type: clusterv1.ClusterSecretType}
}

func configMap(name string, labels map[string]string) func() client.Object {
	return func() client.Object {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	}
}

func created(o func() client.Object) write {
	return func(ctx context.Context, c client.Client, namespace string) error {
		object := o()
		if namespaced, err := server.Client.IsObjectNamespaced(object); err != nil || namespaced {
			object.SetNamespace(namespace)
		}
		return c.Create(ctx, object, client.DryRunAll)
	}
}

// foreign are kinds of another project's infrastructure provider.
var foreign = map[string]apiextensionsv1.ResourceScope{
	"ForeignMachine": apiextensionsv1.NamespaceScoped, "ForeignMachineTemplate": apiextensionsv1.NamespaceScoped,
	"ForeignCluster": apiextensionsv1.NamespaceScoped, "ForeignIdentity": apiextensionsv1.ClusterScoped,
}

func installForeign() {
	GinkgoHelper()
	var definitions []*apiextensionsv1.CustomResourceDefinition
	for kind, scope := range foreign {
		plural := strings.ToLower(strings.TrimSuffix(kind, "y")) + "s"
		definitions = append(definitions, &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: plural + "." + infraGroup},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: infraGroup, Scope: scope,
				Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, Plural: plural, Singular: strings.ToLower(kind), ListKind: kind + "List"},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
					Name: infrav1.GroupVersion.Version, Served: true, Storage: true,
					Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
						Type: "object", XPreserveUnknownFields: new(true),
					}},
				}},
			},
		})
	}
	_, err := envtest.InstallCRDs(server.Config, envtest.CRDInstallOptions{CRDs: definitions})
	Expect(err).NotTo(HaveOccurred())
}

// ofInfra is an object of a kind that only its definition knows.
func ofInfra(kind string) func() client.Object {
	return func() client.Object {
		o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
		o.SetGroupVersionKind(infrav1.GroupVersion.WithKind(kind))
		o.SetGenerateName("some-")
		return o
	}
}

// wellFormed is an object with all required fields.
func wellFormed(template client.Object) func() client.Object {
	return func() client.Object {
		o, _ := template.DeepCopyObject().(client.Object)
		o.SetGenerateName("some-")
		return o
	}
}

func respec(ctx context.Context, c client.Client, o client.Object) error {
	return c.Patch(ctx, o, client.RawPatch("application/merge-patch+json",
		[]byte(`{"spec":{"template":{"spec":{"template":{"name":"another"}}}}}`)), client.DryRunAll)
}

var lockOf = map[string]string{clusterv1.ClusterNameLabel: "blue"}

var _ = DescribeTable("a write of a manager", func(ctx SpecContext, dir string, request write, refusal string) {
	c := clientFor(asManager(ctx, providerOf(dir)))
	namespace := newNamespace(ctx)
	// A policy is enforced a moment after it was applied.
	if refusal != "" {
		Eventually(func() error { return request(ctx, c, namespace) }).WithTimeout(policyTimeout).Should(And(forbidden, MatchError(ContainSubstring(refusal))))
		return
	}
	Eventually(func() error { return request(ctx, c, namespace) }).WithTimeout(policyTimeout).Should(Succeed())
},
	Entry("bootstrap data", "nova-bootstrap", secretOf(clusterv1.ClusterSecretType), ""),
	Entry("bootstrap data of a machine that restores", "nova-bootstrap", stored(someSecret(clusterv1.ClusterSecretType), updated), ""),
	Entry("a Secret of a user", "nova-bootstrap", stored(someSecret(corev1.SecretTypeOpaque), updated), "may write only Secrets of type"),
	Entry("a Secret of the restore, which is another manager's", "nova-bootstrap", secretOf(controlplanev1.EtcdRestoreSecretType), "may write only Secrets of type"),
	Entry("the certificate of its runtime extension", "nova-bootstrap", certificateOf("nova-bootstrap-runtime-extension", "nova-bootstrap-system"), ""),
	Entry("such a certificate in a namespace of a user", "nova-bootstrap", certificateOf("nova-bootstrap-runtime-extension", ""), "may write only Secrets of type"),
	Entry("the key that signs tokens for Puppet servers", "nova-bootstrap", keyOf("nova-bootstrap-configuration-manager", "nova-bootstrap-system"), ""),
	Entry("such a key in a namespace of a user", "nova-bootstrap", keyOf("nova-bootstrap-configuration-manager", ""), "may write only Secrets of type"),
	Entry("another key", "nova-bootstrap", keyOf("other", "nova-bootstrap-system"), "may write only Secrets of type"),
	Entry("another certificate", "nova-bootstrap", certificateOf("other", "nova-bootstrap-system"), "may write only Secrets of type"),
	Entry("a lock", "nova-bootstrap", created(configMap("blue-lock", lockOf)), ""),
	Entry("a lock that exists", "nova-bootstrap", stored(configMap("blue-lock", lockOf), updated), ""),
	Entry("another ConfigMap", "nova-bootstrap", created(configMap("coredns", nil)), "may write only ConfigMaps with the lock"),
	Entry("another ConfigMap of a cluster", "nova-bootstrap", stored(configMap("blue-files", lockOf), updated), "may write only ConfigMaps with the lock"),
	Entry("a lock whose label names another cluster", "nova-bootstrap", created(configMap("red-lock", lockOf)), "may write only ConfigMaps with the lock"),

	Entry("the condition of a Machine about Puppet", "nova-bootstrap", stored(machineWithStatus, statusPatch(`{"conditions":[{"type":"ConfigurationApplied","status":"True","reason":"Applied","message":"","lastTransitionTime":"2026-11-27T12:00:00Z"},`+machineReady+`]}`)), ""),
	Entry("another condition of a Machine", "nova-bootstrap", stored(machineWithStatus, statusPatch(`{"conditions":[{"type":"Ready","status":"True","reason":"Ready","message":"","lastTransitionTime":"2026-11-27T12:00:00Z"}]}`)), "may change only the condition ConfigurationApplied"),
	Entry("the Node of a Machine", "nova-bootstrap", stored(machineWithStatus, statusPatch(`{"nodeRef":{"name":"another"}}`)), "may change only the condition ConfigurationApplied"),
	Entry("no Node of a Machine any more", "nova-bootstrap", stored(machineWithStatus, statusPatch(`{"nodeRef":null}`)), "may change only the condition ConfigurationApplied"),
	Entry("the phase of a Machine", "nova-bootstrap", stored(machineWithStatus, statusPatch(`{"phase":"Running"}`)), "may change only the condition ConfigurationApplied"),

	Entry("a CA", "nova-control-plane", secretOf(clusterv1.ClusterSecretType), ""),
	Entry("a kubeconfig that exists", "nova-control-plane", stored(someSecret(clusterv1.ClusterSecretType), updated), ""),
	Entry("the source of a restore", "nova-control-plane", secretOf(controlplanev1.EtcdRestoreSecretType), ""),
	Entry("the source of a finished restore", "nova-control-plane", stored(someSecret(controlplanev1.EtcdRestoreSecretType), deleted), ""),
	Entry("a Secret of a user", "nova-control-plane", stored(someSecret(corev1.SecretTypeOpaque), updated), "may write only Secrets of type"),
	Entry("the kubeconfig for users, to delete it", "nova-control-plane", stored(kubeconfigForUsers, deleted), ""),
	Entry("a CA, to delete it", "nova-control-plane", stored(someSecret(clusterv1.ClusterSecretType), deleted), "and delete only those of the latter type"),
	Entry("a Secret of a user, to delete it", "nova-control-plane", stored(someSecret(corev1.SecretTypeOpaque), deleted), "and delete only those of the latter type"),
	Entry("a lock", "nova-control-plane", created(configMap("blue-lock", lockOf)), ""),
	Entry("another ConfigMap", "nova-control-plane", created(configMap("coredns", nil)), "may write only ConfigMaps with the lock"),

	Entry("a machine", "nova-control-plane", created(wellFormed(vsphereMachine(""))), ""),
	Entry("a machine that exists", "nova-control-plane", stored(wellFormed(vsphereMachine("")), annotated), ""),
	Entry("a machine, to delete it", "nova-control-plane", stored(wellFormed(vsphereMachine("")), deleted), ""),
	Entry("the owners of a machine template", "nova-control-plane", stored(wellFormed(machineTemplate().template), annotated), ""),
	Entry("the spec of a machine template", "nova-control-plane", stored(wellFormed(machineTemplate().template), respec), "may change only the metadata of a machine template"),
	Entry("a new machine template", "nova-control-plane", created(wellFormed(machineTemplate().template)), "may write only machines of infrastructure"),
	Entry("a machine template, to delete it", "nova-control-plane", stored(wellFormed(machineTemplate().template), deleted), "may write only machines of infrastructure"),
	Entry("a machine of a foreign provider", "nova-control-plane", created(ofInfra("ForeignMachine")), ""),
	Entry("a machine of a foreign provider, to delete it", "nova-control-plane", stored(ofInfra("ForeignMachine"), deleted), ""),
	Entry("the owners of a foreign template", "nova-control-plane", stored(ofInfra("ForeignMachineTemplate"), annotated), ""),
	Entry("a foreign cluster", "nova-control-plane", created(ofInfra("ForeignCluster")), "may write only machines of infrastructure"),
	Entry("an identity", "nova-control-plane", created(ofInfra("ForeignIdentity")), "may write only machines of infrastructure"),
	Entry("an identity that exists", "nova-control-plane", stored(ofInfra("ForeignIdentity"), annotated), "may write only machines of infrastructure"),
	Entry("an identity, to delete it", "nova-control-plane", stored(ofInfra("ForeignIdentity"), deleted), "may write only machines of infrastructure"),
	Entry("an infrastructure cluster", "nova-control-plane", created(wellFormed(vsphereCluster(""))), "may write only machines of infrastructure"),
)
