package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/env"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// result is the result for one fleet.
type result struct {
	written, ready time.Duration
	cpu            time.Duration
	writes         int
	// restCPU and restWrites are an hour's, while nothing changes.
	restCPU    time.Duration
	restWrites float64
	// memory is in bytes.
	memory int64
	// objects is the number of Flux objects: those that the manager wrote, and the HelmCharts that Flux
	// would create for them.
	objects int
}

// measure runs one fleet from nothing.
func measure(ctx context.Context, o options, withDead bool) (_ result, err error) {
	var r result
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e, err := start(ctx)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, e.Stop()) }()
	dead := ""
	if withDead {
		if dead, err = listenDead(ctx); err != nil {
			return r, err
		}
	}
	if err := makeFleet(ctx, e.Client, e.Config, o, dead); err != nil {
		return r, err
	}
	manager, err := startManager(ctx, e.Config)
	if err != nil {
		return r, err
	}
	defer manager.stop()
	failed := make(chan error, 1)
	go func() { failed <- replaceFlux(ctx, e) }()
	before, err := writes(ctx, e.Config)
	if err != nil {
		return r, err
	}
	began := time.Now()
	if err := makeSet(ctx, e.Client, o); err != nil {
		return r, err
	}
	want := o.clusters
	if withDead {
		want--
	}
	if err := await(ctx, failed, func() (bool, error) { return all(ctx, e.Client, want*o.modules) }); err != nil {
		return r, fmt.Errorf("waiting until all is written: %w", err)
	}
	r.written = time.Since(began)
	if err := await(ctx, failed, func() (bool, error) { return ready(ctx, e.Client, want) }); err != nil {
		return r, fmt.Errorf("waiting until all is ready: %w", err)
	}
	r.ready = time.Since(began)
	after, err := writes(ctx, e.Config)
	if err != nil {
		return r, err
	}
	r.writes = after - before
	if r.objects, err = fluxObjects(ctx, e.Client); err != nil {
		return r, err
	}
	if r.cpu, r.memory, err = manager.usage(); err != nil || withDead {
		return r, err
	}
	return r, r.rest(ctx, e.Config, manager, o.rest)
}

// start starts an API server that knows Flux.
func start(ctx context.Context) (*env.Env, error) {
	var bases []string
	for _, name := range []string{"source", "kustomize", "helm"} {
		dir, err := tools.ToolDir(ctx, "components", "github.com/fluxcd/"+name+"-controller")
		if err != nil {
			return nil, err
		}
		bases = append(bases, filepath.Join(dir, "config", "crd", "bases"))
	}
	e, err := env.Start(ctx, bases...)
	if err != nil {
		return nil, err
	}
	err = errors.Join(helmv2.AddToScheme(e.Scheme), kustomizev1.AddToScheme(e.Scheme), sourcev1.AddToScheme(e.Scheme))
	if err == nil {
		e.Config = rest.CopyConfig(e.Config)
		e.Config.QPS, e.Config.Burst = -1, -1
		e.Client, err = client.New(e.Config, client.Options{Scheme: e.Scheme})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making client: %w", err), e.Stop())
	}
	return e, nil
}

// idleDelay is the time for the effects of the last writes to end.
const idleDelay = 15 * time.Second

// rest counts the requests while nothing changes.
func (r *result) rest(ctx context.Context, config *rest.Config, manager *process, window time.Duration) error {
	if err := wait(ctx, idleDelay); err != nil {
		return err
	}
	cpuBefore, _, err := manager.usage()
	if err != nil {
		return err
	}
	before, err := writes(ctx, config)
	if err != nil {
		return err
	}
	if err := wait(ctx, window); err != nil {
		return err
	}
	after, err := writes(ctx, config)
	if err != nil {
		return err
	}
	cpuAfter, memory, err := manager.usage()
	hours := window.Hours()
	r.restWrites = float64(after-before) / hours
	r.restCPU = time.Duration(float64(cpuAfter-cpuBefore) / hours)
	r.memory = max(r.memory, memory)
	return err
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

const (
	// pollInterval is the resolution of the measured times.
	pollInterval = 500 * time.Millisecond
	// timeout limits each wait.
	timeout = time.Hour
)

// await polls until look returns true. A busy API server fails some requests: an error counts if it is the
// last one before the timeout.
func await(ctx context.Context, failed <-chan error, look func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		done, err := look()
		if done {
			return nil
		}
		select {
		case err := <-failed:
			return err
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(pollInterval):
		}
	}
}

// all reports whether that number of modules is written.
func all(ctx context.Context, c client.Client, want int) (bool, error) {
	n := 0
	for _, kind := range []schema.GroupVersionKind{
		helmv2.GroupVersion.WithKind(helmv2.HelmReleaseKind), kustomizev1.GroupVersion.WithKind(kustomizev1.KustomizationKind),
	} {
		// The number of the remaining objects is cheaper than the objects.
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		if err := c.List(ctx, list, client.InNamespace(namespace), client.Limit(1)); err != nil {
			return false, fmt.Errorf("counting %ss: %w", kind.Kind, err)
		}
		n += len(list.Items) + int(ptr.Deref(list.RemainingItemCount, 0))
	}
	return n >= want, nil
}

