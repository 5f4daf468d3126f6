package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Cleanup removes all that a bed has on the machine: hosts, services, network
// and the directories named, which are those of the bed's runner and network.
// It needs no process of the bed to be alive, and does nothing for a bed that
// is not there.
func Cleanup(ctx context.Context, bed string, log io.Writer, dirs ...string) error {
	if err := requireRoot(); err != nil {
		return err
	}
	if err := checkName("bed", bed); err != nil {
		return err
	}
	group, err := bedGroup(bed)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	errs := []error{
		group.destroy(ctx),
		removeNetns(bedName(bed)),
		restoreInotify(ctx, bed, log),
	}
	for _, dir := range dirs {
		errs = append(errs, detachLoops(dir), os.RemoveAll(dir))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cleaning up bed %s: %w", bed, err)
	}
	return nil
}
