package schema_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
	"github.com/nova-platform/cluster-api-provider-nova/test/bootdata"
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

// run runs a program of the guest. Its folders /mnt and /run belong to the test meanwhile, in a
// mount namespace that ends with the program.
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

// machine replaces the values in kubeadm's documents that a boot would replace.
var machine = strings.NewReplacer(
	"__NOVA_TOKEN__", "abcdef.0123456789abcdef",
	"__NOVA_ADVERTISE_ADDRESS__", "10.77.0.11",
	"__NOVA_NODE_IP__", "10.77.0.11",
	"__NOVA_PROVIDER_ID__", "vsphere://4237a1b2-c3d4-e5f6-0102-030405060701",
)

// kubeadm takes its configuration, and cloud-init the document around it.
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
			join := configOf(t, filepath.Base(golden)).Join
			g.write(t, "mnt/kubeadm.yaml", []byte(machine.Replace(join.Kubeadm)), 0o600)
			g.write(t, "run/nova/discovery.conf", []byte(join.Kubeconfig), 0o600)
			if err := g.run(t.Context(), "/mnt/kubeadm", "config", "validate", "--config", "/mnt/kubeadm.yaml"); err != nil {
				t.Error(err)
			}
		})
	}
	document, err := os.ReadFile(filepath.Join(tools.Root(), "bootstrap", "testdata", "document.cloud-config"))
	if err != nil {
		t.Fatal(err)
	}
	g.write(t, "mnt/user-data", document, 0o600)
	if err := g.run(t.Context(), "cloud-init", "schema", "--config-file", "/mnt/user-data"); err != nil {
		t.Error(err)
	}
}

// containerd and apt accept the configuration that the host agent and the files
// of a machine create.
func TestPreparedPrograms(t *testing.T) {
	files := filesOf(t, "join-worker-surroundings.yaml")
	settings := nodeconfig.Machine{Mirrors: true, Snippets: true, Files: []nodeconfig.File{
		{Path: "/etc/containerd/conf.d/nova-limits.toml", Mode: "0600", Text: "version = 2\n[debug]\n  level = \"trace\"\n"},
	}}
	own := nodeconfig.File{Path: "/etc/containerd/conf.d/nova-own.toml", Mode: "0600", Text: "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".registry]\n  config_path = \"/etc/other\"\n"}
	const dump = "containerd --config /etc/containerd/config.toml config dump >/mnt/dump"
	for name, config := range map[string]string{
		"Absent":   "",
		"Version2": "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".registry]\n  config_path = \"\"\n",
		"Colons":   "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".registry]\n  config_path = \"/etc/containerd/certs.d:/etc/docker/certs.d\"\n",
		"Imports":  "version = 2\nimports = []\n[plugins.\"io.containerd.grpc.v1.cri\"]\n  sandbox_image = \"x\"\n",
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuest(t.Context(), t)
			prepare := "rm -f /etc/containerd/config.toml"
			if config != "" {
				g.write(t, "mnt/config.toml", []byte(config), 0o600)
				prepare = "cp /mnt/config.toml /etc/containerd/config.toml"
			}
			g.apply(t, settings)
			if err := g.runOver(t.Context(), "rw", "sh", "-ec", "mkdir -p /etc/containerd; "+prepare+"; "+applied+"; "+dump); err != nil {
				t.Fatal(err)
			}
			dump, err := os.ReadFile(filepath.Join(g.dir, "mnt", "dump"))
			if err != nil {
				t.Fatal(err)
			}
			for _, words := range []string{`config_path = '/etc/containerd/certs.d'` + "\n", "trace"} {
				if !strings.Contains(string(dump), words) {
					t.Errorf("%s is lost:\n%s", words, dump)
				}
			}
			with := settings
			with.Files = append(slices.Clone(settings.Files), own)
			g.apply(t, with)
			if err := g.runOver(t.Context(), "rw", "sh", "-ec", "mkdir -p /etc/containerd; "+prepare+"; "+applied); err == nil || !strings.Contains(err.Error(), "removes the mirrors") {
				t.Errorf("err = %v, want word of the mirrors", err)
			}
		})
	}
	g := newGuest(t.Context(), t)
	g.write(t, "mnt/apt.conf", []byte(files["/etc/apt/apt.conf.d/90nova-proxy"]), 0o600)
	if err := g.run(t.Context(), "sh", "-ec", `apt-config -c /mnt/apt.conf dump | grep -q 'Acquire::http::Proxy "http://nova:.*@proxy.corp:3128"'`); err != nil {
		t.Error(err)
	}
}

// applied applies the settings of a machine in the guest, whose services do not
// run.
const applied = "mount --bind /usr/bin/true /usr/bin/systemctl; /mnt/nova-host-agent apply /mnt/node.json"

// apply writes the host agent and these settings for the guest.
func (g *guest) apply(t *testing.T, settings nodeconfig.Machine) {
	t.Helper()
	config := &nodeconfig.Config{Node: nodeconfig.Node{Name: "guest"}, Machine: settings}
	content, err := config.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	g.write(t, "mnt/node.json", content, 0o600)
	if err := tools.Build(t.Context(), filepath.Join(g.dir, "mnt", "nova-host-agent"), "", "./cmd/nova-host-agent"); err != nil {
		t.Fatal(err)
	}
}

