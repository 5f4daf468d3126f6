package bootstrap

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/coreos/ignition/v2/config/v3_3/types"
	"github.com/google/go-cmp/cmp"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

// testHash is the hash of a password.
const testHash = "$6$saltsalt$qFmFH.bQmmtXzyBY0s9v7Oicd2z4XSIecDzlB5KiA2/jctKu9YterLp8wwnSq.qc.eoxqOmSuNp2xS0ktL3nh/"

// equipped sets all fields of a NovaConfig about the machine itself.
func equipped(in *Input) {
	in.Spec.Taints = []bootstrapv1.Taint{
		{Key: "example.com/dedicated", Value: "gpu", Effect: "NoExecute"}, {Key: "slow", Effect: "PreferNoSchedule"},
	}
	in.Spec.Users = []bootstrapv1.User{
		{Name: "ops", SSHAuthorizedKeys: []string{"ssh-ed25519 AAAA it's ops", "ssh-ed25519 BBBB"}, Groups: []string{"wheel", "adm"}, Sudo: "ALL=(ALL) NOPASSWD:ALL"},
		{Name: "backup", Shell: "/bin/sh", PasswordHashSecretRef: bootstrapv1.KeyReference{Name: "passwords", Key: "backup"}},
	}
	in.PasswordHashes = map[string]string{"backup": testHash + "\n"}
	in.Spec.Partitions = []bootstrapv1.PartitionTable{{Device: "/dev/sdd", SizesMiB: []int32{1024, 0}}}
	in.Spec.Mounts = []bootstrapv1.Mount{
		{Source: "nas.example:/data", MountPath: "/mnt/data", Filesystem: "nfs4", MountOptions: []string{"ro", "vers=4.2"}},
		{Source: "tmpfs", MountPath: "/mnt/scratch", Filesystem: "tmpfs"},
	}
	in.Spec.Disks = []bootstrapv1.Disk{
		{Device: "/dev/sdb", MountPath: "/var/lib/etcd"},
		{Device: "/dev/sdc", Filesystem: "xfs", MountPath: "/var/lib/containerd", MountOptions: []string{"noatime", "nofail"}},
	}
	in.Spec.Swap = bootstrapv1.SwapSpec{SizeMiB: 1}
	in.Spec.Kernel = bootstrapv1.KernelSpec{
		Modules: []string{"ip_vs", "ip_vs_rr"},
		Sysctls: []bootstrapv1.Sysctl{{Name: "vm.nr_hugepages", Value: "64"}},
	}
	in.Spec.Containerd.Snippets = []bootstrapv1.ContainerdSnippet{{Name: "limits", Content: "version = 2\n[debug]\n  level = \"info\"\n"}}
	in.Spec.Files = []bootstrapv1.File{
		{Path: "/etc/encoded", Encoding: bootstrapv1.ContentEncodingBase64, Content: "aGVs\nbG8K\n"},
		{Path: "/etc/owned", Content: "ops'\n", Owner: "ops:adm"},
		{Path: "/etc/roots", Content: "root's\n", Owner: "root"},
		{Path: "/etc/packed", Encoding: bootstrapv1.ContentEncodingGzipBase64, Content: packed("hello\n")},
	}
}

// packed compresses content to reproducible bytes.
func packed(content string) string {
	out := &bytes.Buffer{}
	w := gzip.NewWriter(out)
	_, _ = w.Write([]byte(content))
	_ = w.Close()
	return base64.StdEncoding.EncodeToString(out.Bytes())
}

