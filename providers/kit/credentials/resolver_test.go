package credentials

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// lender is an identity without a hypervisor.
type lender struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec infrav1.IdentitySpec `json:"spec"`
}

func (l *lender) Common() *infrav1.IdentitySpec { return &l.Spec }

func (l *lender) DeepCopyObject() runtime.Object {
	return &lender{TypeMeta: l.TypeMeta, ObjectMeta: *l.DeepCopy(), Spec: *l.Spec.DeepCopy()}
}

func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	s.AddKnownTypeWithName(schema.GroupVersionKind{Group: "example.test", Version: "v1", Kind: "Lender"}, &lender{})
	return s
}

const password = "t0p-secret"

func secret(namespace, name string, keys ...string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{}}
	for _, key := range keys {
		s.Data[key] = []byte(map[string]string{"username": name, "password": password}[key])
	}
	return s
}

func identity(name string, allowed infrav1.AllowedNamespaces) *lender {
	return &lender{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: infrav1.IdentitySpec{
			Server: "lender.example", TLS: infrav1.Trust{Thumbprint: "AA"},
			CredentialsSecretRef: infrav1.IdentitySecretReference{Name: "shared"}, AllowedNamespaces: allowed,
		},
	}
}

func objects() []client.Object {
	team := func(value string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"team": value}}
	}
	return []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant", Labels: map[string]string{"team": "blue"}}},
		secret("tenant", "own", "username", "password"), secret("tenant", "half", "username"),
		secret("tenant", "shared"), // of the same name in the wrong namespace
		secret("nova-system", "shared", "username", "password"), secret("nova-system", "hidden", "username", "password"),
		identity("closed", infrav1.AllowedNamespaces{}),
		identity("listed", infrav1.AllowedNamespaces{List: []string{"other", "tenant"}}),
		identity("elsewhere", infrav1.AllowedNamespaces{List: []string{"other"}}),
		identity("everybody", infrav1.AllowedNamespaces{Selector: &metav1.LabelSelector{}}),
		identity("blue", infrav1.AllowedNamespaces{Selector: team("blue")}),
		identity("red", infrav1.AllowedNamespaces{Selector: team("red")}),
		identity("listed-red", infrav1.AllowedNamespaces{List: []string{"tenant"}, Selector: team("red")}),
		identity("broken", infrav1.AllowedNamespaces{Selector: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: "Like"}},
		}}),
		&lender{ObjectMeta: metav1.ObjectMeta{Name: "dangling"}, Spec: infrav1.IdentitySpec{
			Server: "lender.example", CredentialsSecretRef: infrav1.IdentitySecretReference{Name: "gone"}, AllowedNamespaces: infrav1.AllowedNamespaces{List: []string{"tenant"}},
		}},
	}
}

