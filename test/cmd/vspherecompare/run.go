package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/env"
	"github.com/nova-platform/cluster-api-provider-nova/test/identity"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

const (
	// namespace and clusterName are the names of the objects of a run.
	namespace   = "bench"
	clusterName = "bench"
	// parallel is how many objects are written at once.
	parallel = 16
	// quiet is how long a provider that has something left to do is silent at
	// most: CAPV looks again after 10 seconds.
	quiet = 15 * time.Second
	// source is the template of the clones. Its disk is small, so that datastores hold any number
	// of machines.
	source  = vcenter.DefaultTemplate
	diskGiB = 1
)

// run is one provider in a world of its own.
type run struct {
	options  options
	provider provider
	dir      string
	out      io.Writer

	env     *env.Env
	client  client.WithWatch
	center  *vcenter.Server
	manager *process
}

// measure runs a provider from an empty vCenter to all machines provisioned,
// and on to a VM that is powered off outside.
func measure(ctx context.Context, o options, p provider, out io.Writer) (_ result, err error) {
	r := &run{options: o, provider: p, dir: filepath.Join(o.Dir, p.name), out: out}
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return result{}, fmt.Errorf("making directory: %w", err)
	}
	r.sayf("starting API server, vCenter and manager")
	defer func() { err = errors.Join(err, r.stop()) }()
	if err := r.start(ctx); err != nil {
		return result{}, err
	}
	if err := r.createCluster(ctx); err != nil {
		return result{}, err
	}
	res := result{Provider: p.name}
	if err := r.provision(ctx, &res); err != nil {
		return result{}, err
	}
	if o.Notice > 0 {
		err = r.notice(ctx, &res)
	}
	return res, err
}

func (r *run) sayf(format string, args ...any) {
	fmt.Fprintf(r.out, "%s: %s\n", r.provider.name, fmt.Sprintf(format, args...))
}

// start starts the dependencies of the provider, and the provider.
func (r *run) start(ctx context.Context) (err error) {
	r.center, err = vcenter.Start(ctx, vcenter.Options{
		ListenAddress: "127.0.0.1:443",
		Delays:        map[string]time.Duration{"CloneVM_Task": r.options.Clone, "*": r.options.Task},
		Latency:       r.options.Latency,
		UpdateDelay:   r.options.UpdateDelay,
		GuestDelay:    r.options.GuestDelay,
		Guests:        &guests{boot: r.options.Boot},
		Inventory:     vcenter.Inventory{Templates: []vcenter.Template{{Name: source, DiskGiB: diskGiB}}},
	})
	if err != nil {
		return err
	}
	if r.env, err = env.Start(ctx); err != nil {
		return err
	}
	if r.client, err = client.NewWithWatch(r.env.Config, client.Options{Scheme: r.env.Scheme}); err != nil {
		return fmt.Errorf("making client: %w", err)
	}
	return r.startManager(ctx)
}

// startManager installs the provider's components and runs its manager.
func (r *run) startManager(ctx context.Context) error {
	programs, err := tools.Paths(ctx, io.Discard, "kubectl")
	if err != nil {
		return err
	}
	components, err := r.provider.source(ctx)
	if err != nil {
		return err
	}
	certs := filepath.Join(r.dir, "webhook")
	serving, err := identity.Load(certs, []string{"127.0.0.1"})
	if err != nil {
		return err
	}
	pod, err := bed.NewPod(ctx, programs["kubectl"], components, r.provider.name, r.dir, serving.CA)
	if err != nil {
		return err
	}
	if err := bed.Apply(ctx, r.client, pod.Objects...); err != nil {
		return err
	}
	if err := pod.Admit(ctx, r.client, r.env.Config.CAData); err != nil {
		return err
	}
	program, err := r.provider.program(ctx, filepath.Join(r.options.Dir, "bin"))
	if err != nil {
		return err
	}
	server, err := url.Parse(r.env.Config.Host)
	if err != nil {
		return fmt.Errorf("reading the API server's address: %w", err)
	}
	address := server.Host
	if address == "" {
		address = r.env.Config.Host // envtest leaves the scheme out
	}
	cmd, err := pod.Command(ctx, program, address, append(r.provider.flags(certs), r.options.flagsOf(r.provider.name)...)...)
	if err != nil {
		return err
	}
	if r.manager, err = startProcess(cmd, filepath.Join(r.dir, "manager.log")); err != nil {
		return err
	}
	return r.manager.awaitReady(ctx, pod.Health)
}

// stop ends everything of the run.
func (r *run) stop() error {
	if r.manager != nil {
		r.manager.stop()
	}
	if r.center != nil {
		r.center.Stop()
	}
	if r.env == nil {
		return nil
	}
	return r.env.Stop()
}

