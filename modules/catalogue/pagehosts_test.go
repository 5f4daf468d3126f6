package catalogue

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// routeKinds are the kinds of other projects that publish host names. The policy reads objects as they
// are sent, so the definitions of the test have no schema.
var routeKinds = map[string]string{
	"Gateway": "gateway.networking.k8s.io", "ListenerSet": "gateway.networking.k8s.io", "HTTPRoute": "gateway.networking.k8s.io",
	"IngressRoute": "traefik.io", "IngressRouteTCP": "traefik.io", "Certificate": "cert-manager.io", "CertificateRequest": "cert-manager.io",
}

// zone is the zone of the pages of the sites.
const zone = "nova.apps.example"

// refusedHosts are the specs of objects that a team may not write.
var refusedHosts = map[string]string{
	"Ingress of a page":              "{kind: Ingress, apiVersion: networking.k8s.io/v1, spec: {rules: [{host: nova-grafana-main.nova.apps.example}]}}",
	"Ingress of the zone":            "{kind: Ingress, apiVersion: networking.k8s.io/v1, spec: {rules: [{host: shop.apps.example}, {host: nova.apps.example}]}}",
	"Ingress with a wildcard":        "{kind: Ingress, apiVersion: networking.k8s.io/v1, spec: {rules: [{host: '*.nova.apps.example'}]}}",
	"Ingress with the base domain":   "{kind: Ingress, apiVersion: networking.k8s.io/v1, spec: {rules: [{host: '*.apps.example'}]}}",
	"Ingress without a host":         "{kind: Ingress, apiVersion: networking.k8s.io/v1, spec: {rules: [{http: {paths: [{path: /long, pathType: Prefix, backend: {service: {name: a, port: {number: 80}}}}]}}]}}",
	"Ingress with a default":         "{kind: Ingress, apiVersion: networking.k8s.io/v1, spec: {defaultBackend: {service: {name: a, port: {number: 80}}}}}",
	"Ingress with a record":          "{kind: Ingress, apiVersion: networking.k8s.io/v1, metadata: {annotations: {external-dns.alpha.kubernetes.io/hostname: x.nova.apps.example}}, spec: {rules: [{host: shop.apps.example}]}}",
	"HTTPRoute of a page":            "{kind: HTTPRoute, apiVersion: gateway.networking.k8s.io/v1, spec: {hostnames: [shop.apps.example, nova-oauth.nova.apps.example]}}",
	"HTTPRoute with a wildcard":      "{kind: HTTPRoute, apiVersion: gateway.networking.k8s.io/v1, spec: {hostnames: ['*.example']}}",
	"HTTPRoute without a host":       "{kind: HTTPRoute, apiVersion: gateway.networking.k8s.io/v1, spec: {rules: [{}]}}",
	"HTTPRoute with no hosts":        "{kind: HTTPRoute, apiVersion: gateway.networking.k8s.io/v1, spec: {hostnames: []}}",
	"Gateway of a page":              "{kind: Gateway, apiVersion: gateway.networking.k8s.io/v1, spec: {listeners: [{name: a, protocol: HTTPS, hostname: x.nova.apps.example}]}}",
	"Gateway without a host":         "{kind: Gateway, apiVersion: gateway.networking.k8s.io/v1, spec: {listeners: [{name: a, protocol: HTTPS}]}}",
	"Gateway with all of a port":     "{kind: Gateway, apiVersion: gateway.networking.k8s.io/v1, spec: {listeners: [{name: a, protocol: TCP, port: 8443}]}}",
	"Gateway of TCP with a page":     "{kind: Gateway, apiVersion: gateway.networking.k8s.io/v1, spec: {listeners: [{name: a, protocol: TCP, port: 5432, hostname: x.nova.apps.example}]}}",
	"HTTPRoute of another namespace": "{kind: HTTPRoute, apiVersion: gateway.networking.k8s.io/v1, spec: {parentRefs: [{name: a}, {name: a, namespace: nova-ingress}]}}",
	"HTTPRoute of a page at its own": "{kind: HTTPRoute, apiVersion: gateway.networking.k8s.io/v1, spec: {parentRefs: [{name: a}], hostnames: [x.nova.apps.example]}}",
	"Ingress with a certificate":     "{kind: Ingress, apiVersion: networking.k8s.io/v1, spec: {rules: [{host: shop.apps.example}], tls: [{hosts: [shop.apps.example]}, {hosts: [x.nova.apps.example]}]}}",
	"ListenerSet of a page":          "{kind: ListenerSet, apiVersion: gateway.networking.k8s.io/v1, spec: {listeners: [{name: a, protocol: TLS, hostname: '*.nova.apps.example'}]}}",
	"IngressRoute of a page":         "{kind: IngressRoute, apiVersion: traefik.io/v1, spec: {routes: [{match: 'Host(`x.nova.apps.example`)'}]}}",
	"IngressRoute in capitals":       "{kind: IngressRoute, apiVersion: traefik.io/v1, spec: {routes: [{match: 'Host(`X.NOVA.apps.example`)'}]}}",
	"IngressRoute with a full stop":  "{kind: IngressRoute, apiVersion: traefik.io/v1, spec: {routes: [{match: 'Host(`x.nova.apps.example.`)'}]}}",
	"IngressRoute with alternatives": "{kind: IngressRoute, apiVersion: traefik.io/v1, spec: {routes: [{match: 'Host(`shop.apps.example`) || PathPrefix(`/`)'}]}}",
	"IngressRoute with two hosts":    "{kind: IngressRoute, apiVersion: traefik.io/v1, spec: {routes: [{match: 'Host(`shop.apps.example`, `x.nova.apps.example`)'}]}}",
	"IngressRoute by expression":     "{kind: IngressRoute, apiVersion: traefik.io/v1, spec: {routes: [{match: 'HostRegexp(`.+`)'}]}}",
	"IngressRoute by path":           "{kind: IngressRoute, apiVersion: traefik.io/v1, spec: {routes: [{match: 'PathPrefix(`/`)'}]}}",
	"IngressRouteTCP of all":         "{kind: IngressRouteTCP, apiVersion: traefik.io/v1, spec: {routes: [{match: 'HostSNI(`*`)'}]}}",
	"Service with a full stop":       "{kind: Service, apiVersion: v1, metadata: {annotations: {external-dns.alpha.kubernetes.io/hostname: 'x.nova.apps.example.'}}, spec: {ports: [{port: 80}]}}",
	"Service with a space":           "{kind: Service, apiVersion: v1, metadata: {annotations: {external-dns.alpha.kubernetes.io/internal-hostname: 'x.nova.apps .example'}}, spec: {ports: [{port: 80}]}}",
	"Certificate of a page":          "{kind: Certificate, apiVersion: cert-manager.io/v1, spec: {dnsNames: [shop.apps.example, nova-grafana-main.nova.apps.example], issuerRef: {kind: ClusterIssuer, name: nova}}}",
	"Certificate in capitals":        "{kind: Certificate, apiVersion: cert-manager.io/v1, spec: {dnsNames: [X.NOVA.apps.example.], issuerRef: {kind: ClusterIssuer, name: nova}}}",
	"Certificate with a wildcard":    "{kind: Certificate, apiVersion: cert-manager.io/v1, spec: {dnsNames: ['*.apps.example'], issuerRef: {kind: ClusterIssuer, name: nova}}}",
	"Certificate by its subject":     "{kind: Certificate, apiVersion: cert-manager.io/v1, spec: {commonName: x.nova.apps.example, issuerRef: {name: own}}}",
	"Certificate by a literal":       "{kind: Certificate, apiVersion: cert-manager.io/v1, spec: {literalSubject: 'O=a,CN=x.Nova.apps.example', issuerRef: {name: own}}}",
	"Certificate by an escape":       `{kind: Certificate, apiVersion: cert-manager.io/v1, spec: {literalSubject: 'CN=x.no\76a.apps.example', issuerRef: {name: own}}}`,
	"Certificate by an encoded name": "{kind: Certificate, apiVersion: cert-manager.io/v1, spec: {literalSubject: 'CN=#1315782e6e6f76612e617070732e6578616d706c65', issuerRef: {name: own}}}",
	"Certificate by a wildcard":      "{kind: Certificate, apiVersion: cert-manager.io/v1, spec: {literalSubject: 'CN=*.apps.example', issuerRef: {name: own}}}",
	"Certificate of a CA":            "{kind: Certificate, apiVersion: cert-manager.io/v1, spec: {isCA: true, commonName: team, issuerRef: {kind: ClusterIssuer, name: nova}}}",
	"CertificateRequest":             "{kind: CertificateRequest, apiVersion: cert-manager.io/v1, spec: {request: YQ==, issuerRef: {kind: ClusterIssuer, name: nova}}}",
	"Service with a record":          "{kind: Service, apiVersion: v1, metadata: {annotations: {external-dns.alpha.kubernetes.io/hostname: 'shop.apps.example, X.nova.apps.example'}}, spec: {ports: [{port: 80}]}}",
}

