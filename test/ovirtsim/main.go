package ovirtsim

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
	Listen   string   `json:"listen,omitempty"`
	Names    []string `json:"names,omitempty"`
	CertDir  string   `json:"certDir,omitempty"`
	Username string   `json:"username,omitempty"`
	Password string   `json:"password,omitempty"`
	// Users are let in beside the administrator.
	Users         []UserSpec `json:"users,omitempty"`
	Version       string     `json:"version,omitempty"`
	Language      string     `json:"language,omitempty"`
	ControlSocket string     `json:"controlSocket"`
	// TokenLifetime and TokenIdle are durations such as 30m.
	TokenLifetime string `json:"tokenLifetime,omitempty"`
	TokenIdle     string `json:"tokenIdle,omitempty"`
	// Timings are durations by the names that DefaultTimings has.
	Timings   map[string]string `json:"timings,omitempty"`
	Inventory Inventory         `json:"inventory,omitzero"`
}

// ReadConfig reads a Config. A field it does not know is an error.
func ReadConfig(path string) (Config, error) {
	var c Config
	data, err := os.ReadFile(path)
	if err != nil {
		return c, fmt.Errorf("reading the engine's configuration: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&c); err != nil {
		return c, fmt.Errorf("reading the engine's configuration %s: %w", path, err)
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
		Users:         c.Users,
		Version:       c.Version,
		Language:      c.Language,
		ControlSocket: c.ControlSocket,
		Inventory:     c.Inventory,
		Timings:       map[string]time.Duration{},
	}
	var err error
	for _, set := range []struct {
		text string
		to   *time.Duration
	}{{c.TokenLifetime, &opts.TokenLifetime}, {c.TokenIdle, &opts.TokenIdle}} {
		if set.text == "" {
			continue
		}
		if *set.to, err = time.ParseDuration(set.text); err != nil {
			return opts, fmt.Errorf("reading how long a token lasts: %w", err)
		}
	}
	for name, text := range c.Timings {
		if opts.Timings[name], err = time.ParseDuration(text); err != nil {
			return opts, fmt.Errorf("reading the timing %s: %w", name, err)
		}
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
	if _, set := opts.Timings[TimePoweringUp]; guests != nil && !set {
		// As in the engine, a VM is up when the guest reports it, or after a time.
		opts.Timings[TimePoweringUp] = time.Minute
	}
	server, err := Start(ctx, opts)
	if err != nil {
		return err
	}
	defer server.Stop()
	<-ctx.Done()
	return nil
}
