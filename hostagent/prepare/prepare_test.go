package prepare_test

import (
	"bytes"
	"compress/gzip"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/agenttest"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/prepare"
)

// testHash is the hash of a password.
const testHash = "$6$saltsalt$qFmFH.bQmmtXzyBY0s9v7Oicd2z4XSIecDzlB5KiA2/jctKu9YterLp8wwnSq.qc.eoxqOmSuNp2xS0ktL3nh/"

// commands prepare a machine. A disk is a file that contains the name of its
// file system.
var commands = map[string]string{
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
	"dd":         `echo "dd" >>"$T/calls"`,
	"mkswap":     `echo "mkswap" >>"$T/calls"`,
	"swapon":     `echo "swapon" >>"$T/calls"`,
	"modprobe":   `echo "modprobe $*" >>"$T/calls"`,
	"sysctl":     `echo "sysctl" >>"$T/calls"`,
	"id":         `[ "$1" = -gn ] && { echo "$2"; exit; }; [ "$1" = backup ]`,
	"useradd":    `echo "useradd $*" >>"$T/calls"`,
	"groupadd":   `echo "groupadd $*" >>"$T/calls"`,
	"chpasswd":   `echo "chpasswd $*: $(cat)" >>"$T/calls"`,
	"usermod":    `echo "usermod $*" >>"$T/calls"`,
	"getent":     `echo "$2:x:1000:1000::/home/$2:/bin/sh"`,
	"chown":      `echo "chown $*" >>"$T/calls"`,
	"systemctl":  `[ "$1" = is-active ] && exit 3; echo "systemctl $*" >>"$T/calls"`,
	"containerd": `echo 'version = 3'`,
}

// equipped sets all settings of the machine itself.
func equipped() *nodeconfig.Machine {
	return &nodeconfig.Machine{
		Users: []nodeconfig.User{
			{Name: "ops", Shell: "/bin/bash", Keys: []string{"ssh-ed25519 AAAA it's ops", "ssh-ed25519 BBBB"}, Groups: []string{"wheel", "adm"}},
			{Name: "backup", Shell: "/bin/sh", PasswordHash: testHash},
		},
		Partitions: []nodeconfig.PartitionTable{{Device: "/dev/sdd", SizesMiB: []int{1024, 0}}},
		Mounts: []nodeconfig.Mount{
			{Source: "nas.example:/data", Path: "/mnt/data", Filesystem: "nfs4", Options: "ro,vers=4.2"},
			{Source: "tmpfs", Path: "/mnt/scratch", Filesystem: "tmpfs", Options: "defaults"},
		},
		Disks: []nodeconfig.Mount{
			{Source: "/dev/sdb", Path: "/var/lib/etcd", Filesystem: "ext4", Options: "defaults"},
			{Source: "/dev/sdc", Path: "/var/lib/containerd", Filesystem: "xfs", Options: "noatime,nofail"},
		},
		SwapMiB:       1,
		KernelModules: []string{"ip_vs", "ip_vs_rr"},
		Sysctls:       []nodeconfig.Setting{{Name: "vm.nr_hugepages", Value: "64"}},
		Snippets:      true,
		Files: []nodeconfig.File{
			{Path: "/etc/containerd/conf.d/nova-limits.toml", Mode: "0600", Text: "version = 2\n"},
			{Path: "/etc/owned", Mode: "0640", Text: "ops'\n", Owner: "ops:adm"},
			{Path: "/etc/roots", Mode: "0640", Text: "root's\n"},
			{Path: "/var/lib/etcd-notes/below", Mode: "0600", Text: "written\n"},
		},
	}
}

// equip applies the settings to a machine with the given content of its disks.
func equip(t *testing.T, etcd, images, table, config string) (*agenttest.Machine, error) {
	t.Helper()
	n := agenttest.New(t, commands)
	n.Put("dev/sdb", etcd)
	n.Put("dev/sdc", images)
	n.Put("dev/sdd", table)
	n.Put("etc/fstab", "")
	if config != "" {
		n.Put("etc/containerd/config.toml", config)
	}
	return n, prepare.Apply(t.Context(), n.Machine, equipped())
}

