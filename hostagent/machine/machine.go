package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// killDelay is how long a command may take to end after SIGTERM.
	killDelay = 10 * time.Second
	// maxOutput limits the output of a command that is read, in bytes.
	maxOutput = 1 << 20
)

// commandPath are the folders with commands: a service of systemd has a shorter
// list, Flatcar has its own folder, and so has systemd for its helpers.
var commandPath = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/opt/bin", "/usr/lib/systemd"}

// Clock measures time. Go's clock does not jump when the machine's time is
// corrected, as it is on a first boot.
type Clock interface {
	Now() time.Time
	// Sleep waits, or returns the context's error.
	Sleep(ctx context.Context, d time.Duration) error
}

// Options replace parts of the machine in tests.
type Options struct {
	// Root is the root of the file system. Defaults to "/".
	Root string
	// Path are the folders with commands. Defaults to those of a system.
	Path []string
	// Env is the environment of commands. Defaults to that of this process.
	Env []string
	// Clock defaults to the system's clock.
	Clock Clock
	// Log gets the log and the output of commands. Defaults to the standard
	// output.
	Log io.Writer
}

// Machine is the machine that the agent runs on.
type Machine struct {
	root  string
	path  []string
	env   []string
	clock Clock
	log   io.Writer
}

// New returns the machine.
func New(o Options) *Machine {
	m := &Machine{root: o.Root, path: o.Path, env: o.Env, clock: o.Clock, log: o.Log}
	if m.root == "" {
		m.root = "/"
	}
	if m.path == nil {
		m.path = commandPath
	}
	if m.env == nil {
		m.env = os.Environ()
	}
	if m.clock == nil {
		m.clock = systemClock{}
	}
	if m.log == nil {
		m.log = os.Stdout
	}
	return m
}

// With returns the machine whose commands have these variables too.
func (m *Machine) With(env ...string) *Machine {
	more := *m
	more.env = append(append([]string{}, m.env...), env...)
	return &more
}

// Logging returns the machine whose log is this writer.
func (m *Machine) Logging(to io.Writer) *Machine {
	other := *m
	other.log = to
	return &other
}

// Getenv returns a variable of the environment that commands have.
func (m *Machine) Getenv(name string) string {
	for _, entry := range slices.Backward(m.env) {
		if value, is := strings.CutPrefix(entry, name+"="); is {
			return value
		}
	}
	return ""
}

// Now returns the time.
func (m *Machine) Now() time.Time { return m.clock.Now() }

// Sleep waits, or returns the context's error.
func (m *Machine) Sleep(ctx context.Context, d time.Duration) error { return m.clock.Sleep(ctx, d) }

// Logf adds a line with the time to the log.
func (m *Machine) Logf(format string, args ...any) {
	fmt.Fprintf(m.log, "%s %s\n", time.Now().UTC().Format(time.RFC3339), fmt.Sprintf(format, args...))
}

// At returns the path of a file of the machine.
func (m *Machine) At(path string) string { return filepath.Join(m.root, path) }

// Exists reports whether a file exists. A link exists even if its target does
// not.
func (m *Machine) Exists(path string) bool {
	_, err := os.Lstat(m.At(path))
	return err == nil
}

// Read returns the content of a file, and nothing if it cannot be read. Use Load
// for a file that is written again.
func (m *Machine) Read(path string) string {
	content, err := m.Load(path)
	if err != nil {
		return ""
	}
	return content
}

// Load returns the content of a file.
func (m *Machine) Load(path string) (string, error) {
	content, err := os.ReadFile(m.At(path))
	if err != nil {
		return "", fmt.Errorf("reading file: %w", err)
	}
	return string(content), nil
}

// Edit replaces the content of a file, which keeps its permissions. A new file
// gets the mode.
func (m *Machine) Edit(path, content string, mode os.FileMode) error {
	if info, err := os.Stat(m.At(path)); err == nil {
		mode = info.Mode()
	}
	return m.Write(path, content, mode)
}