// equipment contains the programs that prepare an equipped machine. A disk is a
// file that contains the name of its file system.
var equipment = map[string]string{
	"blkid":     `for disk; do :; done; [ -s "$disk" ] || exit 2; case "$*" in *TYPE*) cat "$disk" ;; *UUID*) echo "uuid-$(cat "$disk")" ;; esac`,
	"mkfs.ext4": `echo "mkfs.ext4 $(basename "$1")" >>"$T/calls"; echo ext4 >"$1"`,
	"mkfs.xfs":  `echo "mkfs.xfs $(basename "$1")" >>"$T/calls"; echo xfs >"$1"`,
	"sfdisk": `case "$1" in
--dump) sed 's/^,.*/\/dev\/x : start= 1, size= 1/' "$2" ;;
*) for disk; do :; done; cat >"$disk"; echo "sfdisk $(basename "$disk") $(tr '\n' ' ' <"$disk")" >>"$T/calls" ;;
esac`,
	"udevadm":    `echo "udevadm $*" >>"$T/calls"`,
	"mountpoint": `exit 1`,
	"mount":      `echo "mount $1" >>"$T/calls"; mkdir -p "$T$1/lost+found"`,
	"mkswap":     `echo "mkswap" >>"$T/calls"`,
	"swapon":     `echo "swapon" >>"$T/calls"`,
	"modprobe":   `echo "modprobe $*" >>"$T/calls"`,
	"sysctl":     `echo "sysctl" >>"$T/calls"`,
	"id":         `[ "$1" = -gn ] && { echo "$2"; exit; }; [ "$1" = backup ]`,
	"useradd":    `echo "useradd $*" >>"$T/calls"`,
	"groupadd":   `echo "groupadd $*" >>"$T/calls"`,
	"chpasswd":   `echo "chpasswd $*: $(cat)" >>"$T/calls"`,
	"usermod":    `echo "usermod $*" >>"$T/calls"`,
	"getent":     `echo "$2:x:1000:1000::$T/home/$2:/bin/sh"`,
	"chown":      `echo "chown $*" >>"$T/calls"`,
	"containerd": `echo 'version = 3'`,
}

