package certificates

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFiles compares the files of the certificates with those that kubeadm needs if it
// has no CA keys. It makes CA keys itself if one of them is missing.
func TestFiles(t *testing.T) {
	t.Parallel()
	shared := []string{
		"admin.conf", "controller-manager.conf", "pki/apiserver", "pki/apiserver-kubelet-client",
		"pki/front-proxy-client", "scheduler.conf",
	}
	etcd := []string{"pki/apiserver-etcd-client", "pki/etcd/healthcheck-client", "pki/etcd/peer", "pki/etcd/server"}
	for name, c := range map[string]struct {
		first, external bool
		want            []string
	}{
		"first":                     {first: true, want: slices.Concat(shared, etcd, []string{"super-admin.conf", "kubelet.conf"})},
		"first with external etcd":  {first: true, external: true, want: slices.Concat(shared, []string{"super-admin.conf", "kubelet.conf"})},
		"joins":                     {want: slices.Concat(shared, etcd)},
		"joins, with external etcd": {external: true, want: shared},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var files []string
			for _, certificate := range Of(c.first, c.external) {
				if (certificate.File == "") == (certificate.Kubeconfig == "") {
					t.Errorf("%s has no file, or two", certificate.Name)
				}
				if certificate.File != "" {
					files = append(files, "pki/"+certificate.File)
				} else {
					files = append(files, certificate.Kubeconfig)
				}
			}
			slices.Sort(files)
			slices.Sort(c.want)
			if diff := cmp.Diff(c.want, files); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSubject(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"etcd-peer": "node-a", KubeletClient: "system:node:node-a", "scheduler": "system:kube-scheduler", "apiserver": "kube-apiserver",
	} {
		at := slices.IndexFunc(all, func(c Certificate) bool { return c.Name == name })
		if at < 0 {
			t.Fatalf("there is no certificate %s", name)
		}
		if got := all[at].Subject("node-a"); got != want {
			t.Errorf("%s has the subject %s, want %s", name, got, want)
		}
	}
}

// TestNames compares names and addresses with those of kubeadm.
func TestNames(t *testing.T) {
	t.Parallel()
	own, v4, v6 := netip.MustParseAddr("192.0.2.11"), netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()
	service, endpoint := netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("192.0.2.10")
	names := Names{Node: "node-a", Addresses: []netip.Addr{own}, DNSNames: []string{"kubernetes.default.svc.cluster.local", "node-a"}, IPs: []netip.Addr{service, endpoint}}
	etcdDNS, etcdIPs := []string{"localhost", "node-a"}, []netip.Addr{v4, own, v6}
	for name, want := range map[string]struct {
		dns []string
		ips []netip.Addr
	}{
		"apiserver": {
			dns: []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "node-a"},
			ips: []netip.Addr{service, endpoint, own},
		},
		"etcd-server":             {dns: etcdDNS, ips: etcdIPs},
		"etcd-peer":               {dns: etcdDNS, ips: etcdIPs},
		"etcd-healthcheck-client": {},
		"admin":                   {},
	} {
		at := slices.IndexFunc(all, func(c Certificate) bool { return c.Name == name })
		dns, ips := names.Of(all[at])
		if diff := cmp.Diff(want.dns, dns); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if !slices.Equal(want.ips, ips) {
			t.Errorf("%s has the addresses %v, want %v", name, ips, want.ips)
		}
	}
	if len(names.Addresses) != 1 || len(names.IPs) != 2 {
		t.Error("the names were changed")
	}
}

func TestAuthorities(t *testing.T) {
	t.Parallel()
	files := map[string]bool{}
	for _, a := range Authorities() {
		files[a.File()] = true
		if got := AuthorityOf(a.Signer()); got != a {
			t.Errorf("signer %s belongs to %q, want %q", a.Signer(), got, a)
		}
	}
	if len(files) != len(Authorities()) {
		t.Errorf("the files of the CAs are %v", files)
	}
	if got := AuthorityOf("kubernetes.io/kubelet-serving"); got != "" {
		t.Errorf("a signer of Kubernetes belongs to %q", got)
	}
}
