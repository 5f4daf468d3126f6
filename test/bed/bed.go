package bed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed/supervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/env"
	"github.com/nova-platform/cluster-api-provider-nova/test/host"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// Providers are the names of this project's managers in a bed with these
// hypervisors.
func Providers(hypervisors ...string) []string {
	var providers []string
	for _, name := range hypervisors {
		if facts, err := FactsOf(name); err == nil {
			providers = append(providers, facts.Provider)
		}
	}
	return append(providers, "nova-bootstrap", "nova-control-plane")
}

// Options are the settings of a bed.
type Options struct {
	// Name identifies the bed.
	Name string
	// Dir contains the files of the bed. If not set, a folder of Cache is used.
	Dir string
	// Log gets a line for each program that has to be built first.
	Log io.Writer
	// Progress is called at the start of a step, and the function that it returns
	// is called at the end of the step. If not set, no progress is reported.
	Progress func(step string) (ended func(error))
	// Hypervisors are those to simulate. Nil means vSphere.
	Hypervisors []string
	// Providers are the managers to run beside Cluster API's core manager. Nil
	// means all of this project that these hypervisors have a use for.
	Providers []string
	// Flux runs Flux, the add-on provider and the server that Flux takes
	// modules from.
	Flux bool
	// FluxLater lets Start return while Flux is still being built, which takes
	// minutes the first time. FluxBuilt waits for it, and then AwaitFlux.
	FluxLater bool
	// Unmanaged leaves the management cluster out: there are hypervisors, and
	// StartEmpty makes management clusters for a person to fill.
	Unmanaged bool
	// Leaderless runs managers without leader election, for beds that keep the
	// machine so busy that leases run out. There is one of each anyway.
	Leaderless bool
	// ShortLease lets a manager that follows a killed one begin after 6 seconds
	// instead of 15, for beds in which many are killed.
	ShortLease bool
	// Flags are further flags of this project's managers, without their dashes.
	Flags []string
	// Topology lets the core manager work with classes.
	Topology bool
	// MachineTaints lets the core manager put the taints of Machines on their
	// Nodes.
	MachineTaints bool
	// Unlimited lets the core manager reconcile an object more than once a second,
	// for beds with few clusters.
	Unlimited bool
	// InPlace lets the core manager change machines in place, once the bed's
	// RegisterExtension was called.
	InPlace bool
	// Bodiless leaves VMs without hosts: they are only states, and nothing
	// boots.
	Bodiless bool
	// Rootless runs all programs as the user, on addresses of the loopback
	// interface instead of a network of their own. The bed must be Bodiless and
	// have no Flux.
	Rootless bool
	// Versions are further versions of Kubernetes, OlderVersion and
	// NewerVersion, that hypervisors have a template with. The first bed with
	// one builds it, which takes minutes.
	Versions []string
	// Ignition adds IgnitionTemplate to the hypervisors.
	Ignition bool
	// Images are images that hosts have in addition to those of Kubernetes.
	Images []host.Image
	// Packages are packages of Debian that hosts have in addition to those of node
	// images.
	Packages []string
	// Vault is the program of a vault to run, one of starvault.Programs. If not set,
	// there is none.
	Vault string
	// Delays are durations in the hypervisors that differ from the defaults:
	// tasks of vCenter by method, and timings of an engine.
	Delays map[string]time.Duration
	// Late has vCenter report changes 2 seconds late, and the data of guests 10
	// seconds late, as a real one does.
	Late bool
	// Unobserved leaves out the search for leaked secrets, for beds in which
	// costs are measured.
	Unobserved bool
}

// variables are those of components that are not as their defaults are.
func (o Options) variables() map[string]string {
	return map[string]string{
		"CLUSTER_TOPOLOGY":              strconv.FormatBool(o.Topology),
		"EXP_MACHINE_TAINT_PROPAGATION": strconv.FormatBool(o.MachineTaints),
		"EXP_RUNTIME_SDK":               strconv.FormatBool(o.InPlace),
		"EXP_IN_PLACE_UPDATES":          strconv.FormatBool(o.InPlace),
		"EXP_RECONCILER_RATE_LIMITING":  strconv.FormatBool(!o.Unlimited),
	}
}