// flagsOf are the flags a person wants a provider to have.
func (o options) flagsOf(name string) []string {
	var out []string
	for _, flag := range o.Flags {
		if of, value, ok := strings.Cut(flag, "="); ok && of == name {
			out = append(out, value)
		}
	}
	return out
}

// facts are the values for the provider's manifests.
func (r *run) facts(name string) facts {
	return facts{
		Namespace: namespace, Name: name,
		Server: "127.0.0.1", Thumbprint: r.center.Thumbprint,
		Template: source, Folder: vcenter.DefaultFolder,
		Datacenter: "DC0", Pool: "/DC0/host/DC0_C0/Resources", Datastore: "LocalDS_0", Network: "VM Network",
		CPUs: 2, MemoryMiB: 2048,
	}
}

// createCluster creates a cluster and replaces Cluster API's core: it owns the infrastructure
// cluster and sets on the Cluster that it is provisioned.
func (r *run) createCluster(ctx context.Context) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	user := r.center.Userinfo()
	password, _ := user.Password()
	credentials := &corev1.Secret{ObjectMeta: r.meta(clusterName), StringData: map[string]string{
		"username": user.Username(), "password": password,
	}}
	cluster := &clusterv1.Cluster{ObjectMeta: r.meta(clusterName), Spec: clusterv1.ClusterSpec{
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: r.provider.version.Group, Kind: r.provider.clusterKind, Name: clusterName,
		},
	}}
	for _, object := range []client.Object{ns, credentials, cluster} {
		if err := r.client.Create(ctx, object); err != nil {
			return fmt.Errorf("creating %T: %w", object, err)
		}
	}
	infra, err := r.provider.cluster(r.facts(clusterName))
	if err != nil {
		return err
	}
	own(infra, cluster, "Cluster")
	if err := r.client.Create(ctx, infra); err != nil {
		return fmt.Errorf("creating %s: %w", infra.GetKind(), err)
	}
	err = poll(ctx, time.Minute, "waiting for "+infra.GetKind(), func(ctx context.Context) error {
		if err := r.manager.dead(); err != nil {
			return final{err}
		}
		if err := r.client.Get(ctx, client.ObjectKeyFromObject(infra), infra); err != nil {
			return err
		}
		if !provisioned(infra) {
			return errors.New("not provisioned")
		}
		return nil
	})
	if err != nil {
		return err
	}
	before := cluster.DeepCopy()
	cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
	if err := r.client.Status().Patch(ctx, cluster, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("patching Cluster: %w", err)
	}
	return nil
}

func (*run) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: clusterName}}
}

// own gives an infrastructure object the label and the owner that Cluster API's
// core gives it.
func own(object *unstructured.Unstructured, owner client.Object, kind string) {
	object.SetLabels(map[string]string{clusterv1.ClusterNameLabel: clusterName})
	object.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: clusterv1.GroupVersion.String(), Kind: kind, Name: owner.GetName(), UID: owner.GetUID(),
	}})
}

// provisioned reads the status fields that the contract requires of infrastructure.
func provisioned(object *unstructured.Unstructured) bool {
	yes, _, _ := unstructured.NestedBool(object.Object, "status", "initialization", "provisioned")
	return yes
}

func machineName(i int) string { return fmt.Sprintf("%s-%04d", clusterName, i) }

// createMachines makes the Machines with their bootstrap data, and returns the
// infrastructure that belongs to them and is not made yet.
func (r *run) createMachines(ctx context.Context) ([]*unstructured.Unstructured, error) {
	infra := make([]*unstructured.Unstructured, r.options.Machines)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i := range infra {
		group.Go(func() (err error) {
			name := machineName(i)
			data := &corev1.Secret{ObjectMeta: r.meta(name), Type: clusterv1.ClusterSecretType, StringData: map[string]string{
				"value": userData(), "format": "cloud-config",
			}}
			machine := &clusterv1.Machine{ObjectMeta: r.meta(name), Spec: clusterv1.MachineSpec{
				ClusterName: clusterName,
				Bootstrap:   clusterv1.Bootstrap{DataSecretName: ptr.To(name)},
				InfrastructureRef: clusterv1.ContractVersionedObjectReference{
					APIGroup: r.provider.version.Group, Kind: r.provider.machineKind, Name: name,
				},
			}}
			if err := errors.Join(r.client.Create(ctx, data), r.client.Create(ctx, machine)); err != nil {
				return fmt.Errorf("creating Machine %s: %w", name, err)
			}
			if infra[i], err = r.provider.machine(r.facts(name)); err != nil {
				return err
			}
			own(infra[i], machine, "Machine")
			return nil
		})
	}
	return infra, group.Wait()
}

