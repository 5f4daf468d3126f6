package bed

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
)

// records is where beds are found by name. For root it is a tmpfs on every
// distribution: a record lasts as long as the namespaces and processes that
// it stands for.
func records() string {
	if os.Geteuid() != 0 {
		return filepath.Join(Cache(), "run")
	}
	return "/run/nova-beds"
}

// ErrExists is returned by Start for the name of a bed that was not ended.
var ErrExists = errors.New("exists already: stop it first (make quickstart-down, make demo-down, or novabed down --name)")

// record contains the data of a bed for Down and Open.
type record struct {
	Name        string   `json:"name"`
	Dir         string   `json:"dir"`
	Hypervisors []string `json:"hypervisors"`
	// Unmanaged means that there is no management cluster to connect to.
	Unmanaged bool `json:"unmanaged,omitempty"`
	Rootless  bool `json:"rootless,omitempty"`
}

// validName keeps names short: they become part of names of interfaces.
var validName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?$`)

func recordPath(name string) string { return filepath.Join(records(), name+".json") }

// claim takes a name for a bed. It fails when there is such a bed already.
func claim(r record) error {
	if !validName.MatchString(r.Name) {
		return fmt.Errorf("name %q of the test environment must be at most 15 lower-case letters, digits and dashes", r.Name)
	}
	if err := os.MkdirAll(records(), 0o755); err != nil {
		return fmt.Errorf("claiming test environment %s: %w", r.Name, err)
	}
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("claiming test environment %s: %w", r.Name, err)
	}
	file, err := os.OpenFile(recordPath(r.Name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("test environment %s %w", r.Name, ErrExists)
	}
	if err != nil {
		return fmt.Errorf("claiming test environment %s: %w", r.Name, err)
	}
	_, err = file.Write(data)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("claiming test environment %s: %w", r.Name, err)
	}
	return nil
}

// recorded returns the record of a bed, or an error that is fs.ErrNotExist.
func recorded(name string) (record, error) {
	var r record
	data, err := os.ReadFile(recordPath(name))
	if err != nil {
		return r, fmt.Errorf("finding test environment %s: %w", name, err)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("finding test environment %s: %w", name, err)
	}
	return r, nil
}

// release gives a name back.
func release(name string) error {
	paths := []string{recordPath(name)}
	for _, hypervisor := range Hypervisors() {
		paths = append(paths, controlSocket(name, hypervisor))
	}
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("releasing test environment %s: %w", name, err)
		}
	}
	return nil
}
