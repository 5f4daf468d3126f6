package bootstrap

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// systemRelease is the os-release of a system.
const systemRelease = "NAME=\"Debian GNU/Linux\"\nVERSION_ID=\"12\"\n"

// reported runs a machine whose bootstrap fails, and returns the reports to its
// hypervisor.
func reported(t *testing.T, vendor string, commands ...string) (*node, []string) {
	t.Helper()
	n := newNode(t, facts(JoinWorker, func(in *Input) { in.Spec.PreKubeadmCommands = commands }))
	n.write("sys/class/dmi/id/sys_vendor", vendor+"\n")
	n.write("bin/vmware-rpctool", "#!/bin/sh\nprintf '%s\\n' \"$*\" >>\"$T/reports\"\n")
	if err := os.Chmod(filepath.Join(n.dir, "bin/vmware-rpctool"), 0o700); err != nil {
		t.Fatal(err)
	}
	n.write("usr/lib/os-release", systemRelease)
	n.write("etc/.keep", "")
	if err := os.Symlink("../usr/lib/os-release", filepath.Join(n.dir, "etc/os-release")); err != nil {
		t.Fatal(err)
	}
	err := n.boot()
	if fails := len(commands) > 0; (err != nil) != fails {
		t.Fatalf("ended with %v\n%s", err, n.read("var/log/nova-bootstrap.log"))
	}
	return n, strings.Split(strings.TrimSuffix(n.read("reports"), "\n"), "\n")
}

func TestReportToVMware(t *testing.T) {
	_, lines := reported(t, "VMware, Inc.", "echo fine", "echo opening the door; echo the door is locked >&2; exit 3")
	want := []string{
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
	if !strings.HasSuffix(lines[2], "Running preKubeadmCommands 0001 | opening the door | the door is locked") {
		t.Errorf("the log does not end as it should: %q", lines[2])
	}
}

func TestReportIsTakenBackByANode(t *testing.T) {
	_, lines := reported(t, "VMware, Inc.")
	if last := lines[len(lines)-1]; last != "info-set guestinfo.nova.report " {
		t.Errorf("reported last %q", last)
	}
	n, _ := reported(t, "oVirt")
	if got := n.read("etc/os-release"); got != systemRelease {
		t.Errorf("the system calls itself\n%s", got)
	}
	if link, err := os.Readlink(filepath.Join(n.dir, "etc/os-release")); link != "../usr/lib/os-release" {
		t.Errorf("the link points to %q: %v", link, err)
	}
}

// The guest clears its bootstrap data before kubeadm runs: a change by the
// guest creates no event in vCenter.
func TestBootstrapDataIsCleared(t *testing.T) {
	n := newNode(t, facts(JoinWorker, func(*Input) {}))
	n.write("sys/class/dmi/id/sys_vendor", "VMware, Inc.\n")
	n.command("vmware-rpctool", `case $1 in
"info-get guestinfo.userdata") echo c2VjcmV0 ;;
info-get*) echo "No value found" >&2; exit 1 ;;
*guestinfo.userdata*) printf '%s.\n' "$*" >>"$T/reports" ;;
esac`)
	n.command("kubeadm", `echo kubeadm >>"$T/reports"`+"\n"+commands["kubeadm"])
	if err := n.boot(); err != nil {
		t.Fatalf("%v\n%s", err, n.read("var/log/nova-bootstrap.log"))
	}
	if got, want := n.read("reports"), "info-set guestinfo.userdata ---.\ninfo-set guestinfo.userdata.encoding .\nkubeadm\n"; !strings.HasPrefix(got, want) {
		t.Errorf("reported %q, want %q", got, want)
	}
}

func TestReportToOVirt(t *testing.T) {
	n, _ := reported(t, "oVirt", "echo 'the \"door\" is `locked` for $1'; i=0; while [ $i -lt 50 ]; do echo line $i; i=$((i+1)); done; printf '%s\\n' 'cd \\etc'; exit 3")
	release := n.read("etc/os-release")
	if got := n.read("usr/lib/os-release"); got != systemRelease {
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
	n := newNode(t, facts(JoinWorker, func(in *Input) { in.Spec.PostKubeadmCommands = []string{"echo no licence; exit 4"} }))
	n.write("bin/vmware-rpctool", "#!/bin/sh\nprintf '%s\\n' \"$*\" >>\"$T/reports\"\n")
	if err := os.Chmod(filepath.Join(n.dir, "bin/vmware-rpctool"), 0o700); err != nil {
		t.Fatal(err)
	}
	if n.boot() == nil {
		t.Fatal("a failed command is not detected")
	}
	if got := n.read("reports"); !strings.Contains(got, "nova: unfinished: postKubeadmCommands 0000 failed with status 4 || ") || strings.Contains(got, "nova: failed") {
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

func TestReportOfAnUnforeseenEnd(t *testing.T) {
	n := newNode(t, facts(JoinWorker, func(*Input) {}))
	n.write("bin/vmware-rpctool", "#!/bin/sh\nprintf '%s\\n' \"$*\" >>\"$T/reports\"\n")
	if err := os.Chmod(filepath.Join(n.dir, "bin/vmware-rpctool"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(n.dir, "run/nova/kubeadm.template")); err != nil {
		t.Fatal(err)
	}
	if n.boot() == nil {
		t.Fatal("a machine without kubeadm's configuration becomes a node")
	}
	if got := n.read("reports"); !strings.Contains(got, "nova: failed: The script that makes this machine a node ended with status") {
		t.Errorf("reported %q", got)
	}
}