// Write replaces a file and makes its folders. Other programs see the old or
// the new content, never a part, and the new content is on the disk before the
// file has its name.
func (m *Machine) Write(path, content string, mode os.FileMode) error {
	return m.write(path, strings.NewReader(content), mode)
}

func (m *Machine) write(path string, content io.Reader, mode os.FileMode) error {
	path = m.At(path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // folders of the system are readable
		return fmt.Errorf("writing file: %w", err)
	}
	// The name begins with a dot: the kubelet and other programs read all other
	// files of their folders.
	file, err := os.CreateTemp(filepath.Dir(path), ".nova-*")
	if err != nil {
		return fmt.Errorf("writing file: %w", err)
	}
	defer os.Remove(file.Name()) //nolint:errcheck // it has another name by then
	_, err = io.Copy(file, content)
	if err = errors.Join(err, file.Chmod(mode), file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return fmt.Errorf("writing file: %w", err)
	}
	return nil
}

// Copy replaces a file by a copy of another one, as Write does, with its
// permissions.
func (m *Machine) Copy(from, to string) error {
	source, err := os.Open(m.At(from))
	if err != nil {
		return fmt.Errorf("copying file: %w", err)
	}
	defer source.Close() //nolint:errcheck // it is only read
	info, err := source.Stat()
	if err != nil {
		return fmt.Errorf("copying file: %w", err)
	}
	return m.write(to, source, info.Mode())
}

// Set writes a value to a file of the kernel, which cannot be replaced.
func (m *Machine) Set(path, value string) error {
	if err := os.WriteFile(m.At(path), []byte(value), 0o644); err != nil { //nolint:gosec // the file exists
		return fmt.Errorf("setting %s: %w", path, err)
	}
	return nil
}

// Link makes path a symbolic link to target, in place of a link that exists. A
// relative target begins in the folder of path.
func (m *Machine) Link(path, target string) error {
	path = m.At(path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // folders of the system are readable
		return fmt.Errorf("creating link: %w", err)
	}
	next := filepath.Join(filepath.Dir(path), ".nova-"+filepath.Base(path))
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("creating link: %w", err)
	}
	if err := os.Symlink(target, next); err != nil {
		return fmt.Errorf("creating link: %w", err)
	}
	if err := os.Rename(next, path); err != nil {
		return fmt.Errorf("creating link: %w", err)
	}
	return nil
}

// Append adds text to a file.
func (m *Machine) Append(path, text string) error {
	path = m.At(path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // folders of the system are readable
		return fmt.Errorf("extending file: %w", err)
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644) //nolint:gosec // /etc/fstab is readable for all
	if err != nil {
		return fmt.Errorf("extending file: %w", err)
	}
	_, err = file.WriteString(text)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("extending %s: %w", path, err)
	}
	return nil
}

// Mkdir creates a folder, and its parents with the usual mode. An existing folder
// gets the mode too.
func (m *Machine) Mkdir(path string, mode os.FileMode) error {
	if err := os.MkdirAll(m.At(path), 0o755); err != nil { //nolint:gosec // parents are readable
		return fmt.Errorf("creating folder: %w", err)
	}
	if err := os.Chmod(m.At(path), mode); err != nil {
		return fmt.Errorf("creating folder: %w", err)
	}
	return nil
}

// Remove deletes files and folders, if they exist.
func (m *Machine) Remove(paths ...string) error {
	var errs []error
	for _, path := range paths {
		errs = append(errs, os.RemoveAll(m.At(path)))
	}
	return errors.Join(errs...)
}

// Flush writes changed files to the disks, so that they survive a reset.
func (m *Machine) Flush(ctx context.Context) error { return m.Run(ctx, "sync") }

// Has reports whether the machine has a command.
func (m *Machine) Has(name string) bool {
	_, err := m.find(name)
	return err == nil
}

// Find returns the path of a command, or nothing.
func (m *Machine) Find(name string) string {
	path, err := m.find(name)
	if err != nil {
		return ""
	}
	return path
}

