package approver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

var (
	joinUsages    = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
	servingUsages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}
)

// kubeletRequest returns a request as a kubelet sends it.
func kubeletRequest(t *testing.T, user, node string, usages []certificatesv1.KeyUsage, change func(*x509.CertificateRequest)) request {
	t.Helper()
	return read(&certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
		Username: user, Groups: []string{"system:nodes", "system:authenticated"}, Usages: usages, Request: newRequest(t, node, change),
	}})
}

// newRequest returns a request that is signed with its own key.
func newRequest(t *testing.T, node string, change func(*x509.CertificateRequest)) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func aMachine(name string, change ...func(*clusterv1.Machine)) *clusterv1.Machine {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}}
	m.Status.Addresses = clusterv1.MachineAddresses{
		{Type: clusterv1.MachineInternalIP, Address: "10.0.0.5"}, {Type: clusterv1.MachineInternalIP, Address: "FD00::5"},
		{Type: clusterv1.MachineInternalDNS, Address: "w-1.corp"},
	}
	for _, c := range change {
		c(m)
	}
	return m
}

func TestDecideJoin(t *testing.T) {
	joined := func(m *clusterv1.Machine) { m.Status.NodeRef.Name = m.Name }
	going := func(m *clusterv1.Machine) { m.DeletionTimestamp = new(metav1.Now()) }
	good := kubeletRequest(t, "nova:machine:1", "w-1", joinUsages, nil)
	other := kubeletRequest(t, "nova:machine:1", "w-1", joinUsages, nil)
	broken := good
	broken.parsed = nil
	for name, tc := range map[string]struct {
		csr  request
		from joiner
		want csrAction
		why  string
	}{
		"Own":          {good, joiner{machine: aMachine("w-1")}, approve, "First client certificate of Machine w-1"},
		"RSA":          {kubeletRequest(t, "u", "w-1", append([]certificatesv1.KeyUsage{certificatesv1.UsageKeyEncipherment}, joinUsages...), nil), joiner{machine: aMachine("w-1")}, approve, ""},
		"SameKeyAgain": {good, joiner{machine: aMachine("w-1"), certified: good.keyHash()}, approve, ""},
		"OtherKey":     {good, joiner{machine: aMachine("w-1"), certified: other.keyHash()}, deny, "another key"},
		"UnknownKey":   {good, joiner{machine: aMachine("w-1"), certified: "x"}, deny, "another key"},
		"Nobodys":      {good, joiner{}, deny, "belongs to no Machine"},
		"OtherNode":    {kubeletRequest(t, "u", "w-2", joinUsages, nil), joiner{machine: aMachine("w-1")}, deny, "valid only for node w-1"},
		"Joined":       {good, joiner{machine: aMachine("w-1", joined)}, deny, "has joined already"},
		"NodeIsThere":  {good, joiner{machine: aMachine("w-1"), node: true}, deny, "has joined already"},
		"Going":        {good, joiner{machine: aMachine("w-1", going)}, hold, "is being deleted"},
		"Broken":       {broken, joiner{machine: aMachine("w-1")}, deny, "not a PKCS #10 certificate request"},
		"Admin": {kubeletRequest(t, "u", "w-1", joinUsages, func(r *x509.CertificateRequest) {
			r.Subject.Organization = []string{"system:nodes", "system:masters"}
		}), joiner{machine: aMachine("w-1")}, deny, "only for node w-1"},
		"Server": {kubeletRequest(t, "u", "w-1", append([]certificatesv1.KeyUsage{certificatesv1.UsageServerAuth}, joinUsages...), nil), joiner{machine: aMachine("w-1")}, deny, "client authentication only"},
		"Names":  {kubeletRequest(t, "u", "w-1", joinUsages, func(r *x509.CertificateRequest) { r.DNSNames = []string{"w-1"} }), joiner{machine: aMachine("w-1")}, deny, "must not have DNS names"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := decideJoin(tc.csr, tc.from); got.action != tc.want || !strings.Contains(got.reason, tc.why) {
				t.Errorf("decided %q, want %s because of %q", got, tc.want, tc.why)
			}
		})
	}
}

