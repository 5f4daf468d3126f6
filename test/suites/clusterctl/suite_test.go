package clusterctl

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
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
	"github.com/nova-platform/cluster-api-provider-nova/test/manifests"
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
	// one and two are management clusters. What one has moves to two.
	one, two *bed.Empty
	programs map[string]string
	// dir holds the releases and the configuration of clusterctl.
	dir string
)

func TestClusterctl(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyPollingInterval(time.Second)
	RunSpecs(t, "clusterctl")
}

var _ = BeforeSuite(func(ctx context.Context) {
	Expect(bed.Down(ctx, name)).To(Succeed(), "a bed that a crashed run left is taken away first")
	var err error
	programs, err = tools.Paths(ctx, GinkgoWriter, "clusterctl", "kubectl", "capi-core")
	Expect(err).NotTo(HaveOccurred())
	b, err = bed.Start(ctx, bed.Options{
		Name: name, Hypervisors: bed.Hypervisors(), Unmanaged: true, Bodiless: !everything, Log: GinkgoWriter,
		Delays: map[string]time.Duration{"CloneVM_Task": cloneTime, "clone": cloneTime},
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) { Expect(b.Stop(ctx)).To(Succeed()) })

	dir = filepath.Join(b.Dir, "bin", "releases")
	var wait sync.WaitGroup
	fail := make([]error, 3)
	wait.Go(func() { fail[0] = errors.Join(release(ctx, first), release(ctx, next), core(ctx)) })
	wait.Go(func() { one, fail[1] = b.StartEmpty(ctx, "one", "10.77.0.2", program) })
	wait.Go(func() { two, fail[2] = b.StartEmpty(ctx, "two", "10.77.0.3", program) })
	wait.Wait()
	Expect(errors.Join(fail...)).To(Succeed())
	for _, cluster := range []*bed.Empty{one, two} {
		DeferCleanup(cluster.Stop)
		Expect(certManager(ctx, cluster)).To(Succeed())
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

// release puts a release into the repository, and its managers beside it.
func release(ctx context.Context, version string) error {
	components := exec.CommandContext(ctx, filepath.Join(tools.Root(), "hack", "components.sh"), filepath.Join(dir, "repository"), version)
	if out, err := components.CombinedOutput(); err != nil {
		return fmt.Errorf("making release: %w: %s", err, out)
	}
	// Unchanged ones cost nothing the next time.
	bin := managers(version) + "/"
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	const variable = "github.com/nova-platform/cluster-api-provider-nova/internal/manager.version"
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-ldflags", "-s -w -X "+variable+"="+version, "-o", bin)
	for _, p := range manifests.Providers() {
		build.Args = append(build.Args, "./cmd/"+p.Dir)
	}
	build.Args = append(build.Args, "./cmd/"+bed.AddonProvider)
	build.Dir = tools.Root()
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building managers: %w: %s", err, out)
	}
	return nil
}

// managers is where those of a release are.
func managers(version string) string {
	sum := sha256.Sum256([]byte(tools.Root()))
	return filepath.Join(bed.Cache(), "bin", hex.EncodeToString(sum[:4]), version)
}

// core puts Cluster API's core provider into the repository, as its release
// has it, and says so in the configuration.
func core(ctx context.Context) error {
	module, err := tools.ModuleDir(ctx, "sigs.k8s.io/cluster-api")
	if err != nil {
		return err
	}
	components, err := exec.CommandContext(ctx, programs["kubectl"], "kustomize", filepath.Join(module, "core", "config", "default")).Output()
	if err != nil {
		return fmt.Errorf("rendering core provider: %w", err)
	}
	version := filepath.Base(module)[len("cluster-api@"):]
	release := filepath.Join(dir, "repository", "cluster-api", version)
	if err := os.MkdirAll(release, 0o755); err != nil {
		return err
	}
	metadata, err := os.ReadFile(filepath.Join(module, "metadata.yaml"))
	if err != nil {
		return err
	}
	config, err := os.ReadFile(filepath.Join(dir, "repository", "clusterctl.yaml"))
	if err != nil {
		return err
	}
	provider := fmt.Sprintf("- name: cluster-api\n  type: CoreProvider\n  url: %s/core-components.yaml\n", release)
	return errors.Join(
		os.WriteFile(filepath.Join(release, "core-components.yaml"), components, 0o644),
		os.WriteFile(filepath.Join(release, "metadata.yaml"), metadata, 0o644),
		os.WriteFile(filepath.Join(dir, "clusterctl.yaml"), append(config, provider...), 0o644),
	)
}

// program is what an image would run: a manager of the release that the
// image's tag names.
func program(image string) string {
	image, tag := bed.ImageName(image)
	path := filepath.Join(managers(tag), image)
	if image == "cluster-api-controller" {
		path = programs["capi-core"]
	}
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// certManager installs cert-manager's definitions: to clusterctl it is there
// already, as where another team runs it.
func certManager(ctx context.Context, cluster *bed.Empty) error {
	module, err := tools.ToolDir(ctx, "cert-manager", "github.com/cert-manager/cert-manager")
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(module, "deploy", "crds", "*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		objects, err := manifests.Objects(data)
		if err != nil {
			return err
		}
		if err := bed.Apply(ctx, cluster.Client, objects...); err != nil {
			return err
		}
	}
	return nil
}

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
		append(args, "--config", filepath.Join(dir, "clusterctl.yaml"), "--kubeconfig", cluster.Kubeconfig())...)
	Expect(err).NotTo(HaveOccurred())
	return out
}

// generate returns what clusterctl makes of a flavour of the cluster template.
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
		"--config", filepath.Join(dir, "clusterctl.yaml"), "--kubeconfig", one.Kubeconfig(),
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

// dryRun asks the API server what it would say to objects.
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
