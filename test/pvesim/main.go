package pvesim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/cluster"
)

// Config is Options as a file, for a server in a process of its own.
type Config struct {
	Listen        []string `json:"listen,omitempty"`
	Names         []string `json:"names,omitempty"`
	CertDir       string   `json:"certDir,omitempty"`
	Username      string   `json:"username,omitempty"`
	Password      string   `json:"password,omitempty"`
	TokenSecret   string   `json:"tokenSecret,omitempty"`
	ControlSocket string   `json:"controlSocket"`
	// Timings are durations by the names that DefaultTimings has.
	Timings   map[string]string `json:"timings,omitempty"`
	Inventory cluster.Inventory `json:"inventory,omitzero"`
}

// ReadConfig reads a Config. A field it does not know is an error.
func ReadConfig(path string) (Config, error) {
	var c Config
	data, err := os.ReadFile(path)
	if err != nil {
		return c, fmt.Errorf("reading the configuration: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&c); err != nil {
		return c, fmt.Errorf("reading the configuration %s: %w", path, err)
	}
	return c, nil
}

// Options are the server's options for c.
func (c Config) Options() (Options, error) {
	opts := Options{
		Listen: c.Listen, Names: c.Names, CertDir: c.CertDir, Username: c.Username, Password: c.Password, TokenSecret: c.TokenSecret,
		ControlSocket: c.ControlSocket, Inventory: c.Inventory, Timings: map[string]time.Duration{},
	}
	for name, text := range c.Timings {
		d, err := time.ParseDuration(text)
		if err != nil {
			return opts, fmt.Errorf("reading the timing %s: %w", name, err)
		}
		opts.Timings[name] = d
	}
	return opts, nil
}

// Main serves until ctx ends. Guests may be nil. The server is ready when its
// control socket answers.
func Main(ctx context.Context, c Config, guests cluster.Guests) error {
	opts, err := c.Options()
	if err != nil {
		return err
	}
	opts.Guests = guests
	server, err := Start(ctx, opts)
	if err != nil {
		return err
	}
	defer server.Stop()
	<-ctx.Done()
	return nil
}
