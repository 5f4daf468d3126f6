package process

import (
	"context"
	"net"
	"os/exec"
	"syscall"
)

// Inside calls a function where a program is to run, such as in another network
// namespace.
type Inside func(do func() error) error

// Here runs a program where the test runs.
func Here(do func() error) error { return do() }

// Process is a program that was started.
type Process struct {
	// Exited is closed once the program has ended.
	Exited <-chan struct{}

	command *exec.Cmd
}

// Start starts a program, and does not wait for its end. A test that panics ends it.
func Start(command *exec.Cmd, inside Inside) (*Process, error) {
	if command.SysProcAttr == nil {
		command.SysProcAttr = &syscall.SysProcAttr{}
	}
	command.SysProcAttr.Pdeathsig = syscall.SIGKILL
	exited, started := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(exited)
		// The signal comes when the thread that started it ends, so that one
		// waits for it.
		err := inside(func() error {
			if err := command.Start(); err != nil {
				return err
			}
			started <- nil
			_ = command.Wait()
			return nil
		})
		if err != nil {
			started <- err
		}
	}()
	if err := <-started; err != nil {
		return nil, err //nolint:wrapcheck // the callers name the program
	}
	return &Process{Exited: exited, command: command}, nil
}

// Stop ends the program at once, as a machine that fails does.
func (p *Process) Stop() {
	_ = p.command.Process.Kill()
	<-p.Exited
}

// Dial returns a function that connects from where programs run.
func Dial(inside Inside) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		err = inside(func() (err error) {
			conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
			return err
		})
		return conn, err
	}
}
