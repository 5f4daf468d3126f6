package hostile

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"net"
	"net/netip"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

const (
	joinSigner    = certificatesv1.KubeAPIServerClientKubeletSignerName
	servingSigner = certificatesv1.KubeletServingSignerName
	nodes         = "system:nodes"
)

// csrOptions are the fields of a certificate request of a node.
type csrOptions struct {
	signer        string
	name          string
	organizations []string
	dns           []string
	addresses     []string
	// mapped are IPv4 addresses that are requested as IPv4-mapped IPv6.
	mapped []string
	// key is a new one if there is none.
	key *ecdsa.PrivateKey
}

// requestCertificate requests a certificate.
func requestCertificate(ctx context.Context, as client.Client, a csrOptions) *certificatesv1.CertificateSigningRequest {
	GinkgoHelper()
	key := a.key
	if key == nil {
		key = newKey()
	}
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: a.name, Organization: a.organizations}, DNSNames: a.dns}
	for _, address := range a.addresses {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(address))
	}
	if len(a.mapped) > 0 {
		template.ExtraExtensions = append(template.ExtraExtensions, mappedNames(a.mapped))
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	Expect(err).NotTo(HaveOccurred())
	usage := certificatesv1.UsageClientAuth
	if a.signer == servingSigner {
		usage = certificatesv1.UsageServerAuth
	}
	csr := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "hostile-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: a.signer,
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			Usages:     []certificatesv1.KeyUsage{usage, certificatesv1.UsageDigitalSignature},
		},
	}
	// The manager grants the permission once it is connected.
	Eventually(func() error { return as.Create(ctx, csr) }).Should(Succeed())
	return csr
}

// mappedNames is an extension with IPv4 addresses in 16 bytes. The library
// would write 4.
func mappedNames(addresses []string) pkix.Extension {
	GinkgoHelper()
	const ipAddress = 7
	var names []asn1.RawValue
	for _, address := range addresses {
		names = append(names, asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: ipAddress, Bytes: net.ParseIP(address).To16()})
	}
	der, err := asn1.Marshal(names)
	Expect(err).NotTo(HaveOccurred())
	return pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Value: der}
}

func newKey() *ecdsa.PrivateKey {
	GinkgoHelper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	return key
}

// decisionOrHeld returns Approved, Denied, or Held if an event reports that the
// request remains pending.
func decisionOrHeld(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) (string, error) {
	if decided, err := decision(ctx, blueAPI, csr); decided != "" || err != nil {
		return decided, err
	}
	list := &eventsv1.EventList{}
	err := b.Client.List(ctx, list, client.InNamespace(blue.Namespace))
	for i := range list.Items {
		if e := &list.Items[i]; e.Reason == "CertificatePending" && strings.Contains(e.Note, csr.Name) {
			return "Held", err
		}
	}
	return "", err
}

// decision returns Approved or Denied, or nothing while a request is pending.
func decision(ctx context.Context, api *bed.API, csr *certificatesv1.CertificateSigningRequest) (string, error) {
	err := api.Client.Get(ctx, client.ObjectKeyFromObject(csr), csr)
	for _, c := range csr.Status.Conditions {
		return string(c.Type), err
	}
	return "", err
}

// refused expects that a request is denied, or held.
func refused(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) {
	GinkgoHelper()
	Eventually(decisionOrHeld).WithContext(ctx).WithArguments(csr).Should(BeElementOf("Denied", "Held"))
	watched = append(watched, csr)
}

// watched are requests that were refused, and may not be approved later either.
var watched []*certificatesv1.CertificateSigningRequest