// equip boots an equipped node with the given content of its three disks.
func equip(t *testing.T, etcd, images, table, config string) (*node, error) {
	t.Helper()
	n := newNode(t, facts(JoinWorker, equipped))
	for name, body := range equipment {
		n.write("bin/"+name, "#!/bin/sh\n"+body+"\n")
		if err := os.Chmod(filepath.Join(n.dir, "bin", name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	n.write("dev/sdb", etcd)
	n.write("dev/sdc", images)
	n.write("dev/sdd", table)
	n.write("etc/fstab", "")
	if config != "" {
		n.write("etc/containerd/config.toml", config)
	}
	n.write("etc/containerd/.keep", "")
	n.write("var/lib/.keep", "")
	const script = "run/nova/preKubeadmCommands/000"
	text := n.read(script)
	for _, folder := range []string{"/dev/sd", "/etc/containerd/config", "/etc/fstab", "/etc/owned", "/var/lib/nova", "/run/nova"} {
		text = strings.ReplaceAll(text, folder, n.dir+folder)
	}
	text = strings.ReplaceAll(text, `mkdir -p "$3"`, `mkdir -p "$T$3"`)
	text = strings.ReplaceAll(text, `mkdir -p "$2"`, `mkdir -p "$T$2"`)
	text = strings.ReplaceAll(text, `rmdir "$3/`, `rmdir "$T$3/`)
	text = strings.ReplaceAll(text, `chmod 0700 "$3"`, `chmod 0700 "$T$3"`)
	n.write(script, text)
	return n, n.boot()
}

func TestNodeIsEquipped(t *testing.T) {
	n, err := equip(t, "", "xfs\n", "", "version = 3\nimports = [\"/etc/other.toml\"]\n")
	if err != nil {
		t.Fatalf("%v\n%s", err, n.read("var/log/nova-bootstrap.log"))
	}
	calls, at := n.read("calls"), -1
	for _, call := range []string{
		"sfdisk sdd ,1024MiB , \n", "mkfs.ext4 sdb", "mount /var/lib/etcd", "mount /var/lib/containerd", "mount /mnt/data", "mount /mnt/scratch", "mkswap", "swapon", "modprobe ip_vs\n", "modprobe ip_vs_rr\n", "sysctl",
		"useradd -m -s /bin/bash ops", "groupadd -f wheel", "usermod -a -G wheel ops", "usermod -a -G adm ops", "chown -R ops:ops", "chpasswd -e: backup:" + testHash, "chown -- ops:adm " + n.dir + "/etc/owned\n", "systemctl restart containerd", "kubeadm join",
	} {
		next := strings.Index(calls, call)
		if next <= at {
			t.Errorf("%s is missing or early in\n%s", call, calls)
		}
		at = next
	}
	if !strings.Contains(calls, "chown ops:ops "+n.dir+"/home/ops\n") {
		t.Error("a file in a user's home would make it root's")
	}
	for _, call := range []string{"mkfs.xfs", "useradd -m -s /bin/sh backup", "/etc/roots"} {
		if strings.Contains(calls, call) {
			t.Errorf("%s: existing data must be kept", call)
		}
	}
	for path, want := range map[string]string{
		"etc/fstab":                     "UUID=uuid-ext4 /var/lib/etcd ext4 defaults 0 2\nUUID=uuid-xfs /var/lib/containerd xfs noatime,nofail 0 2\nnas.example:/data /mnt/data nfs4 ro,vers=4.2 0 0\ntmpfs /mnt/scratch tmpfs defaults 0 0\n" + n.dir + "/var/lib/nova.swap none swap sw 0 0\n",
		"home/ops/.ssh/authorized_keys": "ssh-ed25519 AAAA it's ops\nssh-ed25519 BBBB\n",
		"etc/containerd/config.toml":    "version = 3\nimports = [\"/etc/containerd/conf.d/*.toml\", \"/etc/other.toml\"]\n",
	} {
		if got := n.read(path); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	if _, err := os.Stat(filepath.Join(n.dir, "var/lib/etcd/lost+found")); !os.IsNotExist(err) {
		t.Error("kubeadm would take etcd's folder for used")
	}
	if !strings.Contains(n.read("kubeadm.yaml"), "fail-swap-on") {
		t.Error("the kubelet would refuse to start with swap")
	}
}

// A disk with other data is not formatted.
func TestDiskWithDataIsKept(t *testing.T) {
	n, err := equip(t, "ntfs\n", "", "", "")
	if err == nil || !strings.Contains(n.read("var/log/nova-bootstrap.log"), "dev/sdb contains data that is not ext4") {
		t.Errorf("err = %v\n%s", err, n.read("var/log/nova-bootstrap.log"))
	}
	if n.read("dev/sdb") != "ntfs\n" || strings.Contains(n.read("calls"), "kubeadm") {
		t.Error("the node went on")
	}
}

// TestPartitionsAreKept sees that only an empty disk is partitioned.
func TestPartitionsAreKept(t *testing.T) {
	for name, tc := range map[string]struct{ table, problem string }{
		"Partitioned": {table: ",1024MiB\n,\n"},
		"Other":       {table: ",1024MiB\n", problem: "dev/sdd does not have a partition table with 2 partitions"},
		"Filesystem":  {table: "ext4\n", problem: "dev/sdd does not have a partition table with 2 partitions"},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := equip(t, "", "", tc.table, "")
			if log := n.read("var/log/nova-bootstrap.log"); (err == nil) != (tc.problem == "") || !strings.Contains(log, tc.problem) {
				t.Errorf("err = %v\n%s", err, log)
			}
			if n.read("dev/sdd") != tc.table || strings.Contains(n.read("calls"), "sfdisk sdd") {
				t.Error("the disk was partitioned")
			}
		})
	}
}

// cloud-init and Ignition write files before users exist; if one cannot set an
// owner, it skips all later files.
func TestFilesAreWrittenAsRoots(t *testing.T) {
	for _, format := range []bootstrapv1.Format{bootstrapv1.FormatCloudConfig, bootstrapv1.FormatIgnition} {
		in := facts(JoinWorker, func(in *Input) {
			equipped(in)
			in.Spec.Format = format
		})
		if format == bootstrapv1.FormatIgnition {
			for _, f := range validated(t, render(t, in)).Storage.Files {
				if f.User != (types.NodeUser{}) || f.Group != (types.NodeGroup{}) {
					t.Errorf("Ignition is to give %s away", f.Path)
				}
			}
			continue
		}
		for _, f := range read(t, render(t, in)).WriteFiles {
			if f.Owner != "root:root" {
				t.Errorf("cloud-init is to give %s to %s", f.Path, f.Owner)
			}
		}
	}
}

// If an owner cannot be set, the bootstrap fails; otherwise the file keeps its
// mode.
func TestFileIsOwned(t *testing.T) {
	for owner, want := range map[string]string{strconv.Itoa(os.Getuid()): "", "nova-missing:nogroup": "nova-missing"} {
		file := filepath.Join(t.TempDir(), "file")
		if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Chmod(file, 0o751|os.ModeSetuid)); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-c", string(prepareScript)+"\nset_owner "+quote(file)+" "+quote(owner)+"\necho on we go\n")
		out, err := cmd.CombinedOutput()
		if (want == "") != (err == nil) || (want == "") != strings.Contains(string(out), "on we go") || !strings.Contains(string(out), want) {
			t.Errorf("%s: err = %v, output %q", owner, err, out)
		}
		info, err := os.Stat(file)
		if err != nil || info.Mode() != 0o751|os.ModeSetuid {
			t.Errorf("%s: err = %v, the file is %s", owner, err, info.Mode())
		}
	}
}

func TestFilesBelowDisksAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		path, mount string
		refused     bool
	}{
		"Below": {"/var/lib/etcd/x/y", "/var/lib/etcd", true}, "Same": {"/var/lib/etcd", "/var/lib/etcd/", true},
		"Dots": {"/var/lib/../lib/etcd/x", "/var/lib/etcd", true}, "Beside": {"/var/lib/etcd-x", "/var/lib/etcd", false},
		"Above": {"/var/lib/x", "/var/lib/etcd", false}, "Mount": {"/mnt/nas/x", "/var/lib/etcd", true},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Render(facts(JoinWorker, func(in *Input) {
				in.Spec.Disks = []bootstrapv1.Disk{{Device: "/dev/sdc", MountPath: "/srv"}, {Device: "/dev/sdb", MountPath: tc.mount}}
				in.Spec.Mounts = []bootstrapv1.Mount{{Source: "/dev/sdb", MountPath: "/mnt/nas", Filesystem: "none"}}
				in.Spec.Files = []bootstrapv1.File{{Path: "/etc/x", Content: "x"}, {Path: tc.path, Content: "x"}}
			}))
			mount := tc.mount
			if name == "Mount" {
				mount = "/mnt/nas"
			}
			var malformed *RenderError
			if tc.refused != errors.As(err, &malformed) || !tc.refused && err != nil {
				t.Fatalf("err = %v", err)
			}
			if tc.refused && (malformed.Field != "spec.files["+tc.path+"]" || !strings.Contains(err.Error(), "/dev/sdb is mounted at "+mount)) {
				t.Errorf("err = %v", err)
			}
		})
	}
}

