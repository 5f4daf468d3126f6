// Package rpcvmx reads and writes the settings of the VM.
package rpcvmx

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	channel = "/run/guestinfo"
	prefix  = "guestinfo."
)

// Config reads and writes settings.
type Config struct{}

// NewConfig returns a Config.
func NewConfig() *Config { return &Config{} }

// path is the file of a setting.
func path(key string) string {
	return filepath.Join(channel, prefix+strings.TrimPrefix(key, prefix))
}

// String returns a setting, or defaultValue if there is none.
func (*Config) String(key, defaultValue string) (string, error) {
	data, err := os.ReadFile(path(key))
	if errors.Is(err, fs.ErrNotExist) {
		return defaultValue, nil
	}
	if err != nil {
		return "", fmt.Errorf("reading setting %s: %w", key, err)
	}
	return string(data), nil
}

// SetString changes a setting in one piece.
func (*Config) SetString(key, value string) error {
	file := path(key)
	half := filepath.Join(channel, "."+filepath.Base(file))
	if err := os.WriteFile(half, []byte(value), 0o600); err != nil {
		return fmt.Errorf("writing setting %s: %w", key, err)
	}
	return os.Rename(half, file)
}