// userData is of the size that a worker's has.
func userData() string {
	return "#cloud-config\nwrite_files:\n- path: /etc/padding\n  content: " + strings.Repeat("x", 8<<10) + "\n"
}

// provision creates the infrastructure of all machines and waits until each reports that it is
// provisioned.
func (r *run) provision(ctx context.Context, res *result) error {
	infra, err := r.createMachines(ctx)
	if err != nil {
		return err
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(r.provider.kind(r.provider.machineKind + "List"))
	changes, err := r.client.Watch(ctx, list, client.InNamespace(namespace))
	if err != nil {
		return fmt.Errorf("watching %s: %w", r.provider.machineKind, err)
	}
	defer changes.Stop()

	before, err := r.manager.usage()
	if err != nil {
		return err
	}
	others := ownCPU()
	r.center.ResetRequests()
	started := time.Now()
	if err := r.apply(ctx, infra); err != nil {
		return err
	}
	r.sayf("%d machines applied after %.1f s", len(infra), time.Since(started).Seconds())
	if err := r.awaitProvisioned(ctx, changes, len(infra)); err != nil {
		return err
	}
	res.Seconds = time.Since(started).Seconds()
	res.Requests = r.requests()
	after, err := r.manager.usage()
	if err != nil {
		return err
	}
	res.Others = (ownCPU() - others).Seconds()
	res.CPU, res.PeakMiB = (after.CPU - before.CPU).Seconds(), after.PeakMiB
	r.sayf("%d machines provisioned after %.1f s", len(infra), res.Seconds)
	return nil
}

func (r *run) apply(ctx context.Context, infra []*unstructured.Unstructured) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, object := range infra {
		group.Go(func() error {
			if err := r.client.Create(ctx, object.DeepCopy()); err != nil {
				return fmt.Errorf("creating %s: %w", object.GetName(), err)
			}
			return nil
		})
	}
	return group.Wait()
}

// awaitProvisioned waits until so many machines say that they are provisioned.
func (r *run) awaitProvisioned(ctx context.Context, changes watch.Interface, want int) error {
	ctx, cancel := context.WithTimeout(ctx, r.options.Timeout)
	defer cancel()
	done := map[string]bool{}
	for len(done) < want {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for machines: %d of %d are provisioned: %w", len(done), want, ctx.Err())
		case <-time.After(10 * time.Second):
			if err := r.manager.dead(); err != nil {
				return err
			}
		case event, open := <-changes.ResultChan():
			if !open {
				return errors.New("watching machines: the watch ended")
			}
			if object, ok := event.Object.(*unstructured.Unstructured); ok && provisioned(object) {
				done[object.GetName()] = true
			}
		}
	}
	return nil
}

// requests are all calls so far, long polls among them.
func (r *run) requests() map[string]int {
	all := r.center.Requests()
	if polls := r.center.LongPolls(); polls > 0 {
		all[longPoll] = polls
	}
	return all
}

// rest waits until the provider is idle: a provider that still reads a VM for another reason would
// notice its power by accident.
func (r *run) rest(ctx context.Context) error {
	last, since := -1, time.Now()
	return poll(ctx, 5*time.Minute, "waiting for the provider to rest", func(context.Context) error {
		if err := r.manager.dead(); err != nil {
			return final{err}
		}
		if now := total(r.center.Requests()); now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) < quiet {
			return errors.New("it still sends requests to vCenter")
		}
		return nil
	})
}

// notice takes a VM's power behind the provider's back and waits until the
// provider orders it to be powered on again, which both do once they know.
func (r *run) notice(ctx context.Context, res *result) error {
	if err := r.rest(ctx); err != nil {
		return err
	}
	r.sayf("waiting at most %s until a VM that lost its power is noticed", r.options.Notice)
	id := ""
	for _, vm := range r.center.VMs() {
		if vm.Name == machineName(0) {
			id = vm.Ref
		}
	}
	r.center.ResetRequests()
	started := time.Now()
	if err := r.center.GuestStopped(id); err != nil {
		return fmt.Errorf("powering off %s: %w", machineName(0), err)
	}
	// Time runs out without an error: not to notice is a result.
	err := poll(ctx, r.options.Notice, "waiting until the provider notices", func(context.Context) error {
		if err := r.manager.dead(); err != nil {
			return final{err}
		}
		if r.center.Requests()["PowerOnVM_Task"] == 0 {
			return errUnnoticed
		}
		return nil
	})
	if err != nil && (!errors.Is(err, errUnnoticed) || ctx.Err() != nil) {
		return err
	}
	res.Noticed = err == nil
	res.Notice = time.Since(started).Seconds()
	res.Meanwhile = total(r.requests())
	return nil
}

var errUnnoticed = errors.New("the provider did not notice the power-off")