func TestContainerdImportsSnippets(t *testing.T) {
	const imports = "imports = [\"/etc/containerd/conf.d/*.toml\"]\n"
	for name, tc := range map[string]struct{ config, want string }{
		"Absent":  {"", imports + "version = 3\n"},
		"Lacking": {"version = 2\n[debug]\n", imports + "version = 2\n[debug]\n"},
		"Empty":   {"imports = []\n", "imports = [\"/etc/containerd/conf.d/*.toml\", ]\n"},
		"There":   {"imports = ['/etc/containerd/conf.d/*.toml']\n", "imports = ['/etc/containerd/conf.d/*.toml']\n"},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := equip(t, "", "", "", tc.config)
			if err != nil {
				t.Fatal(err)
			}
			if got := n.read("etc/containerd/config.toml"); got != tc.want {
				t.Errorf("config.toml is %q, want %q", got, tc.want)
			}
		})
	}
}

func TestMalformedEncodings(t *testing.T) {
	for name, file := range map[string]bootstrapv1.File{
		"is not base64":               {Encoding: bootstrapv1.ContentEncodingBase64, Content: "hunter2!"},
		"is not compressed with gzip": {Encoding: bootstrapv1.ContentEncodingGzipBase64, Content: "aHVudGVyMg=="},
	} {
		file.Path = "/etc/x"
		_, err := Render(facts(JoinWorker, func(in *Input) { in.Spec.Files = []bootstrapv1.File{file} }))
		if err == nil || err.Error() != "spec.files[/etc/x]: "+name {
			t.Errorf("err = %v, want %s", err, name)
		}
	}
}

// Only valid hashes of /etc/shadow are written to a node, and the error does
// not quote a rejected one.
func TestPasswordsAreHashed(t *testing.T) {
	for name, tc := range map[string]struct {
		hash  string
		taken bool
	}{
		"SHA512": {testHash, true}, "Yescrypt": {"$y$j9T$F5Jx5fExrKuPp53xLKQ..1$X3DX6M94c7o.9agCG9G317fhZg9SqC.5i5rd.RhAtQ7", true},
		"Plain": {"hunter2", false}, "Empty": {"", false}, "MD5": {"$1$etNnh7FA$OlM7eljE/B7F1J4XYNnk81", false}, "Lines": {testHash + "\nroot:" + testHash, false},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := Render(facts(JoinWorker, func(in *Input) {
				in.Spec.Users = []bootstrapv1.User{{Name: "ops", PasswordHashSecretRef: bootstrapv1.KeyReference{Name: "passwords", Key: "ops"}}}
				in.PasswordHashes = map[string]string{"ops": tc.hash}
			}))
			if tc.taken != (err == nil) {
				t.Fatalf("err = %v", err)
			}
			if err == nil {
				if got := filesOf(t, out)["/run/nova/users/ops.hash"]; got != "ops:"+tc.hash+"\n" {
					t.Errorf("chpasswd gets %q", got)
				}
				return
			}
			if !strings.HasPrefix(err.Error(), "spec.users[ops].passwordHashSecretRef: key ops of Secret passwords holds no hash") || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("err = %v", err)
			}
		})
	}
}