func TestResolve(t *testing.T) {
	cases := map[string]struct {
		ref     Reference
		nowhere bool // the manager does not know its namespace
		bare    bool // the cluster names no server
		want    string
		err     string
	}{
		"OwnSecret":           {ref: Reference{Name: "own"}, want: "own"},
		"OwnSecretByKind":     {ref: Reference{Kind: "Secret", Name: "own"}, want: "own"},
		"OwnSecretAnywhere":   {ref: Reference{Name: "own"}, nowhere: true, want: "own"},
		"NoSecret":            {ref: Reference{Name: "none"}, err: `Secret "none" with the credentials does not exist in namespace "tenant"`},
		"NotTheManagers":      {ref: Reference{Name: "hidden"}, err: `Secret "hidden" with the credentials does not exist in namespace "tenant"`},
		"HalfASecret":         {ref: Reference{Name: "half"}, err: `Secret "half" in namespace "tenant" must have the keys username and password`},
		"UnknownKind":         {ref: Reference{Kind: "ConfigMap", Name: "own"}, err: `the identityRef's kind is "ConfigMap"; it can be Secret or Lender`},
		"NoIdentity":          {ref: Reference{Kind: "Lender", Name: "none"}, err: `Lender "none" does not exist`},
		"Listed":              {ref: Reference{Kind: "Lender", Name: "listed"}, want: "shared"},
		"AllSelected":         {ref: Reference{Kind: "Lender", Name: "everybody"}, want: "shared"},
		"Selected":            {ref: Reference{Kind: "Lender", Name: "blue"}, want: "shared"},
		"ListedNotSelected":   {ref: Reference{Kind: "Lender", Name: "listed-red"}, want: "shared"},
		"NoneAllowed":         {ref: Reference{Kind: "Lender", Name: "closed"}, err: `Lender "closed" does not allow the namespace "tenant"`},
		"OthersListed":        {ref: Reference{Kind: "Lender", Name: "elsewhere"}, err: `Lender "elsewhere" does not allow the namespace "tenant"`},
		"OthersSelected":      {ref: Reference{Kind: "Lender", Name: "red"}, err: `Lender "red" does not allow the namespace "tenant"`},
		"BrokenSelector":      {ref: Reference{Kind: "Lender", Name: "broken"}, err: `spec.allowedNamespaces.selector of Lender "broken" is not valid`},
		"IdentityWithout":     {ref: Reference{Kind: "Lender", Name: "dangling"}, err: `Secret "gone" with the credentials does not exist in namespace "nova-system"`},
		"IdentityOfNobody":    {ref: Reference{Kind: "Lender", Name: "listed"}, nowhere: true, err: "set POD_NAMESPACE or --manager-namespace"},
		"RefusedAllTheSame":   {ref: Reference{Kind: "Lender", Name: "closed"}, nowhere: true, err: "does not allow the namespace"},
		"SecretWithoutServer": {ref: Reference{Name: "own"}, bare: true, err: `spec.server is not set: Secret "own" holds only user name and password`},
		"ServerOfTheCluster": {ref: Reference{Kind: "Lender", Name: "listed", Server: "evil.example"},
			err: `spec.server and spec.tls must not be set with Lender "listed": they come from the identity`},
		"SameServer": {ref: Reference{Kind: "Lender", Name: "listed", Server: "lender.example"}, err: "must not be set with Lender"},
		"TrustOfTheCluster": {ref: Reference{Kind: "Lender", Name: "listed", TLS: infrav1.Trust{Thumbprint: "00:11"}},
			err: "must not be set with Lender"},
		"IdentityByAnyOther": {ref: Reference{Kind: "lender", Name: "listed"}, err: `the identityRef's kind is "lender"`},
	}
	reader := clientfake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(objects()...).Build()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := &Resolver{Reader: reader, Namespace: "nova-system", Kind: "Lender", NewIdentity: func() Identity { return &lender{} }}
			if tc.nowhere {
				r.Namespace = ""
			}
			own := infrav1.Trust{CABundle: "own"}
			if tc.ref.Kind != "Lender" && !tc.bare {
				tc.ref.Server, tc.ref.TLS = "own.example", own
			}
			got, err := r.Resolve(t.Context(), "tenant", tc.ref)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) || hypervisor.ReasonFor(err, "") != infrav1.CredentialsInvalidReason {
					t.Errorf("err = %v, want CredentialsInvalid with %q", err, tc.err)
				}
				if got.Account != (Account{}) || got.Server != "" {
					t.Error("an account or a server came with the error")
				}
				return
			}
			if err != nil || got.Username != tc.want || got.Password != password {
				t.Errorf("Resolve() = %s, %v, want the account %s", got.Username, err, tc.want)
			}
			server, tls := "own.example", own
			if tc.ref.Kind == "Lender" {
				server, tls = "lender.example", infrav1.Trust{Thumbprint: "AA"}
			}
			if got.Server != server || got.TLS != tls || (got.Identity != nil) != (tc.ref.Kind == "Lender") {
				t.Errorf("Resolve() = server %s, trust %v, identity %v", got.Server, got.TLS, got.Identity)
			}
		})
	}
}

// An unavailable management cluster is not a problem of the credentials.
func TestResolveOutage(t *testing.T) {
	down := errors.New("connection refused")
	for _, kind := range []string{"Secret", "Lender", "Namespace"} {
		reader := clientfake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(objects()...).WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				switch o.(type) {
				case *corev1.Secret:
					if kind == "Secret" {
						return down
					}
				case *lender:
					if kind == "Lender" {
						return down
					}
				case *metav1.PartialObjectMetadata:
					if kind == "Namespace" {
						return down
					}
				}
				return c.Get(ctx, key, o, opts...)
			},
		}).Build()
		r := &Resolver{Reader: reader, Namespace: "nova-system", Kind: "Lender", NewIdentity: func() Identity { return &lender{} }}
		_, err := r.Resolve(t.Context(), "tenant", Reference{Kind: "Lender", Name: "blue"})
		if !errors.Is(err, down) || hypervisor.ReasonFor(err, "") != "" {
			t.Errorf("%s: err = %v, want %v without a reason", kind, err, down)
		}
	}
}

func TestAccountIsNeverPrinted(t *testing.T) {
	a := Account{Username: "nova", Password: password}
	encoded, err := json.Marshal(map[string]any{"account": a})
	if err != nil {
		t.Fatal(err)
	}
	printed := []string{
		string(encoded), fmt.Sprint(a.MarshalLog()), fmt.Sprint(struct{ A Account }{a}),
		fmt.Sprintf("%+v", Login{Account: a}), fmt.Sprintf("%#v", &Login{Account: a}),
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		printed = append(printed, fmt.Sprintf(format, a), fmt.Sprintf(format, &a), fmt.Sprintf(format, []Account{a}))
	}
	for _, text := range printed {
		if strings.Contains(text, password) || strings.Contains(text, fmt.Sprintf("%x", password)) {
			t.Errorf("told %s", text)
		}
	}
}