func TestDecideServing(t *testing.T) {
	names := func(dns []string, ips ...string) func(*x509.CertificateRequest) {
		return func(r *x509.CertificateRequest) {
			r.DNSNames = dns
			for _, ip := range ips {
				r.IPAddresses = append(r.IPAddresses, net.ParseIP(ip))
			}
		}
	}
	const user = "system:node:w-1"
	foreign := kubeletRequest(t, user, "w-1", servingUsages, names([]string{"w-1"}))
	foreign.groups = []string{"system:authenticated"}
	for name, tc := range map[string]struct {
		csr     request
		machine *clusterv1.Machine
		want    csrAction
		why     string
	}{
		"Own":          {kubeletRequest(t, user, "w-1", servingUsages, names([]string{"w-1", "w-1.corp"}, "10.0.0.5", "fd00::5")), aMachine("w-1"), approve, ""},
		"OtherAddress": {kubeletRequest(t, user, "w-1", servingUsages, names([]string{"w-1"}, "10.0.0.5", "10.0.0.6")), aMachine("w-1"), hold, "10.0.0.6 is not an address that Machine w-1 has reported"},
		"OtherName":    {kubeletRequest(t, user, "w-1", servingUsages, names([]string{"w-1", "kubernetes.default.svc"}, "10.0.0.5")), aMachine("w-1"), deny, `"kubernetes.default.svc" is not a name of Machine w-1`},
		"Wildcard":     {kubeletRequest(t, user, "w-1", servingUsages, names([]string{"*.corp"})), aMachine("w-1"), deny, "not a name"},
		"Nothing":      {kubeletRequest(t, user, "w-1", servingUsages, nil), aMachine("w-1"), deny, "at least one"},
		"OtherNode":    {kubeletRequest(t, user, "w-2", servingUsages, names([]string{"w-1"})), aMachine("w-1"), deny, "for another node"},
		"Client":       {kubeletRequest(t, user, "w-1", joinUsages, names([]string{"w-1"})), aMachine("w-1"), deny, "server authentication only"},
		"Mail":         {kubeletRequest(t, user, "w-1", servingUsages, func(r *x509.CertificateRequest) { r.DNSNames, r.EmailAddresses = []string{"w-1"}, []string{"a@b"} }), aMachine("w-1"), deny, "no URIs"},
		"URI": {kubeletRequest(t, user, "w-1", servingUsages, func(r *x509.CertificateRequest) {
			r.DNSNames, r.URIs = []string{"w-1"}, []*url.URL{{Scheme: "spiffe", Host: "x"}}
		}), aMachine("w-1"), deny, "no URIs"},
		"NoMachine":    {kubeletRequest(t, user, "w-1", servingUsages, names([]string{"w-1"})), nil, ignore, ""},
		"NoNode":       {foreign, aMachine("w-1"), ignore, ""},
		"SomebodyElse": {kubeletRequest(t, "jane", "w-1", servingUsages, names([]string{"w-1"})), aMachine("w-1"), ignore, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := decideServing(tc.csr, tc.machine, network{}, nil); got.action != tc.want || !strings.Contains(got.reason, tc.why) {
				t.Errorf("decided %q, want %s because of %q", got, tc.want, tc.why)
			}
		})
	}
}

