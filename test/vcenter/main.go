package vcenter

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// Config is Options as a file, for a server in a process of its own.
type Config struct {
	Listen        string            `json:"listen,omitempty"`
	Names         []string          `json:"names,omitempty"`
	CertDir       string            `json:"certDir,omitempty"`
	Username      string            `json:"username,omitempty"`
	Password      string            `json:"password,omitempty"`
	Version       string            `json:"version,omitempty"`
	InstanceUUID  string            `json:"instanceUUID,omitempty"`
	ControlSocket string            `json:"controlSocket"`
	Delays        map[string]string `json:"delays,omitempty"`
	// UpdateDelay and GuestDelay are durations, such as 3s.
	UpdateDelay        string    `json:"updateDelay,omitempty"`
	GuestDelay         string    `json:"guestDelay,omitempty"`
	ClonesPerHost      int       `json:"clonesPerHost,omitempty"`
	ClonesPerDatastore int       `json:"clonesPerDatastore,omitempty"`
	Inventory          Inventory `json:"inventory,omitzero"`
}

// ReadConfig reads a Config. A field it does not know is an error.
func ReadConfig(path string) (Config, error) {
	var c Config
	data, err := os.ReadFile(path)
	if err != nil {
		return c, fmt.Errorf("reading the vCenter's configuration: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&c); err != nil {
		return c, fmt.Errorf("reading the vCenter's configuration %s: %w", path, err)
	}
	return c, nil
}

// Options are the server's options that c stands for.
func (c Config) Options() (Options, error) {
	opts := Options{
		ListenAddress: c.Listen,
		Names:         c.Names,
		CertDir:       c.CertDir,
		Username:      c.Username,
		Password:      c.Password,
		Version:       c.Version,
		InstanceUUID:  c.InstanceUUID,
		ControlSocket: c.ControlSocket,
		Inventory:     c.Inventory,
		ClonesPerHost: c.ClonesPerHost, ClonesPerDatastore: c.ClonesPerDatastore,
		Delays: map[string]time.Duration{},
	}
	for delay, text := range map[*time.Duration]string{&opts.UpdateDelay: c.UpdateDelay, &opts.GuestDelay: c.GuestDelay} {
		if text == "" {
			continue
		}
		var err error
		if *delay, err = time.ParseDuration(text); err != nil {
			return opts, fmt.Errorf("reading a delay: %w", err)
		}
	}
	for method, text := range c.Delays {
		delay, err := time.ParseDuration(text)
		if err != nil {
			return opts, fmt.Errorf("reading the delay of %s: %w", method, err)
		}
		opts.Delays[method] = delay
	}
	return opts, nil
}

// Main serves until ctx ends. Guests may be nil. The server is ready when its
// control socket answers.
func Main(ctx context.Context, c Config, guests Guests) error {
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
