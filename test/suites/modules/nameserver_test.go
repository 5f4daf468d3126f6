package modules

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nova-platform/cluster-api-provider-nova/test/host"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

const (
	dnsNS = "nova-external-dns"
	// serverPort is the port of the DNS server, beside the one of the hosts' network.
	serverPort = "5353"
	// manualHost is a name that was added to the zone by hand.
	manualHost = "manual." + baseDomain
	manualIP   = "192.0.2.7"
)

// nameserver is BIND outside of the cluster. It accepts updates and transfers of the zone baseDomain
// with a key.
type nameserver struct {
	// resolver queries it.
	resolver *net.Resolver
	// key is the secret of its TSIG key.
	key string
}

// startNameserver starts BIND in the network of the hosts. It ends with the test environment.
func startNameserver(ctx context.Context) nameserver {
	GinkgoHelper()
	// named may write here, if the machine has AppArmor with Debian's profile. The package bind9
	// creates the folder.
	dir, err := os.MkdirTemp("/var/cache/bind", "nova-")
	Expect(err).NotTo(HaveOccurred(), "install the package bind9")
	DeferCleanup(func() { Expect(os.RemoveAll(dir)).To(Succeed()) })
	key := base64.StdEncoding.EncodeToString([]byte(rand.Text()))
	settings, zone, log := filepath.Join(dir, "named.conf"), filepath.Join(dir, "zone"), filepath.Join(dir, "log")
	Expect(os.WriteFile(settings, fmt.Appendf(nil, `key "external-dns" { algorithm hmac-sha256; secret %q; };
options {
  directory %q; pid-file none; session-keyfile none; recursion no; dnssec-validation no;
  listen-on port %s { %s; }; listen-on-v6 { none; };
};
controls { };
zone %q {
  type primary; file %q;
  update-policy { grant external-dns zonesub ANY; };
  allow-transfer { key external-dns; };
};
`, key, dir, serverPort, host.Gateway, baseDomain, zone), 0o600)).To(Succeed())
	Expect(os.WriteFile(zone, fmt.Appendf(nil, "$TTL 60\n@ SOA ns admin 1 3600 600 86400 5\n@ NS ns\nns A %s\nmanual A %s\n", host.Gateway, manualIP), 0o600)).To(Succeed())
	cmd, err := host.NewNetwork(b.Name, dir, GinkgoWriter).Command(ctx, "/usr/sbin/named", "-c", settings, "-n", "1", "-L", log)
	Expect(err).NotTo(HaveOccurred())
	// It returns when it has loaded the zone, and continues in the background.
	out, err := cmd.CombinedOutput()
	messages, unread := os.ReadFile(log)
	Expect(errors.Join(err, unread)).NotTo(HaveOccurred(), "%s%s", out, messages)
	return nameserver{resolver: resolver(net.JoinHostPort(host.Gateway, serverPort)), key: key}
}

// values is the Secret with the settings of external-dns that its page describes, for this server.
func (s nameserver) values(namespace string) *corev1.Secret {
	GinkgoHelper()
	page, err := os.ReadFile(filepath.Join(tools.Root(), "docs", "catalogue", "dns.md"))
	Expect(err).NotTo(HaveOccurred())
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	values, _, found := strings.Cut(rest, "```")
	Expect(found).To(BeTrue())
	values = strings.NewReplacer("192.0.2.53", host.Gateway, "apps.example.com", baseDomain,
		"extraArgs:\n", "interval: 10s\nextraArgs:\n- --rfc2136-port="+serverPort+"\n").Replace(values)
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "external-dns-values"},
		StringData: map[string]string{"values.yaml": values},
	}
}

// login is the Secret with the key in the workload cluster.
func (s nameserver) login() *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: dnsNS, Name: "tsig"},
		StringData: map[string]string{"secret": s.key},
	}
}

// addresses are those of a name, or none if the server does not know the name.
func (s nameserver) addresses(ctx context.Context, name string) func() ([]string, error) {
	return func() ([]string, error) {
		found, err := s.resolver.LookupHost(ctx, name)
		if known := (&net.DNSError{}); errors.As(err, &known) && known.IsNotFound {
			return nil, nil
		}
		return found, err
	}
}
