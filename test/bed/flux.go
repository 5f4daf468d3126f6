package bed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed/supervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// AddonProvider is the manager that needs Flux.
const AddonProvider = "nova-addon"

// fluxResources are the controllers of Flux that a bed runs, with the kinds
// that they watch.
var fluxResources = map[string]string{
	"source-controller":    "gitrepositories",
	"kustomize-controller": "kustomizations",
	"helm-controller":      "helmreleases",
}

// fluxControllers are their names in the order of their ports.
var fluxControllers = []string{"source-controller", "kustomize-controller", "helm-controller"}

func isFlux(name string) bool { return slices.Contains(fluxControllers, name) }

// fluxStorage is the address at which source-controller serves its artifacts.
const fluxStorage = "127.0.0.1:9690"

// fluxOverlay writes a kustomization of a controller's own manifests. Its
// default one fetches other controllers from the Internet.
func (b *Bed) fluxOverlay(ctx context.Context, name string) (string, error) {
	short := strings.TrimSuffix(name, "-controller")
	module, err := tools.ToolDir(ctx, "components", "github.com/fluxcd/"+name)
	if err != nil {
		return "", err
	}
	dir := b.layout.path("flux", short)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("writing manifests of %s: %w", name, err)
	}
	// Where a link leads elsewhere, a relative path would not lead back.
	from, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", fmt.Errorf("writing manifests of %s: %w", name, err)
	}
	resources := []string{"namespace.yaml", "account.yaml"}
	for _, part := range []string{"crd", "rbac", "manager"} {
		path, err := filepath.Rel(from, filepath.Join(module, "config", part))
		if err != nil {
			return "", fmt.Errorf("writing manifests of %s: %w", name, err)
		}
		resources = append(resources, path)
	}
	namespace := "flux-" + short
	files := map[string]any{
		"kustomization.yaml": map[string]any{"namespace": namespace, "resources": resources},
		"namespace.yaml":     map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace}},
		"account.yaml":       map[string]any{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"name": "default"}},
	}
	for file, content := range files {
		data, err := yaml.Marshal(content)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), data, 0o644)
		}
		if err != nil {
			return "", fmt.Errorf("writing manifests of %s: %w", name, err)
		}
	}
	return dir, nil
}

// takeFlux is takeManager for a controller of Flux, whose flags are its own.
func (b *Bed) takeFlux(name string, index int, components []*unstructured.Unstructured) (manager, []*unstructured.Unstructured, error) {
	m, objects, err := takeDeployment(name, components)
	if err != nil {
		return m, nil, err
	}
	m.health = loopback(healthPort + index)
	m.args = slices.DeleteFunc(m.args, func(arg string) bool { return strings.Contains(arg, "leader-election") })
	data := b.layout.path("flux", "data")
	m.args = withFlags(m.args, fluxFlags(name, m.health, loopback(diagnosticsPort+index), data)...)
	m.args = withFlags(m.args, fluxSettings(name)...)
	group := strings.TrimSuffix(name, "-controller") + ".toolkit.fluxcd.io"
	m.watches = authorizationv1.ResourceAttributes{Verb: "watch", Group: group, Resource: fluxResources[name]}
	m.env = []string{"RUNTIME_NAMESPACE=" + m.namespace}
	return m, objects, os.MkdirAll(data, 0o755)
}

// buildFlux builds Flux' controllers, with the lowest priority, while the rest
// starts.
func (b *Bed) buildFlux(ctx context.Context) {
	b.fluxBuilt = make(chan error, 1)
	ended := b.begin(fluxStep)
	go func() {
		programs, err := tools.PathsLater(ctx, b.log, fluxControllers...)
		for name, program := range programs {
			err = errors.Join(err, link(program, b.Program(name)))
		}
		ended(err)
		b.fluxBuilt <- err
	}()
}

// fluxProcess starts a controller of Flux as soon as it is built.
func (b *Bed) fluxProcess(m manager) supervisor.Process {
	process := m.process(b.layout, b.Program(m.name))
	process.After = append(process.After, b.Program(m.name))
	return process
}

// FluxBuilt waits until Flux is built, which takes minutes the first time. It
// may be called once after Start with FluxLater.
func (b *Bed) FluxBuilt(ctx context.Context) error {
	select {
	case err := <-b.fluxBuilt:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// AwaitFlux waits until Flux runs, after FluxBuilt.
func (b *Bed) AwaitFlux(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, m := range b.managers {
		if isFlux(m.name) {
			group.Go(func() error { return b.ready(ctx, m) })
		}
	}
	return group.Wait()
}

// fluxFlags let several controllers of Flux share an address. Artifacts are
// stored below data.
func fluxFlags(name, health, metrics, data string) []string {
	flags := []string{"health-addr=" + health, "metrics-addr=" + metrics, "events-addr="}
	if name == "source-controller" {
		flags = append(flags, "storage-path="+data, "storage-addr="+fluxStorage, "storage-adv-addr="+fluxStorage)
	}
	return flags
}

// fluxSettings are the settings that the guides recommend to an administrator.
func fluxSettings(name string) []string {
	if name == "source-controller" {
		return nil
	}
	// A tenant's objects may not reach into other namespaces.
	settings := []string{"no-cross-namespace-refs=true", "requeue-dependency=5s"}
	if name == "helm-controller" {
		// Otherwise a tag that is pushed again upgrades all Clusters at once, and
		// a version with + is not valid in the labels of some charts.
		settings = append(settings, "feature-gates=DisableChartDigestTracking=true")
	}
	if name == "kustomize-controller" {
		// A commit that fixes a failure must not wait for the failed
		// reconciliation.
		settings = append(settings, "feature-gates=CancelHealthCheckOnNewRevision=true")
	}
	return settings
}

// FluxPrograms are those of Flux' controllers, for the pods of an Empty.
func FluxPrograms(ctx context.Context, log io.Writer) (Programs, error) {
	paths, err := tools.Paths(ctx, log, fluxControllers...)
	return func(image string) string {
		name, _ := ImageName(image)
		return paths[name]
	}, err
}

// InstallFlux installs Flux' controllers as an administrator does. It does not
// wait for their pods.
func (e *Empty) InstallFlux(ctx context.Context) error {
	programs, err := tools.Paths(ctx, e.log, "kubectl")
	if err != nil {
		return err
	}
	for _, name := range fluxControllers {
		dir, err := e.fluxOverlay(ctx, name)
		if err != nil {
			return err
		}
		rendered, err := render(ctx, programs["kubectl"], dir)
		if err != nil {
			return err
		}
		objects, err := parse(rendered)
		if err != nil {
			return err
		}
		for _, object := range objects {
			if object.GetKind() == "Deployment" {
				err = addArgs(object, fluxSettings(name))
			}
			if err != nil {
				return fmt.Errorf("setting up %s: %w", name, err)
			}
		}
		if err := Apply(ctx, e.Client, objects...); err != nil {
			return err
		}
	}
	return nil
}

// addArgs adds flags to the first container of a Deployment.
func addArgs(deployment *unstructured.Unstructured, flags []string) error {
	fields := []string{"spec", "template", "spec", "containers"}
	containers, _, err := unstructured.NestedSlice(deployment.Object, fields...)
	if err != nil {
		return err
	}
	container := containers[0].(map[string]any)
	args, _, err := unstructured.NestedStringSlice(container, "args")
	if err != nil {
		return err
	}
	if err := unstructured.SetNestedStringSlice(container, withFlags(args, flags...), "args"); err != nil {
		return err
	}
	return unstructured.SetNestedSlice(deployment.Object, containers, fields...)
}