func TestMachineIsEquipped(t *testing.T) {
	n, err := equip(t, "", "xfs\n", "", "version = 3\nimports = [\"/etc/other.toml\"]\n")
	if err != nil {
		t.Fatalf("%v\n%s", err, n.Log)
	}
	calls, at := n.Get("calls"), -1
	for _, call := range []string{
		"sfdisk sdd ,1024MiB , \n", "mkfs.ext4 sdb", "mount /var/lib/etcd", "mount /var/lib/containerd", "mount /mnt/data", "mount /mnt/scratch", "mkswap", "swapon", "modprobe ip_vs\n", "modprobe ip_vs_rr\n", "sysctl",
		"useradd -m -s /bin/bash ops", "groupadd -f wheel", "usermod -a -G wheel ops", "usermod -a -G adm ops", "chown -R ops:ops", "chpasswd -e: backup:" + testHash, "chown -- ops:adm " + n.Dir("etc/owned") + "\n", "systemctl restart containerd",
	} {
		next := strings.Index(calls, call)
		if next <= at {
			t.Errorf("%s is missing or early in\n%s", call, calls)
		}
		at = next
	}
	if !strings.Contains(calls, "chown ops:ops "+n.Dir("home/ops")+"\n") {
		t.Error("a file in a user's home would make it root's")
	}
	for _, call := range []string{"mkfs.xfs", "useradd -m -s /bin/sh backup", "/etc/roots"} {
		if strings.Contains(calls, call) {
			t.Errorf("%s: existing data must be kept", call)
		}
	}
	for path, want := range map[string]string{
		"etc/fstab":                       "UUID=uuid-ext4 /var/lib/etcd ext4 defaults 0 2\nUUID=uuid-xfs /var/lib/containerd xfs noatime,nofail 0 2\nnas.example:/data /mnt/data nfs4 ro,vers=4.2 0 0\ntmpfs /mnt/scratch tmpfs defaults 0 0\n/var/lib/nova.swap none swap sw 0 0\n",
		"home/ops/.ssh/authorized_keys":   "ssh-ed25519 AAAA it's ops\nssh-ed25519 BBBB\n",
		"etc/containerd/config.toml":      "version = 3\nimports = [\"/etc/containerd/conf.d/*.toml\", \"/etc/other.toml\"]\n",
		"etc/modules-load.d/90-nova.conf": "ip_vs\nip_vs_rr\n",
		"etc/sysctl.d/90-nova.conf":       "vm.nr_hugepages = 64\n",
	} {
		if got := n.Get(path); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	if n.There("var/lib/etcd/lost+found") {
		t.Error("kubeadm would take etcd's folder for used")
	}
	before := n.Get("etc/fstab") + n.Get("home/ops/.ssh/authorized_keys") + n.Get("etc/containerd/config.toml")
	n.Put("calls", "")
	if err := prepare.Apply(t.Context(), n.Machine, equipped()); err != nil {
		t.Fatalf("once more: %v\n%s", err, n.Log)
	}
	if after := n.Get("etc/fstab") + n.Get("home/ops/.ssh/authorized_keys") + n.Get("etc/containerd/config.toml"); after != before {
		t.Errorf("a repetition changes files:\n%s", after)
	}
	if calls := n.Get("calls"); strings.Contains(calls, "mkfs") || strings.Contains(calls, "sfdisk") || strings.Contains(calls, "mkswap") {
		t.Errorf("a repetition formats again:\n%s", calls)
	}
}

// A disk with other data is not formatted.
func TestDiskWithDataIsKept(t *testing.T) {
	n, err := equip(t, "ntfs\n", "", "", "")
	if err == nil || !strings.Contains(err.Error(), "/dev/sdb contains data that is not ext4") {
		t.Errorf("err = %v\n%s", err, n.Log)
	}
	if n.Get("dev/sdb") != "ntfs\n" || strings.Contains(n.Get("calls"), "mkfs.ext4") {
		t.Error("the disk was formatted")
	}
}

// TestDiskThatCannotBeReadIsKept sees that a disk is formatted only if blkid
// found nothing on it.
func TestDiskThatCannotBeReadIsKept(t *testing.T) {
	n := agenttest.New(t, commands)
	n.Put("dev/sdb", "")
	n.Command("blkid", "exit 8")
	err := prepare.Apply(t.Context(), n.Machine, &nodeconfig.Machine{Disks: equipped().Disks[:1]})
	if err == nil || strings.Contains(n.Get("calls"), "mkfs") {
		t.Errorf("err = %v, calls %s", err, n.Get("calls"))
	}
}

// TestPartitionsAreKept sees that only an empty disk is partitioned.
func TestPartitionsAreKept(t *testing.T) {
	for name, tc := range map[string]struct{ table, problem string }{
		"Partitioned": {table: ",1024MiB\n,\n"},
		"Other":       {table: ",1024MiB\n", problem: "/dev/sdd does not have a partition table with 2 partitions"},
		"Filesystem":  {table: "ext4\n", problem: "/dev/sdd does not have a partition table with 2 partitions"},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := equip(t, "", "", tc.table, "")
			if (err == nil) != (tc.problem == "") || err != nil && !strings.Contains(err.Error(), tc.problem) {
				t.Errorf("err = %v\n%s", err, n.Log)
			}
			if n.Get("dev/sdd") != tc.table || strings.Contains(n.Get("calls"), "sfdisk sdd") {
				t.Error("the disk was partitioned")
			}
		})
	}
}