// allowedHosts are the specs of objects that a team may write.
var allowedHosts = map[string]string{
	"Ingress":               "{kind: Ingress, apiVersion: networking.k8s.io/v1, spec: {rules: [{host: shop.apps.example}, {host: supernova.apps.example}]}}",
	"Ingress below":         "{kind: Ingress, apiVersion: networking.k8s.io/v1, spec: {rules: [{host: '*.team.apps.example'}]}}",
	"HTTPRoute":             "{kind: HTTPRoute, apiVersion: gateway.networking.k8s.io/v1, spec: {hostnames: [shop.apps.example, '*.team.apps.example']}}",
	"Gateway":               "{kind: Gateway, apiVersion: gateway.networking.k8s.io/v1, spec: {listeners: [{name: a, protocol: HTTPS, hostname: shop.apps.example}, {name: b, protocol: UDP, port: 53}, {name: c, protocol: TCP, port: 5432}]}}",
	"HTTPRoute at its own":  "{kind: HTTPRoute, apiVersion: gateway.networking.k8s.io/v1, spec: {parentRefs: [{name: a}, {name: b, namespace: team}]}}",
	"HTTPRoute of a mesh":   "{kind: HTTPRoute, apiVersion: gateway.networking.k8s.io/v1, spec: {parentRefs: [{name: a, kind: Service, group: '', namespace: other}]}}",
	"Ingress with TLS":      "{kind: Ingress, apiVersion: networking.k8s.io/v1, spec: {rules: [{host: shop.apps.example}], tls: [{hosts: [shop.apps.example]}, {secretName: a}]}}",
	"Service of two names":  "{kind: Service, apiVersion: v1, metadata: {annotations: {external-dns.alpha.kubernetes.io/hostname: 'a.apps.example, *.B.apps.example'}}, spec: {ports: [{port: 80}]}}",
	"Certificate":           "{kind: Certificate, apiVersion: cert-manager.io/v1, spec: {dnsNames: [shop.apps.example, supernova.apps.example, '*.team.apps.example'], commonName: The shop., issuerRef: {kind: ClusterIssuer, name: nova}}}",
	"Certificate of a CA":   "{kind: Certificate, apiVersion: cert-manager.io/v1, spec: {isCA: true, commonName: team, issuerRef: {name: own}}}",
	"Certificate of a name": "{kind: Certificate, apiVersion: cert-manager.io/v1, spec: {literalSubject: 'CN=shop.apps.example,OU=The shop,O=Team', issuerRef: {name: own}}}",
	"Certificate by itself": "{kind: Certificate, apiVersion: cert-manager.io/v1, spec: {isCA: true, commonName: team, issuerRef: {kind: ClusterIssuer, name: nova-self-signed}}}",
	"CertificateRequest":    "{kind: CertificateRequest, apiVersion: cert-manager.io/v1, spec: {request: YQ==, issuerRef: {kind: Issuer, name: own}}}",
	"IngressRoute":          "{kind: IngressRoute, apiVersion: traefik.io/v1, spec: {routes: [{match: 'Host(`shop.apps.example`) && PathPrefix(`/a`)'}]}}",
	"IngressRouteTCP":       "{kind: IngressRouteTCP, apiVersion: traefik.io/v1, spec: {routes: [{match: 'HostSNI(`db.apps.example`)'}]}}",
	"Service":               "{kind: Service, apiVersion: v1, spec: {ports: [{port: 80}]}}",
	"Service of a team":     "{kind: Service, apiVersion: v1, metadata: {annotations: {external-dns.alpha.kubernetes.io/hostname: shop.apps.example}}, spec: {ports: [{port: 80}]}}",
	"Service of no name":    "{kind: Service, apiVersion: v1, metadata: {annotations: {a: b}}, spec: {ports: [{port: 80}]}}",
}

