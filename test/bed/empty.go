package bed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed/supervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/env"
	"github.com/nova-platform/cluster-api-provider-nova/test/host"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// Empty represents an empty management cluster, into which the user's own tools
// install Cluster API and providers. It has its own address in the bed's
// network, and one Node whose pods are processes.
type Empty struct {
	// Bed is the bed with this cluster as its management cluster: functions that
	// read or write the management cluster use this one.
	*Bed
	// Address is where its API server listens.
	Address string

	layout  layout
	process *os.Process
	ca      *authority
	stop    context.CancelFunc
	ended   sync.WaitGroup
}

// emptyFlags make the management cluster one that others can reach, and whose
// API server finds webhooks without a pod network: by their endpoints.
func emptyFlags(process supervisor.Process, address string) supervisor.Process {
	switch process.Name {
	case "kube-apiserver":
		process.Args = append(process.Args[:1:1], withFlags(process.Args[1:],
			"bind-address=0.0.0.0", "advertise-address="+address, "enable-aggregator-routing=true")...)
	case "kube-controller-manager":
		// Its one Node sends no heartbeats.
		process.Args = append(process.Args, "--controllers=*,-node-lifecycle-controller,-taint-eviction-controller")
	}
	return process
}

// StartEmpty starts an empty management cluster at an address, 10.77.0.2 to
// 10.77.0.9. Programs are the programs that its pods may run.
func (b *Bed) StartEmpty(ctx context.Context, name, address string, programs Programs) (*Empty, error) {
	e := &Empty{Address: address, layout: layout(b.layout.path("management", name))}
	e.Bed = &Bed{Name: b.Name, Dir: b.Dir, hypervisors: b.hypervisors, layout: b.layout, log: b.log}
	if err := e.start(ctx, programs); err != nil {
		return nil, fmt.Errorf("starting management cluster %s: %w", name, errors.Join(err, e.Stop()))
	}
	b.mu.Lock()
	b.empties = append(b.empties, e)
	b.mu.Unlock()
	return e, nil
}

func (e *Empty) start(ctx context.Context, programs Programs) error {
	ca, err := newAuthority()
	if err != nil {
		return err
	}
	if err := e.serve(ctx, ca, "etcd", "kube-apiserver", "kube-controller-manager"); err != nil {
		return err
	}
	if e.observer, err = observe(e.Config, e.Logs()); err != nil {
		return err
	}
	if err := e.Client.Create(ctx, e.node()); err != nil {
		return fmt.Errorf("making Node: %w", err)
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	e.stop = stop
	kubelet := &kubelet{cluster: e, programs: programs, pods: map[string]*pod{}}
	e.ended.Go(func() { kubelet.run(running) })
	return nil
}

// serve starts the named programs of a control plane, with certificates of an
// authority, and waits for the API server.
func (e *Empty) serve(ctx context.Context, ca *authority, names ...string) error {
	paths, err := tools.Paths(ctx, e.log, names...)
	if err != nil {
		return err
	}
	e.ca = ca
	if err := ca.writePKI(e.layout, e.managementServer(), net.ParseIP(e.Address)); err != nil {
		return err
	}
	plan := supervisor.Plan{Logs: e.layout.logs(), Pids: e.layout.pids()}
	for _, process := range managementProcesses(e.layout, paths, e.port) {
		if slices.Contains(names, process.Name) {
			plan.Processes = append(plan.Processes, emptyFlags(process, e.Address))
		}
	}
	file := e.layout.path("plan.json")
	if err := supervisor.WritePlan(file, plan); err != nil {
		return err
	}
	if err := e.enter(ctx, file); err != nil {
		return err
	}
	if err := e.reach(); err != nil {
		return err
	}
	return await(ctx, 2*time.Minute, "waiting for its API server", e.healthy)
}

// enter starts the supervisor in a new network namespace, and connects that to
// the bed's bridge. The namespace is removed when its last process ends.
func (e *Empty) enter(ctx context.Context, plan string) error {
	if err := os.MkdirAll(e.layout.logs(), 0o755); err != nil {
		return fmt.Errorf("making log directory: %w", err)
	}
	log, err := os.Create(filepath.Join(e.layout.logs(), "supervisor.log"))
	if err != nil {
		return fmt.Errorf("opening log: %w", err)
	}
	defer func() { _ = log.Close() }()
	program := filepath.Join(e.Bed.layout.path("bin"), supervisorProgram)
	cmd, err := e.network().Command(context.WithoutCancel(ctx), "unshare", "--net", "sh", "-euc", `
until ip link show eth0 >/dev/null 2>&1; do sleep 0.1; done
ip link set lo up
ip address add "$1/24" dev eth0
ip link set eth0 up
exec "$0" run "$2"`, program, e.Address, plan)
	if err != nil {
		return err
	}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting supervisor: %w", err)
	}
	e.process = cmd.Process
	go func() { _ = cmd.Wait() }()
	return await(ctx, time.Minute, "joining the network", func(context.Context) error { return e.wire() })
}

