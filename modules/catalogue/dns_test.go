package catalogue

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/cel-go/cel"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/ports"
	"github.com/nova-platform/cluster-api-provider-nova/test/sites"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// log stores the output of a server, to print it if a test fails.
type log struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.String()
}

func port(t *testing.T) string {
	t.Helper()
	free, err := ports.Free(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return free
}

// serve runs CoreDNS on loopback with the documents of a ConfigMap. It returns
// a resolver that uses the server, and a function that replaces the documents.
// Only ports, paths and the reload interval differ from those in a workload
// cluster.
func serve(t *testing.T, documents map[string]string, at string, others ...string) (*net.Resolver, func(map[string]string)) {
	t.Helper()
	g := NewWithT(t)
	paths, err := tools.Paths(t.Context(), os.Stderr, "coredns")
	g.Expect(err).NotTo(HaveOccurred())
	dir := t.TempDir()
	replacer := strings.NewReplacer(append([]string{
		":53 {", ":" + at + " {", "/etc/coredns", dir, ":8053", ":" + port(t), ":8054", ":" + port(t), ":9253", ":" + port(t), ":9153", ":" + port(t), "reload 10s", "reload 2s",
	}, others...)...)
	write := func(documents map[string]string) {
		for name, document := range documents {
			g.Expect(os.WriteFile(filepath.Join(dir, name), []byte(replacer.Replace(document)), 0o600)).To(Succeed())
		}
	}
	write(documents)
	output := &log{}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, paths["coredns"], "-conf", filepath.Join(dir, "Corefile"))
	cmd.Env = append(os.Environ(), "POD_IP=127.0.0.1")
	cmd.Stdout, cmd.Stderr = output, output
	g.Expect(cmd.Start()).To(Succeed())
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(output.String())
		}
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, "127.0.0.1:"+at)
	}}, write
}

// addresses resolves a name, and repeats the query until the server is up.
func addresses(ctx context.Context, g Gomega, r *net.Resolver, name string) []string {
	found, err := r.LookupHost(ctx, name+".")
	g.Expect(err).NotTo(HaveOccurred())
	slices.Sort(found)
	return found
}

// Real CoreDNS accepts the rendered configuration and answers as Nova DNS must.
func TestNovaDNSAnswers(t *testing.T) {
	g := NewWithT(t)
	s := named(t)["vsphere-hybrid-3"]
	r, write := serve(t, configMap(t, s, "nova-dns", "nova-dns").Data, port(t))
	g.Eventually(func(g Gomega) {
		g.Expect(addresses(t.Context(), g, r, "nova-console.nova.apps.example")).To(Equal([]string{"192.0.2.20", "192.0.2.21", "192.0.2.22"}))
	}, "20s").Should(Succeed())
	for _, name := range []string{
		"nova-oauth.nova", "nova-grafana-main.nova", "nova-prometheus-main.nova", "nova-alertmanager-main.nova", "nova-cilium-hubble.nova", "nova-release-git-main.nova",
		"nova-headlamp.nova", "anything", "deeper.down",
	} {
		g.Expect(addresses(t.Context(), g, r, name+".apps.example")).To(HaveLen(3), name)
	}
	servers, err := r.LookupNS(t.Context(), "apps.example.")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(servers).To(HaveLen(1))
	_, err = r.LookupHost(t.Context(), "example.org.")
	g.Expect(err).To(HaveOccurred())

	s.Infra = 1
	write(configMap(t, s, "nova-dns", "nova-dns").Data)
	g.Eventually(func(g Gomega) {
		g.Expect(addresses(t.Context(), g, r, "nova-console.nova.apps.example")).To(Equal([]string{"192.0.2.20"}))
	}, "30s").Should(Succeed())
}

// Without infra nodes the answers are the workers.
func TestNovaDNSWithoutInfraNodes(t *testing.T) {
	s := named(t)["zvirt-none-0"]
	s.DNS = named(t)["vsphere-internal-1"].DNS
	zone := configMap(t, s, "nova-dns", "nova-dns").Data["zone"]
	if !strings.Contains(zone, "nova-console.nova.apps.example. 60 IN A 192.0.2.40\n") {
		t.Errorf("the zone is\n%s", zone)
	}
}