// If an owner cannot be set, the first boot fails; otherwise the file keeps its
// mode.
func TestFileIsOwned(t *testing.T) {
	for owner, want := range map[string]string{strconv.Itoa(os.Getuid()): "", "nova-missing:nogroup": "setting owner of /etc/file to nova-missing:nogroup"} {
		n := agenttest.New(t, nil)
		err := prepare.Apply(t.Context(), n.Machine, &nodeconfig.Machine{Files: []nodeconfig.File{{Path: "/etc/file", Mode: "4751", Owner: owner}}})
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: err = %v", owner, err)
		}
		info, err := os.Stat(n.Dir("etc/file"))
		if err != nil || info.Mode() != 0o751|os.ModeSetuid {
			t.Errorf("%s: err = %v, the file is %s", owner, err, info.Mode())
		}
	}
}

func TestFilesAreWritten(t *testing.T) {
	packed := &bytes.Buffer{}
	w := gzip.NewWriter(packed)
	_, _ = w.Write([]byte("hello\n"))
	_ = w.Close()
	n := agenttest.New(t, nil)
	n.Put("etc/hosts", "127.0.0.1 localhost\n")
	settings := &nodeconfig.Machine{Files: []nodeconfig.File{
		{Path: "/etc/twice", Mode: "0644", Text: "first\n"},
		{Path: "/etc/twice", Mode: "0600", Text: "second\n"},
		{Path: "/etc/binary", Mode: "0600", Data: []byte{0, 1, 0xff}},
		{Path: "/etc/packed", Mode: "0600", Data: packed.Bytes(), Gzip: true},
		{Path: "/etc/hosts", Mode: "0644", Append: true, Text: "10.0.0.1 api\n"},
	}}
	for range 2 {
		if err := prepare.Apply(t.Context(), n.Machine, settings); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		"etc/twice": "second\n", "etc/binary": "\x00\x01\xff", "etc/packed": "hello\n", "etc/hosts": "127.0.0.1 localhost\n10.0.0.1 api\n",
	} {
		if got := n.Get(path); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	if info, err := os.Stat(n.Dir("etc/twice")); err != nil || info.Mode() != 0o600 {
		t.Errorf("the later file's mode: %v, %v", info, err)
	}
	for name, f := range map[string]nodeconfig.File{"Mode": {Path: "/etc/x", Mode: "rw"}, "Gzip": {Path: "/etc/x", Mode: "0600", Data: []byte("x"), Gzip: true}} {
		err := prepare.Apply(t.Context(), n.Machine, &nodeconfig.Machine{Files: []nodeconfig.File{f}})
		if err == nil || !strings.Contains(err.Error(), "/etc/x") {
			t.Errorf("%s: err = %v", name, err)
		}
	}
}

// The service that resolves names on a machine is configured with the name
// servers.
func TestResolversAreConfigured(t *testing.T) {
	for name, tc := range map[string]struct {
		active string
		search []string
		file   string
		want   string
		call   string
	}{
		"Resolved": {
			"systemd-resolved", []string{"corp", "blue.corp"}, "etc/systemd/resolved.conf.d/90-nova.conf",
			"[Resolve]\nDNS=10.0.0.53 fd00::53\nDomains=~. corp blue.corp\n", "systemctl restart systemd-resolved\n",
		},
		"ResolvedWithoutDomains": {
			"systemd-resolved", nil, "etc/systemd/resolved.conf.d/90-nova.conf",
			"[Resolve]\nDNS=10.0.0.53 fd00::53\nDomains=~.\n", "systemctl restart systemd-resolved\n",
		},
		"NetworkManager": {
			"NetworkManager", []string{"corp", "blue.corp"}, "etc/NetworkManager/conf.d/90-nova.conf",
			"[global-dns]\nsearches=corp,blue.corp\n[global-dns-domain-*]\nservers=10.0.0.53,fd00::53\n", "systemctl reload NetworkManager\n",
		},
		"Nobody": {"nobody", []string{"corp", "blue.corp"}, "etc/resolv.conf", "nameserver 10.0.0.53\nnameserver fd00::53\nsearch corp blue.corp\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := agenttest.New(t, map[string]string{
				"systemctl": `if [ "$1" = is-active ]; then [ "$3" = ` + tc.active + ` ]; else echo "systemctl $*" >>"$T/calls"; fi`,
			})
			n.Put("run/stub", "nameserver 127.0.0.53\n")
			n.Put("etc/.keep", "")
			if err := os.Symlink("../run/stub", n.Dir("etc/resolv.conf")); err != nil {
				t.Fatal(err)
			}
			err := prepare.Apply(t.Context(), n.Machine, &nodeconfig.Machine{NameServers: []string{"10.0.0.53", "fd00::53"}, SearchDomains: tc.search})
			if calls := n.Get("calls"); err != nil || calls != tc.call {
				t.Fatalf("err = %v, calls %q, want %q", err, calls, tc.call)
			}
			if got := n.Get(tc.file); got != tc.want {
				t.Errorf("%s is %q, want %q", tc.file, got, tc.want)
			}
			if got := n.Get("run/stub"); got != "nameserver 127.0.0.53\n" {
				t.Errorf("the file of another service is %q", got)
			}
		})
	}
}

