package agenttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
)

// Machine is a folder that the agent uses as the root of a machine.
type Machine struct {
	*machine.Machine
	t   *testing.T
	dir string
	// Log has the output of commands, unless the agent sets another log.
	Log *bytes.Buffer
}

// New returns a machine of VMware whose clock stands at 100 s. Commands are
// shell scripts by name; they find the machine's folder in $T, and the command
// sleep advances the clock.
func New(t *testing.T, commands map[string]string) *Machine {
	t.Helper()
	n := &Machine{t: t, dir: t.TempDir(), Log: &bytes.Buffer{}}
	n.Command("sleep", `echo "sleep $*" >>"$T/sleeps"; echo "$(($(cut -d. -f1 "$T/proc/uptime") + $1)).50 1.00" >"$T/proc/uptime"`)
	n.Command("sync", ":")
	for name, body := range commands {
		n.Command(name, body)
	}
	n.Put("var/log/.keep", "")
	n.Put("proc/uptime", "100.50 1.00\n")
	n.Hardware("VMware, Inc.", "b2a13742-d4c3-f6e5-0102-030405060701", "VMware-42 37 a1 b2 c3 d4 e5 f6-01 02 03 04 05 06 07 01")
	n.Machine = machine.New(machine.Options{
		Root: n.dir, Path: []string{filepath.Join(n.dir, "bin"), "/usr/bin", "/bin"},
		Env: []string{"T=" + n.dir}, Clock: clock{n}, Log: n.Log,
	})
	return n
}

// Hardware sets the machine's DMI.
func (n *Machine) Hardware(vendor, uuid, serial string) {
	n.t.Helper()
	n.Put("sys/class/dmi/id/sys_vendor", vendor+"\n")
	n.Put("sys/class/dmi/id/product_uuid", uuid+"\n")
	n.Put("sys/class/dmi/id/product_serial", serial+"\n")
}

// Command replaces a command.
func (n *Machine) Command(name, body string) {
	n.t.Helper()
	n.Program(filepath.Join("bin", name), "#!/bin/sh\n"+body+"\n")
}

// Program writes an executable file.
func (n *Machine) Program(path, content string) {
	n.t.Helper()
	n.Put(path, content)
	if err := os.Chmod(filepath.Join(n.dir, path), 0o700); err != nil { //nolint:gosec // a program
		n.t.Fatal(err)
	}
}

// Put writes a file. A text that is empty leaves an existing folder alone.
func (n *Machine) Put(path, content string) {
	n.t.Helper()
	path = filepath.Join(n.dir, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, []byte(content), 0o600)); err != nil {
		n.t.Fatal(err)
	}
}

// Get returns the content of a file, or nothing.
func (n *Machine) Get(path string) string {
	content, err := os.ReadFile(filepath.Join(n.dir, path))
	if err != nil {
		return ""
	}
	return string(content)
}

// There reports whether a file exists.
func (n *Machine) There(path string) bool {
	_, err := os.Lstat(filepath.Join(n.dir, path))
	return err == nil
}

// Dir returns the path of a file outside of the machine.
func (n *Machine) Dir(path string) string { return filepath.Join(n.dir, path) }

// Waits returns how often the agent waited this long.
func (n *Machine) Waits(d time.Duration) int {
	return strings.Count(n.Get("waits"), d.String()+"\n")
}

// Seconds returns the time of the machine's clock.
func (n *Machine) Seconds() float64 {
	var seconds float64
	_, _ = fmt.Sscanf(n.Get("proc/uptime"), "%f", &seconds)
	return seconds
}

var waiting sync.Mutex

// clock is the clock of a machine. It is a file, so that commands advance it
// too.
type clock struct{ n *Machine }

// Now returns the machine's time.
func (c clock) Now() time.Time {
	return time.Unix(0, 0).Add(time.Duration(c.n.Seconds() * float64(time.Second)))
}

// Sleep advances the clock.
func (c clock) Sleep(ctx context.Context, d time.Duration) error {
	waiting.Lock()
	defer waiting.Unlock()
	c.n.Put("waits", c.n.Get("waits")+d.String()+"\n")
	c.n.Put("proc/uptime", fmt.Sprintf("%.2f 1.00\n", c.n.Seconds()+d.Seconds()))
	return ctx.Err() //nolint:wrapcheck // as the system's clock
}
