package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
)

const (
	// stateDir contains the state that the beds of one computer share; a reboot
	// deletes it.
	stateDir = "/run/cluster-api-provider-nova"
	// inotifySetting limits the watchers of one user of the machine. Systemd,
	// kubelet and containerd of a host take some 22, so few hosts fit the default.
	inotifySetting = "/proc/sys/fs/inotify/max_user_instances"
	inotifyNeeded  = 8192
)

var validName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// requireRoot returns an error with the missing requirement for hosts.
func requireRoot() error {
	if runtime.GOOS != "linux" {
		return errors.New("hosts need Linux: they are namespaces of its kernel")
	}
	if os.Geteuid() != 0 {
		return errors.New("hosts need root: run this as root or with sudo")
	}
	return nil
}

// bedName is the name of all that a bed has one of on the machine.
func bedName(bed string) string {
	return "nova-" + bed
}

// checkName rejects names that cannot be the name of a file, of a control group
// and of a host.
func checkName(what, name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("%s %q: only lower-case letters, digits and dashes, 63 at most", what, name)
	}
	return nil
}

// raiseInotify lifts the machine's limit of watchers while beds run.
func raiseInotify(ctx context.Context, bed string, log io.Writer) error {
	if err := os.MkdirAll(filepath.Join(stateDir, "beds"), 0o755); err != nil {
		return err
	}
	unlock, err := lockFile(ctx, filepath.Join(stateDir, "lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if err := writeFile(filepath.Join(stateDir, "beds", bed), nil, 0o644); err != nil {
		return err
	}
	value, err := os.ReadFile(inotifySetting)
	if err != nil {
		return err
	}
	limit, err := strconv.Atoi(strings.TrimSpace(string(value)))
	if err != nil {
		return err
	}
	if limit >= inotifyNeeded {
		return nil
	}
	if err := writeFile(filepath.Join(stateDir, "inotify"), value, 0o644); err != nil {
		return err
	}
	fmt.Fprintf(log, "host: raising fs.inotify.max_user_instances from %d to %d while beds run\n", limit, inotifyNeeded)
	return os.WriteFile(inotifySetting, []byte(strconv.Itoa(inotifyNeeded)), 0o644)
}

// restoreInotify puts the limit back when no other bed needs it.
func restoreInotify(ctx context.Context, bed string, log io.Writer) error {
	if !exists(stateDir) {
		return nil
	}
	unlock, err := lockFile(ctx, filepath.Join(stateDir, "lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if err := os.RemoveAll(filepath.Join(stateDir, "beds", bed)); err != nil {
		return err
	}
	others, err := fileNames(filepath.Join(stateDir, "beds"))
	if err != nil || len(others) > 0 {
		return err
	}
	saved := filepath.Join(stateDir, "inotify")
	value, err := os.ReadFile(saved)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(log, "host: putting fs.inotify.max_user_instances back to %s\n", strings.TrimSpace(string(value)))
	if err := os.WriteFile(inotifySetting, value, 0o644); err != nil {
		return err
	}
	return os.Remove(saved)
}
