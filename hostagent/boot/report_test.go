package boot_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/boot"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

const (
	// systemRelease is the os-release of a system.
	systemRelease = "NAME=\"Debian GNU/Linux\"\nVERSION_ID=\"12\"\n"
	// rpctool records the reports to VMware.
	rpctool = `printf '%s\n' "$*" >>"$T/reports"`
)

// reported boots a machine whose commands may fail, and returns the reports to
// its hypervisor.
func reported(t *testing.T, vendor string, commands ...string) (*node, []string) {
	t.Helper()
	n := newNode(t, func(c *nodeconfig.Config) { c.Join.Before = commands })
	n.Hardware(vendor, "4237a1b2-c3d4-e5f6-0102-030405060701", "None")
	n.Command("vmware-rpctool", rpctool)
	n.Put("usr/lib/os-release", systemRelease)
	if err := os.Symlink("../usr/lib/os-release", n.Dir("etc/os-release")); err != nil {
		t.Fatal(err)
	}
	err := n.boot()
	if fails := len(commands) > 0; (err != nil) != fails {
		t.Fatalf("ended with %v\n%s", err, n.log())
	}
	return n, strings.Split(strings.TrimSuffix(n.Get("reports"), "\n"), "\n")
}

func TestReportToVMware(t *testing.T) {
	_, lines := reported(t, "VMware, Inc.", "echo fine", "echo opening the door; echo the door is locked >&2; exit 3")
	want := []string{
		"info-set guestinfo.nova.report nova: running: Setting up the system",
		"info-set guestinfo.nova.report nova: running: preKubeadmCommands 0000",
		"info-set guestinfo.nova.report nova: running: preKubeadmCommands 0001",
		"info-set guestinfo.nova.report nova: failed: preKubeadmCommands 0001 failed with status 3 || ",
	}
	if len(lines) != len(want) {
		t.Fatalf("reported %q", lines)
	}
	for i := range want {
		if !strings.HasPrefix(lines[i], want[i]) {
			t.Errorf("reported %q, want %q", lines[i], want[i])
		}
	}
	if !strings.HasSuffix(lines[3], "Running preKubeadmCommands 0001 | opening the door | the door is locked") {
		t.Errorf("the log does not end as it should: %q", lines[3])
	}
}

func TestReportIsTakenBackByANode(t *testing.T) {
	_, lines := reported(t, "VMware, Inc.")
	if last := lines[len(lines)-1]; last != "info-set guestinfo.nova.report " {
		t.Errorf("reported last %q", last)
	}
	n, _ := reported(t, "oVirt")
	if got := n.Get("etc/os-release"); got != systemRelease {
		t.Errorf("the system calls itself\n%s", got)
	}
	if link, err := os.Readlink(n.Dir("etc/os-release")); link != "../usr/lib/os-release" {
		t.Errorf("the link points to %q: %v", link, err)
	}
}

// The guest clears its bootstrap data before kubeadm runs: a change by the
// guest creates no event in vCenter.
func TestBootstrapDataIsCleared(t *testing.T) {
	n := newNode(t, nil)
	n.Command("vmware-rpctool", `case $1 in
"info-get guestinfo.userdata") echo c2VjcmV0 ;;
info-get*) echo "No value found" >&2; exit 1 ;;
*guestinfo.userdata*) printf '%s.\n' "$*" >>"$T/reports" ;;
esac`)
	n.Command("kubeadm", `echo kubeadm >>"$T/reports"`+"\n"+commands["kubeadm"])
	if err := n.boot(); err != nil {
		t.Fatalf("%v\n%s", err, n.log())
	}
	if got, want := n.Get("reports"), "info-set guestinfo.userdata ---.\ninfo-set guestinfo.userdata.encoding .\nkubeadm\n"; !strings.HasPrefix(got, want) {
		t.Errorf("reported %q, want %q", got, want)
	}
}

