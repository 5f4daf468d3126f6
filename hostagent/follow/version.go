package follow

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/cluster"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/download"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

const (
	// formerDir has the programs and the kubelet's configuration before a change of
	// the version that has not ended, by their paths.
	formerDir = "/var/lib/nova/former"
	// partSuffix is the end of its name while it does not have all files.
	partSuffix = ".part"
	// maxProgram limits a program, in bytes.
	maxProgram = 512 << 20
	// nodeReady is how long a Node may take to become ready with another kubelet.
	nodeReady = 3 * time.Minute
	nodePoll  = 2 * time.Second
)

// kubeletFiles are the files that kubeadm replaces on a worker.
var kubeletFiles = []string{"/var/lib/kubelet/config.yaml", "/var/lib/kubelet/instance-config.yaml", flagsFile}

// programs are the programs of a version, with the arguments that print it.
var programs = []struct {
	name    string
	version []string
}{
	{"kubeadm", []string{"version", "--output=short"}},
	{"kubelet", []string{"--version"}},
	{"kubectl", []string{"version", "--client"}},
}

// upgrade is a change of the version whose programs are on the machine.
type upgrade struct {
	m       *machine.Machine
	client  *cluster.Client
	node    string
	version string
	// controlPlane is true on a control plane node.
	controlPlane bool
	// ignored is the argument for checks of kubeadm that may fail.
	ignored []string
	// paths are the paths of the programs. The new ones are beside them.
	paths []string
}

// newPath returns where a program is until it replaces the one at its path: in the
// same folder, so that a folder that is read-only is an error before a change.
func newPath(program string) string {
	return path.Join(path.Dir(program), ".nova-"+path.Base(program))
}

// InstallVersion gives a machine that is no node yet the programs of a version, if it
// has others.
func InstallVersion(ctx context.Context, m *machine.Machine, want *nodeconfig.Kubernetes) error {
	u, err := findUpgrade(ctx, m, want.Version)
	if err != nil || u == nil {
		return err
	}
	m.Logf("Downloading the programs of Kubernetes %s", want.Version)
	err = u.fetch(ctx, want)
	if err == nil {
		err = u.install(ctx, u.paths)
	}
	return errors.Join(err, u.forget())
}

// fetchVersion downloads the programs of the desired version, and changes nothing
// else. The result is nil if the machine has them.
func fetchVersion(ctx context.Context, m *machine.Machine, client *cluster.Client, s *nodeconfig.Settings) (*upgrade, error) {
	want := &s.Kubernetes
	if want.Version == "" {
		return nil, nil //nolint:nilnil // a version that is not set is not changed
	}
	u, err := findUpgrade(ctx, m, want.Version)
	if err != nil || u == nil {
		return nil, err
	}
	u.client, u.node, u.controlPlane = client, s.Node, s.Components != ""
	if len(want.IgnorePreflightErrors) > 0 {
		u.ignored = []string{"--ignore-preflight-errors", strings.Join(want.IgnorePreflightErrors, ",")}
	}
	// kubeadm makes the configuration of the kubelet from that of the cluster.
	stored, err := client.KubernetesVersion(ctx)
	if err != nil {
		return nil, err
	}
	older, err := isOlder(stored, want.Version)
	if err != nil {
		return nil, err
	}
	if older || u.controlPlane && stored != want.Version {
		// kubeadm deploys components of the stored version.
		return nil, fmt.Errorf("the control plane has version %s", stored)
	}
	if err := u.fetch(ctx, want); err != nil {
		return nil, errors.Join(err, u.forget())
	}
	return u, nil
}

// findUpgrade finds the programs of a machine. The result is nil if all have the
// version.
func findUpgrade(ctx context.Context, m *machine.Machine, want string) (*upgrade, error) {
	u, same := &upgrade{m: m, version: want}, true
	for _, p := range programs {
		found := m.Find(p.name)
		if found == "" {
			return nil, fmt.Errorf("the node has no %s", p.name)
		}
		u.paths = append(u.paths, "/"+strings.TrimPrefix(strings.TrimPrefix(found, m.At("/")), "/"))
		same = same && printsVersion(ctx, m, found, p.version, want) == nil
	}
	if same {
		return nil, nil //nolint:nilnil // there is nothing to do
	}
	return u, nil
}

