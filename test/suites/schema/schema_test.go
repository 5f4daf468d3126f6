package schema_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/nova-platform/cluster-api-provider-nova/test/host"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// guest is the root file system of test hosts, with a folder of ours in it.
type guest struct {
	root, dir string
}

func newGuest(ctx context.Context, t *testing.T) *guest {
	t.Helper()
	assets, err := host.Prepare(ctx, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	programs, err := tools.Paths(ctx, os.Stderr, "kubeadm")
	if err != nil {
		t.Fatal(err)
	}
	g := &guest{root: assets.Debian, dir: t.TempDir()}
	kubeadm, err := os.ReadFile(programs["kubeadm"])
	if err != nil {
		t.Fatal(err)
	}
	g.write(t, "mnt/kubeadm", kubeadm, 0o755)
	g.write(t, "run/.keep", nil, 0o600)
	return g
}

func (g *guest) write(t *testing.T, path string, content []byte, mode os.FileMode) {
	t.Helper()
	path = filepath.Join(g.dir, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, mode)); err != nil {
		t.Fatal(err)
	}
}

// run runs a program of the guest. Its folders /mnt and /run are ours for that
// time, in a mount namespace that goes with the program.
func (g *guest) run(ctx context.Context, args ...string) error {
	const script = `root=$1 dir=$2; shift 2
mount --bind "$dir/mnt" "$root/mnt"
mount --bind "$dir/run" "$root/run"
exec chroot "$root" "$@"`
	all := append([]string{"--mount", "--propagation", "private", "sh", "-ec", script, "sh", g.root, g.dir}, args...)
	if out, err := exec.CommandContext(ctx, "unshare", all...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// machine is what a boot would replace in kubeadm's documents.
var machine = strings.NewReplacer(
	"__NOVA_TOKEN__", "abcdef.0123456789abcdef",
	"__NOVA_ADVERTISE_ADDRESS__", "10.77.0.11",
	"__NOVA_NODE_IP__", "10.77.0.11",
	"__NOVA_PROVIDER_ID__", "vsphere://4237a1b2-c3d4-e5f6-0102-030405060701",
)

func TestGoldenFiles(t *testing.T) {
	goldens, err := filepath.Glob(filepath.Join(tools.Root(), "bootstrap", "testdata", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(goldens) == 0 {
		t.Fatal("no golden files")
	}
	g := newGuest(t.Context(), t)
	for _, golden := range goldens {
		t.Run(filepath.Base(golden), func(t *testing.T) {
			content, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			g.write(t, "mnt/user-data", content, 0o600)
			if err := g.run(t.Context(), "cloud-init", "schema", "--config-file", "/mnt/user-data"); err != nil {
				t.Error(err)
			}
			document := struct {
				WriteFiles []struct {
					Path    string `json:"path"`
					Content string `json:"content"`
				} `json:"write_files"`
			}{}
			if err := yaml.Unmarshal(content, &document); err != nil {
				t.Fatal(err)
			}
			for _, f := range document.WriteFiles {
				if strings.HasPrefix(f.Path, "/run/") {
					g.write(t, f.Path, []byte(machine.Replace(f.Content)), 0o600)
				}
			}
			if err := g.run(t.Context(), "/mnt/kubeadm", "config", "validate", "--config", "/run/nova/kubeadm.template"); err != nil {
				t.Error(err)
			}
			if err := g.run(t.Context(), "sh", "-n", "/run/nova/bootstrap.sh"); err != nil {
				t.Error(err)
			}
		})
	}
}

// The judges must be able to say no, or their yes means nothing.
func TestJudges(t *testing.T) {
	g := newGuest(t.Context(), t)
	g.write(t, "mnt/user-data", []byte("#cloud-config\nwrite_files:\n- path: /x\n  permissions: 3\n"), 0o600)
	if err := g.run(t.Context(), "cloud-init", "schema", "--config-file", "/mnt/user-data"); err == nil {
		t.Error("cloud-init accepts a number as permissions")
	}
	g.write(t, "mnt/kubeadm.yaml", []byte("apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\nnodeRegistration: {nmae: x}\n"), 0o600)
	if err := g.run(t.Context(), "/mnt/kubeadm", "config", "validate", "--config", "/mnt/kubeadm.yaml"); err == nil {
		t.Error("kubeadm accepts a field that does not exist")
	}
}