func TestReportToOVirt(t *testing.T) {
	n, _ := reported(t, "oVirt", "echo 'the \"door\" is `locked` for $1'; i=0; while [ $i -lt 50 ]; do echo line $i; i=$((i+1)); done; printf '%s\\n' 'cd \\etc'; exit 3")
	release := n.Get("etc/os-release")
	if got := n.Get("usr/lib/os-release"); got != systemRelease {
		t.Errorf("the system's own file became\n%s", got)
	}
	name, variant, found := strings.Cut(release, "VARIANT=\"")
	if !found || !strings.Contains(name, "VERSION_ID=\"12\"\n") {
		t.Fatalf("the system calls itself\n%s", release)
	}
	variant = strings.TrimSuffix(variant, "\"\n")
	if !strings.HasPrefix(variant, "nova: failed: preKubeadmCommands 0000 failed with status 3 || ") || !strings.HasSuffix(variant, "line 49 | cd /etc") {
		t.Errorf("reported %q", variant)
	}
	// The engine's database column has 255 characters.
	if len(variant) > 230 || strings.ContainsAny(variant, "\"`$\\") {
		t.Errorf("reported %d characters: %q", len(variant), variant)
	}
}

func TestReportOfANodeThatIsUnfinished(t *testing.T) {
	n := newNode(t, func(c *nodeconfig.Config) { c.Join.After = []string{"echo no licence; exit 4"} })
	n.Command("vmware-rpctool", rpctool)
	if n.boot() == nil {
		t.Fatal("a failed command is not detected")
	}
	if got := n.Get("reports"); !strings.Contains(got, "nova: unfinished: postKubeadmCommands 0000 failed with status 4 || ") || strings.Contains(got, "nova: failed") {
		t.Errorf("reported %q", got)
	}
}

func TestReportHidesCredentials(t *testing.T) {
	secrets := []string{"0123456789abcdef", "hunter22", "pa55", "MHcCAQEE", "abcdefgh12345", "eyJzdWIi", "QUJDQUJD"}
	_, lines := reported(t, "VMware, Inc.", `cat <<'END'
kubeadm join --token abcdef.0123456789abcdef
password: "hunter22 and"
http://me:pa55@proxy:3128 refused
-----BEGIN EC PRIVATE KEY-----
MHcCAQEE
-----END EC PRIVATE KEY-----
Authorization: Bearer abcdefgh12345
eyJhbGciOi.eyJzdWIi.sig
`+strings.Repeat("QUJD", 20)+`
the end
END
exit 1`)
	last := lines[len(lines)-1]
	for _, secret := range secrets {
		if strings.Contains(last, secret) {
			t.Errorf("%q is reported: %s", secret, last)
		}
	}
	if !strings.HasSuffix(last, "| the end") || !strings.Contains(last, "proxy:3128 refused") {
		t.Errorf("reported %q", last)
	}
}

// resetNode is a machine that was reset during its first boot and has restarted:
// files in memory are deleted. A reset ends the agent without a word, so its
// files are those of a boot that is killed: the test keeps the files on the disk
// at that moment.
func resetNode(t *testing.T, change func(*nodeconfig.Config), during string) *node {
	t.Helper()
	const save = `rm -rf "$T/saved"; mkdir "$T/saved"; cp -a "$T/var/lib/nova" "$T/saved/nova"; cp -a "$T/etc/systemd/system" "$T/saved/system"`
	n := newNode(t, func(c *nodeconfig.Config) {
		if change != nil {
			change(c)
		}
		if during == "postKubeadmCommands" {
			c.Join.After = []string{save + "; exit 1"}
		}
	})
	if during == "kubeadm" {
		n.Command("kubeadm", `[ "$1" = token ] || { `+save+`; exit 1; }`+"\n"+commands["kubeadm"])
	}
	n.Command("vmware-rpctool", rpctool)
	if n.boot() == nil {
		t.Fatal("nothing cut it off")
	}
	err := errors.Join(os.RemoveAll(n.Dir("run")), os.RemoveAll(n.Dir("var/lib/nova")), os.RemoveAll(n.Dir("etc/systemd/system")),
		os.Rename(n.Dir("saved/nova"), n.Dir("var/lib/nova")), os.Rename(n.Dir("saved/system"), n.Dir("etc/systemd/system")))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(n.Get("units"), "enable nova-restarted.service") || !strings.Contains(n.Get("etc/systemd/system/nova-restarted.service"), " report-reset\n") {
		t.Error("nothing runs on the next boot")
	}
	n.Put("reports", "")
	n.Put("calls", "")
	return n
}