// Bed is a running test bed.
type Bed struct {
	// Name identifies the bed.
	Name string
	// Dir holds the bed's files.
	Dir string
	// Config reaches the management cluster as a cluster administrator.
	Config *rest.Config
	// Client reads and writes the management cluster without a cache.
	Client client.WithWatch

	hypervisors []string
	unmanaged   bool
	rootless    bool
	layout      layout
	log         io.Writer
	progress    func(step string) func(error)
	managers    []manager
	// booting boots hosts; nil in a bed without hosts and in one that another process
	// started.
	booting *host.Runner
	// observer finds secrets that leak; nil in a bed that another process
	// started.
	observer *observer
	// fluxBuilt gets the result of the build of Flux, once.
	fluxBuilt chan error

	mu sync.Mutex
	// empties are the management clusters that were started in the bed.
	empties []*Empty
}

// Start starts a bed. If it fails, it stops all that it started; only logs
// remain, in the folder that the error names.
func Start(ctx context.Context, options Options) (*Bed, error) {
	if err := options.supported(); err != nil {
		return nil, err
	}
	if options.Dir == "" {
		options.Dir = defaultDir(options.Name)
	}
	if options.Log == nil {
		options.Log = io.Discard
	}
	if options.Hypervisors == nil {
		options.Hypervisors = []string{VSphere}
	}
	if options.Unmanaged {
		options.Providers = []string{}
	}
	if options.Providers == nil {
		options.Providers = Providers(options.Hypervisors...)
		if options.Flux {
			options.Providers = append(options.Providers, AddonProvider)
		}
	}
	b := &Bed{
		unmanaged: options.Unmanaged, rootless: options.Rootless,
		Name: options.Name, Dir: options.Dir,
		hypervisors: options.Hypervisors, layout: layout(options.Dir), log: options.Log, progress: options.Progress,
	}
	if _, err := b.simulations(); err != nil {
		return nil, fmt.Errorf("starting test environment %s: %w", b.Name, err)
	}
	if err := claim(record{Name: b.Name, Dir: b.Dir, Hypervisors: b.hypervisors, Unmanaged: b.unmanaged, Rootless: b.rootless}); err != nil {
		return nil, err
	}
	if err := b.start(ctx, options); err != nil {
		return nil, fmt.Errorf("starting test environment %s (logs in %s): %w", b.Name, b.layout.logs(), errors.Join(err, b.halt(context.WithoutCancel(ctx))))
	}
	return b, nil
}

// Open returns a bed that runs already. An unmanaged one has no clients.
func Open(ctx context.Context, name string) (*Bed, error) {
	r, err := recorded(name)
	if err != nil {
		return nil, err
	}
	b := &Bed{Name: name, Dir: r.Dir, hypervisors: r.Hypervisors, unmanaged: r.Unmanaged, rootless: r.Rootless, layout: layout(r.Dir), log: io.Discard}
	if b.unmanaged {
		return b, nil
	}
	if err := b.connect(); err != nil {
		return nil, err
	}
	return b, b.healthy(ctx)
}

// step runs one step of Start and reports its progress.
func (b *Bed) step(name string, do func() error) error {
	ended := b.begin(name)
	err := do()
	ended(err)
	return err
}

// begin reports that a step began, and returns the function that reports its end.
func (b *Bed) begin(name string) func(error) {
	if b.progress == nil {
		return func(error) {}
	}
	return b.progress(name)
}

// parts are the results that the steps of Start pass to each other.
type parts struct {
	programs map[string]string
	ca       *authority
	managers []manager
	objects  [][]*unstructured.Unstructured
}

// fluxStep is the step of the build of Flux, beside the others.
const fluxStep = "Building Flux"

