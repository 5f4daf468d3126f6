package clusterctl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/release"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

const (
	name = "clusterctl"
	// first and next are two releases of this work tree.
	first, next = "v0.1.0", "v0.1.1"
	// cloneTime is long enough to find machines in flight.
	cloneTime = 40 * time.Second

	installTimeout = 3 * time.Minute
	bootTimeout    = 8 * time.Minute
	changeTimeout  = 2 * time.Minute
)

// everything is set where clusters come up on hosts, and not only as far as
// their VMs.
var everything = os.Getenv("NOVA_SUITES") == "full"

var (
	b *bed.Bed
	// one and two are management clusters. The objects of one move to two.
	one, two *bed.Empty
	programs map[string]string
	// dir holds the releases and the configuration of clusterctl.
	dir string
	// releases are those that it holds.
	releases *release.Repository
)

func TestClusterctl(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyPollingInterval(time.Second)
	RunSpecs(t, "clusterctl")
}

var _ = BeforeSuite(func(ctx context.Context) {
	Expect(bed.Down(ctx, name)).To(Succeed(), "a bed of a crashed run is removed first")
	var err error
	programs, err = tools.Paths(ctx, GinkgoWriter, "clusterctl", "kubectl")
	Expect(err).NotTo(HaveOccurred())
	delays := map[string]time.Duration{}
	for _, hypervisor := range bed.Hypervisors() {
		facts, err := bed.FactsOf(hypervisor)
		Expect(err).NotTo(HaveOccurred())
		delays[facts.CreateDelay] = cloneTime
	}
	b, err = bed.Start(ctx, bed.Options{
		Name: name, Hypervisors: bed.Hypervisors(), Unmanaged: true, Bodiless: !everything, Log: GinkgoWriter, Delays: delays,
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) { Expect(b.Stop(ctx)).To(Succeed()) })

	dir = filepath.Join(b.Dir, "bin", "releases")
	var wait sync.WaitGroup
	fail := make([]error, 3)
	// Pods start once there are Deployments, which clusterctl makes of releases.
	program := func(image string) string { return releases.Program(image) }
	wait.Go(func() {
		releases, fail[0] = release.Make(ctx, GinkgoWriter, filepath.Join(dir, "repository"), first, next)
	})
	wait.Go(func() { one, fail[1] = b.StartEmpty(ctx, "one", "10.77.0.2", program) })
	wait.Go(func() { two, fail[2] = b.StartEmpty(ctx, "two", "10.77.0.3", program) })
	wait.Wait()
	Expect(errors.Join(fail...)).To(Succeed())
	for _, cluster := range []*bed.Empty{one, two} {
		DeferCleanup(cluster.Stop)
		Expect(release.CertManager(ctx, cluster.Client)).To(Succeed())
	}
})

var _ = JustAfterEach(func() {
	if !CurrentSpecReport().Failed() {
		return
	}
	for label, cluster := range map[string]*bed.Empty{"one": one, "two": two} {
		folder := filepath.Join(tools.Root(), "_artifacts", name, label)
		if err := cluster.CollectArtifacts(folder); err != nil {
			AddReportEntry("collecting artifacts failed", err.Error())
		}
	}
})

// command is clusterctl's or kubectl's, run where management clusters are
// reached.
func command(ctx context.Context, program string, variables map[string]string, args ...string) (string, error) {
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, programs[program], args...)
	cmd.Env = append(os.Environ(), "NO_PROXY=*", "CLUSTERCTL_DISABLE_VERSIONCHECK=true", "CLUSTER_TOPOLOGY=true",
		"XDG_CONFIG_HOME="+dir, "KUBECACHEDIR="+filepath.Join(dir, "kubectl"))
	for name, value := range variables {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := b.Inside(cmd.Run)
	_, _ = fmt.Fprintf(GinkgoWriter, "$ %s %s\n%s%s\n", program, strings.Join(args, " "), out.String(), errs.String())
	if err != nil {
		return out.String(), fmt.Errorf("%s %s: %w: %s", program, args[0], err, errs.String())
	}
	return out.String() + errs.String(), nil
}

// clusterctl runs clusterctl for a management cluster.
func clusterctl(ctx context.Context, cluster *bed.Empty, args ...string) string {
	GinkgoHelper()
	out, err := command(ctx, "clusterctl", nil,
		append(args, "--config", releases.Config(), "--kubeconfig", cluster.Kubeconfig())...)
	Expect(err).NotTo(HaveOccurred())
	return out
}

// generate returns the output of clusterctl for a flavor of the cluster template.
func generate(ctx context.Context, c bed.Cluster, flavor string, more map[string]string) string {
	GinkgoHelper()
	h, err := b.Hypervisor(c.Hypervisor)
	Expect(err).NotTo(HaveOccurred())
	variables, err := b.Variables(ctx, c)
	Expect(err).NotTo(HaveOccurred())
	maps.Copy(variables, more)
	args := []string{
		"generate", "cluster", c.Name, "--infrastructure", h.Facts().Provider + ":" + first,
		"--target-namespace", c.Namespace, "--kubernetes-version", bed.KubernetesVersion,
		"--control-plane-machine-count", strconv.Itoa(c.ControlPlanes), "--worker-machine-count", strconv.Itoa(c.Workers),
		"--config", releases.Config(), "--kubeconfig", one.Kubeconfig(),
	}
	if flavor != "" {
		args = append(args, "--flavor", flavor)
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, programs["clusterctl"], args...)
	cmd.Env = append(os.Environ(), "NO_PROXY=*", "CLUSTERCTL_DISABLE_VERSIONCHECK=true", "XDG_CONFIG_HOME="+dir)
	for name, value := range variables {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Stdout, cmd.Stderr = &out, GinkgoWriter
	Expect(b.Inside(cmd.Run)).To(Succeed())
	return out.String()
}

// dryRun sends objects to the API server as a dry run.
func dryRun(ctx context.Context, objects []*unstructured.Unstructured) error {
	var errs []error
	for _, object := range objects {
		err := one.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()), client.DryRunAll,
			client.FieldOwner("suite"), client.ForceOwnership)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err))
		}
	}
	return errors.Join(errs...)
}
