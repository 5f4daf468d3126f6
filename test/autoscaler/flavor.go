package autoscaler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// release is the version that flavors are taken from.
const release = "v0.1.0"

// Repository writes a release of this work tree to a folder.
func Repository(ctx context.Context, dir string) error {
	out, err := exec.CommandContext(ctx, filepath.Join(tools.Root(), "hack", "components.sh"), dir, release).CombinedOutput()
	if err != nil {
		return fmt.Errorf("writing a release: %w: %s", err, out)
	}
	return nil
}

// Flavor returns the output of clusterctl for the flavor with the autoscaler in a release, for an
// infrastructure provider.
func Flavor(ctx context.Context, log io.Writer, dir, provider string, variables map[string]string) ([]byte, error) {
	return Generate(ctx, log, filepath.Join(dir, "infrastructure-"+provider, release, "cluster-template-autoscaled.yaml"), variables)
}

// Alone is the manifest of the autoscaler for a cluster that is there already.
func Alone() string {
	return filepath.Join(tools.Root(), "templates", "flavors", "autoscaled", "autoscaler.yaml")
}

// Generate returns the output of clusterctl for a template.
func Generate(ctx context.Context, log io.Writer, template string, variables map[string]string) ([]byte, error) {
	programs, err := tools.Paths(ctx, log, "clusterctl")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, programs["clusterctl"], "generate", "yaml", "--from", template)
	// It keeps a folder beside its configuration, which is not a person's own.
	config, err := os.MkdirTemp("", "clusterctl-")
	if err != nil {
		return nil, fmt.Errorf("making a folder for clusterctl: %w", err)
	}
	defer func() { _ = os.RemoveAll(config) }()
	cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+config)
	for name, value := range variables {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		return nil, errors.Join(fmt.Errorf("generating from %s: %w", template, err), errors.New(stderr.String()))
	}
	return out.Bytes(), nil
}