// A worker may report false addresses, so no address of other machines or Services is certified for
// it, in no spelling.
func TestDecideServingAddresses(t *testing.T) {
	machine := func(name string, controlPlane bool, addresses ...string) *clusterv1.Machine {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if controlPlane {
			m.Labels = map[string]string{clusterv1.MachineControlPlaneLabel: ""}
		}
		for _, a := range addresses {
			m.Status.Addresses = append(m.Status.Addresses, clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: a})
		}
		return m
	}
	// All addresses that the worker reports are false, except 10.0.0.5 and fd00::5.
	worker := machine("w-1", false, "10.0.0.5", "FD00:0::5", "10.96.0.1", "fd96::1", "10.32.0.1", "10.244.3.7", "10.0.0.10", "fd00::0a", "10.0.0.2", "10.0.0.6",
		"10.0.0.7", "127.0.0.1", "169.254.1.1", "::ffff:10.0.0.11")
	worker.Status.Addresses = append(worker.Status.Addresses, clusterv1.MachineAddress{Type: clusterv1.MachineInternalDNS, Address: "w-1.corp"},
		clusterv1.MachineAddress{Type: clusterv1.MachineInternalDNS, Address: "API.corp"}, clusterv1.MachineAddress{Type: clusterv1.MachineInternalDNS, Address: "kubernetes"})
	controlPlane, peer := machine("cp-1", true, "10.0.0.2", "10.0.0.5", "10.0.0.10"), machine("cp-2", true, "10.0.0.3", "10.0.0.2")
	machines := []*clusterv1.Machine{worker, controlPlane, machine("w-2", false, "10.0.0.6", "10.0.0.8")}
	cluster := &clusterv1.Cluster{Spec: clusterv1.ClusterSpec{
		ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "API.corp"},
		ClusterNetwork: clusterv1.ClusterNetwork{
			Services: clusterv1.NetworkRanges{CIDRBlocks: []string{"10.96.0.1/12", "fd96::/108"}}, Pods: clusterv1.NetworkRanges{CIDRBlocks: []string{"10.244.0.0/16"}},
		},
	}}
	known := networkOf(cluster)
	known.endpoints = []netip.Addr{netip.MustParseAddr("10.0.0.10"), netip.MustParseAddr("fd00::a"), netip.MustParseAddr("10.0.0.11")}
	known.kubernetes = []netip.Addr{netip.MustParseAddr("10.32.0.1")}
	known.nodes = map[string][]netip.Addr{"orphan": {netip.MustParseAddr("10.0.0.7")}, "w-2": {netip.MustParseAddr("10.0.0.5")}}
	unresolved, plain := known, networkOf(&clusterv1.Cluster{})
	unresolved.endpoints, unresolved.unresolved = nil, "cannot be resolved"
	for name, tc := range map[string]struct {
		machine *clusterv1.Machine
		network network
		san     string
		want    csrAction
		why     string
	}{
		"ClaimedByControlPlane": {worker, known, "10.0.0.5", deny, "is an address of Machine cp-1"},
		"OwnIPv6":               {worker, known, "fd00::5", approve, ""},
		"OwnName":               {worker, known, "w-1.corp", approve, ""},
		"APIService":            {worker, known, "10.96.0.1", deny, "cluster's services"},
		"APIServiceMapped":      {worker, known, "::ffff:10.96.0.1", deny, "cluster's services"},
		"APIServiceIPv6":        {worker, known, "fd96:0::1", deny, "cluster's services"},
		"APIServiceByObject":    {worker, known, "10.32.0.1", deny, "cluster's services"},
		"DefaultServices":       {worker, plain, "10.96.0.1", deny, "cluster's services"},
		"Pods":                  {worker, known, "10.244.3.7", deny, "cluster's pods"},
		"Endpoint":              {worker, known, "10.0.0.10", deny, "control plane endpoint API.corp"},
		"EndpointIPv6":          {worker, known, "fd00:0:0::a", deny, "control plane endpoint"},
		"EndpointMapped":        {worker, known, "10.0.0.11", deny, "control plane endpoint"},
		"EndpointName":          {worker, known, "API.corp", deny, "not a name of Machine w-1"},
		"EndpointUnresolved":    {worker, unresolved, "fd00::5", hold, "cannot be resolved"},
		"ServiceName":           {worker, known, "kubernetes", deny, "not a name of Machine w-1"},
		"AddressAsName":         {worker, known, "dns:10.0.0.5", deny, "not a name of Machine w-1"},
		"ControlPlanes":         {worker, known, "10.0.0.2", deny, "is an address of Machine cp-1"},
		"OtherWorkersToo":       {worker, known, "10.0.0.6", hold, "reported by Machine w-1 and by Machine w-2"},
		"OtherWorkers":          {worker, known, "10.0.0.8", deny, "is an address of Machine w-2"},
		"NodeOfNoMachine":       {worker, known, "10.0.0.7", deny, "node orphan, which belongs to no Machine"},
		"Loopback":              {worker, known, "127.0.0.1", deny, "not a global unicast address"},
		"LinkLocal":             {worker, known, "169.254.1.1", deny, "not a global unicast address"},
		"Unknown":               {worker, known, "10.0.0.99", hold, "not an address that Machine w-1 has reported"},
		// A worker that claims an address of a control plane machine takes nothing from that machine,
		// and the addresses of the worker's Node are ignored.
		"ControlPlaneClaimed":  {controlPlane, known, "10.0.0.2", approve, ""},
		"ControlPlaneEndpoint": {controlPlane, known, "10.0.0.10", approve, ""},
		"ControlPlaneService":  {controlPlane, known, "10.96.0.1", deny, "cluster's services"},
		"ControlPlanePeer":     {peer, known, "10.0.0.2", hold, "reported by Machine cp-2 and by Machine cp-1"},
	} {
		t.Run(name, func(t *testing.T) {
			parsed := kubeletRequest(t, "system:node:"+tc.machine.Name, tc.machine.Name, servingUsages, func(r *x509.CertificateRequest) {
				text, isName := strings.CutPrefix(tc.san, "dns:")
				if ip := net.ParseIP(text); ip != nil && !isName {
					r.IPAddresses = []net.IP{ip}
				} else {
					r.DNSNames = []string{text}
				}
			})
			if got := decideServing(parsed, tc.machine, tc.network, machines); got.action != tc.want || !strings.Contains(got.reason, tc.why) {
				t.Errorf("decided %q, want %s because of %q", got, tc.want, tc.why)
			}
		})
	}
}

