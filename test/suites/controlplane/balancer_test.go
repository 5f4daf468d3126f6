package controlplane

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/host"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// balancer is HAProxy with the configuration of the guide. Its address is one
// of the bed's own, and its servers follow the machines, as a site's automation
// would have it.
type balancer struct {
	cluster *bed.Cluster
	sample  string
	config  string
	servers []string
	process *exec.Cmd
	exited  chan struct{}
}

// startBalancer takes the endpoint of a cluster for HAProxy and starts it
// without servers.
func startBalancer(ctx context.Context, c *bed.Cluster) *balancer {
	GinkgoHelper()
	page, err := os.ReadFile(filepath.Join(tools.Root(), "docs", "flavors.md"))
	Expect(err).NotTo(HaveOccurred())
	sample := regexp.MustCompile("(?s)```haproxy\n(.*?)```").FindSubmatch(page)
	Expect(sample).NotTo(BeNil(), "the guide has a configuration of HAProxy")
	dir, err := os.MkdirTemp("", "nova-balancer-")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(os.RemoveAll(dir)).To(Succeed()) })
	out, err := inside(ctx, "ip", "address", "replace", c.Endpoint+"/32", "dev", host.Bridge)
	Expect(err).NotTo(HaveOccurred(), out)
	l := &balancer{cluster: c, sample: string(sample[1]), config: filepath.Join(dir, "haproxy.cfg")}
	l.write(nil)
	l.start(ctx)
	DeferCleanup(l.stop)
	return l
}

// inside runs a command in the bed's network.
func inside(ctx context.Context, name string, args ...string) (string, error) {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := b.Inside(cmd.Run)
	return out.String(), err
}

// write puts servers into the configuration of the guide.
func (l *balancer) write(servers []string) {
	GinkgoHelper()
	var config strings.Builder
	for line := range strings.Lines(l.sample) {
		if !strings.HasPrefix(strings.TrimSpace(line), "server ") {
			config.WriteString(strings.Replace(line, "bind :6443", "bind "+l.cluster.Endpoint+":6443", 1))
		}
	}
	for i, server := range servers {
		fmt.Fprintf(&config, "  server control-plane-%d %s:6443\n", i+1, server)
	}
	Expect(os.WriteFile(l.config, []byte(config.String()), 0o600)).To(Succeed())
	l.servers = servers
}

// start starts HAProxy with the configuration as it is.
func (l *balancer) start(ctx context.Context) {
	GinkgoHelper()
	l.process = exec.CommandContext(context.WithoutCancel(ctx), "haproxy", "-W", "-db", "-f", l.config)
	l.process.Stdout, l.process.Stderr = GinkgoWriter, GinkgoWriter
	l.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	l.exited = make(chan struct{})
	started := make(chan error, 1)
	go func() {
		defer close(l.exited)
		// The signal comes when the thread that started it ends, so that one
		// waits for it.
		if err := b.Inside(func() error {
			err := l.process.Start()
			started <- err
			if err == nil {
				_ = l.process.Wait()
			}
			return nil
		}); err != nil {
			started <- err
		}
	}()
	Expect(<-started).To(Succeed())
}

// stop ends HAProxy and its workers.
func (l *balancer) stop() {
	_ = l.process.Process.Signal(syscall.SIGTERM)
	<-l.exited
}

// following keeps the servers those of the machines while something is done.
func (l *balancer) following(ctx context.Context, do func()) {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer GinkgoRecover()
		defer close(done)
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				l.follow(ctx)
			}
		}
	}()
	defer func() {
		cancel()
		<-done
	}()
	do()
}

// follow reloads HAProxy if the addresses of the machines have changed.
func (l *balancer) follow(ctx context.Context) {
	found, _, err := b.Machines(ctx, *l.cluster)
	if err != nil {
		return
	}
	var servers []string
	for i := range found {
		if address := bed.InternalIP(&found[i]); address != "" {
			servers = append(servers, address)
		}
	}
	slices.Sort(servers)
	if slices.Equal(servers, l.servers) {
		return
	}
	l.write(servers)
	Expect(l.process.Process.Signal(syscall.SIGUSR2)).To(Succeed())
}