// pageHosts checks that only namespaces of the platform publish host names in the zone of the pages.
func pageHosts(t *testing.T, c client.Client, config *rest.Config) {
	t.Helper()
	g := NewWithT(t)
	for kind, group := range routeKinds {
		g.Expect(c.Create(t.Context(), definition(kind, group))).To(Succeed())
	}
	old := deleted(t, c, refusedHosts["Ingress of a page"], "old", "team")
	var pages []*unstructured.Unstructured
	for _, set := range Names() {
		for _, o := range written(t, set, named(t)["vsphere-hybrid-3"]) {
			if strings.HasPrefix(o.GetKind(), "ValidatingAdmissionPolicy") && o.GetName() == "nova-page-hosts" {
				g.Expect(c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.ForceOwnership, client.FieldOwner("test"))).To(Succeed())
			}
			if o.GetKind() == "Ingress" {
				pages = append(pages, o)
			}
		}
	}
	g.Expect(len(pages)).To(BeNumerically(">", 5))
	try := func(spec, namespace string) error {
		o := &unstructured.Unstructured{}
		g.Expect(yaml.Unmarshal([]byte(spec), &o.Object)).To(Succeed())
		o.SetNamespace(namespace)
		o.SetName("a")
		return c.Create(t.Context(), o, client.DryRunAll)
	}
	// A new policy is not enforced immediately, and new kinds are not served immediately.
	g.Eventually(func() error { return try(refusedHosts["Gateway of a page"], "team") }, "60s").Should(MatchError(ContainSubstring(zone)))
	for name, spec := range refusedHosts {
		g.Eventually(func() error { return try(spec, "team") }, "60s").Should(MatchError(And(ContainSubstring("nova-page-hosts"), ContainSubstring(zone))), name)
		g.Expect(try(spec, "nova-monitoring")).To(Succeed(), "%s by the platform", name)
	}
	for name, spec := range allowedHosts {
		g.Expect(try(spec, "team")).To(Succeed(), name)
	}
	deletedObjects(t, c, old)
	requestOfCertManager(t, config)
	for _, page := range pages {
		take(t, c, page)
		page = page.DeepCopy()
		page.SetNamespace("team")
		err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(page), client.DryRunAll, client.ForceOwnership, client.FieldOwner("test"))
		g.Expect(err).To(MatchError(ContainSubstring("nova-page-hosts")), page.GetName())
	}
}