func TestDecideRenewal(t *testing.T) {
	const user = "system:node:w-1"
	good := kubeletRequest(t, user, "w-1", joinUsages, nil)
	foreign := good
	foreign.groups = []string{"system:authenticated"}
	going := aMachine("w-1", func(m *clusterv1.Machine) { m.DeletionTimestamp = new(metav1.Now()) })
	for name, tc := range map[string]struct {
		csr       request
		machine   *clusterv1.Machine
		renewable []string
		want      csrAction
		why       string
	}{
		"Living":        {good, aMachine("w-1"), []string{"w-1"}, ignore, ""},
		"Deleted":       {good, nil, []string{}, deny, "Node w-1 belongs to no Machine of this cluster"},
		"Going":         {good, going, []string{}, hold, "Machine w-1 is being deleted"},
		"OfMachinePool": {good, nil, []string{"w-1"}, ignore, ""},
		"NotOurs":       {good, nil, nil, ignore, ""},
		"OtherNode":     {kubeletRequest(t, user, "w-2", joinUsages, nil), aMachine("w-1"), []string{"w-1", "w-2"}, deny, "for another node"},
		"Server":        {kubeletRequest(t, user, "w-1", append([]certificatesv1.KeyUsage{certificatesv1.UsageServerAuth}, joinUsages...), nil), aMachine("w-1"), []string{"w-1"}, deny, "client authentication only"},
		"Names":         {kubeletRequest(t, user, "w-1", joinUsages, func(r *x509.CertificateRequest) { r.DNSNames = []string{"w-1"} }), aMachine("w-1"), []string{"w-1"}, deny, "must not have DNS names"},
		"NoNode":        {foreign, nil, []string{}, ignore, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := decideRenewal(tc.csr, tc.machine, tc.renewable); got.action != tc.want || !strings.Contains(got.reason, tc.why) {
				t.Errorf("decided %q, want %s because of %q", got, tc.want, tc.why)
			}
		})
	}
}

func TestMachineOfNode(t *testing.T) {
	elsewhere := aMachine("a", func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "b" })
	fresh := aMachine("c")
	all := []*clusterv1.Machine{elsewhere, fresh}
	for node, want := range map[string]*clusterv1.Machine{"a": nil, "b": elsewhere, "c": fresh, "": nil} {
		if got := machineOfNode(node, all); got != want {
			t.Errorf("node %q is of %v", node, got)
		}
	}
}