var _ = describeFull("A control plane behind a balancer", func() {
	c, p := cluster("balanced", 32, 3, 0), &promises{}
	var l *balancer

	BeforeAll(func(ctx context.Context) { l = startBalancer(ctx, c) })

	It("comes up", func(ctx context.Context) {
		started := time.Now()
		// The clusterctl suite generates the flavor.
		objects, err := b.Generate(ctx, *c)
		Expect(err).NotTo(HaveOccurred())
		for _, object := range objects {
			if object.GetKind() == "NovaControlPlane" {
				Expect(unstructured.SetNestedMap(object.Object, map[string]any{"provider": "External"}, "spec", "endpoint")).To(Succeed())
			}
		}
		Expect(b.Credentials(ctx, *c)).To(Succeed())
		Expect(bed.Apply(ctx, b.Client, objects...)).To(Succeed())
		l.following(ctx, func() { awaitHealthy(ctx, c, bootTimeout) })
		figuref("3 control planes behind a balancer from apply to settled: %.0f s", time.Since(started).Seconds())
	})

	It("answers while its machines are replaced", func(ctx context.Context) {
		before, started := names(ctx, c), time.Now()
		l.following(ctx, func() {
			seen := probing(ctx, c, func() {
				keepingQuorum(ctx, c, func() {
					change(ctx, c, func(cp *controlplanev1.NovaControlPlane) { cp.Spec.Rollout.After = ptr.To(metav1.Now()) })
					replaced(ctx, c, before...)
				})
			})
			p.withinf(plannedLoss, seen.Longest().Length, "rollout of three behind a balancer: %.0f s, API: %s", time.Since(started).Seconds(), seen)
		})
	})

	It("answers soon after a host is lost", func(ctx context.Context) {
		victim := names(ctx, c)[0]
		seen := probing(ctx, c, func() {
			goOn := stopProvider(c)
			Expect(hypervisor(c).PowerOff(ctx, victim)).To(Succeed())
			Eventually(func(g Gomega, ctx context.Context) {
				cp, err := b.ControlPlane(ctx, *c)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(conditions.IsFalse(cp, controlplanev1.EtcdClusterHealthyCondition)).To(BeTrue())
			}).WithContext(ctx).WithTimeout(reportTimeout).Should(Succeed(), func() string { return story(ctx, c) })
			goOn()
			l.following(ctx, func() { awaitHealthy(ctx, c, changeTimeout) })
		})
		p.withinf(hardLoss, seen.Longest().Length, "API after the hard loss of a host behind a balancer: %s", seen)
	})

	It("reports that the balancer does not answer, replaces nothing, and recovers", func(ctx context.Context) {
		before := names(ctx, c)
		l.stop()
		endpoint := func(g Gomega, ctx context.Context, status metav1.ConditionStatus) {
			cp, err := b.ControlPlane(ctx, *c)
			g.Expect(err).NotTo(HaveOccurred())
			condition := conditions.Get(cp, controlplanev1.EndpointHealthyCondition)
			g.Expect(condition).NotTo(BeNil())
			g.Expect(condition.Status).To(Equal(status), condition.Message)
		}
		Eventually(endpoint).WithContext(ctx).WithArguments(metav1.ConditionFalse).WithTimeout(reportTimeout).
			Should(Succeed(), func() string { return story(ctx, c) })
		Consistently(func(ctx context.Context) []string { return names(ctx, c) }).
			WithContext(ctx).WithTimeout(20 * time.Second).Should(Equal(before))
		l.start(ctx)
		Eventually(endpoint).WithContext(ctx).WithArguments(metav1.ConditionTrue).WithTimeout(reportTimeout).
			Should(Succeed(), func() string { return story(ctx, c) })
		awaitHealthy(ctx, c, changeTimeout)
		Expect(names(ctx, c)).To(Equal(before))
	})

	It("leaves nothing when it is deleted", func(ctx context.Context) {
		deleteCluster(ctx, c)
	})

	p.kept()
})