// Steps is the number of steps that Start reports for a bed with these options.
func (o Options) Steps() int {
	steps := 5
	if !o.Bodiless {
		steps++
	}
	if o.Flux {
		steps++
	}
	return steps
}

func (b *Bed) start(ctx context.Context, options Options) error {
	p := &parts{}
	// Files that a failed start left for inspection must not become part of this
	// bed.
	if err := b.layout.clear(); err != nil {
		return err
	}
	if err := os.MkdirAll(b.Dir, 0o755); err != nil {
		return fmt.Errorf("making directory: %w", err)
	}
	// When nothing is in the cache, one waits for the processor and the other
	// for the network. Nothing boots before there is a management cluster.
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return b.startHypervisors(groupCtx, options) })
	group.Go(func() error {
		if err := b.step("Building tools and managers", func() error { return b.build(groupCtx, options, p) }); err != nil {
			return err
		}
		if options.Flux {
			b.buildFlux(ctx)
		}
		return b.startManagement(groupCtx, options, p)
	})
	if err := group.Wait(); err != nil {
		return err
	}
	if b.unmanaged {
		return b.awaitPrograms(ctx, p)
	}
	return b.step("Starting managers", func() error { return b.awaitManagers(ctx, options, p) })
}

// startHypervisors prepares the hosts, and writes the settings of hypervisors, whose
// processes wait for them.
func (b *Bed) startHypervisors(ctx context.Context, options Options) error {
	if !options.Bodiless {
		if err := b.step("Preparing the images of the hosts", func() error { return b.prepareHosts(ctx, options) }); err != nil {
			return err
		}
	}
	simulations, err := b.simulations()
	if err != nil {
		return err
	}
	for _, h := range simulations {
		err := h.write(simulated{runner: b.booting, delays: options.Delays, late: options.Late, versions: options.Versions, ignition: options.Ignition})
		if err != nil {
			return err
		}
	}
	return nil
}

// startManagement starts the management cluster with the managers.
func (b *Bed) startManagement(ctx context.Context, options Options, p *parts) error {
	if err := b.step("Preparing network and components", func() error { return b.prepare(ctx, options, p) }); err != nil {
		return err
	}
	if err := b.step("Starting management cluster", func() error { return b.launch(ctx, options, p) }); err != nil || b.unmanaged {
		return err
	}
	if !options.Unobserved {
		var err error
		if b.observer, err = observe(b.Config, b.layout.logs()); err != nil {
			return err
		}
	}
	b.managers = p.managers
	return b.step("Installing Cluster API and providers", func() error { return b.install(ctx, p) })
}

// prepareHosts prepares everything that hosts boot from.
func (b *Bed) prepareHosts(ctx context.Context, options Options) error {
	assets, err := host.Prepare(ctx, options.Log, options.Versions...)
	if err == nil {
		err = host.PreparePackages(ctx, options.Log, &assets, options.Packages)
	}
	if err == nil {
		err = host.PrepareImages(ctx, options.Log, &assets, options.Images)
	}
	if err == nil && options.Ignition {
		assets.Ignition, err = host.PrepareIgnition(ctx, options.Log)
	}
	b.booting = &host.Runner{Bed: b.Name, Dir: b.Hosts(), Assets: assets}
	return err
}

// awaitManagers waits until hypervisors and managers serve, and Flux unless it
// may come later.
func (b *Bed) awaitManagers(ctx context.Context, options Options, p *parts) error {
	if err := b.awaitPrograms(ctx, p); err != nil {
		return err
	}
	if options.Vault != "" {
		if err := await(ctx, time.Minute, "waiting for the vault", b.vaultReady); err != nil {
			return err
		}
	}
	if !options.Flux || options.FluxLater {
		return nil
	}
	if err := b.FluxBuilt(ctx); err != nil {
		return err
	}
	return b.AwaitFlux(ctx)
}

