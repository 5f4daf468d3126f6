package host

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// Versions of Kubernetes that hack/tools pins. Hosts run KubernetesVersion
// unless their Spec names the minor version before it or the one after it.
const (
	KubernetesVersion = "v1.36.3"
	OlderVersion      = "v1.35.4"
	NewerVersion      = "v1.37.0"
)

// nodePrograms are installed on the host, imagePrograms go into images.
// versionless are those of them that do not come with Kubernetes.
var (
	versionless  = []string{"etcd", "etcdutl", "coredns", "kube-vip"}
	nodePrograms = []string{"kubelet", "kubeadm", "kubectl"}
	// runtimePrograms are on the host too, but in its root file system.
	runtimePrograms = []string{"containerd", "containerd-shim-runc-v2", "ctr"}
	imagePrograms   = []string{
		"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy",
		"etcd", "coredns", "kube-vip",
	}
	// imageTools lie in an image beside its program.
	imageTools = map[string][]string{"etcd": {"etcdutl"}}
)

// machinePrograms are the programs that this package runs on the computer
// itself, with the Debian packages that contain them.
var machinePrograms = map[string]string{
	"debootstrap": "debootstrap",
	"dnsmasq":     "dnsmasq-base",
	"nsenter":     "util-linux",
}

//go:embed all:files/node
var nodeFiles embed.FS

// agentProgram is the host agent, which is built from this work tree.
const agentProgram = "nova-host-agent"

// nodeLinks are the symbolic links of hosts: the units that start by
// themselves, and those that may not, since they do nothing here but take time.
var nodeLinks = func() map[string]string {
	links := map[string]string{
		"etc/systemd/system/default.target":                                                   "/usr/lib/systemd/system/multi-user.target",
		"etc/systemd/system/sysinit.target.wants/console-log.service":                         "/etc/systemd/system/console-log.service",
		"etc/systemd/system/multi-user.target.wants/systemd-networkd.service":                 "/usr/lib/systemd/system/systemd-networkd.service",
		"etc/systemd/system/network-online.target.wants/systemd-networkd-wait-online.service": "/usr/lib/systemd/system/systemd-networkd-wait-online.service",
		"etc/systemd/system/dbus-org.freedesktop.network1.service":                            "/usr/lib/systemd/system/systemd-networkd.service",
	}
	for _, unit := range []string{
		"apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "e2scrub_reap.service", "fstrim.timer",
		"systemd-udevd.service", "systemd-udevd-control.socket", "systemd-udevd-kernel.socket",
		"systemd-udev-trigger.service", "systemd-udev-settle.service", "systemd-hwdb-update.service",
		"console-getty.service", "getty.target", "getty-static.service", "systemd-logind.service",
		"systemd-update-utmp.service", "systemd-update-utmp-runlevel.service", "systemd-boot-update.service",
		"ipvsadm.service", "systemd-journal-catalog-update.service", "systemd-pstore.service",
		"modprobe@.service", "systemd-modules-load.service", "nftables.service",
	} {
		links["etc/systemd/system/"+unit] = "/dev/null"
	}
	return links
}()

// distribution is a version of Kubernetes: its programs by name, and its images
// by the last word of their names.
type distribution struct {
	version  string
	programs map[string]string
	images   map[string]string
}

// Programs are the pinned programs that hosts run.
func Programs() []string {
	return slices.Concat(runtimePrograms, nodePrograms, imagePrograms, imageTools["etcd"])
}