// withArguments runs boot_with on a machine with this kernel command line.
func withArguments(t *testing.T, dir, cmdline string) (string, error) {
	t.Helper()
	script := strings.NewReplacer("/proc/cmdline", dir+"/cmdline", "/var/lib/nova", dir+"/kept", "/etc/default/grub.d", dir+"/grub", "/run/nova", dir+"/run").
		Replace(string(prepareScript)) + "\nboot_with hugepagesz=1G quiet\necho on we go\n"
	for path, content := range map[string]string{
		"cmdline": cmdline, "prepare.sh": script, "run/settings": "x",
		"bin/update-grub": "#!/bin/sh\necho update-grub\n", "bin/systemctl": "#!/bin/sh\necho \"systemctl $*\"\n", "bin/sleep": "#!/bin/sh\necho \"sleep $*\"\nexit 9\n",
	} {
		path = filepath.Join(dir, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "sh", filepath.Join(dir, "prepare.sh"))
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestKernelIsStartedWithArguments(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "grub"), 0o700); err != nil {
		t.Fatal(err)
	}
	out, err := withArguments(t, dir, "root=/dev/sda1 quiet\n")
	if err == nil || out != "update-grub\nsystemctl enable nova-bootstrap.service\nsystemctl reboot\nsleep infinity\n" {
		t.Errorf("err = %v, output %q", err, out)
	}
	settings, err := os.ReadFile(filepath.Join(dir, "grub", "90-nova.cfg"))
	if err != nil || string(settings) != "GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX hugepagesz=1G\"\n" {
		t.Errorf("err = %v, settings %q", err, settings)
	}
	if _, err := os.Stat(filepath.Join(dir, "kept", "first-boot", "settings")); err != nil {
		t.Errorf("the next boot has nothing to go on from: %v", err)
	}
	for path, want := range map[string]bool{"run/restarting": true, "kept/first-boot/restarting": false} {
		if _, err := os.Stat(filepath.Join(dir, path)); want != (err == nil) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if out, err = withArguments(t, dir, "root=/dev/sda1 quiet hugepagesz=1G\n"); err != nil || out != "on we go\n" {
		t.Errorf("with them: err = %v, output %q", err, out)
	}
	if out, err = withArguments(t, dir, "root=/dev/sda1 quiet\n"); err == nil || !strings.Contains(out, "started without hugepagesz=1G") {
		t.Errorf("without them again: err = %v, output %q", err, out)
	}
}

// Without a supported boot loader the machine does not reboot again and again.
func TestKernelArgumentsNeedABootLoader(t *testing.T) {
	if out, err := withArguments(t, t.TempDir(), "quiet\n"); err == nil || !strings.Contains(out, "no supported boot loader") {
		t.Errorf("err = %v, output %q", err, out)
	}
}

func TestKernelArgumentsGoOnAfterTheBoot(t *testing.T) {
	arguments := func(in *Input) { in.Spec.Kernel.Arguments = []string{"hugepagesz=1G"} }
	if filesOf(t, render(t, facts(JoinWorker, arguments)))["/etc/systemd/system/nova-bootstrap.service"] != unit {
		t.Error("the bootstrap does not continue after the reboot")
	}
	config := validated(t, render(t, facts(JoinWorker, func(in *Input) {
		arguments(in)
		in.Spec.Format = bootstrapv1.FormatIgnition
	})))
	if diff := cmp.Diff([]types.KernelArgument{"hugepagesz=1G"}, config.KernelArguments.ShouldExist); diff != "" {
		t.Errorf("Ignition's arguments (-want +got):\n%s", diff)
	}
}