// requestOfCertManager checks that cert-manager itself may write the requests of Certificates.
func requestOfCertManager(t *testing.T, config *rest.Config) {
	t.Helper()
	g := NewWithT(t)
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:nova-cert-management:cert-manager", Groups: []string{"system:masters"},
	}
	c, err := client.New(config, client.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	o := &unstructured.Unstructured{}
	g.Expect(yaml.Unmarshal([]byte(refusedHosts["CertificateRequest"]), &o.Object)).To(Succeed())
	o.SetNamespace("team")
	o.SetName("a")
	g.Expect(c.Create(t.Context(), o)).To(Succeed())

	// The garbage collector removes owners, and a migration writes objects as they are.
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:kube-system:generic-garbage-collector", Groups: []string{"system:masters"}}
	c, err = client.New(config, client.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	o.SetLabels(map[string]string{"a": "b"})
	g.Expect(c.Update(t.Context(), o)).To(Succeed())
	g.Expect(unstructured.SetNestedField(o.Object, "Yg==", "spec", "request")).To(Succeed())
	g.Expect(c.Update(t.Context(), o)).To(MatchError(ContainSubstring("nova-page-hosts")))
	g.Expect(c.Delete(t.Context(), o)).To(Succeed())
}

// deleted creates an object that a finalizer holds during its deletion.
func deleted(t *testing.T, c client.Client, spec, name, namespace string) *unstructured.Unstructured {
	t.Helper()
	g := NewWithT(t)
	o := &unstructured.Unstructured{}
	g.Expect(yaml.Unmarshal([]byte(spec), &o.Object)).To(Succeed())
	o.SetNamespace(namespace)
	o.SetName(name)
	o.SetFinalizers([]string{"nova-platform.io/test"})
	g.Expect(c.Create(t.Context(), o)).To(Succeed())
	g.Expect(c.Delete(t.Context(), o)).To(Succeed())
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(o), o)).To(Succeed())
	return o
}

