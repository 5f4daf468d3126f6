package demo

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

const (
	name = "demotest"
	// startTimeout limits the start on a busy machine, builds included.
	startTimeout = 20 * time.Minute
	// changeTimeout limits a change of the workload cluster, and endTimeout the end.
	changeTimeout = 5 * time.Minute
	endTimeout    = time.Minute
)

// hypervisors are those to run the demo on: none in a short run.
func hypervisors() []string {
	if os.Getenv("NOVA_SUITES") == "full" {
		return bed.Hypervisors()
	}
	return nil
}

func TestDemo(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyPollingInterval(time.Second)
	RunSpecs(t, "make demo")
}

var _ = Describe("make demo", Serial, func() {
	for _, hypervisor := range hypervisors() {
		It("runs on "+hypervisor+" without root until it is interrupted", func(ctx SpecContext) {
			d := start(ctx, hypervisor)
			text := d.out.String()
			Expect(text).To(MatchRegexp(`demo: ready seconds=\d+`))

			By("listing the objects")
			Expect(d.types(ctx, "kubectl get clusters,novacontrolplanes,machines -A")).To(ContainSubstring("demo-control-plane"))
			Expect(d.types(ctx, "clusterctl describe cluster demo -n tenants")).To(ContainSubstring("NovaControlPlane tenants/demo-control-plane"))

			By("scaling, and losing a machine")
			d.types(ctx, "kubectl -n tenants scale machinedeployment demo-worker --replicas=3")
			d.types(ctx, "kubectl -n tenants scale novacontrolplane demo-control-plane --replicas=3")
			Eventually(d.ready).WithContext(ctx).WithTimeout(changeTimeout).Should(Equal(6), d.state)
			lost := strings.Fields(d.types(ctx, "kubectl -n tenants get machines -l cluster.x-k8s.io/deployment-name=demo-worker -o name"))[0]
			d.types(ctx, "kubectl -n tenants delete "+lost)
			Eventually(d.ready).WithContext(ctx).WithTimeout(changeTimeout).Should(Equal(6), d.state)
			d.types(ctx, "kubectl -n tenants scale novacontrolplane demo-control-plane --replicas=1")
			Eventually(d.ready).WithContext(ctx).WithTimeout(changeTimeout).Should(Equal(4), d.state)

			By("running pods in the workload cluster")
			d.types(ctx, "kubectl --kubeconfig $WORKLOAD create deployment web --image=example --replicas=5")
			d.types(ctx, "kubectl --kubeconfig $WORKLOAD rollout status deployment web --timeout=2m")

			By("pressing Ctrl-C")
			Expect(d.cmd.Process.Signal(syscall.SIGINT)).To(Succeed())
			Eventually(d.ended).WithTimeout(endTimeout).Should(Receive(BeNil()), d.out.String)
			Expect(d.dir).NotTo(BeADirectory(), "no file is left")
			Expect(processes(d.dir)).To(BeEmpty(), "no program is left")
		})
	}
})

// demo is a running demo.
type demo struct {
	cmd       *exec.Cmd
	out       *output
	ended     chan error
	dir       string
	variables string
}

// output is written by one goroutine and read by another.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// start starts the demo without capabilities: the kernel then grants its user 0 the rights of any
// user who owns the same files.
func start(ctx context.Context, hypervisor string) *demo {
	GinkgoHelper()
	Expect(bed.Down(ctx, name)).To(Succeed(), "a demo of a crashed run is removed first")
	program := filepath.Join(GinkgoT().TempDir(), "novabed")
	Expect(tools.Build(ctx, program, "", "./test/cmd/novabed")).To(Succeed())
	d := &demo{out: &output{}, ended: make(chan error, 1), dir: filepath.Join(bed.Cache(), "beds", name)}
	d.variables = filepath.Join(d.dir, "env")
	// Interrupted, not killed: the test is about the signal.
	d.cmd = exec.Command("setpriv", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs",
		program, "demo", "--name", name, "--hypervisor", hypervisor)
	d.cmd.Dir = tools.Root()
	d.cmd.Stdout, d.cmd.Stderr = d.out, d.out
	Expect(d.cmd.Start()).To(Succeed())
	go func() { d.ended <- d.cmd.Wait() }()
	DeferCleanup(func(ctx context.Context) {
		_ = d.cmd.Process.Kill()
		Expect(bed.Down(ctx, name)).To(Succeed())
	})
	Eventually(d.out.String).WithContext(ctx).WithTimeout(startTimeout).Should(Or(ContainSubstring("demo: ready"), ContainSubstring("novabed:")))
	return d
}

// types runs a command as a person does, and returns its output.
func (d *demo) types(ctx context.Context, command string) string {
	GinkgoHelper()
	out, err := exec.CommandContext(ctx, "sh", "-euc", ". "+d.variables+"\n"+command).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s: %s", command, out)
	return string(out)
}

var isReady = regexp.MustCompile(`(?m)^\S+\s+Ready\b`)

// ready returns the number of nodes that are Ready, or -1 while machines and nodes differ.
func (d *demo) ready(ctx context.Context) int {
	nodes, err := exec.CommandContext(ctx, "sh", "-euc", ". "+d.variables+"\nkubectl --kubeconfig $WORKLOAD get nodes --no-headers").Output()
	if err != nil {
		return -1
	}
	machines, err := exec.CommandContext(ctx, "sh", "-euc", ". "+d.variables+"\nkubectl -n tenants get machines --no-headers").Output()
	found := len(isReady.FindAll(nodes, -1))
	if err != nil || bytes.Count(machines, []byte("\n")) != found || bytes.Count(machines, []byte(" Running ")) != found {
		return -1
	}
	return found
}

// state describes the objects, for a failure.
func (d *demo) state() string {
	out, err := exec.CommandContext(context.Background(), "sh", "-c", ". "+d.variables+"\nkubectl get machines,novacontrolplanes -A -o wide; kubectl --kubeconfig $WORKLOAD get nodes,pods -A").CombinedOutput()
	if err != nil {
		return err.Error()
	}
	return string(out)
}

// processes are the command lines that name a directory.
func processes(dir string) (found []string) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	Expect(err).NotTo(HaveOccurred())
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err == nil && bytes.Contains(line, []byte(dir)) {
			found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}