// awaitPrograms waits until hypervisors and managers serve, except Flux.
func (b *Bed) awaitPrograms(ctx context.Context, p *parts) error {
	simulations, err := b.simulations()
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, h := range simulations {
		group.Go(func() error { return await(ctx, time.Minute, "waiting for "+h.Facts().Title, h.serves) })
	}
	for _, m := range p.managers {
		if !isFlux(m.name) {
			group.Go(func() error { return b.ready(ctx, m) })
		}
	}
	return group.Wait()
}

// build builds every program that the bed and its hosts run, except Flux.
func (b *Bed) build(ctx context.Context, options Options, p *parts) error {
	names := append([]string{"etcd", "kube-apiserver", "kube-controller-manager", "kubectl", "clusterctl"}, capiAmong(options.Providers)...)
	if !options.Bodiless {
		// In one call, so that its progress counts all.
		names = union(names, host.Programs())
	}
	if options.Rootless {
		names = append(names, guestPrograms...)
	}
	if options.Vault != "" {
		names = append(names, options.Vault)
	}
	packages := []string{"./test/cmd/" + supervisorProgram}
	for _, provider := range options.Providers {
		if !isCAPI(provider) {
			packages = append(packages, "./cmd/"+provider)
		}
	}
	var own map[string]string
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		p.programs, err = tools.Paths(groupCtx, options.Log, names...)
		return err
	})
	group.Go(func() (err error) {
		own, err = buildPrograms(groupCtx, b.layout.path("bin"), packages...)
		return err
	})
	if err := group.Wait(); err != nil {
		return err
	}
	maps.Copy(p.programs, own)
	// For a person's shell, so they must exist as long as the bed.
	for _, name := range []string{"kubectl", "clusterctl"} {
		if err := link(p.programs[name], b.Program(name)); err != nil {
			return fmt.Errorf("copying %s: %w", name, err)
		}
	}
	return nil
}

// union are the words of a, then those of b that are not in a.
func union(a, b []string) []string {
	for _, word := range b {
		if !slices.Contains(a, word) {
			a = append(a, word)
		}
	}
	return a
}