// CoreDNS of a workload cluster forwards the base domain to Nova DNS, or to the
// configured servers, and all other names to the upstream servers.
func TestCoreDNSForwards(t *testing.T) {
	g := NewWithT(t)
	behind := port(t)
	serve(t, configMap(t, named(t)["vsphere-hybrid-3"], "nova-dns", "nova-dns").Data, behind)
	for name, s := range map[string]sites.Site{"internal": named(t)["vsphere-internal-1"], "external": named(t)["zvirt-external-3"]} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			data := configMap(t, s, "coredns", "coredns").Data
			// This test has no Kubernetes API.
			before, rest, found := strings.Cut(data["Corefile"], "    kubernetes ")
			g.Expect(found).To(BeTrue())
			_, after, _ := strings.Cut(rest, "\n    }\n")
			data["Corefile"] = before + after
			nova := fmt.Sprintf("127.0.0.1:%s", behind)
			r, _ := serve(t, data, port(t), "10.233.63.254", nova, "192.0.2.53 192.0.2.54", nova, "    health {\n        lameduck 5s\n    }\n    ready\n", "")
			g.Eventually(func(g Gomega) {
				g.Expect(addresses(t.Context(), g, r, "nova-console.nova.apps.example")).To(HaveLen(3))
			}, "20s").Should(Succeed())
		})
	}
	internal := configMap(t, named(t)["vsphere-internal-1"], "coredns", "coredns").Data["Corefile"]
	g.Expect(internal).To(ContainSubstring("forward . 192.0.2.1 {"))
	g.Expect(internal).To(ContainSubstring("apps.example:53 {\n    errors\n    cache 30\n    forward . 10.233.63.254\n}"))
	external := configMap(t, named(t)["zvirt-external-3"], "coredns", "coredns").Data["Corefile"]
	g.Expect(external).To(ContainSubstring("forward . /etc/resolv.conf {"))
	g.Expect(external).To(ContainSubstring("forward . 192.0.2.53 192.0.2.54\n"))
	g.Expect(external).NotTo(ContainSubstring("10.233.63.254"))
}

// TestDNSIsReadyWithOnePod: names resolve when one pod responds. A Deployment whose pods are being replaced
// is not ready: those of a broken revision never respond.
func TestDNSIsReadyWithOnePod(t *testing.T) {
	cases := map[string]struct {
		status string
		ready  bool
	}{
		"New":                      {"{}", false},
		"Starting":                 {"{replicas: 2, updatedReplicas: 2, unavailableReplicas: 2}", false},
		"OnOneNode":                {"{replicas: 2, updatedReplicas: 2, availableReplicas: 1}", true},
		"OnTwoNodes":               {"{replicas: 2, updatedReplicas: 2, availableReplicas: 2}", true},
		"BeforeItsFirstNewPod":     {"{replicas: 2, availableReplicas: 2}", false},
		"WithAPodOfABrokenVersion": {"{replicas: 3, updatedReplicas: 1, availableReplicas: 2}", false},
		"WithTheLastOldPod":        {"{replicas: 3, updatedReplicas: 2, availableReplicas: 2}", false},
	}
	env, err := cel.NewEnv(cel.Variable("spec", cel.DynType), cel.Variable("status", cel.DynType))
	if err != nil {
		t.Fatal(err)
	}
	c := content(t, Base)
	for _, module := range []string{"nova-dns", "coredns"} {
		i := slices.IndexFunc(c.Modules, func(m addonsv1.Module) bool { return m.Name == module })
		if len(c.Modules[i].HealthExpressions) != 1 {
			t.Fatalf("module %s has the expressions %v", module, c.Modules[i].HealthExpressions)
		}
		ast, issues := env.Compile(c.Modules[i].HealthExpressions[0].Current)
		if issues.Err() != nil {
			t.Fatal(issues.Err())
		}
		program, err := env.Program(ast)
		if err != nil {
			t.Fatal(err)
		}
		for name, tc := range cases {
			t.Run(module+"/"+name, func(t *testing.T) {
				var status map[string]any
				if err := yaml.Unmarshal([]byte(tc.status), &status); err != nil {
					t.Fatal(err)
				}
				got, _, err := program.Eval(map[string]any{"spec": map[string]any{"replicas": 2.0}, "status": status})
				if err != nil || got.Value() != tc.ready {
					t.Errorf("ready is %v (%v), want %t", got, err, tc.ready)
				}
			})
		}
	}
}