func TestTimeServersAreConfigured(t *testing.T) {
	for name, tc := range map[string]struct{ chrony, file, before, want, call string }{
		"Chrony":  {"exit 0", "etc/chrony/chrony.conf", "pool pool.ntp.org iburst\nsourcedir /run\nmakestep 1 3\n", "makestep 1 3\nserver a iburst\nserver b iburst\n", "systemctl restart chronyd\n"},
		"RedHat":  {"exit 0", "etc/chrony.conf", "server x\nkeep", "keep\nserver a iburst\nserver b iburst\n", "systemctl restart chronyd\n"},
		"Systemd": {"", "etc/systemd/timesyncd.conf.d/90-nova.conf", "", "[Time]\nNTP=a b\n", "systemctl restart systemd-timesyncd\n"},
	} {
		t.Run(name, func(t *testing.T) {
			n := agenttest.New(t, map[string]string{"systemctl": `echo "systemctl $*" >>"$T/calls"`})
			if tc.chrony != "" {
				n.Command("chronyd", tc.chrony)
				n.Put(tc.file, tc.before)
			}
			if err := prepare.Apply(t.Context(), n.Machine, &nodeconfig.Machine{TimeServers: []string{"a", "b"}}); err != nil {
				t.Fatal(err)
			}
			if got := n.Get(tc.file); got != tc.want || n.Get("calls") != tc.call {
				t.Errorf("%s is %q, want %q; calls %q", tc.file, got, tc.want, n.Get("calls"))
			}
		})
	}
}

