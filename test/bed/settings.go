package bed

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/test/host"
)

// settings are the settings of a hypervisor's process. They contain a password,
// so only root can read their file.
type settings[C any] struct {
	Server C `json:"server"`
	// Runner is missing where VMs are only states.
	Runner *runnerSettings `json:"runner,omitempty"`
}

// runnerSettings are those of a host.Runner.
type runnerSettings struct {
	Bed    string      `json:"bed"`
	Dir    string      `json:"dir"`
	Assets host.Assets `json:"assets"`
}

func settingsOf(r *host.Runner) *runnerSettings {
	if r == nil {
		return nil
	}
	return &runnerSettings{Bed: r.Bed, Dir: r.Dir, Assets: r.Assets}
}

func (s *runnerSettings) runner() *host.Runner {
	return &host.Runner{Bed: s.Bed, Dir: s.Dir, Assets: s.Assets}
}

func readSettings[C any](path string) (settings[C], error) {
	var s settings[C]
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		return s, fmt.Errorf("reading settings of hypervisor: %w", err)
	}
	return s, nil
}

// writeSettings writes the file in one step: its existence starts the process.
func writeSettings[C any](path string, s settings[C]) error {
	data, err := json.Marshal(s)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = os.WriteFile(path+".part", data, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".part", path)
	}
	if err != nil {
		return fmt.Errorf("writing settings of hypervisor: %w", err)
	}
	return nil
}

// texts writes durations as a file has them.
func texts(delays map[string]time.Duration) map[string]string {
	written := map[string]string{}
	for name, delay := range delays {
		written[name] = delay.String()
	}
	return written
}