// compile returns versions of Kubernetes with all programs that hosts run. Its
// companions etcd and CoreDNS are the same in all, under the names that each
// version's kubeadm gives them.
func compile(ctx context.Context, c cache, versions []string) ([]distribution, error) {
	names := slices.Concat(nodePrograms, imagePrograms, imageTools["etcd"])
	var all []distribution
	for _, version := range versions {
		asked := make([]string, len(names))
		for i, name := range names {
			asked[i] = name
			if version != KubernetesVersion && !slices.Contains(versionless, name) {
				asked[i] = name + "@" + version
			}
		}
		paths, err := tools.Paths(ctx, c.log, asked...)
		if err != nil {
			return nil, err
		}
		d := distribution{version: version, programs: map[string]string{}}
		for i, name := range names {
			d.programs[name] = paths[asked[i]]
		}
		if d.images, err = kubernetesImages(ctx, d.programs["kubeadm"], version); err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

// programsKey names builds of programs: the directory of a pinned program has
// a hash of its pins.
func programsKey(programs map[string]string, names []string) []string {
	var key []string
	for _, name := range names {
		path := programs[name]
		key = append(key, filepath.Join(filepath.Base(filepath.Dir(path)), filepath.Base(path)))
	}
	return key
}

// buildNode makes the layer that turns Debian into a node image: the files of the recipe and the
// programs of Kubernetes.
func buildNode(ctx context.Context, c cache, debian string, d distribution) (string, error) {
	files, err := treeFiles(os.DirFS(filepath.Join(recipeDir(), "files")))
	if err != nil {
		return "", fmt.Errorf("reading the files of node images: %w", err)
	}
	for i := range files {
		files[i].data = strings.ReplaceAll(files[i].data, "@PAUSE@", d.images["pause"])
	}
	key := append(programsKey(d.programs, nodePrograms), filepath.Base(debian))
	return c.get(ctx, "node", append(key, fmt.Sprint(files)), func(_ context.Context, dir string) error {
		if err := writeTree(dir, files); err != nil {
			return err
		}
		for _, name := range nodePrograms {
			if d.programs[name] == "" {
				continue // a host without Kubernetes
			}
			if err := copyFile(d.programs[name], filepath.Join(dir, "usr/bin", name), 0o755); err != nil {
				return err
			}
		}
		return os.MkdirAll(filepath.Join(dir, "etc/kubernetes/manifests"), 0o755)
	})
}

// buildMachine makes the layer with everything that hosts have instead of the hardware of a VM and of
// guest agents.
func buildMachine(ctx context.Context, c cache, debian string) (string, error) {
	own, err := fs.Sub(nodeFiles, "files/node")
	if err != nil {
		return "", fmt.Errorf("reading the files of hosts: %w", err)
	}
	files, err := treeFiles(own)
	if err != nil {
		return "", fmt.Errorf("reading the files of hosts: %w", err)
	}
	for path, target := range nodeLinks {
		files = append(files, treeFile{path: path, link: target})
	}
	slices.SortFunc(files, func(a, b treeFile) int { return strings.Compare(a.path, b.path) })
	// Router advertisements and link-local addresses would only be waited for.
	for nic := range maxNICs {
		files = append(files, treeFile{
			path: fmt.Sprintf("etc/systemd/network/10-cloud-init-eth%d.network.d/quick.conf", nic),
			data: "[Network]\nIPv6AcceptRA=no\nLinkLocalAddressing=no\n",
			mode: 0o644,
		})
	}
	// There and empty: systemd then makes an id for every new disk.
	files = append(files, treeFile{path: "etc/machine-id", mode: 0o444})
	return c.get(ctx, "machine", []string{filepath.Base(debian), fmt.Sprint(files)}, func(_ context.Context, dir string) error {
		if err := writeTree(dir, files); err != nil {
			return err
		}
		// The replacement is found before the real program, and passes on all other
		// calls to it.
		name := "usr/bin/systemd-detect-virt"
		return copyFile(filepath.Join(debian, name), filepath.Join(dir, name+".real"), 0o755)
	})
}

// buildAgent makes the layer with the host agent, which every node image has.
func buildAgent(ctx context.Context, c cache) (string, error) {
	dir, err := os.MkdirTemp("", "nova-host-agent-")
	if err != nil {
		return "", fmt.Errorf("building the host agent: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program := filepath.Join(dir, agentProgram)
	if err := tools.Build(ctx, program, "", "./cmd/"+agentProgram); err != nil {
		return "", err
	}
	content, err := os.ReadFile(program)
	if err != nil {
		return "", fmt.Errorf("building the host agent: %w", err)
	}
	return c.get(ctx, "agent", []string{string(content)}, func(_ context.Context, layer string) error {
		return writeFile(filepath.Join(layer, "usr/local/bin", agentProgram), content, 0o755)
	})
}

// treeFile is a file of a layer, or a symbolic link.
type treeFile struct {
	path       string
	data, link string
	mode       fs.FileMode
}

// treeFiles lists the files of a tree.
func treeFiles(tree fs.FS) ([]treeFile, error) {
	var files []treeFile
	err := fs.WalkDir(tree, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		file, err := readFile(tree, path, entry)
		files = append(files, file)
		return err
	})
	return files, err
}

// writeTree writes files below dir.
func writeTree(dir string, files []treeFile) error {
	for _, file := range files {
		if err := file.write(dir); err != nil {
			return err
		}
	}
	return nil
}

// write writes the file below dir.
func (f treeFile) write(dir string) error {
	path := filepath.Join(dir, f.path)
	if f.link == "" {
		return writeFile(path, []byte(f.data), f.mode)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.Symlink(f.link, path)
}

func readFile(tree fs.FS, path string, entry fs.DirEntry) (treeFile, error) {
	if entry.Type() == fs.ModeSymlink {
		link, err := fs.ReadLink(tree, path)
		return treeFile{path: path, link: link}, err
	}
	data, err := fs.ReadFile(tree, path)
	// An embedded file has no mode.
	mode := fs.FileMode(0o644)
	if bytes.HasPrefix(data, []byte("#!")) {
		mode = 0o755
	}
	return treeFile{path: path, data: string(data), mode: mode}, err
}

// kubernetesImages returns the images that kubeadm wants, keyed by the last
// word of their name.
func kubernetesImages(ctx context.Context, kubeadm, version string) (map[string]string, error) {
	out, err := exec.CommandContext(ctx, kubeadm, "config", "images", "list", "--kubernetes-version", version).Output()
	if err != nil {
		return nil, fmt.Errorf("asking kubeadm for its images: %w", err)
	}
	images := map[string]string{"kube-vip": "ghcr.io/kube-vip/kube-vip:v0.9.1"}
	for ref := range strings.FieldsSeq(string(out)) {
		name, _, _ := strings.Cut(filepath.Base(ref), ":")
		images[name] = ref
	}
	return images, nil
}