// containerd reads the mirrors, and the rest of its configuration is unchanged.
func TestContainerdLooksForMirrors(t *testing.T) {
	const path = `  config_path = "/etc/containerd/certs.d"` + "\n"
	const old, current = `[plugins."io.containerd.grpc.v1.cri".registry]` + "\n", `[plugins."io.containerd.cri.v1.images".registry]` + "\n"
	for name, tc := range map[string]struct{ version, config, want string }{
		"Absent":            {"2", "", "version = 2\n\n" + old + path},
		"AbsentContainerd2": {"3", "", "version = 3\n\n" + current + path},
		"AbsentLater":       {"4", "", "version = 4\n\n" + current + path},
		"Version3":          {"3", "version = 3\n", "version = 3\n\n" + current + path},
		"Version4":          {"4", "version = 4\n", "version = 4\n\n" + current + path},
		"Empty": {
			"2", "version = 2\n" + old + "  config_path = \"\"\n[plugins.x]\n  config_path = \"mine\"\n",
			"version = 2\n" + old + path + "[plugins.x]\n  config_path = \"mine\"\n",
		},
		"Lacking": {
			"3", "version = 3\n  [plugins.'io.containerd.cri.v1.images'.registry]\n    [plugins.y]\n",
			"version = 3\n  [plugins.'io.containerd.cri.v1.images'.registry]\n" + path + "    [plugins.y]\n",
		},
		"ColonList": {
			"3", "version = 3\n" + current + "  config_path = '/etc/containerd/certs.d:/etc/docker/certs.d'\n",
			"version = 3\n" + current + path,
		},
		"OfAnotherPlugin": {
			"3", "version = 3\n" + current + "[plugins.'io.containerd.transfer.v1.local']\n" + path,
			"version = 3\n" + current + path + "[plugins.'io.containerd.transfer.v1.local']\n" + path,
		},
		"There":     {"2", "version = 2\n" + old + path, "version = 2\n" + old + path},
		"Commented": {"2", "version = 2\n\t[a.registry] # ours\n\tconfig_path = \"/etc/docker\"\n", "version = 2\n\t[a.registry] # ours\n" + path},
	} {
		t.Run(name, func(t *testing.T) {
			n := agenttest.New(t, map[string]string{
				"containerd": `case "$*" in *default) printf 'disabled_plugins = []\nversion = ` + tc.version + `\n' ;; *dump) cat "$2" ;; esac`,
				"systemctl":  `echo "systemctl $*" >>"$T/calls"`,
			})
			if tc.config != "" {
				n.Put("etc/containerd/config.toml", tc.config)
			}
			if err := prepare.Apply(t.Context(), n.Machine, &nodeconfig.Machine{Mirrors: true}); err != nil {
				t.Fatal(err)
			}
			if got := n.Get("etc/containerd/config.toml"); got != tc.want || n.Get("calls") != "systemctl restart containerd\n" {
				t.Errorf("config.toml is\n%s\nwant\n%s\ncalls %q", got, tc.want, n.Get("calls"))
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
			if got := n.Get("etc/containerd/config.toml"); got != tc.want {
				t.Errorf("config.toml is %q, want %q", got, tc.want)
			}
		})
	}
}

// A node whose containerd would not use the mirrors does not join: it would run
// images of other registries without an error.
func TestMirrorsAreKept(t *testing.T) {
	const kept = "[plugins.\"io.containerd.cri.v1.images\".registry]\n  config_path = '/etc/containerd/certs.d'\n"
	const colons = "[plugins.\"io.containerd.cri.v1.images\".registry]\n  config_path = '/etc/containerd/certs.d:/etc/docker/certs.d'\n"
	for name, tc := range map[string]struct {
		dump, migrated string
		kept           bool
	}{
		"Kept":      {kept, "", true},
		"Migrated":  {"[plugins.\"io.containerd.cri.v1.images\".registry]\n  config_path = ''\n", kept, true},
		"ColonList": {colons, colons, false},
		"Elsewhere": {colons + "[plugins.'io.containerd.transfer.v1.local']\n  config_path = '/etc/containerd/certs.d'\n", "", false},
		"Nothing":   {"", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			n := agenttest.New(t, map[string]string{
				"containerd": `case "$*" in *default) echo 'version = 3' ;; *) cat "$T/$4" ;; esac`,
				"systemctl":  `echo "systemctl $*" >>"$T/calls"`,
			})
			n.Put("dump", tc.dump)
			n.Put("migrate", tc.migrated)
			err := prepare.Apply(t.Context(), n.Machine, &nodeconfig.Machine{Mirrors: true, Snippets: true})
			if tc.kept != (err == nil) || err != nil && !strings.Contains(err.Error(), "removes the mirrors") {
				t.Errorf("err = %v\n%s", err, n.Log)
			}
			if tc.kept != (n.Get("calls") == "systemctl restart containerd\n") {
				t.Errorf("containerd is called so:\n%s", n.Get("calls"))
			}
		})
	}
}