// prepare makes the network, the certificates and the manifests.
func (b *Bed) prepare(ctx context.Context, options Options, p *parts) error {
	names := append([]string{CoreManager}, options.Providers...)
	if b.unmanaged {
		names = nil
	}
	if options.Flux {
		names = append(names, fluxControllers...)
	}
	p.managers = make([]manager, len(names))
	p.objects = make([][]*unstructured.Unstructured, len(names))
	rendered := make([][]byte, len(names))
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return b.connectNetwork(ctx) })
	group.Go(func() (err error) {
		p.ca, err = writeManagementPKI(b.layout, b.managementServer())
		return err
	})
	for i, name := range names {
		group.Go(func() error {
			dir, err := b.componentsDir(ctx, name)
			if err != nil {
				return err
			}
			if rendered[i], err = render(ctx, p.programs["kubectl"], dir); err != nil {
				return err
			}
			components, err := parse(resolve(rendered[i], options.variables()))
			if err != nil {
				return err
			}
			if isFlux(name) {
				p.managers[i], p.objects[i], err = b.takeFlux(name, i, components)
			} else {
				p.managers[i], p.objects[i], err = takeManager(name, b.port(i), components)
				flags := options.election()
				if _, is := capiManagers()[name]; !is {
					flags = append(flags, options.Flags...)
				}
				if name == bootstrapManager {
					flags = append(flags, "runtime-extension-address="+b.extensionAddress())
				}
				p.managers[i].args = withFlags(p.managers[i].args, flags...)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	components := map[string][]byte{}
	for i, name := range names {
		if !isFlux(name) { // clusterctl knows nothing of it
			components[name] = rendered[i]
		}
	}
	return writeRepository(b.layout.path("repository"), components)
}

// election are the flags of managers that differ from those they come with.
func (o Options) election() []string {
	switch {
	case o.Leaderless:
		return []string{"leader-elect=false"}
	case o.ShortLease:
		return []string{"leader-elect-lease-duration=6s", "leader-elect-renew-deadline=4s", "leader-elect-retry-period=1s"}
	}
	return nil
}

// componentsDir is the kustomization of a manager's components.
func (b *Bed) componentsDir(ctx context.Context, name string) (string, error) {
	if isFlux(name) {
		return b.fluxOverlay(ctx, name)
	}
	if m, is := capiManagers()[name]; is {
		return m.components(ctx)
	}
	return filepath.Join(tools.Root(), "config", name, "default"), nil
}

// launch starts the supervisor and waits for the API server.
func (b *Bed) launch(ctx context.Context, options Options, p *parts) error {
	plan := supervisor.Plan{Logs: b.layout.logs(), Pids: b.layout.pids()}
	if !b.unmanaged {
		plan.Processes = managementProcesses(b.layout, p.programs, b.port)
	}
	for _, m := range p.managers {
		var extra []string
		if capi, is := capiManagers()[m.name]; is {
			extra = capi.flags(b.layout, b.port)
		}
		if isFlux(m.name) {
			plan.Processes = append(plan.Processes, b.fluxProcess(m))
			continue
		}
		plan.Processes = append(plan.Processes, b.managerProcess(m, p.programs[m.name], extra...))
	}
	simulations, err := b.simulations()
	if err != nil {
		return err
	}
	for _, h := range simulations {
		plan.Processes = append(plan.Processes, h.process(p.programs[supervisorProgram]))
	}
	if len(p.managers) > 0 && isFlux(p.managers[len(p.managers)-1].name) {
		plan.Processes = append(plan.Processes, b.sourcesProcess(p.programs[supervisorProgram]))
	}
	if options.Vault != "" {
		if err := b.writeVault(p.programs[options.Vault]); err != nil {
			return err
		}
		plan.Processes = append(plan.Processes, b.vaultProcess(p.programs[supervisorProgram]))
	}
	if err := supervisor.WritePlan(b.layout.path("plan.json"), plan); err != nil {
		return err
	}
	if err := b.spawn(ctx, b.layout); err != nil {
		return err
	}
	if b.unmanaged {
		return nil
	}
	if err := b.connect(); err != nil {
		return err
	}
	return await(ctx, 2*time.Minute, "waiting for the management API server", func(ctx context.Context) error {
		return b.healthy(ctx)
	})
}

// network is the bed's network. It is also where the bed's programs run.
func (b *Bed) network() *host.Network {
	return host.NewNetwork(b.Name, b.layout.path("network"), b.log)
}

// spawn starts a supervisor in the bed's network and control group, in its own
// session, so that it continues after this process ends.
func (b *Bed) spawn(ctx context.Context, l layout) error {
	if err := os.MkdirAll(b.layout.logs(), 0o755); err != nil {
		return fmt.Errorf("making log directory: %w", err)
	}
	log, err := os.OpenFile(filepath.Join(b.layout.logs(), supervisorProgram+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("opening log: %w", err)
	}
	defer func() { _ = log.Close() }()
	cmd, err := b.command(context.WithoutCancel(ctx), b.Program(supervisorProgram), "run", l.path("plan.json"))
	if err != nil {
		return fmt.Errorf("starting supervisor: %w", err)
	}
	cmd.Dir = b.Dir
	// The proxy of the user's environment is not used, because it is not
	// reachable from the bed.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting supervisor: %w", err)
	}
	if b.rootless {
		// Not later by the supervisor: the bed may end before that, and without a
		// control group it finds only processes with a pid file.
		if err := supervisor.WritePid(l.pids(), supervisor.Self, cmd.Process.Pid); err != nil {
			return errors.Join(err, cmd.Process.Kill(), cmd.Wait())
		}
	}
	// Reaped when it ends, should this process live longer.
	go func() { _ = cmd.Wait() }()
	return nil
}

// connect makes the clients of the management cluster.
func (b *Bed) connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", b.layout.kubeconfig("admin"))
	if err != nil {
		return fmt.Errorf("reading kubeconfig of test environment %s: %w", b.Name, err)
	}
	config.QPS, config.Burst = -1, -1
	b.direct(config)
	b.Config = config
	return nil
}

// direct lets a client reach a server inside the bed.
func (b *Bed) direct(config *rest.Config) {
	config.Dial = b.Dial
	config.Proxy = http.ProxyURL(nil)
	// Warnings would be printed to the terminal, between other output.
	config.WarningHandler = rest.NoWarnings{}
}

// healthy creates the client after the API server is ready, because the
// creation already requests the API groups.
func (b *Bed) healthy(ctx context.Context) error {
	c, err := client.NewWithWatch(b.Config, client.Options{Scheme: env.Scheme()})
	if err != nil {
		return err
	}
	b.Client = c
	return probe(ctx, b.Config)
}

// install applies Cluster API's and the providers' components and lets the
// managers in.
func (b *Bed) install(ctx context.Context, p *parts) error {
	var all []*unstructured.Unstructured
	for i, objects := range p.objects {
		server := capiManagers()[p.managers[i].name].server(b.port)
		for _, object := range objects {
			if err := pointWebhooks(object, server, p.ca.bundle()); err != nil {
				return err
			}
			markForMove(object)
		}
		all = append(all, objects...)
	}
	if err := Apply(ctx, b.Client, all...); err != nil {
		return err
	}
	for _, m := range p.managers {
		if err := m.awaitRoles(ctx, b.Client); err != nil {
			return err
		}
		if err := b.admit(ctx, m, p.ca.bundle()); err != nil {
			return err
		}
	}
	return nil
}

// markForMove marks a definition as "clusterctl init" does: clusterctl moves
// the kinds of those that bear its label, and of providers alone.
func markForMove(object *unstructured.Unstructured) {
	labels := object.GetLabels()
	if _, of := labels[clusterv1.ProviderNameLabel]; of && object.GetKind() == "CustomResourceDefinition" {
		labels[clusterctlv1.ClusterctlLabel] = ""
		object.SetLabels(labels)
	}
}

// Stop takes the bed away, with all its files. It fails if the value of a
// Secret was in a manager's log or metrics, in an event or in a status.
func (b *Bed) Stop(ctx context.Context) error {
	errs := []error{b.keepMetrics(ctx), b.observer.end()}
	for _, e := range b.empties {
		errs = append(errs, e.observer.end())
	}
	return errors.Join(append(errs, Down(ctx, b.Name))...)
}

// Down takes a bed away that is known by name only, also after a crash. If there
// is none, it does nothing, but fails for users other than root: they cannot
// delete the bed of another user.
func Down(ctx context.Context, name string) error {
	r, err := recorded(name)
	if errors.Is(err, fs.ErrNotExist) {
		// A reboot takes the record of root and leaves the files.
		r, err = record{Name: name, Dir: defaultDir(name), Rootless: os.Geteuid() != 0}, nil
		if _, missing := os.Stat(r.Dir); r.Rootless && missing != nil {
			return fmt.Errorf("user %d has no test environment %s; run the command as the user who started it, maybe root", os.Geteuid(), name)
		}
	}
	if err != nil {
		return err
	}
	b := &Bed{Name: name, Dir: r.Dir, rootless: r.Rootless, layout: layout(r.Dir), log: io.Discard}
	// Root may have started a rootless bed too, and the record may be lost.
	if err := errors.Join(b.endRootless(), b.halt(ctx)); err != nil {
		return fmt.Errorf("deleting test environment %s: %w", name, err)
	}
	return b.layout.clear()
}

// halt ends all programs and hosts, and leaves the files.
func (b *Bed) halt(ctx context.Context) error {
	var err error
	if b.rootless {
		err = b.endRootless()
	} else {
		err = host.Cleanup(ctx, b.Name, b.log)
	}
	if err != nil {
		return err
	}
	return release(b.Name)
}
