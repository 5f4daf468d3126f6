package vault

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/hashicorp/vault/api"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/signin"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

const (
	// redirect is where a login of kubelogin returns to.
	redirect = "http://localhost:8000"
	audience = "kubernetes"
)

// directory is the users of a namespace of a server, and how they get tokens.
type directory struct {
	root, alice *api.Client
	// client and shop are client IDs of the OpenID Connect provider: that of the
	// cluster, and another one.
	client, shop string
}

// newDirectory creates a user, and both kinds of issuers. The empty namespace is the
// root.
func newDirectory(ctx context.Context, v *vault, namespace string) *directory {
	GinkgoHelper()
	d := &directory{root: v.as(v.RootToken)}
	d.root.SetNamespace(namespace)
	auth := read(ctx, d.root, "sys/auth")
	accessor := auth["token/"].(map[string]any)["accessor"]
	entity := write(ctx, d.root, "identity/entity", map[string]any{"name": "alice"})["id"]
	write(ctx, d.root, "identity/entity-alias", map[string]any{"name": "alice", "canonical_id": entity, "mount_accessor": accessor})
	write(ctx, d.root, "identity/group", map[string]any{"name": "admins", "member_entity_ids": []any{entity}})
	followGuide(ctx, v, namespace)
	d.client = read(ctx, d.root, "identity/oidc/client/kubernetes")["client_id"].(string)
	write(ctx, d.root, "auth/token/roles/users", map[string]any{"allowed_entity_aliases": "alice", "allowed_policies": "sign-in,shop", "orphan": true})
	login, err := d.root.Logical().WriteWithContext(ctx, "auth/token/create/users", map[string]any{"entity_alias": "alice", "policies": []string{"sign-in", "shop"}})
	Expect(err).NotTo(HaveOccurred())
	d.alice = v.as(login.Auth.ClientToken)
	d.alice.SetNamespace(namespace)

	// Tokens for something else than the cluster.
	write(ctx, d.root, "identity/oidc/role/shop", map[string]any{"key": "clusters", "client_id": "shop"})
	write(ctx, d.root, "sys/policies/acl/shop", map[string]any{"policy": `path "identity/oidc/token/shop" { capabilities = ["read"] }`})
	write(ctx, d.root, "identity/oidc/client/shop", map[string]any{"key": "clusters", "redirect_uris": redirect, "assignments": "kubernetes", "client_type": "public"})
	d.shop = read(ctx, d.root, "identity/oidc/client/shop")["client_id"].(string)
	write(ctx, d.root, "identity/oidc/provider/clusters", map[string]any{"allowed_client_ids": []string{d.client, d.shop}})
	return d
}

// commands are the blocks of the guide that set up a server.
var commands = regexp.MustCompile("(?m)^```sh\n((?:bao (?:write|policy|auth)|kubectl create serviceaccount) (?s:.*?))\n```\n")

// blocksOf returns the blocks of a guide that set up a server.
func blocksOf(guide string) []string {
	GinkgoHelper()
	text, err := os.ReadFile(filepath.Join(tools.Root(), "docs", guide))
	Expect(err).NotTo(HaveOccurred())
	var blocks []string
	for _, block := range commands.FindAllSubmatch(text, -1) {
		blocks = append(blocks, string(block[1]))
	}
	return blocks
}

// followGuide runs the commands of docs/sign-in.md.
func followGuide(ctx context.Context, v *vault, namespace string) {
	GinkgoHelper()
	blocks := blocksOf("sign-in.md")
	Expect(blocks).To(HaveLen(3))
	for _, block := range blocks {
		v.run(ctx, block, "BAO_NAMESPACE="+namespace)
	}
}

// run runs a block of a guide as an administrator of the server does.
func (v *vault) run(ctx context.Context, block string, env ...string) {
	GinkgoHelper()
	programs, err := tools.Paths(ctx, GinkgoWriter, "bao", "kubectl")
	Expect(err).NotTo(HaveOccurred())
	dir := GinkgoT().TempDir()
	authority := filepath.Join(dir, "ca.crt")
	Expect(os.WriteFile(authority, v.CA, 0o600)).To(Succeed())
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", block)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "PATH="+filepath.Dir(programs["bao"])+":"+filepath.Dir(programs["kubectl"])+":"+os.Getenv("PATH"),
		"BAO_ADDR="+v.URL, "BAO_CACERT="+authority, "BAO_TOKEN="+v.RootToken), env...)
	output, err := cmd.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(output))
}

