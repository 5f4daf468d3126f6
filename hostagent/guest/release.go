package guest

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
)

const (
	osRelease = "/etc/os-release"
	// keptRelease is the system's own file while a report replaces it.
	keptRelease = "/etc/os-release.nova"
)

// release reports by the system variant in os-release: it is the only field of
// ours that the QEMU guest agent reports and that an engine shows.
type release struct{}

func (release) send(_ context.Context, m *machine.Machine, report string) error {
	if report == "" {
		if !m.Exists(keptRelease) {
			return nil
		}
		if err := os.Rename(m.At(keptRelease), m.At(osRelease)); err != nil {
			return fmt.Errorf("removing the report: %w", err)
		}
		return nil
	}
	if !m.Exists(keptRelease) {
		if err := keep(m); err != nil {
			return err
		}
	}
	var lines []string
	for line := range strings.Lines(m.Read(keptRelease)) {
		if line = strings.TrimRight(line, "\n"); !strings.HasPrefix(line, "VARIANT=") {
			lines = append(lines, line)
		}
	}
	// Characters that are special for a shell must not be between double quotes.
	variant := strings.NewReplacer(`"`, "'", `\`, "/", "$", "'", "`", "'").Replace(report)
	lines = append(lines, `VARIANT="`+variant+`"`, "")
	return m.Write(osRelease, strings.Join(lines, "\n"), 0o644)
}

func (release) forget(context.Context, *machine.Machine) {}

// keep keeps the system's own file, which may be a link. It is renamed and
// written again, so that there is a copy at any time.
func keep(m *machine.Machine) error {
	content := m.Read(osRelease)
	if target, err := os.Readlink(m.At(osRelease)); err == nil {
		if err := os.Symlink(target, m.At(keptRelease)); err != nil {
			return fmt.Errorf("keeping os-release: %w", err)
		}
		return nil
	}
	return m.Write(keptRelease, content, 0o644)
}