// isOlder reports whether a version is older than another one.
func isOlder(is, than string) (bool, error) {
	parsed, err := version.ParseSemantic(is)
	if err != nil {
		return false, fmt.Errorf("reading version: %w", err)
	}
	order, err := parsed.Compare(than)
	if err != nil {
		return false, fmt.Errorf("reading version: %w", err)
	}
	return order < 0, nil
}

// fetch downloads the programs, and makes sure that they have the version and run.
func (u *upgrade) fetch(ctx context.Context, want *nodeconfig.Kubernetes) error {
	for i, p := range programs {
		to := newPath(u.paths[i])
		if err := fetchProgram(ctx, u.m, want, p.name, to); err != nil {
			return err
		}
		if err := printsVersion(ctx, u.m, u.m.At(to), p.version, want.Version); err != nil {
			return err
		}
	}
	if !u.controlPlane {
		return nil
	}
	// It pulls the images of the components, and checks the node.
	return u.m.Run(ctx, append([]string{u.m.At(newPath(u.paths[0])), "upgrade", "node", "phase", "preflight"}, u.ignored...)...)
}

// forget removes the downloads that have replaced nothing.
func (u *upgrade) forget() error {
	if u == nil {
		return nil
	}
	var errs []error
	for _, program := range u.paths {
		errs = append(errs, u.m.Remove(newPath(program)))
	}
	return errors.Join(errs...)
}

func fetchProgram(ctx context.Context, m *machine.Machine, from *nodeconfig.Kubernetes, name, to string) error {
	for _, p := range from.Programs {
		if p.Name != name {
			continue
		}
		source := download.Source{Name: name + " " + from.Version, URL: p.URL, SHA256: p.SHA256, Limit: maxProgram}
		if err := download.File(ctx, m, source, to); err != nil {
			return err //nolint:wrapcheck // it names the program
		}
		if err := os.Chmod(m.At(to), 0o755); err != nil { //nolint:gosec // all users may run it
			return fmt.Errorf("writing program: %w", err)
		}
		return nil
	}
	return fmt.Errorf("the platform has no download of %s", name)
}

// printsVersion returns nil if a program has a version.
func printsVersion(ctx context.Context, m *machine.Machine, program string, args []string, want string) error {
	out, err := m.Output(ctx, append([]string{program}, args...)...)
	if err != nil {
		return err
	}
	for field := range strings.FieldsSeq(out) {
		if field == want {
			return nil
		}
	}
	return fmt.Errorf("%s is not version %s", strings.TrimPrefix(path.Base(program), ".nova-"), want)
}

// apply replaces the programs, changes the settings of the kubelet, and waits until
// the Node is ready. If it does not become ready, all of it is restored.
func (u *upgrade) apply(ctx context.Context, former []*nodeconfig.Settings, s *nodeconfig.Settings) error {
	u.m.Logf("Changing to Kubernetes %s", u.version)
	if err := u.keep(ctx); err != nil {
		return errors.Join(err, u.m.Remove(formerDir+partSuffix))
	}
	if err := u.replace(ctx, former, s); err != nil {
		return errors.Join(err, restoreVersion(context.WithoutCancel(ctx), u.m))
	}
	return forgetFormer(ctx, u.m)
}

// keep copies the files that are replaced. The folder has its name once it is whole.
func (u *upgrade) keep(ctx context.Context) error {
	const part = formerDir + partSuffix
	if err := u.m.Remove(part); err != nil {
		return fmt.Errorf("keeping former programs: %w", err)
	}
	files := slices.Concat(kubeletFiles, u.paths)
	if u.controlPlane {
		files = append(files, manifestsOf(append(components, etcd))...)
	}
	for _, file := range files {
		if !u.m.Exists(file) {
			continue
		}
		if err := u.m.Copy(file, path.Join(part, file)); err != nil {
			return fmt.Errorf("keeping former programs: %w", err)
		}
	}
	if err := u.m.Flush(ctx); err != nil {
		return err
	}
	if err := os.Rename(u.m.At(part), u.m.At(formerDir)); err != nil {
		return fmt.Errorf("keeping former programs: %w", err)
	}
	return u.m.Flush(ctx)
}

