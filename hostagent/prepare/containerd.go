package prepare

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

const (
	containerdConfig = "/etc/containerd/config.toml"
	// keptConfig is the configuration that containerd runs with, while it is changed.
	// It is empty if there is none. containerd imports only names that end with .toml.
	keptConfig = containerdConfig + ".nova-applied"
)

var (
	// registryTable is the table that names the folder with the mirrors.
	registryTable = regexp.MustCompile(`^\s*\[.*\.registry\]\s*(#.*)*$`)
	anyTable      = regexp.MustCompile(`^\s*\[`)
	configPath    = regexp.MustCompile(`^\s*config_path\s*=`)
	mirrorsPath   = regexp.MustCompile(`^\s*config_path\s*=\s*["']` + regexp.QuoteMeta(nodeconfig.MirrorsDir) + `["']\s*$`)
	newVersion    = regexp.MustCompile(`(?m)^ *version *= *([3-9]|[1-9][0-9])`)
	anyVersion    = regexp.MustCompile(`(?m)^version *= *(.*)$`)
	imports       = regexp.MustCompile(`(?m)^ *imports *= *\[`)
	ownImport     = regexp.MustCompile(`(?m)^ *imports *=.*` + regexp.QuoteMeta(nodeconfig.SnippetsDir) + `/`)
)

// containerdInput returns the settings that containerd reads when it starts. It
// reads the configuration of mirrors when it pulls an image.
func containerdInput(c *nodeconfig.Machine) any {
	files := containerdFiles(c)
	for _, f := range c.Files {
		if f.Path == nodeconfig.ProxyFile || strings.HasPrefix(f.Path, nodeconfig.CADir+"/") || strings.HasPrefix(f.Path, unitsDir+"containerd.service.d/") {
			files = append(files, f)
		}
	}
	return []any{c.Proxy, c.TrustCAs, c.Mirrors, c.Snippets, files}
}

// containerd configures the proxy, the trusted CAs, the mirrors and the snippets
// of containerd. Each of them needs a restart of containerd.
func containerd(ctx context.Context, m *machine.Machine, c *nodeconfig.Machine) error {
	changed := false
	for _, s := range []struct {
		set   bool
		apply func(context.Context, *machine.Machine) error
	}{
		{c.Proxy, func(ctx context.Context, m *machine.Machine) error { return m.Run(ctx, "systemctl", "daemon-reload") }},
		{c.TrustCAs, trust},
		{c.Mirrors, setConfigPath},
		{c.Snippets, importSnippets},
	} {
		if !s.set {
			continue
		}
		changed = true
		if err := s.apply(ctx, m); err != nil {
			return err
		}
	}
	if !changed {
		return nil
	}
	return restartContainerd(ctx, m, c)
}

var (
	// errContainerdConfig means that containerd cannot start with its configuration.
	errContainerdConfig = errors.New("containerd rejects its configuration")
	// errNoMirrors means that containerd would pull images from other registries.
	errNoMirrors = fmt.Errorf("a snippet removes the mirrors: also set config_path = %q for the registry in the snippet", nodeconfig.MirrorsDir)
)

// restartContainerd restarts containerd, unless it would not start, or would not
// use the mirrors: without it a node runs no pods any more.
func restartContainerd(ctx context.Context, m *machine.Machine, c *nodeconfig.Machine) error {
	if m.Exists(containerdConfig) {
		if _, err := m.Output(ctx, "containerd", "--config", m.At(containerdConfig), "config", "dump"); err != nil {
			return fmt.Errorf("%w: %w", errContainerdConfig, err)
		}
	}
	if c.Mirrors && !hasMirrors(ctx, m) {
		return errNoMirrors
	}
	return m.Run(ctx, "systemctl", "restart", "containerd")
}

// keepContainerd keeps the configuration that containerd runs with. One that is
// kept already is older than an interrupted change.
func keepContainerd(m *machine.Machine) error {
	if m.Exists(keptConfig) {
		return nil
	}
	info, err := os.Stat(m.At(containerdConfig))
	if errors.Is(err, os.ErrNotExist) {
		return m.Write(keptConfig, "", readable)
	}
	if err != nil {
		return err //nolint:wrapcheck // the caller wraps it
	}
	content, err := m.Load(containerdConfig)
	if err != nil {
		return err
	}
	return m.Write(keptConfig, content, info.Mode())
}

