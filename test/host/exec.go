package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Exec runs a command in the running host of a virtual machine, regardless of
// the process that powered it on. dir contains the disks of the bed's hosts, as
// a Runner's Dir does.
func Exec(ctx context.Context, bed, dir, machine string, args ...string) ([]byte, error) {
	disks, err := fileNames(dir)
	if err != nil {
		return nil, err
	}
	for _, disk := range disks {
		var spec Spec
		data, err := os.ReadFile(filepath.Join(dir, disk, specFile))
		if err == nil {
			err = json.Unmarshal(data, &spec)
		}
		if err != nil || spec.Name != machine {
			continue // no disk, or one that is being made
		}
		return execIn(ctx, bed, spec, args...)
	}
	return nil, fmt.Errorf("running %s in %q: it has no disk", args[0], machine)
}

// execIn runs a command in the host of a spec.
func execIn(ctx context.Context, bed string, spec Spec, args ...string) (_ []byte, err error) {
	all, err := bedGroup(bed)
	if err != nil {
		return nil, err
	}
	h := &Host{spec: spec, group: all.child(spec.Disk), pidfd: -1}
	pid, err := h.findInit()
	if err == nil && pid == 0 {
		err = errors.New("the host is off")
	}
	if err == nil {
		h.pidfd, err = unix.PidfdOpen(pid, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("running %s in %q: %w", args[0], spec.Name, err)
	}
	defer func() { err = errors.Join(err, unix.Close(h.pidfd)) }()
	return h.Exec(ctx, args...)
}