// wire connects the cluster's namespace to the bridge. It fails while the
// supervisor is still in the namespace of this process or of the bed: it uses
// both before it has its own.
func (e *Empty) wire() error {
	own, err := os.Readlink(e.netns())
	if err != nil {
		return fmt.Errorf("finding network namespace: %w", err)
	}
	// Not self: that is the main thread, which may be in a bed just now.
	ours, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return fmt.Errorf("finding network namespace of this process: %w", err)
	}
	return e.Inside(func() error {
		if beds, err := os.Readlink("/proc/thread-self/ns/net"); err != nil || beds == own || ours == own {
			return errors.Join(errors.New("network namespace is not made yet"), err)
		}
		outer := "m" + strconv.Itoa(e.process.Pid)
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: outer}, PeerName: "eth0", PeerNamespace: netlink.NsPid(e.process.Pid)}
		if err := netlink.LinkAdd(link); err != nil {
			return fmt.Errorf("adding link: %w", err)
		}
		bridge, err := netlink.LinkByName(host.Bridge)
		if err != nil {
			return fmt.Errorf("finding bridge: %w", err)
		}
		return errors.Join(netlink.LinkSetMaster(link, bridge), netlink.LinkSetUp(link))
	})
}

func (e *Empty) netns() string { return "/proc/" + strconv.Itoa(e.process.Pid) + "/ns/net" }

// Kubeconfig is the file by which an administrator reaches the cluster from
// inside the bed.
func (e *Empty) Kubeconfig() string { return e.layout.kubeconfig("outside") }

// Logs is the directory with a log file for each program and pod.
func (e *Empty) Logs() string { return e.layout.logs() }

// CollectArtifacts copies the logs of the cluster's programs and pods, and those
// of hosts, into a directory.
func (e *Empty) CollectArtifacts(dir string) error {
	return errors.Join(
		copyMatches(filepath.Join(e.Logs(), "*.log"), filepath.Join(dir, "management")),
		copyMatches(filepath.Join(e.Bed.Logs(), "*.log"), filepath.Join(dir, "programs")),
		e.collectHosts(filepath.Join(dir, "hosts")),
	)
}

// reach makes the client, and the kubeconfig for tools.
func (e *Empty) reach() error {
	config, err := clientcmd.LoadFromFile(e.layout.kubeconfig("admin"))
	if err != nil {
		return fmt.Errorf("reading kubeconfig: %w", err)
	}
	for _, cluster := range config.Clusters {
		cluster.Server = "https://" + net.JoinHostPort(e.Address, "6443")
	}
	if err := writeKubeconfig(e.Kubeconfig(), config); err != nil {
		return err
	}
	if e.Config, err = clientcmd.BuildConfigFromFlags("", e.Kubeconfig()); err != nil {
		return fmt.Errorf("reading kubeconfig: %w", err)
	}
	e.Config.QPS, e.Config.Burst = -1, -1
	e.direct(e.Config)
	return nil
}

func (e *Empty) healthy(ctx context.Context) error {
	c, err := client.NewWithWatch(e.Config, client.Options{Scheme: env.Scheme()})
	if err != nil {
		return err
	}
	e.Client = c
	return probe(ctx, e.Config)
}

// node is where all pods run.
func (e *Empty) node() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName},
		Status: corev1.NodeStatus{
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: e.Address}},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "BedReady"}},
		},
	}
}

// Install installs Cluster API's core and managers of this project from the
// components of the work tree, over cert-manager's definitions. It does not wait
// for their pods.
func (e *Empty) Install(ctx context.Context, names ...string) error {
	programs, err := tools.Paths(ctx, e.log, "kubectl")
	if err != nil {
		return err
	}
	for _, name := range append([]string{CoreManager}, names...) {
		dir, err := e.componentsDir(ctx, name)
		if err != nil {
			return err
		}
		rendered, err := render(ctx, programs["kubectl"], dir)
		if err != nil {
			return err
		}
		objects, err := parse(resolve(rendered, nil))
		if err != nil {
			return err
		}
		if err := Apply(ctx, e.Client, objects...); err != nil {
			return fmt.Errorf("installing %s: %w", name, err)
		}
	}
	return nil
}

// Stop ends the cluster's pods, and leaves the rest to the bed's end. It fails
// if the value of a Secret was in a manager's log, in an event or in a status.
func (e *Empty) Stop() error {
	if e.stop != nil {
		e.stop()
		e.ended.Wait()
	}
	if e.process == nil {
		return nil
	}
	// A start that broke off has not come as far as a pid file.
	err := e.process.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	e.process = nil
	return errors.Join(e.observer.end(), err, supervisor.End(e.layout.pids()))
}
