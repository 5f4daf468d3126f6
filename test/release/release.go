package release

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/manifests"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// Repository is a clusterctl repository in a folder.
type Repository struct {
	// Dir is the folder. Each provider has one below it, and in that each
	// version has one.
	Dir string
	// CoreVersion is that of Cluster API's core provider.
	CoreVersion string

	programs map[string]string
}

// coreImage is the name of the image that the core provider's Deployment runs.
const coreImage = "cluster-api-controller"

// Make writes releases of the work tree with these versions into a folder. It
// writes the programs that it has to build to log.
func Make(ctx context.Context, log io.Writer, dir string, versions ...string) (*Repository, error) {
	programs, err := tools.Paths(ctx, log, "kubectl", "capi-core")
	if err != nil {
		return nil, err
	}
	r := &Repository{Dir: dir, programs: programs}
	for _, version := range versions {
		if err := r.add(ctx, version); err != nil {
			return nil, err
		}
	}
	return r, r.core(ctx)
}

// Config is the configuration file by which clusterctl finds the repository.
func (r *Repository) Config() string { return filepath.Join(r.Dir, "clusterctl.yaml") }

// add puts a release into the repository, and its managers into the cache.
func (r *Repository) add(ctx context.Context, version string) error {
	components := exec.CommandContext(ctx, filepath.Join(tools.Root(), "hack", "components.sh"), r.Dir, version)
	if out, err := components.CombinedOutput(); err != nil {
		return fmt.Errorf("making release: %w: %s", err, out)
	}
	// Unchanged ones cost nothing the next time.
	bin := managers(version) + "/"
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return fmt.Errorf("making folder of managers: %w", err)
	}
	const variable = "github.com/nova-platform/cluster-api-provider-nova/internal/manager.version"
	var packages []string
	for _, p := range manifests.Providers() {
		packages = append(packages, "./cmd/"+p.Dir)
	}
	return tools.Build(ctx, bin, "-X "+variable+"="+version, packages...)
}

// managers is where those of a release are.
func managers(version string) string {
	sum := sha256.Sum256([]byte(tools.Root()))
	return filepath.Join(bed.Cache(), "bin", hex.EncodeToString(sum[:4]), version)
}

// core adds Cluster API's core provider to the repository, as in its release,
// and to the configuration.
func (r *Repository) core(ctx context.Context) error {
	module, err := tools.ModuleDir(ctx, "sigs.k8s.io/cluster-api")
	if err != nil {
		return err
	}
	components, err := exec.CommandContext(ctx, r.programs["kubectl"], "kustomize", filepath.Join(module, "core", "config", "default")).Output()
	if err != nil {
		return fmt.Errorf("rendering core provider: %w", err)
	}
	r.CoreVersion = filepath.Base(module)[len("cluster-api@"):]
	release := filepath.Join(r.Dir, "cluster-api", r.CoreVersion)
	if err := os.MkdirAll(release, 0o755); err != nil {
		return fmt.Errorf("making folder of core provider: %w", err)
	}
	metadata, err := os.ReadFile(filepath.Join(module, "metadata.yaml"))
	if err != nil {
		return fmt.Errorf("reading metadata of core provider: %w", err)
	}
	// components.sh replaces it for each release, without the core.
	config, err := os.ReadFile(r.Config())
	if err != nil {
		return fmt.Errorf("reading configuration of clusterctl: %w", err)
	}
	provider := fmt.Sprintf("- name: cluster-api\n  type: CoreProvider\n  url: %s/core-components.yaml\n", release)
	return errors.Join(
		os.WriteFile(filepath.Join(release, "core-components.yaml"), components, 0o644),
		os.WriteFile(filepath.Join(release, "metadata.yaml"), metadata, 0o644),
		os.WriteFile(r.Config(), append(config, provider...), 0o644),
	)
}

// Program returns the program that an image would run: the manager of the
// release in the image's tag, or an empty string.
func (r *Repository) Program(image string) string {
	image, tag := bed.ImageName(image)
	path := filepath.Join(managers(tag), image)
	if image == coreImage {
		path = r.programs["capi-core"]
	}
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// CertManager installs cert-manager's definitions: to clusterctl it is there
// already, as where another team runs it.
func CertManager(ctx context.Context, c client.Client) error {
	module, err := tools.ToolDir(ctx, "cert-manager", "github.com/cert-manager/cert-manager")
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(module, "deploy", "crds", "*.yaml"))
	if err != nil {
		return fmt.Errorf("finding definitions of cert-manager: %w", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("reading definitions of cert-manager: %w", err)
		}
		objects, err := manifests.Objects(data)
		if err != nil {
			return err
		}
		if err := bed.Apply(ctx, c, objects...); err != nil {
			return err
		}
	}
	return nil
}
