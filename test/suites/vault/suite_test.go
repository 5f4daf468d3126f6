package vault

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/hashicorp/vault/api"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/test/starvault"
)

// buildTimeout limits the build of a server on a slow machine, and changeTimeout how
// long a change takes to apply.
const (
	buildTimeout  = 40 * time.Minute
	changeTimeout = 2 * time.Minute
)

// programs are the servers to run against: none in a short run, because it takes
// minutes to build them.
func programs() []string {
	if os.Getenv("NOVA_SUITES") == "full" {
		return starvault.Programs
	}
	return nil
}

func TestVault(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	RunSpecs(t, "StarVault")
}

// vault is a server, and a client with all permissions.
type vault struct {
	*starvault.Server

	root *api.Client
}

func startVault(ctx context.Context, program string) *vault {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	server, err := starvault.Start(ctx, starvault.Options{Program: program, Dir: GinkgoT().TempDir(), Log: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(server.Stop)
	root, err := server.Client()
	Expect(err).NotTo(HaveOccurred())
	return &vault{Server: server, root: root}
}

// as returns a client with a token.
func (v *vault) as(token string) *api.Client {
	GinkgoHelper()
	client, err := v.Client()
	Expect(err).NotTo(HaveOccurred())
	client.SetToken(token)
	return client
}

var _ = Describe("A server", func() {
	for _, program := range programs() {
		It("signs for the subjects of a role only, and not while it is sealed: "+program, func(ctx SpecContext) {
			v := startVault(ctx, program)
			authority := write(ctx, v.root, "pki/root/generate/internal", map[string]any{"common_name": "kubernetes-ca", "ttl": "87600h", "key_type": "ec", "key_bits": 256})
			Expect(authority).To(And(HaveKey("certificate"), Not(HaveKey("private_key"))))
			write(ctx, v.root, "pki/roles/kube-scheduler", map[string]any{
				"allowed_domains": "system:kube-scheduler", "allow_bare_domains": true, "enforce_hostnames": false, "use_csr_common_name": false, "use_csr_sans": false,
				"key_type": "ec", "key_bits": 256, "server_flag": false, "client_flag": true, "max_ttl": "24h",
			})
			request := certificateRequest("system:masters")
			sign := func(name string) (*x509.Certificate, error) {
				answer, err := v.root.Logical().WriteWithContext(ctx, "pki/sign/kube-scheduler", map[string]any{"csr": request, "common_name": name})
				if err != nil {
					return nil, err
				}
				block, _ := pem.Decode([]byte(answer.Data["certificate"].(string)))
				return x509.ParseCertificate(block.Bytes)
			}
			signed, err := sign("system:kube-scheduler")
			Expect(err).NotTo(HaveOccurred())
			Expect(signed.Subject.CommonName).To(Equal("system:kube-scheduler"))
			Expect(signed.Subject.Organization).To(BeEmpty(), "the organization of the request")
			Expect(signed.ExtKeyUsage).To(Equal([]x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}))
			_, err = sign("system:kube-controller-manager")
			Expect(err).To(MatchError(ContainSubstring("not allowed by this role")))

			Expect(v.root.Sys().SealWithContext(ctx)).To(Succeed())
			_, err = sign("system:kube-scheduler")
			var refused *api.ResponseError
			Expect(errors.As(err, &refused)).To(BeTrue(), "%v", err)
			Expect(refused.StatusCode).To(Equal(http.StatusServiceUnavailable))
			Expect(v.Unseal(ctx)).To(Succeed())
			_, err = sign("system:kube-scheduler")
			Expect(err).NotTo(HaveOccurred())
		}, SpecTimeout(buildTimeout+changeTimeout))
	}
})

// certificateRequest makes a request with organizations.
func certificateRequest(organizations ...string) string {
	GinkgoHelper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{Organization: organizations}}, key)
	Expect(err).NotTo(HaveOccurred())
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

// write and read call a path, and return the data of the answer.
func write(ctx context.Context, client *api.Client, path string, data map[string]any) map[string]any {
	GinkgoHelper()
	answer, err := client.Logical().WriteWithContext(ctx, path, data)
	Expect(err).NotTo(HaveOccurred(), "writing "+path)
	return content(answer)
}

func read(ctx context.Context, client *api.Client, path string) map[string]any {
	GinkgoHelper()
	answer, err := client.Logical().ReadWithContext(ctx, path)
	Expect(err).NotTo(HaveOccurred(), "reading "+path)
	Expect(answer).NotTo(BeNil(), "reading "+path)
	return answer.Data
}

func content(answer *api.Secret) map[string]any {
	if answer == nil {
		return nil
	}
	return answer.Data
}