// CA certificates go to the folder for administrators, or to the store itself
// where /usr is read-only.
func TestCAsAreTrusted(t *testing.T) {
	for name, tc := range map[string]struct {
		folder, command, script string
		want, call              string
	}{
		"Debian":  {"usr/local/share", "update-ca-certificates", `echo "update $*" >>"$T/calls"`, "usr/local/share/ca-certificates/nova-proxy-00.crt", "update \n"},
		"RedHat":  {"etc/pki/ca-trust/source", "update-ca-trust", `echo "trust $*" >>"$T/calls"`, "etc/pki/ca-trust/source/anchors/nova-proxy-00.crt", "trust \n"},
		"Flatcar": {"etc/ssl/certs", "update-ca-certificates", `echo "update $*" >>"$T/calls"`, "etc/ssl/certs/nova-proxy-00.pem", "update \n"},
	} {
		t.Run(name, func(t *testing.T) {
			n := agenttest.New(t, map[string]string{tc.command: tc.script, "systemctl": ":"})
			n.Put(tc.folder+"/.keep", "")
			n.Put("etc/nova/ca/nova-proxy-00.crt", "certificate\n")
			if err := prepare.Apply(t.Context(), n.Machine, &nodeconfig.Machine{TrustCAs: true}); err != nil {
				t.Fatal(err)
			}
			if n.Get(tc.want) != "certificate\n" || n.Get("calls") != tc.call {
				t.Errorf("%s is %q, calls %q", tc.want, n.Get(tc.want), n.Get("calls"))
			}
		})
	}
	n := agenttest.New(t, nil)
	n.Put("etc/nova/ca/nova-proxy-00.crt", "certificate\n")
	n.Put("bin/.keep", "")
	if err := prepare.Apply(t.Context(), n.Machine, &nodeconfig.Machine{TrustCAs: true}); err == nil || !strings.Contains(err.Error(), "trust store") {
		t.Errorf("without a store: %v", err)
	}
}

// A file keeps the permissions that protect its content, and a link keeps its
// target.
func TestFilesKeepTheirPlace(t *testing.T) {
	n := agenttest.New(t, commands)
	n.Put("etc/containerd/config.toml", "version = 3\n")
	n.Put("usr/share/real", "old\n")
	n.Put("etc/.keep", "")
	if err := os.Symlink("../usr/share/real", n.Dir("etc/link")); err != nil {
		t.Fatal(err)
	}
	err := prepare.Apply(t.Context(), n.Machine, &nodeconfig.Machine{Snippets: true, Files: []nodeconfig.File{{Path: "/etc/link", Mode: "0644", Text: "new\n"}}})
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(n.Dir("etc/containerd/config.toml")); err != nil || info.Mode() != 0o600 {
		t.Errorf("containerd's configuration may contain credentials, and is %v: %v", info.Mode(), err)
	}
	if target, err := os.Readlink(n.Dir("etc/link")); err != nil || target != "../usr/share/real" || n.Get("usr/share/real") != "new\n" {
		t.Errorf("the link leads to %q with %q: %v", target, n.Get("usr/share/real"), err)
	}
}

// A swap file that was not finished is recreated.
func TestSwapIsFinished(t *testing.T) {
	n := agenttest.New(t, commands)
	n.Put("var/lib/nova.swap", "half")
	for range 2 {
		if err := prepare.Apply(t.Context(), n.Machine, &nodeconfig.Machine{SwapMiB: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if calls := n.Get("calls"); calls != "dd\nmkswap\nswapon\n" || n.Get("etc/fstab") != "/var/lib/nova.swap none swap sw 0 0\n" {
		t.Errorf("calls %q, fstab %q", calls, n.Get("etc/fstab"))
	}
}