// machine returns the oldest machine of a cluster that is not being deleted. The
// key of a newer one may have been certified by another attack (joins).
func machine(ctx context.Context, c bed.Cluster, controlPlane bool) *clusterv1.Machine {
	GinkgoHelper()
	planes, workers, err := b.Machines(ctx, c)
	Expect(err).NotTo(HaveOccurred())
	if controlPlane {
		workers = planes
	}
	workers = slices.DeleteFunc(workers, func(m clusterv1.Machine) bool { return !m.DeletionTimestamp.IsZero() })
	Expect(workers).NotTo(BeEmpty(), "there is no machine")
	oldest := slices.MinFunc(workers, func(a, b clusterv1.Machine) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return &oldest
}

// newest returns the machine that was created last.
func newest(machines []clusterv1.Machine) *clusterv1.Machine {
	m := slices.MaxFunc(machines, func(a, b clusterv1.Machine) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return &m
}

// joiner is a client with the credential that a machine boots with.
func joiner(m *clusterv1.Machine) client.Client {
	GinkgoHelper()
	return joinerAt(blueAPI, m)
}

func joinerAt(api *bed.API, m *clusterv1.Machine) client.Client {
	GinkgoHelper()
	c, err := api.As("nova:machine:"+string(m.UID), "system:bootstrappers:nova")
	Expect(err).NotTo(HaveOccurred())
	return c
}

// kubelet is a client with the certificate of a node.
func kubelet(node string) client.Client {
	GinkgoHelper()
	c, err := blueAPI.As("system:node:"+node, nodes)
	Expect(err).NotTo(HaveOccurred())
	return c
}

// report has the guest of a machine report addresses, and waits until those
// that may be the machine's own are known of the Machine.
func report(ctx context.Context, m *clusterv1.Machine, addresses ...string) {
	GinkgoHelper()
	vms, err := running(ctx, blue)
	Expect(err).NotTo(HaveOccurred())
	vm, found := vms[m.Name]
	Expect(found).To(BeTrue(), "no VM %s is running", m.Name)
	nic := vcenter.GuestNIC{MAC: vm.NICs[0].MAC}
	for _, address := range addresses {
		nic.Addresses = append(nic.Addresses, netip.MustParsePrefix(address))
	}
	Expect(b.Control().SetGuestAddresses(ctx, vm.BIOSUUID, []vcenter.GuestNIC{nic})).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(b.Client.Get(ctx, client.ObjectKeyFromObject(m), m)).To(Succeed())
		for _, address := range nic.Addresses {
			if address.Addr().String() != blue.Endpoint {
				g.Expect(m.Status.Addresses).To(ContainElement(HaveField("Address", address.Addr().String())))
			}
		}
	}).Should(Succeed())
}