func TestResetIsReported(t *testing.T) {
	const (
		failed     = "nova: failed: The machine was restarted before it became a node || "
		unfinished = "nova: unfinished: The machine was restarted before its first boot was complete || "
		marker     = "var/lib/nova/booting/stage"
	)
	for name, tc := range map[string]struct {
		reason string
		change func(*nodeconfig.Config)
		during string
		// there lists the files, and enabled the units, after the restart.
		there   []string
		enabled string
		want    string
		// waits is true if another unit continues the first boot.
		waits bool
	}{
		"Worker":     {reason: "nothing continues the first boot", during: "kubeadm", enabled: "kubelet", want: failed},
		"WorkerNode": {reason: "its kubelet continues", during: "kubeadm", there: []string{"etc/kubernetes/kubelet.conf"}, enabled: "kubelet", want: unfinished},
		"WorkerWithoutKubelet": {
			reason: "its kubelet would go on, and is not started", during: "kubeadm",
			there: []string{"etc/kubernetes/kubelet.conf"}, want: failed,
		},
		"ControlPlane": {
			reason: "a control plane takes more than a kubelet", change: joinsControlPlane, during: "kubeadm",
			there: []string{"etc/kubernetes/kubelet.conf"}, enabled: "kubelet", want: failed,
		},
		"Init": {
			reason: "kubeadm init writes kubelet.conf long before its end", change: initializes, during: "kubeadm",
			there: []string{"etc/kubernetes/kubelet.conf"}, enabled: "kubelet", want: failed,
		},
		"Member": {reason: "a machine after kubeadm is not reported as failed", change: joinsControlPlane, during: "postKubeadmCommands", want: unfinished},
		"Kernel": {
			reason: "the agent rebooted the machine", during: "kubeadm",
			there: []string{"var/lib/nova/first-boot/config.json"}, enabled: "nova-bootstrap", waits: true,
		},
		"KernelTooEarly": {
			reason: "it was to be, and came to it too early", during: "kubeadm",
			there: []string{"var/lib/nova/first-boot/config.json"}, want: failed,
		},
		"CloudInit": {
			reason: "cloud-init takes each boot for the first", during: "kubeadm",
			there: []string{"run/nova/config.json"}, waits: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := resetNode(t, tc.change, tc.during)
			n.Put("etc/kubernetes/bootstrap-kubelet.conf", "")
			for _, path := range tc.there {
				n.Put(path, "")
			}
			n.Put("enabled", tc.enabled+"\n")
			if err := boot.ReportReset(t.Context(), n.Machine.Machine); err != nil {
				t.Fatal(err)
			}
			text := strings.TrimPrefix(n.Get("reports"), "info-set guestinfo.nova.report ")
			if tc.waits != (text == "") || !strings.HasPrefix(text, tc.want) {
				t.Errorf("%s: reported %q, want %q", tc.reason, text, tc.want)
			}
			if !tc.waits && !strings.Contains(text, "kubeadm") {
				t.Errorf("the log is not reported: %q", text)
			}
			ended := strings.Contains(n.Get("calls"), "disable --now kubelet.service") && !n.There("etc/kubernetes/bootstrap-kubelet.conf")
			if joins := n.There("etc/kubernetes/kubelet.conf") || tc.want != failed; ended == joins {
				t.Errorf("%s: the kubelet runs = %v", tc.reason, !ended)
			}
			if n.There(marker) != tc.waits || n.There("etc/systemd/system/nova-restarted.service") != tc.waits {
				t.Errorf("%s: expects another start = %v", tc.reason, !tc.waits)
			}
			if n.There("var/lib/nova/first-boot") && !tc.waits {
				t.Error("unused credentials stay on the disk")
			}
		})
	}
}

// The files that survive a reset contain no secrets.
func TestResetFindsNoCredentials(t *testing.T) {
	n := resetNode(t, joinsControlPlane, "kubeadm")
	entries, err := os.ReadDir(n.Dir("var/lib/nova/booting"))
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 || n.Get("var/lib/nova/booting/stage") != "failed\n" || n.There("var/lib/nova/first-boot") {
		t.Errorf("left on the disk: %v", entries)
	}
}