func (u *upgrade) replace(ctx context.Context, former []*nodeconfig.Settings, s *nodeconfig.Settings) error {
	// The kubelet must not be newer than the API server of its node, also after a reset.
	if err := u.install(ctx, u.paths[:1]); err != nil {
		return err
	}
	args := append([]string{"kubeadm", "upgrade", "node", "--kubeconfig", u.m.At(kubeconfig)}, u.ignored...)
	if u.controlPlane {
		if err := changeEtcd(ctx, u.m, u.client, u.node); err != nil {
			return fmt.Errorf("changing etcd: %w", err)
		}
		// The manager changes kube-proxy and CoreDNS. The certificates are renewed by
		// renewCertificates.
		args = []string{"kubeadm", "upgrade", "node", "--etcd-upgrade=false", "--certificate-renewal=false", "--skip-phases=preflight,addon"}
	}
	if err := u.m.Run(ctx, append(args, patchesArgs(u.m)...)...); err != nil {
		return err
	}
	if err := u.install(ctx, u.paths[1:]); err != nil {
		return err
	}
	// A kubelet may reject arguments for another version.
	if changed(kubeletArgs, former, s) {
		if err := setArgs(u.m, former, s.Kubelet.Args); err != nil {
			return err
		}
	}
	if err := restartKubelet(ctx, u.m); err != nil {
		return err
	}
	if err := u.waitForNode(ctx); err != nil || !u.controlPlane {
		return err
	}
	return waitForComponents(ctx, u.m, u.client, u.node)
}

// install replaces programs by the downloads.
func (u *upgrade) install(ctx context.Context, paths []string) error {
	for _, program := range paths {
		if err := os.Rename(u.m.At(newPath(program)), u.m.At(program)); err != nil {
			return fmt.Errorf("replacing program: %w", err)
		}
	}
	return relabel(ctx, u.m, paths)
}

// waitForNode waits until the Node is ready with the version.
func (u *upgrade) waitForNode(ctx context.Context) error {
	for until := u.m.Now().Add(nodeReady); ; {
		err := u.client.NodeReady(ctx, u.node, u.version)
		if err == nil || !u.m.Now().Before(until) {
			return err
		}
		if err := u.m.Sleep(ctx, nodePoll); err != nil {
			return err
		}
	}
}

// relabel sets the labels of SELinux: services may not run a program without.
func relabel(ctx context.Context, m *machine.Machine, files []string) error {
	if !m.Has("restorecon") {
		return nil
	}
	args := []string{"restorecon"}
	for _, file := range files {
		args = append(args, m.At(file))
	}
	return m.Run(ctx, args...)
}

// restoreVersion restores the files of a change that has not ended, and starts the
// former kubelet.
func restoreVersion(ctx context.Context, m *machine.Machine) error {
	var restored []string
	err := filepath.WalkDir(m.At(formerDir), func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		to := strings.TrimPrefix(file, m.At(formerDir))
		if to == manifestOf(etcd) && etcdStays(m.Read(path.Join(formerDir, to)), m.Read(to)) {
			return nil
		}
		restored = append(restored, to)
		return m.Copy(path.Join(formerDir, to), to)
	})
	if err != nil {
		return fmt.Errorf("restoring former programs: %w", err)
	}
	if err := relabel(ctx, m, restored); err != nil {
		return err
	}
	if err := restartKubelet(ctx, m); err != nil {
		return err
	}
	return forgetFormer(ctx, m)
}

// forgetFormer removes the former programs once the present ones are on the disk. The
// folder loses its name first: a part of it must not be restored.
func forgetFormer(ctx context.Context, m *machine.Machine) error {
	if err := m.Flush(ctx); err != nil {
		return err
	}
	const part = formerDir + partSuffix
	if err := os.Rename(m.At(formerDir), m.At(part)); err != nil {
		return fmt.Errorf("removing former programs: %w", err)
	}
	return m.Remove(part)
}
