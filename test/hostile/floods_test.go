package hostile

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/host"
)

// withdraw deletes the Clusters and Machines of a namespace when a spec ends,
// so that the next attack is alone.
func withdraw(namespace string) {
	DeferCleanup(func(ctx context.Context) {
		// The webhook of Cluster API may time out while the machine is busy.
		Eventually(func() error {
			return b.Client.DeleteAllOf(ctx, &clusterv1.Cluster{}, client.InNamespace(namespace))
		}).WithTimeout(progressTimeout).Should(Succeed())
	})
}

// joins expects that a machine of the other tenant gets the certificate by which
// it joins.
func joins(ctx context.Context) {
	GinkgoHelper()
	By("joining a machine of another tenant")
	_, workers, err := b.Machines(ctx, blue)
	Expect(err).NotTo(HaveOccurred())
	Expect(workers).NotTo(BeEmpty())
	m := newest(workers)
	csr := requestCertificate(ctx, joiner(m), csrOptions{signer: joinSigner, name: "system:node:" + m.Name, organizations: []string{nodes}})
	Eventually(decisionOrHeld).WithContext(ctx).WithArguments(csr).WithTimeout(progressTimeout).
		Should(Equal("Approved"), "another tenant's machine does not join")
}

// endless answers each request with a body that does not end.
func endless(compressed bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var out io.Writer = w
		if compressed {
			w.Header().Set("Content-Encoding", "gzip")
			packed := gzip.NewWriter(w)
			defer func() { _ = packed.Close() }()
			out = packed
		}
		_, _ = io.WriteString(out, `{"kind":"Status","apiVersion":"v1","message":"`)
		for r.Context().Err() == nil {
			if _, err := out.Write(bytes.Repeat([]byte("x"), 64<<10)); err != nil {
				return
			}
		}
	}
}

// apiServer is a server with a certificate of the CA of a workload cluster, as
// its administrator has it. It stands at the endpoint of a new cluster.
func apiServer(ctx context.Context, namespace, name string, answer http.HandlerFunc) *evil {
	GinkgoHelper()
	// The endpoint has to be known before the CA is there.
	reserved, err := b.Listen(ctx, "tcp", host.Gateway+":0")
	Expect(err).NotTo(HaveOccurred())
	address := reserved.Addr().String()
	Expect(reserved.Close()).To(Succeed())
	bareCluster(ctx, tenantUser(ctx, namespace), namespace, name, address)
	var pair tls.Certificate
	Eventually(func() (err error) {
		pair, err = b.Serving(ctx, bed.Cluster{Namespace: namespace, Name: name}, net.ParseIP(host.Gateway))
		return err
	}).Should(Succeed())
	e := &evil{}
	e.serve(ctx, address, pair, answer)
	return e
}

// Both attack at once.
var _ = Describe("An API server of a tenant", Ordered, ContinueOnFailure, func() {
	answers := map[string]bool{"": false, ", compressed": true}
	servers := map[string]*evil{}

	BeforeAll(func(ctx context.Context) {
		for what, compressed := range answers {
			namespace := fmt.Sprintf("red-endless-%t", compressed)
			withdraw(namespace)
			servers[what] = apiServer(ctx, namespace, "red", endless(compressed))
		}
	})

	for what := range answers {
		It("answers without end"+what+" [F25]", func(ctx context.Context) {
			// Each of the managers has met it, and a few times.
			Eventually(func() int { return len(servers[what].Requests()) }).Should(BeNumerically(">", 20))
			progresses(ctx)
			joins(ctx)
		})
	}
})

// All attack at once.
var _ = Describe("A hypervisor of a tenant", Ordered, ContinueOnFailure, func() {
	// answers 256 MiB to each request.
	huge := func(out io.Writer) {
		_, _ = io.WriteString(out, `<?xml version="1.0"?><soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/"><soapenv:Body><x>`)
		for range 256 << 4 {
			if _, err := out.Write(bytes.Repeat([]byte("x"), 64<<10)); err != nil {
				return
			}
		}
	}
	plain := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/xml")
		huge(w)
	}
	zipped := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/xml")
		w.Header().Set("Content-Encoding", "gzip")
		out := gzip.NewWriter(w)
		huge(out)
		_ = out.Close()
	}
	const clusters = 8
	answers := map[string]http.HandlerFunc{"": plain, ", compressed": zipped}
	servers, infras := map[string]*evil{}, map[string]*unstructured.Unstructured{}

	BeforeAll(func(ctx context.Context) {
		for _, kind := range kinds() {
			for what, answer := range answers {
				namespace := "red-" + strings.ToLower(kind) + strings.Replace(what, ", ", "-", 1)
				user := tenantUser(ctx, namespace)
				withdraw(namespace)
				server := listen(ctx, answer)
				Expect(user.Create(ctx, &corev1.Secret{
					ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "own"}, StringData: map[string]string{"username": "own@internal", "password": "own"},
				})).To(Succeed())
				atOnce(clusters, func(i int) { ownServer(ctx, user, kind, namespace, fmt.Sprintf("huge-%d", i), server) })
				servers[kind+what] = server
				infras[kind+what] = object(infraV, kind+"Cluster", namespace, fmt.Sprintf("huge-%d", clusters-1), nil)
			}
		}
	})

	for _, kind := range kinds() {
		for what := range answers {
			It("answers 256 MiB to "+kind+what+" [F25]", func(ctx context.Context) {
				Eventually(func() int { return len(servers[kind+what].Requests()) }).Should(BeNumerically(">=", 1))
				Eventually(conditionsOf(infras[kind+what])).WithContext(ctx).Should(ContainSubstring("Ready=False"))
				progresses(ctx)
			})
		}
	}
})

// atOnce does something n times at once.
func atOnce(n int, do func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			defer GinkgoRecover()
			do(i)
		})
	}
	all.Wait()
}

// ownServer makes a Cluster with a hypervisor of the tenant's own.
func ownServer(ctx context.Context, as client.Client, kind, namespace, name string, server *evil) *unstructured.Unstructured {
	GinkgoHelper()
	infra := object(infraV, kind+"Cluster", namespace, name, map[string]any{
		"server":               server.Address,
		"tls":                  map[string]any{"caBundle": string(server.CA)},
		"identityRef":          map[string]any{"kind": "Secret", "name": "own"},
		"controlPlaneEndpoint": map[string]any{"host": "192.0.2.1", "port": int64(6443)},
	})
	cluster := object(coreV, "Cluster", namespace, name, map[string]any{
		"infrastructureRef": reference(infraV, kind+"Cluster", name),
	})
	for _, o := range []client.Object{infra, cluster} {
		Expect(as.Create(ctx, o)).To(Succeed())
	}
	return infra
}