// restoreConfig replaces containerd's configuration by the one that is kept. The
// applied files do not have the settings that the agent has added to it.
func restoreConfig(m *machine.Machine) error {
	info, err := os.Stat(m.At(keptConfig))
	if err != nil {
		return err //nolint:wrapcheck // the caller wraps it
	}
	content, err := m.Load(keptConfig)
	switch {
	case err != nil:
		return err
	case content == "":
		err = m.Remove(containerdConfig)
	default:
		err = write(m, containerdConfig, content, info.Mode())
	}
	if err != nil {
		return err
	}
	return m.Remove(keptConfig)
}

// containerdFiles returns the files of containerd's configuration.
func containerdFiles(c *nodeconfig.Machine) []nodeconfig.File {
	var found []nodeconfig.File
	for _, f := range c.Files {
		if strings.HasPrefix(f.Path, path.Dir(containerdConfig)+"/") && !strings.HasPrefix(f.Path, nodeconfig.MirrorsDir+"/") {
			found = append(found, f)
		}
	}
	return found
}

// restoreContainerd replaces files of settings that containerd rejects by those
// that are applied, so that it starts after a reset too.
func restoreContainerd(ctx context.Context, m *machine.Machine, applied, rejected *nodeconfig.Machine) error {
	imported := func(c *nodeconfig.Machine) *nodeconfig.Machine {
		config := func(f nodeconfig.File) bool { return f.Path == containerdConfig }
		return &nodeconfig.Machine{Files: slices.DeleteFunc(containerdFiles(c), config)}
	}
	is, was := imported(applied), []*nodeconfig.Machine{imported(rejected)}
	for _, step := range []func() error{
		func() error { return removeFiles(ctx, m, was, is) },
		func() error { return files(ctx, m, is) },
		func() error { return owners(ctx, m, is) },
		func() error { return restoreConfig(m) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("restoring containerd's configuration: %w", err)
		}
	}
	if active(ctx, m, "containerd") {
		return nil
	}
	return m.Run(ctx, "systemctl", "restart", "containerd")
}

// trustStores are the folders for administrators, with the command that reads
// them.
var trustStores = []struct{ folder, update string }{
	{"/usr/local/share/ca-certificates", "update-ca-certificates"},
	{"/etc/pki/ca-trust/source/anchors", "update-ca-trust"},
	{"/etc/pki/trust/anchors", "update-ca-certificates"},
}

// ownCA matches the names of certificates that the manager writes.
var ownCA = regexp.MustCompile(`^nova-(proxy|mirror)-[0-9]{2,}\.crt$`)

// systemStore is the trust store itself.
const systemStore = "/etc/ssl/certs"

// trust makes the CA certificates those of the platform in the trust store of the
// system: in the folder for administrators or, if /usr is read-only, in the store
// itself. Certificates that it added before and that are not set any more are
// removed.
func trust(ctx context.Context, m *machine.Machine) error {
	if err := removeCAs(m); err != nil {
		return err
	}
	for _, store := range trustStores {
		if !m.Has(store.update) || !m.Exists(filepath.Dir(store.folder)) || copyCAs(m, store.folder, ".crt") != nil {
			continue
		}
		if err := m.Run(ctx, store.update); err != nil {
			return fmt.Errorf("the CA certificates cannot be added to the system's trust store: %w", err)
		}
		return nil
	}
	update := m.Find("update-ca-certificates")
	if update == "" || !m.Exists(systemStore) {
		return errors.New("no trust store was found on this system")
	}
	// Debian's command takes the folder as an option. Flatcar's reads the store
	// itself, and adds the files with this suffix.
	if script, err := os.ReadFile(update); err == nil && strings.Contains(string(script), "localcertsdir") {
		return m.Run(ctx, "update-ca-certificates", "--localcertsdir", m.At(nodeconfig.CADir))
	}
	if err := copyCAs(m, systemStore, ".pem"); err != nil {
		return err
	}
	return m.Run(ctx, "update-ca-certificates")
}

