package catalogue

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nova-platform/cluster-api-provider-nova/test/sites"
)

// loginLabel is the label that enables the login and all pages.
const loginLabel = "addons.cluster.x-k8s.io/login"

// publishing returns the modules of a site that write an Ingress, with their
// objects, or whose chart writes one.
func publishing(t *testing.T, s sites.Site) map[string][]*unstructured.Unstructured {
	t.Helper()
	out := map[string][]*unstructured.Unstructured{}
	for _, set := range Names() {
		for _, m := range render(t, set, s).Modules {
			objects := delivered(t, m)
			if slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Ingress" }) {
				out[m.Name] = objects
			}
			if release, ok := m.Object.(*helmv2.HelmRelease); ok && ingressEnabled(t, release.Spec.Values.Raw) {
				out[m.Name] = nil
			}
		}
	}
	return out
}

// ingressEnabled returns whether values enable an Ingress, at any depth.
func ingressEnabled(t *testing.T, values []byte) bool {
	t.Helper()
	var content any
	if err := json.Unmarshal(values, &content); err != nil {
		t.Fatal(err)
	}
	var visit func(value any) bool
	visit = func(value any) bool {
		m, ok := value.(map[string]any)
		if !ok {
			return false
		}
		for key, item := range m {
			inner, _ := item.(map[string]any)
			if enabled, _ := inner["enabled"].(bool); key == "ingress" && enabled || visit(item) {
				return true
			}
		}
		return false
	}
	return visit(content)
}

// A page is published only with the login, behind its middleware and with TLS.
func TestPagesAreBehindTheLogin(t *testing.T) {
	for name, s := range named(t) {
		found := publishing(t, s)
		if s.Labels[loginLabel] != "true" || s.DNS == nil {
			if len(found) > 0 {
				t.Errorf("%s publishes %v without login", name, found)
			}
			continue
		}
		if _, ok := found["login"]; !ok || len(found) < 5 {
			t.Errorf("%s publishes only %v", name, found)
		}
		for module, objects := range found {
			if module != "login" {
				checkPage(t, name+" "+module, objects)
			}
		}
	}
}

// checkPage checks the Ingress of a page.
func checkPage(t *testing.T, page string, objects []*unstructured.Unstructured) {
	t.Helper()
	middlewares := map[string]string{}
	secrets := map[string]string{}
	for _, o := range objects {
		switch o.GetKind() {
		case "Middleware":
			address, _, _ := unstructured.NestedString(o.Object, "spec", "forwardAuth", "address")
			middlewares[o.GetNamespace()+"-"+o.GetName()+"@kubernetescrd"] = address
		case "Certificate":
			secret, _, _ := unstructured.NestedString(o.Object, "spec", "secretName")
			hosts, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "dnsNames")
			secrets[secret] = strings.Join(hosts, " ")
		}
	}
	for _, o := range objects {
		if o.GetKind() != "Ingress" {
			continue
		}
		ingress := &networkingv1.Ingress{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, ingress); err != nil {
			t.Fatal(err)
		}
		if address := middlewares[ingress.Annotations["traefik.ingress.kubernetes.io/router.middlewares"]]; !strings.HasPrefix(address, "http://login.nova-login.svc.") {
			t.Errorf("%s: no middleware sends requests to the login: %v", page, ingress.Annotations)
		}
		if ingress.Annotations["traefik.ingress.kubernetes.io/router.entrypoints"] != "websecure" {
			t.Errorf("%s is published without TLS", page)
		}
		if len(ingress.Spec.TLS) != 1 || secrets[ingress.Spec.TLS[0].SecretName] != ingress.Spec.Rules[0].Host {
			t.Errorf("%s has no certificate for %s: %v", page, ingress.Spec.Rules[0].Host, secrets)
		}
	}
}

// The label issuer selects the issuer of all pages.
func TestIssuerOfPages(t *testing.T) {
	s := named(t)["vsphere-hybrid-3"]
	for _, want := range []string{"nova", "corporate"} {
		if want != "nova" {
			s.Labels["addons.cluster.x-k8s.io/issuer"] = want
		}
		for module, objects := range publishing(t, s) {
			for _, o := range objects {
				got, _, _ := unstructured.NestedString(o.Object, "spec", "issuerRef", "name")
				if o.GetKind() == "Certificate" && got != want {
					t.Errorf("the certificate of %s has the issuer %q, not %q", module, got, want)
				}
			}
		}
	}
}

// metrics-server trusts an unknown certificate of a kubelet only where no CA
// signs them.
func TestMetricsServerVerifiesKubelets(t *testing.T) {
	verified, insecure := "--kubelet-certificate-authority=/var/run/secrets/kubernetes.io/serviceaccount/ca.crt", "--kubelet-insecure-tls"
	for name, tc := range map[string]struct {
		change func(*sites.Site)
		want   string
	}{
		"default":       {func(*sites.Site) {}, verified},
		"cluster":       {func(s *sites.Site) { s.KubeletCertificates = "Cluster" }, verified},
		"self-signed":   {func(s *sites.Site) { s.KubeletCertificates = "SelfSigned" }, insecure},
		"other control": {func(s *sites.Site) { s.ControlPlaneKind = "KubeadmControlPlane" }, insecure},
	} {
		t.Run(name, func(t *testing.T) {
			s := named(t)["vsphere-internal-1"]
			tc.change(&s)
			for _, m := range render(t, Base, s).Modules {
				release, ok := m.Object.(*helmv2.HelmRelease)
				if !ok || m.Name != "metrics-server" {
					continue
				}
				values := struct{ Args, DefaultArgs []string }{}
				if err := json.Unmarshal(release.Spec.Values.Raw, &values); err != nil {
					t.Fatal(err)
				}
				all := slices.Concat(values.DefaultArgs, values.Args)
				if !slices.Contains(all, tc.want) || slices.Contains(all, verified) && slices.Contains(all, insecure) {
					t.Errorf("metrics-server runs with %v, not with %s", all, tc.want)
				}
				return
			}
			t.Fatal("the site has no metrics-server")
		})
	}
}
