package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/release"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

const (
	bedName = "e2e"
	version = "v0.1.0"
	// insideVariable names the file that says what the bed has, to the process
	// that runs the specs inside it.
	insideVariable = "NOVA_E2E_INSIDE"
)

// everything is set where all specs run on every hypervisor.
var everything = os.Getenv("NOVA_SUITES") == "full"

// inside is what a bed has, as the specs see it.
type inside struct {
	// Config is clusterctl's configuration, Core the version of its core
	// provider.
	Config string `json:"config"`
	Core   string `json:"core"`
	// Managements are the kubeconfigs of management clusters with nothing in
	// them. The first is for all specs, the second for what moves to it.
	Managements []string `json:"managements"`
	// Figures are how long parts of the bed took.
	Figures []string `json:"figures"`
}

// TestMain starts a bed and runs the specs as a process inside its network:
// the framework and clusterctl connect to management and tenant clusters by
// themselves, from any goroutine, and know nothing of a bed.
func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	if os.Getenv(insideVariable) != "" || onlyLists() {
		os.Exit(m.Run())
	}
	code, err := outside()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

// onlyLists says that go test asks for names of tests.
func onlyLists() bool {
	return slices.ContainsFunc(os.Args, func(arg string) bool {
		return strings.HasPrefix(strings.TrimLeft(arg, "-"), "test.list")
	})
}

// outside starts the bed, runs the specs in it and takes it away. It returns
// their exit code.
func outside() (code int, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	started := time.Now()
	if err := bed.Down(ctx, bedName); err != nil {
		return 1, err
	}
	options := bed.Options{Name: bedName, Hypervisors: hypervisors(), Unmanaged: true, Log: os.Stderr}
	if everything {
		options.Versions = []string{bed.OlderVersion}
	}
	b, err := bed.Start(ctx, options)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, b.Stop(context.WithoutCancel(ctx))) }()
	managements, repository, err := fill(ctx, b)
	defer func() {
		for i, management := range managements {
			if management == nil {
				continue
			}
			if code != 0 {
				err = errors.Join(err, management.CollectArtifacts(filepath.Join(artifacts(), "management-"+names[i])))
			}
			err = errors.Join(err, management.Stop())
		}
	}()
	if err != nil {
		return 1, err
	}
	facts := inside{
		Config: repository.Config(), Core: repository.CoreVersion,
		Figures: []string{fmt.Sprintf("bed: %.0f s", time.Since(started).Seconds())},
	}
	for _, management := range managements {
		facts.Managements = append(facts.Managements, management.Kubeconfig())
	}
	return specs(ctx, b, facts)
}

// names and addresses are those of management clusters. Only what moves needs
// the second.
var (
	names     = []string{"one", "two"}
	addresses = []string{"10.77.0.2", "10.77.0.3"}
)

// fill makes a release and, meanwhile, management clusters that run it once
// clusterctl has installed it.
func fill(ctx context.Context, b *bed.Bed) ([]*bed.Empty, *release.Repository, error) {
	count := 1
	if everything {
		count = 2
	}
	managements, fail := make([]*bed.Empty, count), make([]error, count+1)
	var repository *release.Repository
	var wait sync.WaitGroup
	wait.Go(func() {
		repository, fail[count] = release.Make(ctx, os.Stderr, filepath.Join(b.Dir, "bin", "releases"), version)
	})
	for i := range count {
		wait.Go(func() {
			// Pods start when clusterctl installs them, from the repository.
			program := func(image string) string { return repository.Program(image) }
			if managements[i], fail[i] = b.StartEmpty(ctx, names[i], addresses[i], program); fail[i] == nil {
				fail[i] = release.CertManager(ctx, managements[i].Client)
			}
		})
	}
	wait.Wait()
	return managements, repository, errors.Join(fail...)
}

// specs runs this very program inside the bed's network.
func specs(ctx context.Context, b *bed.Bed, facts inside) (int, error) {
	data, err := json.Marshal(facts)
	if err != nil {
		return 1, fmt.Errorf("telling the specs of the bed: %w", err)
	}
	file := filepath.Join(b.Dir, "bin", "inside.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return 1, fmt.Errorf("telling the specs of the bed: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return 1, fmt.Errorf("finding own program: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideVariable+"="+file, "NO_PROXY=*", "XDG_CONFIG_HOME="+filepath.Join(b.Dir, "bin", "config"))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// Ginkgo cleans up when it is interrupted.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	err = b.Inside(cmd.Run)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 1, fmt.Errorf("running specs: %w", err)
	}
	return 0, nil
}

// hypervisors are those of the bed.
func hypervisors() []string {
	if everything {
		return bed.Hypervisors()
	}
	return []string{bed.VSphere}
}

// artifacts is where the specs leave what they saw.
func artifacts() string { return filepath.Join(tools.Root(), "_artifacts", bedName) }