// issuers are the issuers of the directory, as a user of this project sets them.
func (d *directory) issuers(name, namespace, server, authority string) []bootstrapv1.TokenIssuer {
	return []bootstrapv1.TokenIssuer{
		{
			Name: name, CertificateAuthority: authority, Audiences: []string{d.client}, Scopes: []string{"kubernetes"},
			StarVault: bootstrapv1.StarVaultIssuer{Server: server, Namespace: namespace, Provider: "clusters"},
		},
		{
			Name: name + "-roles", CertificateAuthority: authority, Audiences: []string{audience},
			StarVault: bootstrapv1.StarVaultIssuer{Server: server, Namespace: namespace},
		},
	}
}

// byRole returns a token that needs no browser.
func (d *directory) byRole(ctx context.Context, role string) string {
	GinkgoHelper()
	return read(ctx, d.alice, "identity/oidc/token/"+role)["token"].(string)
}

// byProvider signs in at the provider, as kubelogin and the page of the server do.
func (d *directory) byProvider(ctx context.Context, client string) string {
	GinkgoHelper()
	verifier := strings.Repeat("verifier", 8)
	sum := sha256.Sum256([]byte(verifier))
	answer, err := d.alice.Logical().ReadRawWithDataWithContext(ctx, "identity/oidc/provider/clusters/authorize", url.Values{
		"client_id": {client}, "redirect_uri": {redirect}, "response_type": {"code"}, "scope": {"openid kubernetes"}, "state": {"a"}, "nonce": {"b"},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"},
	})
	Expect(err).NotTo(HaveOccurred())
	defer func() { Expect(answer.Body.Close()).To(Succeed()) }()
	var code struct{ Code string }
	Expect(json.NewDecoder(answer.Body).Decode(&code)).To(Succeed())

	form := url.Values{"grant_type": {"authorization_code"}, "code": {code.Code}, "redirect_uri": {redirect}, "client_id": {client}, "code_verifier": {verifier}}
	path := "/v1/identity/oidc/provider/clusters/token"
	if namespace := d.alice.Namespace(); namespace != "" {
		path = "/v1/" + namespace + "/identity/oidc/provider/clusters/token"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, d.alice.Address()+path, strings.NewReader(form.Encode()))
	Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := d.alice.CloneConfig().HttpClient.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer func() { Expect(response.Body.Close()).To(Succeed()) }()
	var tokens struct {
		IDToken string `json:"id_token"`
	}
	Expect(json.NewDecoder(response.Body).Decode(&tokens)).To(Succeed())
	Expect(tokens.IDToken).NotTo(BeEmpty(), response.Status)
	return tokens.IDToken
}

// configure writes the configuration of the API server.
func configure(path string, issuers []bootstrapv1.TokenIssuer) {
	GinkgoHelper()
	data, err := signin.Configuration(issuers...)
	Expect(err).NotTo(HaveOccurred())
	// An API server must not read half of it.
	Expect(os.WriteFile(path+".new", data, 0o600)).To(Succeed())
	Expect(os.Rename(path+".new", path)).To(Succeed())
}

// startServer starts an API server, and returns how its administrator reaches it.
func startServer(ctx context.Context, path string) *rest.Config {
	GinkgoHelper()
	server, stop, err := signin.Start(ctx, path)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(stop()).To(Succeed()) })
	return server
}

// user returns the user and the groups of a token, or the error.
func user(ctx context.Context, server *rest.Config, token string) func() (string, error) {
	return func() (string, error) {
		info, err := signin.WhoAmI(ctx, server, token)
		if err != nil {
			return "", err
		}
		return info.Username + " " + strings.TrimSuffix(strings.Join(info.Groups, ","), ",system:authenticated"), nil
	}
}

