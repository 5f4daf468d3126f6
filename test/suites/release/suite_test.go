package release

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/host"
	"github.com/nova-platform/cluster-api-provider-nova/test/registry"
	"github.com/nova-platform/cluster-api-provider-nova/test/suites/harness"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

const (
	// first and next are two releases of this work tree.
	first, next = "v0.1.0", "v0.1.1"
	// publicPort and closedPort are the ports of the registry that releases are
	// published to, and of the registry of the closed network.
	publicPort, closedPort = 20443, 20444

	bootTimeout    = 10 * time.Minute
	installTimeout = 10 * time.Minute
)

// everything is set where all specs run: releases are built, which takes minutes.
var everything = os.Getenv("NOVA_SUITES") == "full"

var (
	b        *bed.Bed
	programs map[string]string
	// public is the registry that releases are published to, login the folder with the
	// credentials for it, and images the address in the names of images.
	public        *registry.Server
	login, images string
	// web serves the files for clusterctl.
	web *gitlab
	// out is the folder of the releases, and key the file of the private key.
	out, key string
	// core is Cluster API's core provider.
	core coreProvider
	// online, operated and closed are workload clusters that become management clusters.
	online, operated, closed *managementCluster
)

// results are the parts of the last line, in their order.
var results = []struct{ name, passed, value string }{
	{"reproducible", "true", "false"}, {"signed", "true", "false"},
	{"init", "ok", "failed"}, {"upgrade", "ok", "failed"}, {"closed", "ok", "failed"}, {"operator", "ok", "failed"},
}

// passed notes a result for the last line.
func passed(name string) {
	for i := range results {
		if results[i].name == name {
			results[i].value = results[i].passed
		}
	}
}

func TestRelease(t *testing.T) {
	if everything {
		defer func() {
			line := []string{"release:"}
			for _, r := range results {
				line = append(line, r.name+"="+r.value)
			}
			_, _ = fmt.Fprintln(os.Stdout, strings.Join(line, " "))
		}()
	}
	harness.RunLong(t, "A release")
}

// start starts the environment, and builds the first release while the clusters
// boot.
func start(ctx context.Context) {
	GinkgoHelper()
	b = harness.Start(ctx, bed.Options{Name: "release", Flux: true})
	var err error
	programs, err = tools.Paths(ctx, GinkgoWriter, "clusterctl", "cosign", "kubectl", "nova-release", "capi-core", "capi-operator")
	Expect(err).NotTo(HaveOccurred())
	public = startRegistry(ctx, publicPort)
	login, err = public.Login(public.Password)
	Expect(err).NotTo(HaveOccurred())
	images = public.Address + "/nova"
	web = startGitLab(ctx)
	online = &managementCluster{Cluster: bed.Cluster{Name: "online", Namespace: "online", ControlPlanes: 1, Endpoint: "10.77.0.20"}}
	online.create(ctx, public)
	closed = &managementCluster{Cluster: bed.Cluster{Name: "closed", Namespace: "closed", ControlPlanes: 1, Endpoint: "10.77.0.21"}}
	closed.create(ctx, startRegistry(ctx, closedPort))
	core = readCore(ctx)
	pushImage(ctx, "capi-core", "cluster-api", "cluster-api-controller", core.version)
	out, key = GinkgoT().TempDir(), newKey(GinkgoT().TempDir())
	build(ctx, tools.Root(), out, first)
}

// startRegistry runs a registry at a port of the environment's gateway.
func startRegistry(ctx context.Context, port int) *registry.Server {
	GinkgoHelper()
	server, err := registry.Start(ctx, registry.Options{
		Dir: GinkgoT().TempDir(), IP: host.Gateway, Port: port, Inside: b.Inside, Log: GinkgoWriter,
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(server.Stop)
	return server
}

// newKey writes a private key, and the public key beside it.
func newKey(dir string) string {
	GinkgoHelper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	data, err := x509.MarshalPKCS8PrivateKey(private)
	Expect(err).NotTo(HaveOccurred())
	public, err := x509.MarshalPKIXPublicKey(private.Public())
	Expect(err).NotTo(HaveOccurred())
	file := filepath.Join(dir, "key")
	Expect(os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: data}), 0o600)).To(Succeed())
	Expect(os.WriteFile(file+".pub", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o600)).To(Succeed())
	return file
}

// build builds a release of a work tree into a folder, as "make release" does.
func build(ctx context.Context, root, dir, version string, env ...string) {
	GinkgoHelper()
	run(ctx, command{
		args: []string{filepath.Join(root, "hack", "release.sh"), dir, version},
		env:  append(env, "REGISTRY="+images, "KEY="+key, "URL="+packages, "ARCH="+runtime.GOARCH),
	})
}

// command is a program with its arguments.
type command struct {
	args, env []string
	// inside runs it in the network of the environment, without a proxy.
	inside bool
}

// run runs a command that must succeed, and returns its output.
func run(ctx context.Context, c command) string {
	GinkgoHelper()
	out, err := try(ctx, c)
	Expect(err).NotTo(HaveOccurred(), out)
	return out
}

// try runs a command, and returns its output and its errors.
func try(ctx context.Context, c command) (string, error) {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, c.args[0], c.args[1:]...)
	cmd.Env = append(os.Environ(), "CLUSTERCTL_DISABLE_VERSIONCHECK=true")
	cmd.Stdout, cmd.Stderr = &out, &out
	do := cmd.Run
	if c.inside {
		cmd.Env = append(cmd.Env, "NO_PROXY=*")
		do = func() error { return b.Inside(cmd.Run) }
	}
	cmd.Env = append(cmd.Env, c.env...)
	began := time.Now()
	err := do()
	_, _ = fmt.Fprintf(GinkgoWriter, "$ %s # %s s\n%s", strings.Join(c.args, " "), strconv.Itoa(int(time.Since(began).Seconds())), out.String())
	return out.String(), err
}
