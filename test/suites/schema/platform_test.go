package schema_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
	"github.com/nova-platform/cluster-api-provider-nova/test/host"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// kube-proxy itself reads, validates and prints its configuration. For an unknown field it only
// logs a warning.
func TestKubeProxyConfiguration(t *testing.T) {
	programs, err := tools.Paths(t.Context(), os.Stderr, "kube-proxy")
	if err != nil {
		t.Fatal(err)
	}
	validate := func(t *testing.T, document string) (string, error) {
		t.Helper()
		in, out := filepath.Join(t.TempDir(), "in.yaml"), filepath.Join(t.TempDir(), "out.yaml")
		if err := os.WriteFile(in, []byte(document), 0o600); err != nil {
			t.Fatal(err)
		}
		output, err := exec.CommandContext(t.Context(), programs["kube-proxy"], "--config", in, "--write-config-to", out).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("%w: %s", err, output)
		}
		if strings.Contains(string(output), "lenient") {
			return "", errors.New(string(output))
		}
		written, err := os.ReadFile(out)
		return string(written), err
	}
	for golden, want := range map[string][]string{
		"init.yaml":            {"mode: iptables\n"},
		"init-everything.yaml": {"mode: nftables\n", "maxPerCore: 0\n"},
		"init-balanced.yaml":   {"mode: ipvs\n", "scheduler: lc\n"},
	} {
		t.Run(golden, func(t *testing.T) {
			written, err := validate(t, documentOf(t, golden, "KubeProxyConfiguration"))
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range want {
				if !strings.Contains(written, line) {
					t.Errorf("%q is lost:\n%s", line, written)
				}
			}
		})
	}
	for name, document := range map[string]string{"Mode": "mode: bogus", "Field": "ipvs: {scheduling: lc}"} {
		if _, err := validate(t, "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"+document+"\n"); err == nil {
			t.Errorf("%s: kube-proxy accepts invalid settings", name)
		}
	}
}

// documentOf is one of kubeadm's documents in a golden file.
func documentOf(t *testing.T, golden, kind string) string {
	t.Helper()
	for document := range strings.SplitSeq(configOf(t, golden).Join.Kubeadm, "---\n") {
		if strings.Contains(document, "kind: "+kind+"\n") {
			return document
		}
	}
	t.Fatalf("%s has no %s", golden, kind)
	return ""
}

// HAProxy takes the configuration of a node's balancer, before and after it
// knows API servers.
func TestHAProxyTakesItsConfiguration(t *testing.T) {
	assets, err := host.Prepare(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	root, err := host.HAProxy(t.Context(), os.Stderr, assets)
	if err != nil {
		t.Fatal(err)
	}
	base := filesOf(t, "join-worker-balanced.yaml")["/etc/nova/api-balancer/haproxy.base"]
	for name, tc := range map[string]struct {
		config string
		taken  bool
	}{
		"Endpoint": {base, true},
		"Servers":  {base + "  server api-1 10.0.0.1:7443\n  server api-2 [fd00::1]:7443\n", true},
		"Name":     {strings.Replace(base, "10.77.0.10:7443 backup init-addr libc,none", "api.corp:443 backup init-addr libc,none resolvers node\nresolvers node\n  parse-resolv-conf", 1), true},
		"Nonsense": {base + "  server api-1 10.0.0.1:7443 nonsense\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--propagation", "private", "sh", "-ec", `mount -t tmpfs tmpfs "$1/etc"; cat >"$1/etc/haproxy.cfg"; echo nameserver 127.0.0.1 >"$1/etc/resolv.conf"; exec chroot "$1" haproxy -c -f /etc/haproxy.cfg`, "sh", root)
			cmd.Stdin = strings.NewReader(tc.config)
			if out, err := cmd.CombinedOutput(); tc.taken != (err == nil) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// runOver runs a program on the guest's file system, which is not changed. /usr is writable only on
// request.
func (g *guest) runOver(ctx context.Context, usr string, args ...string) error {
	const script = `root=$1 dir=$2 usr=$3; shift 3
mkdir -p "$dir/over"
mount -t tmpfs tmpfs "$dir/over"
mkdir "$dir/over/up" "$dir/over/work" "$dir/over/root"
mount -t overlay -o "lowerdir=$root,upperdir=$dir/over/up,workdir=$dir/over/work" overlay "$dir/over/root"
mount --bind "$dir/mnt" "$dir/over/root/mnt"
mount --rbind /dev "$dir/over/root/dev"
mount --bind "$dir/over/root/usr" "$dir/over/root/usr"
mount -o "remount,bind,$usr" "$dir/over/root/usr"
exec chroot "$dir/over/root" "$@"`
	all := append([]string{"--mount", "--propagation", "private", "sh", "-ec", script, "sh", g.root, g.dir, usr}, args...)
	if out, err := exec.CommandContext(ctx, "unshare", all...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// Authorities get into the system's store, also where /usr cannot be written.
// The last of them plays Flatcar, whose program takes no folder.
func TestAuthoritiesAreTrusted(t *testing.T) {
	for name, tc := range map[string]struct{ usr, prepare, check string }{
		"Writable": {"rw", "", "openssl verify -CApath /etc/ssl/certs -CAfile /etc/ssl/certs/ca-certificates.crt /etc/nova/ca/nova-proxy-00.crt\n[ -e /usr/local/share/ca-certificates/nova-proxy-00.crt ]"},
		"ReadOnly": {"ro", "", "openssl verify -CAfile /etc/ssl/certs/ca-certificates.crt /etc/nova/ca/nova-proxy-00.crt\nopenssl verify -CApath /etc/ssl/certs /etc/nova/ca/nova-proxy-00.crt"},
		"Flatcar":  {"ro", "mount --bind /mnt/update-ca-certificates /usr/sbin/update-ca-certificates\n", "[ -e /mnt/called ]\ncmp /etc/ssl/certs/nova-proxy-00.pem /etc/nova/ca/nova-proxy-00.crt"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuest(t.Context(), t)
			g.apply(t, nodeconfig.Machine{TrustCAs: true, Files: []nodeconfig.File{{Path: "/etc/nova/ca/nova-proxy-00.crt", Mode: "0644", Text: string(authority(t))}}})
			g.write(t, "mnt/update-ca-certificates", []byte("#!/bin/sh\nls /etc/ssl/certs/nova-*.pem && touch /mnt/called\n"), 0o755)
			if err := g.runOver(t.Context(), tc.usr, "sh", "-ec", tc.prepare+applied+"\n"+tc.check+"\n"); err != nil {
				t.Error(err)
			}
		})
	}
}

// authority is the certificate of one.
func authority(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Authority of a test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
}