var _ = Describe("Sign-in", func() {
	for _, program := range programs() {
		It("accepts tokens of "+program, func(ctx SpecContext) {
			v := startVault(ctx, program)
			d := newDirectory(ctx, v, "")
			issuers := d.issuers("vault", "", v.URL, string(v.CA))
			var inNamespace *directory
			if program == "bao" {
				// Vault has no namespaces without its enterprise license.
				write(ctx, v.root, "sys/namespaces/blue", nil)
				inNamespace = newDirectory(ctx, v, "blue")
				issuers = append(issuers, inNamespace.issuers("blue", "blue", v.URL, string(v.CA))...)
			}
			path := filepath.Join(GinkgoT().TempDir(), "config.yaml")
			configure(path, issuers)
			server := startServer(ctx, path)

			By("signing in")
			role, provider := d.byRole(ctx, "kubernetes"), d.byProvider(ctx, d.client)
			accepted := func(byRole, byProvider string) {
				GinkgoHelper()
				Eventually(user(ctx, server, byRole)).WithContext(ctx).WithTimeout(changeTimeout).Should(Equal("vault-roles:alice vault-roles:admins"))
				Eventually(user(ctx, server, byProvider)).WithContext(ctx).WithTimeout(changeTimeout).Should(Equal("vault:alice vault:admins"))
			}
			accepted(role, provider)
			if inNamespace != nil {
				Eventually(user(ctx, server, inNamespace.byRole(ctx, "kubernetes"))).WithContext(ctx).WithTimeout(changeTimeout).Should(Equal("blue-roles:alice blue-roles:admins"))
				Eventually(user(ctx, server, inNamespace.byProvider(ctx, inNamespace.client))).WithContext(ctx).WithTimeout(changeTimeout).Should(Equal("blue:alice blue:admins"))
			}

			By("using a token for another audience")
			refused := func(token string) {
				GinkgoHelper()
				_, err := user(ctx, server, token)()
				Expect(err).To(MatchError(ContainSubstring("Unauthorized")))
			}
			refused(d.byRole(ctx, "shop"))
			refused(d.byProvider(ctx, d.shop))

			By("rotating the key of the issuer")
			write(ctx, d.root, "identity/oidc/key/clusters/rotate", nil)
			newRole, newProvider := d.byRole(ctx, "kubernetes"), d.byProvider(ctx, d.client)
			Expect(keyID(newRole)).NotTo(Equal(keyID(role)))
			accepted(newRole, newProvider)
			accepted(role, provider)

			By("accepting users whose keys are known while the server is away")
			v.Stop()
			accepted(newRole, newProvider)
			refused(newRole + "a")
			Expect(administrator(ctx, server)).To(Succeed())

			By("starting an API server meanwhile")
			server = startServer(ctx, path)
			refused(newRole)
			Expect(administrator(ctx, server)).To(Succeed())

			By("signing in when the server is back")
			Expect(v.Restart(ctx)).To(Succeed())
			accepted(newRole, newProvider)

			By("rotating the CA of the issuer, which the API server trusts before")
			old := string(v.CA)
			Expect(v.RotateAuthority()).To(Succeed())
			for i := range issuers {
				issuers[i].CertificateAuthority = old + string(v.CA)
			}
			configure(path, issuers)
			v.Stop()
			Expect(v.Restart(ctx)).To(Succeed())
			d.root, d.alice = renew(v, d.root), renew(v, d.alice)
			// The API server has to read the new key from the server.
			write(ctx, d.root, "identity/oidc/key/clusters/rotate", nil)
			accepted(d.byRole(ctx, "kubernetes"), d.byProvider(ctx, d.client))

			By("rotating the CA of the issuer, which the API server does not know")
			known := d.byRole(ctx, "kubernetes")
			Expect(v.RotateAuthority()).To(Succeed())
			v.Stop()
			Expect(v.Restart(ctx)).To(Succeed())
			d.root, d.alice = renew(v, d.root), renew(v, d.alice)
			write(ctx, d.root, "identity/oidc/key/clusters/rotate", nil)
			newRole, newProvider = d.byRole(ctx, "kubernetes"), d.byProvider(ctx, d.client)
			refused(newRole)
			refused(newProvider)
			Expect(user(ctx, server, known)()).To(Equal("vault-roles:alice vault-roles:admins"))
			for i := range issuers {
				issuers[i].CertificateAuthority = string(v.CA)
			}
			configure(path, issuers)
			accepted(newRole, newProvider)
		}, SpecTimeout(buildTimeout+10*changeTimeout))
	}
})

// keyID returns the name of the key that signed a token.
func keyID(token string) string {
	GinkgoHelper()
	data, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[0])
	Expect(err).NotTo(HaveOccurred())
	var header struct{ Kid string }
	Expect(json.Unmarshal(data, &header)).To(Succeed())
	Expect(header.Kid).NotTo(BeEmpty())
	return header.Kid
}

// administrator uses the administrator's certificate.
func administrator(ctx context.Context, server *rest.Config) error {
	clients, err := kubernetes.NewForConfig(server)
	if err != nil {
		return err
	}
	_, err = clients.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	return err
}

// renew returns a client with the same token that trusts the server's current CA.
func renew(v *vault, client *api.Client) *api.Client {
	GinkgoHelper()
	renewed := v.as(client.Token())
	renewed.SetNamespace(client.Namespace())
	return renewed
}
