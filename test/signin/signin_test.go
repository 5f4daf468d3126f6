package signin

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/approver"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/certificates"
)

const audience = "kubernetes"

// issuer signs tokens, and serves its key over TLS.
type issuer struct {
	*httptest.Server
	key *rsa.PrivateKey
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{key: key}
	mux := http.NewServeMux()
	answer := func(path string, body func() any) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if err := json.NewEncoder(w).Encode(body()); err != nil {
				t.Errorf("serving %s: %v", path, err)
			}
		})
	}
	answer("/.well-known/openid-configuration", func() any {
		return map[string]any{
			"issuer": i.URL, "jwks_uri": i.URL + "/keys", "authorization_endpoint": i.URL + "/authorize",
			"response_types_supported": []string{"id_token"}, "subject_types_supported": []string{"public"},
			"id_token_signing_alg_values_supported": []string{"RS256"},
		}
	})
	answer("/keys", func() any {
		return map[string]any{"keys": []any{map[string]any{
			"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "a",
			"n": encode(key.N.Bytes()), "e": encode(big.NewInt(int64(key.E)).Bytes()),
		}}}
	})
	i.Server = httptest.NewTLSServer(mux)
	t.Cleanup(i.Close)
	return i
}

func encode(data []byte) string { return base64.RawURLEncoding.EncodeToString(data) }

// token signs claims, in addition to those that each token has.
func (i *issuer) token(t *testing.T, claims map[string]any) string {
	t.Helper()
	all := map[string]any{"iss": i.URL, "aud": audience, "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix()}
	maps.Copy(all, claims)
	body, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	text := encode([]byte(`{"alg":"RS256","kid":"a"}`)) + "." + encode(body)
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, i.key, crypto.SHA256, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + encode(signature)
}

// authority is the CA certificate of the issuer's server.
func (i *issuer) authority() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.Certificate().Raw}))
}

func TestUsersSignIn(t *testing.T) {
	staff, guests := newIssuer(t), newIssuer(t)
	path := filepath.Join(t.TempDir(), "config.yaml")
	content, err := Configuration(
		bootstrapv1.TokenIssuer{Name: "staff", URL: staff.URL, CertificateAuthority: staff.authority(), Audiences: []string{audience}},
		bootstrapv1.TokenIssuer{
			Name: "guests", URL: guests.URL, CertificateAuthority: guests.authority(), Audiences: []string{"other", audience},
			Username: bootstrapv1.ClaimMapping{Claim: "login", Prefix: ptr.To("")}, Groups: bootstrapv1.ClaimMapping{Expression: "claims.teams"},
			ClaimRules: []bootstrapv1.AuthenticationRule{{Expression: "claims.plan == 'paid'", Message: "only paying guests"}},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	server, stop, err := Start(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	server = rest.AnonymousClientConfig(server)
	alice := staff.token(t, map[string]any{"sub": "alice", "groups": []string{"admins"}})
	err = wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, StartTimeout, true, func(ctx context.Context) (bool, error) {
		_, err := WhoAmI(ctx, server, alice)
		return err == nil, nil
	})
	if err != nil {
		t.Fatalf("no token is accepted: %v", err)
	}
	paying := func(claims map[string]any) string {
		claims["plan"] = "paid"
		return guests.token(t, claims)
	}
	for name, tc := range map[string]struct {
		token, user, groups string
	}{
		"Prefixed":           {token: alice, user: "staff:alice", groups: "staff:admins"},
		"WithoutGroups":      {token: staff.token(t, map[string]any{"sub": "bob"}), user: "staff:bob"},
		"ForgedByPrefix":     {token: staff.token(t, map[string]any{"sub": "eve", "groups": []string{"system:masters"}}), user: "staff:eve", groups: "staff:system:masters"},
		"OwnClaims":          {token: paying(map[string]any{"login": "carl", "teams": []string{"blue"}}), user: "carl", groups: "blue"},
		"RuleFails":          {token: guests.token(t, map[string]any{"login": "carl", "plan": "free", "teams": []string{}})},
		"SystemUser":         {token: paying(map[string]any{"login": "system:admin", "teams": []string{}})},
		"SystemGroup":        {token: paying(map[string]any{"login": "eve", "teams": []string{"blue", "system:masters"}})},
		"KubeadmGroup":       {token: paying(map[string]any{"login": "eve", "teams": []string{"kubeadm:cluster-admins"}})},
		"ProviderGroup":      {token: paying(map[string]any{"login": "eve", "teams": []string{"nova:cluster-admins"}})},
		"Manager":            {token: paying(map[string]any{"login": certificates.ManagerUser, "teams": []string{}})},
		"Approver":           {token: paying(map[string]any{"login": approver.NewUser(nil).Name, "teams": []string{}})},
		"KubeletClient":      {token: paying(map[string]any{"login": "kube-apiserver-kubelet-client", "teams": []string{}})},
		"Administrator":      {token: paying(map[string]any{"login": "kubernetes-admin", "teams": []string{}})},
		"OtherAudience":      {token: staff.token(t, map[string]any{"sub": "alice", "aud": "shop"})},
		"Expired":            {token: staff.token(t, map[string]any{"sub": "alice", "exp": time.Now().Add(-time.Minute).Unix()})},
		"SignedByOther":      {token: guests.token(t, map[string]any{"iss": staff.URL, "sub": "alice"})},
		"WithoutCredentials": {},
	} {
		t.Run(name, func(t *testing.T) {
			user, err := WhoAmI(t.Context(), server, tc.token)
			if tc.user == "" {
				if err == nil {
					t.Errorf("accepted as %s of %v", user.Username, user.Groups)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			groups := strings.TrimSuffix(strings.TrimSuffix(strings.Join(user.Groups, " "), "system:authenticated"), " ")
			if user.Username != tc.user || groups != tc.groups {
				t.Errorf("user %q of %q, want %q of %q", user.Username, groups, tc.user, tc.groups)
			}
		})
	}
	for path, want := range map[string]int{"/livez": http.StatusOK, "/readyz": http.StatusOK, "/healthz": http.StatusOK, "/version": http.StatusUnauthorized, "/api/v1/namespaces/kube-public/configmaps/cluster-info": http.StatusUnauthorized} {
		if got := status(t, server, path); got != want {
			t.Errorf("%s without credentials: %d, want %d", path, got, want)
		}
	}
}

// status returns the status code of a request without credentials.
func status(t *testing.T, server *rest.Config, path string) int {
	t.Helper()
	client, err := rest.HTTPClientFor(server)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimSuffix(server.Host, "/")+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil {
		t.Error(err)
	}
	return response.StatusCode
}