// A first boot that ended has reported its result already.
func TestResetIsNotExpectedAfterTheEnd(t *testing.T) {
	for name, commands := range map[string][]string{"Node": nil, "Failure": {"exit 3"}} {
		t.Run(name, func(t *testing.T) {
			n, _ := reported(t, "VMware, Inc.", commands...)
			if n.There("var/lib/nova/booting") || n.There("etc/systemd/system/nova-restarted.service") {
				t.Error("the next start would be reported as a failure")
			}
			if units := n.Get("units"); units != "--quiet enable nova-restarted.service\n--quiet disable nova-restarted.service\n" {
				t.Errorf("systemctl %s", units)
			}
		})
	}
}

// The kernel arguments need a reboot, after which the first boot continues.
func TestNodeRebootsForKernelArguments(t *testing.T) {
	n := newNode(t, func(c *nodeconfig.Config) { c.Machine.KernelArguments = []string{"hugepagesz=1G", "quiet"} })
	n.Put("etc/default/grub.d/.keep", "")
	n.Put("proc/cmdline", "root=/dev/sda1 quiet\n")
	n.Command("update-grub", `echo update-grub >>"$T/calls"`)
	n.Command("vmware-rpctool", rpctool)
	// The reboot ends the agent: the files of that moment are kept.
	n.Command("systemctl", `case "$*" in reboot) cp -a "$T/var/lib/nova" "$T/saved"; cp "$T/reports" "$T/reports.then" ;; esac`+"\n"+commands["systemctl"])
	if err := n.boot(); err == nil || !strings.Contains(err.Error(), "the system did not reboot within 10m0s") {
		t.Fatal(err)
	}
	if n.There("var/lib/nova/first-boot") || !strings.Contains(n.Get("reports"), "nova: failed: the system did not reboot") {
		t.Error("a system that does not reboot keeps the credentials on its disk, or reports nothing")
	}
	if err := errors.Join(os.RemoveAll(n.Dir("var/lib/nova")), os.Rename(n.Dir("saved"), n.Dir("var/lib/nova"))); err != nil {
		t.Fatal(err)
	}
	if got, want := n.Get("calls"), "update-grub\nsystemctl enable nova-bootstrap.service\nsystemctl reboot\n"; got != want {
		t.Errorf("calls %q, want %q", got, want)
	}
	if got := n.Get("etc/default/grub.d/90-nova.cfg"); got != "GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX hugepagesz=1G\"\n" {
		t.Errorf("grub's settings are %q", got)
	}
	if unit := n.Get("etc/systemd/system/nova-bootstrap.service"); !strings.Contains(unit, " bootstrap\n") {
		t.Errorf("nothing continues after the reboot:\n%s", unit)
	}
	if strings.Contains(n.Get("reports.then"), "failed") || !n.There("var/lib/nova/booting/stage") {
		t.Errorf("reported %s", n.Get("reports.then"))
	}
	if err := os.RemoveAll(n.Dir("run")); err != nil {
		t.Fatal(err)
	}
	n.Put("proc/cmdline", "root=/dev/sda1 quiet hugepagesz=1G\n")
	if err := n.boot(); err != nil {
		t.Fatalf("%v\n%s", err, n.log())
	}
	if !strings.Contains(n.Get("calls"), "kubeadm join") || n.There("var/lib/nova/first-boot") {
		t.Error("the first boot did not go on, or keeps its credentials")
	}
}

// Without a supported boot loader, or if the boot loader ignores the arguments,
// the machine does not reboot again and again.
func TestNodeDoesNotRebootInVain(t *testing.T) {
	for name, tc := range map[string]struct{ rebooted, want string }{
		"NoBootLoader": {want: "the image has no supported boot loader"},
		"Ignored":      {rebooted: "var/lib/nova/rebooted", want: "the kernel was started without hugepagesz=1G"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, func(c *nodeconfig.Config) { c.Machine.KernelArguments = []string{"hugepagesz=1G"} })
			n.Put("proc/cmdline", "quiet\n")
			if tc.rebooted != "" {
				n.Put(tc.rebooted, "")
			}
			if err := n.boot(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("err = %v", err)
			}
			if strings.Contains(n.Get("calls"), "reboot") {
				t.Error("rebooted")
			}
		})
	}
}