// deletedObjects checks that a finalizer does not make an exception for host names, and that those of old
// can be removed.
func deletedObjects(t *testing.T, c client.Client, old *unstructured.Unstructured) {
	t.Helper()
	g := NewWithT(t)
	held := deleted(t, c, allowedHosts["Ingress"], "held", "team")
	for _, change := range []func(*unstructured.Unstructured){
		func(o *unstructured.Unstructured) {
			o.Object["spec"] = map[string]any{"rules": []any{map[string]any{"host": "x." + zone}}}
		},
		func(o *unstructured.Unstructured) {
			o.SetAnnotations(map[string]string{"external-dns.alpha.kubernetes.io/hostname": "x." + zone})
		},
	} {
		changed := held.DeepCopy()
		change(changed)
		g.Expect(c.Update(t.Context(), changed)).To(MatchError(ContainSubstring("nova-page-hosts")))
	}
	for _, o := range []*unstructured.Unstructured{held, old} {
		o.SetFinalizers(nil)
		g.Expect(c.Update(t.Context(), o)).To(Succeed(), o.GetName())
		g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(o), o)).To(MatchError(apierrors.IsNotFound, "not found"))
	}
}

// definition returns a definition of a kind without a schema.
func definition(kind, group string) *apiextensionsv1.CustomResourceDefinition {
	plural := strings.ToLower(kind) + "s"
	o := &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: group, Scope: apiextensionsv1.NamespaceScoped,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, Plural: plural},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
				OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)},
			},
		}},
	}}
	o.Name = plural + "." + group
	if strings.HasSuffix(group, ".k8s.io") {
		o.Annotations = map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: "unapproved, for a test"}
	}
	return o
}

// Every page, and the cookie of its login, are in the zone, and nothing else of the platform is.
func TestPagesAreInTheirZone(t *testing.T) {
	s := named(t)["vsphere-hybrid-3"]
	for module, objects := range publishing(t, s) {
		for _, o := range objects {
			rules, _, _ := unstructured.NestedSlice(o.Object, "spec", "rules")
			for _, rule := range rules {
				if host, _, _ := unstructured.NestedString(rule.(map[string]any), "host"); !strings.HasSuffix(host, "."+zone) {
					t.Errorf("module %s publishes %q outside of %s", module, host, zone)
				}
			}
		}
	}
	for _, m := range render(t, "platform", s).Modules {
		if m.Name != "login" && m.Name != "console" {
			continue
		}
		if !slices.Contains(m.After, "page-hosts") {
			t.Errorf("%s is installed before its host names are protected: after %v", m.Name, m.After)
		}
		if m.Name == "login" {
			release, ok := m.Object.(*helmv2.HelmRelease)
			values := map[string]any{}
			if !ok || json.Unmarshal(release.Spec.Values.Raw, &values) != nil {
				t.Fatalf("the login has no values: %v", m.Object)
			}
			checkLogin(t, values)
		}
	}
}

// checkLogin checks the cookie and the domains in the values of the login. A cookie with the default name
// may be from the time before the zone.
func checkLogin(t *testing.T, values map[string]any) {
	t.Helper()
	for key, want := range map[string]string{
		"cookie-name": "__Secure-nova-login", "cookie-domain": "." + zone, "whitelist-domain": "." + zone, "redirect-url": "https://nova-oauth." + zone + "/oauth2/callback",
	} {
		if got, _, _ := unstructured.NestedString(values, "extraArgs", key); got != want {
			t.Errorf("%s of the login is %q, not %q", key, got, want)
		}
	}
}