// configOf is the configuration in a golden file.
func configOf(t *testing.T, golden string) *nodeconfig.Config {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(tools.Root(), "bootstrap", "testdata", golden))
	if err != nil {
		t.Fatal(err)
	}
	config := &nodeconfig.Config{}
	if err := yaml.UnmarshalStrict(content, config); err != nil {
		t.Fatal(err)
	}
	return config
}

// filesOf are the files of a golden file, by path.
func filesOf(t *testing.T, golden string) map[string]string {
	t.Helper()
	files, err := bootdata.Files(configOf(t, golden))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// systemd takes the units of the bootstrap data and of the host agent.
func TestUnits(t *testing.T) {
	for _, unit := range []string{
		"bootstrap/nova-bootstrap.service", "hostagent/boot/nova-bootstrap.service", "hostagent/boot/nova-restarted.service", "hostagent/balancer/nova-api-balancer.service", "hostagent/puppet/nova-puppet.service",
	} {
		t.Run(unit, func(t *testing.T) {
			content, err := os.ReadFile(filepath.Join(tools.Root(), unit))
			if err != nil {
				t.Fatal(err)
			}
			g := newGuest(t.Context(), t)
			verify := func(program string) error {
				name := "/mnt/" + filepath.Base(unit)
				g.write(t, name, []byte(strings.NewReplacer("__NOVA_HOST_AGENT__", program, "/bin/sh", program).Replace(string(content))), 0o600)
				return g.run(t.Context(), "systemd-analyze", "verify", "--man=no", name)
			}
			if err := verify("/bin/sh"); err != nil {
				t.Error(err)
			}
			if verify("/bin/no-shell") == nil {
				t.Error("systemd takes a program that does not exist")
			}
		})
	}
}

// The renderers of cloud-init understand the network configuration of vSphere VMs, and no part of
// it is lost. Netplan accepts it unchanged.
func TestNetworkConfigs(t *testing.T) {
	goldens, err := filepath.Glob(filepath.Join(tools.Root(), "providers", "vsphere", "spec", "testdata", "network-*.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(goldens) == 0 {
		t.Fatal("no golden files")
	}
	g := newGuest(t.Context(), t)
	for _, golden := range goldens {
		for _, renderer := range []string{"networkd", "eni"} {
			t.Run(filepath.Base(golden)+" "+renderer, func(t *testing.T) {
				content, err := os.ReadFile(golden)
				if err != nil {
					t.Fatal(err)
				}
				rendered, err := g.render(t, renderer, content)
				if err != nil {
					t.Fatal(err)
				}
				for _, word := range words(t, content) {
					if !strings.Contains(strings.ToLower(rendered), word) {
						t.Errorf("%s is lost:\n%s", word, rendered)
					}
				}
			})
		}
	}
	if _, err := g.render(t, "networkd", []byte(`{"version": 3}`)); err == nil {
		t.Error("cloud-init accepts a network that makes no sense")
	}
}

// render has a network configuration turned into files, and returns them. JSON
// is YAML, too.
func (g *guest) render(t *testing.T, renderer string, config []byte) (string, error) {
	t.Helper()
	g.write(t, "mnt/network-config", config, 0o600)
	out := filepath.Join(g.dir, "mnt", "out")
	if err := errors.Join(os.RemoveAll(out), os.MkdirAll(out, 0o755)); err != nil {
		t.Fatal(err)
	}
	err := g.run(t.Context(), "cloud-init", "devel", "net-convert", "--network-data", "/mnt/network-config", "--kind", "yaml",
		"--distro", "debian", "--output-kind", renderer, "--directory", "/mnt/out")
	if err != nil {
		return "", err
	}
	var all strings.Builder
	err = filepath.WalkDir(out, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		all.Write(content)
		return err
	})
	return all.String(), err
}

// words are the addresses in a network configuration and the names of its
// interfaces, which each renderer has to write down in some form.
func words(t *testing.T, config []byte) (out []string) {
	t.Helper()
	var document struct {
		Ethernets map[string]struct {
			Addresses []string `json:"addresses"`
			Routes    []struct {
				Via string `json:"via"`
			} `json:"routes"`
			Nameservers struct {
				Addresses []string `json:"addresses"`
				Search    []string `json:"search"`
			} `json:"nameservers"`
		} `json:"ethernets"`
	}
	if err := yaml.Unmarshal(config, &document); err != nil {
		t.Fatal(err)
	}
	for name, e := range document.Ethernets {
		out = append(out, name)
		for _, address := range e.Addresses {
			bare, _, _ := strings.Cut(address, "/")
			out = append(out, bare)
		}
		for _, r := range e.Routes {
			out = append(out, r.Via)
		}
		out = append(append(out, e.Nameservers.Addresses...), e.Nameservers.Search...)
	}
	return out
}

// The judges must be able to say no, or their yes means nothing.
func TestValidatorsReject(t *testing.T) {
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