var _ = Describe("A node", Ordered, ContinueOnFailure, func() {
	const own, other = "10.77.0.111", "10.77.0.112"
	var (
		worker *clusterv1.Machine
		key    *ecdsa.PrivateKey
	)
	serving := func(ctx context.Context, dns, addresses []string) *certificatesv1.CertificateSigningRequest {
		GinkgoHelper()
		return requestCertificate(ctx, kubelet(worker.Name), csrOptions{signer: servingSigner, name: "system:node:" + worker.Name,
			organizations: []string{nodes}, dns: dns, addresses: addresses})
	}

	BeforeAll(func(ctx context.Context) {
		worker, key = machine(ctx, blue, false), newKey()
		report(ctx, machine(ctx, blue, true), other+"/24")
		report(ctx, worker, own+"/24")
		By("approving its own first certificates")
		first := requestCertificate(ctx, joiner(worker), csrOptions{signer: joinSigner, name: "system:node:" + worker.Name, organizations: []string{nodes}, key: key})
		Eventually(decisionOrHeld).WithContext(ctx).WithArguments(first).Should(Equal("Approved"))
		Eventually(decisionOrHeld).WithContext(ctx).WithArguments(serving(ctx, []string{worker.Name}, []string{own})).Should(Equal("Approved"))
	})
	AfterAll(func(ctx context.Context) {
		for _, csr := range watched {
			Expect(decisionOrHeld(ctx, csr)).NotTo(Equal("Approved"))
		}
	})

	It("has no second key certified for its machine", func(ctx context.Context) {
		refused(ctx, requestCertificate(ctx, joiner(worker), csrOptions{signer: joinSigner, name: "system:node:" + worker.Name, organizations: []string{nodes}}))
	})

	It("does not join under the name of another machine", func(ctx context.Context) {
		refused(ctx, requestCertificate(ctx, joiner(worker), csrOptions{signer: joinSigner, name: "system:node:" + machine(ctx, blue, true).Name, organizations: []string{nodes}}))
	})

	It("does not join as an administrator", func(ctx context.Context) {
		refused(ctx, requestCertificate(ctx, joiner(worker), csrOptions{signer: joinSigner, name: "system:node:" + worker.Name, organizations: []string{nodes, "system:masters"}}))
	})

	It("does not join with the credential of no machine", func(ctx context.Context) {
		gone := worker.DeepCopy()
		gone.UID = "00000000-0000-4000-8000-000000000000"
		refused(ctx, requestCertificate(ctx, joiner(gone), csrOptions{signer: joinSigner, name: "system:node:" + worker.Name, organizations: []string{nodes}, key: key}))
	})

	It("gets no serving certificate for the names of the API server", func(ctx context.Context) {
		refused(ctx, serving(ctx, []string{worker.Name, "kubernetes.default.svc"}, []string{own}))
	})

	It("gets no serving certificate under the name of another node", func(ctx context.Context) {
		refused(ctx, requestCertificate(ctx, kubelet(worker.Name), csrOptions{signer: servingSigner, name: "system:node:" + machine(ctx, blue, true).Name,
			organizations: []string{nodes}, addresses: []string{own}}))
	})

	It("gets no serving certificate for the address of another machine", func(ctx context.Context) {
		refused(ctx, serving(ctx, nil, []string{own, other}))
	})

	It("gets no serving certificate for an address of another machine that it reports as its own [F15]", func(ctx context.Context) {
		report(ctx, worker, own+"/24", other+"/24")
		refused(ctx, serving(ctx, nil, []string{own, other}))
	})

	It("gets no serving certificate for the address of the API's Service that it reports as its own [F15]", func(ctx context.Context) {
		service := &corev1.Service{}
		Expect(blueAPI.Client.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}, service)).To(Succeed())
		report(ctx, worker, own+"/24", service.Spec.ClusterIP+"/24")
		refused(ctx, serving(ctx, nil, []string{own, service.Spec.ClusterIP}))
	})

	// Spellings of the endpoint, or of the API server's names.
	for spelling, request := range map[string]csrOptions{
		"as it is":              {addresses: []string{blue.Endpoint}},
		"as IPv4-mapped IPv6":   {mapped: []string{blue.Endpoint}},
		"as a DNS name":         {dns: []string{blue.Endpoint}},
		"with a trailing dot":   {dns: []string{blue.Endpoint + "."}},
		"padded with zeros":     {dns: []string{"010.077.000.050"}},
		"in upper case letters": {dns: []string{"KUBERNETES.DEFAULT.SVC."}},
	} {
		It("gets no serving certificate for the endpoint, spelled "+spelling+" [F15]", func(ctx context.Context) {
			report(ctx, worker, own+"/24", blue.Endpoint+"/24")
			request.signer, request.name, request.organizations = servingSigner, "system:node:"+worker.Name, []string{nodes}
			refused(ctx, requestCertificate(ctx, kubelet(worker.Name), request))
		})
	}

	It("renews no certificate once its Machine is deleted [F16]", func(ctx context.Context) {
		_, before, err := b.Machines(ctx, blue)
		Expect(err).NotTo(HaveOccurred())
		scale(ctx, blue, 1)
		var gone *clusterv1.Machine
		Eventually(func(g Gomega) {
			_, workers, err := b.Machines(ctx, blue)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(workers).To(HaveLen(len(before) + 1))
			gone = newest(workers)
			g.Expect(gone.Spec.Bootstrap.DataSecretName).NotTo(BeNil())
		}).Should(Succeed())
		first := requestCertificate(ctx, joiner(gone), csrOptions{signer: joinSigner, name: "system:node:" + gone.Name, organizations: []string{nodes}, key: key})
		Eventually(decisionOrHeld).WithContext(ctx).WithArguments(first).Should(Equal("Approved"))
		scale(ctx, blue, -1)
		Expect(client.IgnoreNotFound(b.Client.Delete(ctx, gone))).To(Succeed())
		Eventually(func() error { return b.Client.Get(ctx, client.ObjectKeyFromObject(gone), gone) }).Should(MatchError(apierrors.IsNotFound, "IsNotFound"))
		refused(ctx, requestCertificate(ctx, kubelet(gone.Name), csrOptions{signer: joinSigner, name: "system:node:" + gone.Name, organizations: []string{nodes}, key: key}))
	})
})