// removeCAs removes the CA certificates from the trust store that are not in the
// folder any more.
func removeCAs(m *machine.Machine) error {
	folders := []string{systemStore}
	for _, store := range trustStores {
		folders = append(folders, store.folder)
	}
	for _, folder := range folders {
		found, err := filepath.Glob(m.At(filepath.Join(folder, "nova-*")))
		if err != nil {
			return fmt.Errorf("listing CA certificates: %w", err)
		}
		for _, file := range found {
			name := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)) + ".crt"
			// Other certificates are of the image, or of files.
			if !ownCA.MatchString(name) || m.Exists(filepath.Join(nodeconfig.CADir, name)) {
				continue
			}
			if err := m.Remove(filepath.Join(folder, filepath.Base(file))); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyCAs copies the CA certificates to a folder, with this suffix.
func copyCAs(m *machine.Machine, folder, suffix string) error {
	entries, err := os.ReadDir(m.At(nodeconfig.CADir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("reading CA certificates: %w", err)
	}
	for _, entry := range entries {
		name := strings.TrimSuffix(entry.Name(), ".crt") + suffix
		if err := m.Write(filepath.Join(folder, name), m.Read(filepath.Join(nodeconfig.CADir, entry.Name())), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// makeConfig returns the configuration of containerd, or a new one if it has none. It has the version
// that this containerd writes: the version of a snippet must not be higher.
func makeConfig(ctx context.Context, m *machine.Machine) (string, error) {
	if m.Exists(containerdConfig) {
		return m.Load(containerdConfig)
	}
	version := "2"
	defaults, err := m.Output(ctx, "containerd", "config", "default")
	if found := anyVersion.FindStringSubmatch(defaults); err == nil && found != nil {
		version = strings.TrimSpace(found[1])
	}
	return "version = " + version + "\n", nil
}

// setConfigPath configures containerd to read only the folder with the mirrors:
// containerd 2 reads a list of two folders, which is its default, as the name of
// one folder.
func setConfigPath(ctx context.Context, m *machine.Machine) error {
	config, err := makeConfig(ctx, m)
	if err != nil {
		return err
	}
	return m.Edit(containerdConfig, withConfigPath(config), 0o644)
}

// withConfigPath returns containerd's configuration with the mirrors.
func withConfigPath(config string) string {
	out := &strings.Builder{}
	setting := fmt.Sprintf("  config_path = %q\n", nodeconfig.MirrorsDir)
	within, found := false, false
	for line := range strings.Lines(config) {
		text := strings.TrimRight(line, "\n")
		if anyTable.MatchString(text) {
			within = registryTable.MatchString(text)
		}
		if within && configPath.MatchString(text) {
			continue
		}
		out.WriteString(text + "\n")
		if registryTable.MatchString(text) {
			found = true
			out.WriteString(setting)
		}
	}
	if !found {
		plugin := "io.containerd.grpc.v1.cri"
		if newVersion.MatchString(config) {
			plugin = "io.containerd.cri.v1.images"
		}
		fmt.Fprintf(out, "\n[plugins.%q.registry]\n%s", plugin, setting)
	}
	return out.String()
}

// importSnippets adds the snippets to the imports of containerd's configuration.
func importSnippets(ctx context.Context, m *machine.Machine) error {
	config, err := makeConfig(ctx, m)
	if err != nil {
		return err
	}
	switch at := imports.FindStringIndex(config); {
	case ownImport.MatchString(config):
	case at != nil:
		config = config[:at[1]] + fmt.Sprintf("%q, ", nodeconfig.SnippetsDir+"/*.toml") + config[at[1]:]
	default:
		config = fmt.Sprintf("imports = [%q]\n", nodeconfig.SnippetsDir+"/*.toml") + config
	}
	return m.Edit(containerdConfig, config, 0o644)
}

// hasMirrors reports whether containerd uses the mirrors. Imported files take
// precedence, and in an older containerd an imported file replaces all settings
// of a plugin: then images would be pulled from other registries without an
// error.
func hasMirrors(ctx context.Context, m *machine.Machine) bool {
	// For tables of an older version, only "migrate" of containerd 2.0 prints
	// them; older releases have no such subcommand.
	for _, subcommand := range []string{"dump", "migrate"} {
		config, err := m.Output(ctx, "containerd", "--config", m.At(containerdConfig), "config", subcommand)
		if err == nil && namesMirrors(config) {
			return true
		}
	}
	return false
}

func namesMirrors(config string) bool {
	within := false
	for line := range strings.Lines(config) {
		line = strings.TrimRight(line, "\n")
		if anyTable.MatchString(line) {
			within = registryTable.MatchString(line)
		}
		if within && mirrorsPath.MatchString(line) {
			return true
		}
	}
	return false
}
