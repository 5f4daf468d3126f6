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
	// insideVariable is the environment variable with the path of the file that
	// contains the properties of the environment, for the process that runs the
	// specs in it.
	insideVariable = "NOVA_E2E_INSIDE"
)

// everything is set if all specs run on each hypervisor.
var everything = os.Getenv("NOVA_SUITES") == "full"

// inside contains the properties of the test environment for the specs.
type inside struct {
	// Config is clusterctl's configuration, Core the version of its core
	// provider.
	Config string `json:"config"`
	Core   string `json:"core"`
	// Managements are the kubeconfigs of empty management clusters. All specs use
	// the first one; a cluster is moved to the second one.
	Managements []string `json:"managements"`
	// Figures are durations of the set-up.
	Figures []string `json:"figures"`
}

// TestMain starts a test environment and runs the specs as a process in its
// network: the framework and clusterctl connect to management and workload
// clusters from any goroutine, without knowledge of the environment.
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

// onlyLists reports whether go test only lists the names of tests.
func onlyLists() bool {
	return slices.ContainsFunc(os.Args, func(arg string) bool {
		return strings.HasPrefix(strings.TrimLeft(arg, "-"), "test.list")
	})
}

// outside starts the test environment, runs the specs in it and stops it. It
// returns the exit code of the specs.
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

// names and addresses are the names and addresses of the management clusters.
// Only the spec that moves a cluster needs the second one.
var (
	names     = []string{"one", "two"}
	addresses = []string{"10.77.0.2", "10.77.0.3"}
)

// fill builds a release and, in parallel, starts management clusters that run
// it after clusterctl has installed it.
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
			// Pods start when clusterctl installs them from the repository.
			program := func(image string) string { return repository.Program(image) }
			if managements[i], fail[i] = b.StartEmpty(ctx, names[i], addresses[i], program); fail[i] == nil {
				fail[i] = release.CertManager(ctx, managements[i].Client)
			}
		})
	}
	wait.Wait()
	return managements, repository, errors.Join(fail...)
}

// specs runs this program again in the network of the test environment.
func specs(ctx context.Context, b *bed.Bed, facts inside) (int, error) {
	data, err := json.Marshal(facts)
	if err != nil {
		return 1, fmt.Errorf("writing the properties of the bed: %w", err)
	}
	file := filepath.Join(b.Dir, "bin", "inside.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return 1, fmt.Errorf("writing the properties of the bed: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return 1, fmt.Errorf("finding this program: %w", err)
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

// hypervisors returns the hypervisors of the test environment.
func hypervisors() []string {
	if everything {
		return bed.Hypervisors()
	}
	return []string{bed.VSphere}
}

// artifacts returns the folder for the logs and objects that the specs save.
func artifacts() string { return filepath.Join(tools.Root(), "_artifacts", bedName) }