// fluxObjects counts the Flux objects. Flux creates a HelmChart for each HelmRelease that names a chart
// and not the source of one.
func fluxObjects(ctx context.Context, c client.Client) (int, error) {
	n := 0
	releases := &helmv2.HelmReleaseList{}
	for _, list := range []client.ObjectList{
		releases, &kustomizev1.KustomizationList{}, &sourcev1.GitRepositoryList{}, &sourcev1.OCIRepositoryList{}, &sourcev1.HelmRepositoryList{},
	} {
		if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return 0, fmt.Errorf("counting Flux objects: %w", err)
		}
		n += meta.LenList(list)
	}
	for i := range releases.Items {
		if releases.Items[i].Spec.Chart != nil {
			n++
		}
	}
	return n, nil
}

// ready reports whether all modules are ready on that number of clusters.
func ready(ctx context.Context, c client.Client, want int) (bool, error) {
	list := &clusterv1.ClusterList{}
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return false, fmt.Errorf("listing Clusters: %w", err)
	}
	n := 0
	for i := range list.Items {
		if conditions.IsTrue(&list.Items[i], addonsv1.ClusterCondition("base")) {
			n++
		}
	}
	return n >= want, nil
}

// writes counts the writes that the API server has received, except its own leases.
func writes(ctx context.Context, config *rest.Config) (int, error) {
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return 0, fmt.Errorf("reading metrics of the API server: %w", err)
	}
	data, err := d.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("reading metrics of the API server: %w", err)
	}
	return countWrites(data)
}

func countWrites(metrics []byte) (int, error) {
	total := 0.0
	lines := bufio.NewScanner(bytes.NewReader(metrics))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasPrefix(line, "apiserver_request_total{") || strings.Contains(line, `resource="leases"`) {
			continue
		}
		for _, verb := range []string{"APPLY", "POST", "PUT", "PATCH", "DELETE", "DELETECOLLECTION"} {
			if !strings.Contains(line, `verb="`+verb+`"`) {
				continue
			}
			value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
			if err != nil {
				return 0, fmt.Errorf("parsing metrics of the API server: %w", err)
			}
			total += value
		}
	}
	return int(total), lines.Err()
}

// process is the running manager.
type process struct {
	cmd *exec.Cmd
	dir string
}

// startManager builds and runs the add-on provider.
func startManager(ctx context.Context, config *rest.Config) (*process, error) {
	dir, err := os.MkdirTemp("", "modulesbench-")
	if err != nil {
		return nil, fmt.Errorf("making directory: %w", err)
	}
	p := &process{dir: dir}
	program, kubeconfig := filepath.Join(dir, "nova-addon"), filepath.Join(dir, "kubeconfig")
	if err := tools.Build(ctx, program, "", "./cmd/nova-addon"); err != nil {
		p.stop()
		return nil, err
	}
	data, err := kubeconfigFor(config, config.Host)
	if err == nil {
		err = os.WriteFile(kubeconfig, data, 0o600)
	}
	if err != nil {
		p.stop()
		return nil, err
	}
	p.cmd = exec.CommandContext(ctx, program, "--kubeconfig="+kubeconfig, "--health-addr=127.0.0.1:0", "--diagnostics-address=127.0.0.1:0", "--insecure-diagnostics", "--allow-endpoints=127.0.0.0/8")
	// env.Start lets the API server use more memory. The manager gets the defaults, as in its Deployment.
	p.cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GOGC=") })
	log, err := os.Create(filepath.Join(dir, "log"))
	if err == nil {
		p.cmd.Stdout, p.cmd.Stderr = log, log
		err = p.cmd.Start()
	}
	if err != nil {
		p.stop()
		return nil, fmt.Errorf("starting the provider: %w", err)
	}
	return p, nil
}

func (p *process) stop() {
	if p.cmd != nil && p.cmd.Process != nil {
		_ = p.cmd.Process.Signal(syscall.SIGKILL)
		_ = p.cmd.Wait()
	}
	_ = os.RemoveAll(p.dir)
}

// ticks is how many units of processor time a second has in /proc.
const ticks = 100

// usage is the manager's processor time and memory in bytes.
func (p *process) usage() (time.Duration, int64, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, 0, fmt.Errorf("reading usage: %w", err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	var numbers [3]int64
	for i, at := range []int{11, 12, 21} { // user time, system time, resident pages
		if numbers[i], err = strconv.ParseInt(fields[at], 10, 64); err != nil {
			return 0, 0, fmt.Errorf("reading usage: %w", err)
		}
	}
	return time.Duration(numbers[0]+numbers[1]) * time.Second / ticks, numbers[2] * int64(os.Getpagesize()), nil
}
