package bed

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// startBed starts a bed without this project's providers, which have their own
// suites, and takes it away at the end.
func startBed(t *testing.T, name string) *Bed {
	t.Helper()
	g := NewWithT(t)
	// On the file system of the cache, where hosts can hard-link from it.
	dir := filepath.Join(Cache(), "beds", name)
	// A run that was killed left it behind.
	g.Expect(Down(t.Context(), name)).To(Succeed())
	b, err := Start(t.Context(), Options{Name: name, Dir: dir, Log: os.Stderr, Providers: []string{}})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(Down(context.WithoutCancel(t.Context()), name)).To(Succeed()) })
	return b
}

// TestBedsSideBySide starts two beds, since everything of a bed that is not
// named after it would be in the other's way.
func TestBedsSideBySide(t *testing.T) {
	g := NewWithT(t)
	first, second := startBed(t, "bed-test-a"), startBed(t, "bed-test-b")
	ns := &corev1.Namespace{}
	ns.Name = "only-in-first"
	g.Expect(first.Client.Create(t.Context(), ns)).To(Succeed())
	err := second.Client.Get(t.Context(), client.ObjectKeyFromObject(ns), &corev1.Namespace{})
	g.Expect(err).To(MatchError(ContainSubstring("not found")))
	one, err := first.VCenter(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	other, err := second.VCenter(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(one.Password).NotTo(Equal(other.Password))

	_, err = Start(t.Context(), Options{Name: first.Name})
	g.Expect(err).To(MatchError(ErrExists))
}

// TestCoreManagerServesItsWebhooks proves conversion and admission through the
// addresses that replace Services, and that a killed manager comes back.
func TestCoreManagerServesItsWebhooks(t *testing.T) {
	g := NewWithT(t)
	b := startBed(t, "bed-test-c")
	before, err := b.Pid(CoreManager)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(b.Kill(CoreManager, syscall.SIGKILL)).To(Succeed())
	g.Eventually(func() (int, error) { return b.Pid(CoreManager) }, 2*time.Minute).ShouldNot(Equal(before))

	cluster := &clusterv1.Cluster{}
	cluster.Namespace, cluster.Name = "default", "demo"
	cluster.Spec.ClusterNetwork.Pods.CIDRBlocks = []string{"no CIDR"}
	cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "NovaVSphereCluster", Name: "demo"}
	g.Eventually(func() error { return b.Client.Create(t.Context(), cluster.DeepCopy()) }, 2*time.Minute).
		Should(MatchError(ContainSubstring("admission webhook")))
}

// TestDownAfterACrash takes a bed away whose supervisor and vCenter were
// killed, and finds nothing of it afterwards.
func TestDownAfterACrash(t *testing.T) {
	g := NewWithT(t)
	b := startBed(t, "bed-test-d")
	opened, err := Open(t.Context(), b.Name)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(opened.Dir).To(Equal(b.Dir))
	artifacts := t.TempDir()
	g.Expect(opened.CollectArtifacts(t.Context(), artifacts)).To(Succeed())
	g.Expect(filepath.Join(artifacts, "programs", "kube-apiserver.log")).To(BeAnExistingFile())

	apiserver, err := b.Pid("kube-apiserver")
	g.Expect(err).NotTo(HaveOccurred())
	parent, err := parentOf(apiserver)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(syscall.Kill(parent, syscall.SIGKILL)).To(Succeed())
	g.Expect(b.Kill("vcenter", syscall.SIGKILL)).To(Succeed())

	g.Expect(Down(t.Context(), b.Name)).To(Succeed())
	// A killed process that has not been reaped yet has no command line.
	line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(apiserver), "cmdline"))
	g.Expect(errors.Is(err, fs.ErrNotExist) || len(line) == 0).To(BeTrue(), "kube-apiserver still runs")
	for _, path := range []string{b.Dir, recordPath(b.Name), controlSocket(b.Name, VSphere), "/run/netns/nova-" + b.Name} {
		_, err := os.Stat(path)
		g.Expect(errors.Is(err, fs.ErrNotExist)).To(BeTrue(), path)
	}
	g.Expect(Down(t.Context(), b.Name)).To(Succeed(), "a deleted test environment")
}

// parentOf returns the process ID of a process's parent.
func parentOf(pid int) (int, error) {
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if parent, ok := strings.CutPrefix(line, "PPid:"); ok {
			return strconv.Atoi(strings.TrimSpace(parent))
		}
	}
	return 0, errors.New("no parent")
}
