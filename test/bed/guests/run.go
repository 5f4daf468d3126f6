package guests

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/test/host"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// Config says what vCenter to run in a process of its own. It holds a
// password, so its file is for root only.
type Config struct {
	// Bed is the name of the bed, and Hosts the directory of its hosts' disks.
	Bed   string `json:"bed"`
	Hosts string `json:"hosts"`
	// Assets are what hosts boot from.
	Assets host.Assets `json:"assets"`
	// Listen is the address that clients of vCenter connect to.
	Listen string `json:"listen"`
	// Certificates is where the server keeps its certificate.
	Certificates string `json:"certificates"`
	// Control is the path of the control socket.
	Control string `json:"control"`
	// Username and Password are the only credentials.
	Username string `json:"username"`
	Password string `json:"password"`
	// Delays are how long tasks take, by method.
	Delays map[string]time.Duration `json:"delays,omitempty"`
}

// WriteConfig writes what Run reads.
func WriteConfig(path string, config Config) error {
	data, err := json.Marshal(config)
	if err != nil {
		return fmt.Errorf("writing settings of vCenter: %w", err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return fmt.Errorf("writing settings of vCenter: %w", err)
	}
	return nil
}

// ReadConfig reads what WriteConfig wrote.
func ReadConfig(path string) (Config, error) {
	var config Config
	data, err := os.ReadFile(path)
	if err != nil {
		return config, fmt.Errorf("reading settings of vCenter: %w", err)
	}
	if err := json.Unmarshal(data, &config); err != nil {
		return config, fmt.Errorf("reading settings of vCenter: %w", err)
	}
	return config, nil
}

// Run runs a vCenter whose VMs are hosts until the context ends. The hosts go
// on without it.
func Run(ctx context.Context, path string) error {
	config, err := ReadConfig(path)
	if err != nil {
		return err
	}
	runner := &host.Runner{Bed: config.Bed, Dir: config.Hosts, Assets: config.Assets}
	server, err := vcenter.Start(ctx, vcenter.Options{
		ListenAddress: config.Listen,
		CertDir:       config.Certificates,
		ControlSocket: config.Control,
		Username:      config.Username,
		Password:      config.Password,
		Delays:        config.Delays,
		Guests:        New(runner),
	})
	if err != nil {
		return err
	}
	<-ctx.Done()
	server.Stop()
	return nil
}