func (m *Machine) find(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, folder := range m.path {
		path := filepath.Join(folder, name)
		if info, err := os.Stat(path); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", &exec.Error{Name: name, Err: exec.ErrNotFound}
}

// Command is a command to run.
type Command struct {
	Args []string
	// Input is the standard input.
	Input string
	// Dir is the working directory, on the machine.
	Dir string
}

// Run runs a command and logs its output. When the context ends, the
// command gets SIGTERM, and SIGKILL if it does not end within 10 s.
func (m *Machine) Run(ctx context.Context, args ...string) error {
	return m.RunCommand(ctx, Command{Args: args})
}

// RunCommand is Run with an input and a working directory.
func (m *Machine) RunCommand(ctx context.Context, c Command) error {
	command, err := m.command(ctx, c)
	if err != nil {
		return err
	}
	command.Stdout, command.Stderr = m.log, m.log
	if err := command.Run(); err != nil {
		return fmt.Errorf("running %s: %w", filepath.Base(c.Args[0]), err)
	}
	return nil
}

// Output returns the output of a command, at most 1 MiB, and without the space
// around it. An error contains the last line of its standard error.
func (m *Machine) Output(ctx context.Context, args ...string) (string, error) {
	command, err := m.command(ctx, Command{Args: args})
	if err != nil {
		return "", err
	}
	out, problem := &limited{left: maxOutput}, &limited{left: maxOutput}
	command.Stdout, command.Stderr = out, problem
	if err := command.Run(); err != nil {
		return strings.TrimSpace(out.String()), &OutputError{Command: filepath.Base(args[0]), Problem: lastLine(problem.String()), err: err}
	}
	return strings.TrimSpace(out.String()), nil
}

// Start starts a command in the background, with its output in this writer, and
// returns a function that ends it.
func (m *Machine) Start(ctx context.Context, c Command, output io.Writer) (running func() bool, stop func(), err error) {
	command, err := m.command(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	command.Stdout, command.Stderr = output, output
	if err := command.Start(); err != nil {
		return nil, nil, fmt.Errorf("starting %s: %w", filepath.Base(c.Args[0]), err)
	}
	done := make(chan struct{})
	go func() {
		_ = command.Wait()
		close(done)
	}()
	running = func() bool {
		select {
		case <-done:
			return false
		default:
			return true
		}
	}
	stop = func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		killer := time.AfterFunc(killDelay, func() { _ = command.Process.Kill() })
		defer killer.Stop()
		<-done
	}
	return running, stop, nil
}

func (m *Machine) command(ctx context.Context, c Command) (*exec.Cmd, error) {
	path, err := m.find(c.Args[0])
	if err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, path, c.Args[1:]...)
	command.Env = append(append([]string{}, m.env...), "PATH="+strings.Join(m.path, ":"))
	if c.Dir != "" {
		command.Dir = m.At(c.Dir)
	}
	if c.Input != "" {
		command.Stdin = strings.NewReader(c.Input)
	}
	// The signal is for the programs that the command has started, too.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGTERM) }
	command.WaitDelay = killDelay
	return command, nil
}

// OutputError is the failure of a command whose output was wanted.
type OutputError struct {
	// Command is its name, and Problem the last line of its standard error.
	Command, Problem string
	err              error
}

// Error returns the command and its problem.
func (e *OutputError) Error() string {
	if e.Problem == "" {
		return fmt.Sprintf("running %s: %v", e.Command, e.err)
	}
	return fmt.Sprintf("running %s: %v: %s", e.Command, e.err, e.Problem)
}

// Unwrap returns the error of the process.
func (e *OutputError) Unwrap() error { return e.err }

// Status returns the exit status of a failed command, or -1.
func Status(err error) int {
	if exit, is := errors.AsType[*exec.ExitError](err); is {
		return exit.ExitCode()
	}
	return -1
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// limited keeps the first bytes.
type limited struct {
	bytes.Buffer
	left int
}

// Write drops the bytes over the limit without an error: a command must not fail
// because it prints too much.
func (l *limited) Write(p []byte) (int, error) {
	kept := p[:min(len(p), l.left)]
	l.left -= len(kept)
	l.Buffer.Write(kept)
	return len(p), nil
}

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting: %w", ctx.Err())
	}
}
