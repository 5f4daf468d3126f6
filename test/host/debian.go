package host

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// System is the system of node images whose root file system hosts boot from: a name in systems.tsv
// of Debian's family.
func System() string { return cmp.Or(os.Getenv("NOVA_SYSTEM"), "debian-13") }

// recipeDir contains the recipe of node images, which the hosts share.
func recipeDir() string { return filepath.Join(tools.Root(), "hack", "image") }

// recipeSystem is a row of systems.tsv.
type recipeSystem struct {
	name, release, mirror string
}

// recipeSystems are the systems that node images can have.
func recipeSystems() ([]recipeSystem, error) {
	data, err := os.ReadFile(filepath.Join(recipeDir(), "systems.tsv"))
	if err != nil {
		return nil, fmt.Errorf("reading the recipe of node images: %w", err)
	}
	var systems []recipeSystem
	for row := range strings.Lines(string(data)) {
		if fields := strings.Split(row, "\t"); !strings.HasPrefix(row, "#") && len(fields) > 3 {
			systems = append(systems, recipeSystem{name: fields[0], release: fields[2], mirror: fields[3]})
		}
	}
	return systems, nil
}

// findSystem returns a system, and the releases that its package archive has: its own first.
func findSystem(systems []recipeSystem, name string) (recipeSystem, []string, error) {
	at := slices.IndexFunc(systems, func(s recipeSystem) bool { return s.name == name })
	if at < 0 {
		return recipeSystem{}, nil, fmt.Errorf("the recipe of node images has no system %q", name)
	}
	releases := []string{systems[at].release}
	for i, other := range systems {
		if i != at && other.mirror == systems[at].mirror {
			releases = append(releases, other.release)
		}
	}
	return systems[at], releases, nil
}

// rootKey names the parts of the recipe that the root file system of a system depends on.
func rootKey(system string) ([]string, error) {
	var key []string
	for _, part := range []struct{ name, lines string }{
		{"root.sh", ""}, {"packages.sh", ""}, {"systems.tsv", system + "\t"}, {"packages.tsv", "root\t"},
		{"../tools/containerd/go.mod", ""},
	} {
		data, err := os.ReadFile(filepath.Join(recipeDir(), part.name))
		if err != nil {
			return nil, fmt.Errorf("reading the recipe of node images: %w", err)
		}
		for line := range strings.Lines(string(data)) {
			if strings.HasPrefix(line, part.lines) {
				key = append(key, line)
			}
		}
	}
	return key, nil
}

// buildRoot returns the root file system of hosts, as node images have it: a system of Debian's
// family with containerd.
func buildRoot(ctx context.Context, c cache, name string) (string, error) {
	systems, err := recipeSystems()
	if err != nil {
		return "", err
	}
	system, releases, err := findSystem(systems, name)
	if err != nil {
		return "", err
	}
	key, err := rootKey(name)
	if err != nil {
		return "", err
	}
	return c.get(ctx, "debian", key, func(ctx context.Context, dir string) error {
		if err := buildDebian(ctx, dir, system.name, releases); err != nil {
			return err
		}
		programs, err := tools.Paths(ctx, c.log, runtimePrograms...)
		if err != nil {
			return err
		}
		for name, path := range programs {
			if err := copyFile(path, filepath.Join(dir, "usr/bin", name), 0o755); err != nil {
				return err
			}
		}
		return nil
	})
}

// buildDebian fills dir with the root file system of a system, from the mirror that this machine's
// own apt uses.
func buildDebian(ctx context.Context, dir, system string, releases []string) error {
	mirror, err := aptMirror("/etc/apt", releases...)
	if err != nil {
		return err
	}
	settings, err := aptSettings(ctx)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--propagation", "private", "/bin/sh", filepath.Join(recipeDir(), "root.sh"))
	cmd.Env = append(os.Environ(), "ROOT="+dir, "SYSTEM="+system, "MIRROR="+mirror, "APT_SETTINGS="+settings)
	return runQuietly(cmd)
}

// aptSettings are how this machine's own apt reaches its mirror.
func aptSettings(ctx context.Context) (string, error) {
	settings, err := exec.CommandContext(ctx, "apt-config", "dump", "--format", "%f \"%v\";%n", "Acquire::http", "Acquire::https").Output()
	if err != nil {
		return "", fmt.Errorf("reading the settings of apt: %w", err)
	}
	return string(settings), nil
}

// aptMirror finds the address of a package archive that apt under etc uses, by the releases that the
// archive has. This machine may run another one than hosts.
func aptMirror(etc string, releases ...string) (string, error) {
	files := []string{filepath.Join(etc, "sources.list")}
	for _, pattern := range []string{"*.list", "*.sources"} {
		found, err := filepath.Glob(filepath.Join(etc, "sources.list.d", pattern))
		if err != nil {
			return "", fmt.Errorf("listing the sources of apt: %w", err)
		}
		files = append(files, found...)
	}
	for _, release := range releases {
		for _, file := range files {
			data, err := os.ReadFile(file)
			if os.IsNotExist(err) {
				continue
			}
			if err != nil {
				return "", fmt.Errorf("reading the sources of apt: %w", err)
			}
			parse := parseList
			if strings.HasSuffix(file, ".sources") {
				parse = parseSources
			}
			if mirror := parse(string(data), release); mirror != "" {
				return mirror, nil
			}
		}
	}
	return "", fmt.Errorf("no mirror of %s in %s: name one in its sources.list", strings.Join(releases, " or "), etc)
}

// parseList reads the one-line format: deb [options] address suite components.
func parseList(data, suite string) string {
	for line := range strings.Lines(data) {
		fields := strings.Fields(strings.SplitN(line, "#", 2)[0])
		if len(fields) == 0 || fields[0] != "deb" {
			continue
		}
		fields = fields[1:]
		if len(fields) > 0 && strings.HasPrefix(fields[0], "[") {
			end := slices.IndexFunc(fields, func(f string) bool { return strings.HasSuffix(f, "]") })
			fields = fields[end+1:]
		}
		if len(fields) >= 3 && fields[1] == suite && slices.Contains(fields[2:], "main") {
			return fields[0]
		}
	}
	return ""
}

// parseSources reads the format of stanzas: Types, URIs, Suites, Components.
func parseSources(data, suite string) string {
	for stanza := range strings.SplitSeq(data, "\n\n") {
		fields := map[string][]string{}
		for line := range strings.Lines(stanza) {
			if name, value, ok := strings.Cut(line, ":"); ok && !strings.HasPrefix(line, "#") {
				fields[strings.ToLower(name)] = strings.Fields(value)
			}
		}
		if slices.Contains(fields["types"], "deb") && slices.Contains(fields["suites"], suite) &&
			slices.Contains(fields["components"], "main") && len(fields["uris"]) > 0 && !slices.Equal(fields["enabled"], []string{"no"}) {
			return fields["uris"][0]
		}
	}
	return ""
}

// needPrograms installs the Debian packages of programs that this machine
// lacks. Packages are keyed by program.
func needPrograms(ctx context.Context, log io.Writer, packages map[string]string) error {
	var missing []string
	for program, pkg := range packages {
		if _, err := exec.LookPath(program); err != nil && !exists("/usr/sbin/"+program) {
			missing = append(missing, pkg)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("this machine lacks %s and has no apt-get: install them by hand", strings.Join(missing, ", "))
	}
	fmt.Fprintf(log, "host: installing %s\n", strings.Join(missing, ", "))
	install := append([]string{"install", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300"}, missing...)
	for _, args := range [][]string{{"update"}, install} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
		if err := runQuietly(cmd); err != nil {
			return fmt.Errorf("installing %s: %w", strings.Join(missing, ", "), err)
		}
	}
	return nil
}

// runQuietly runs a command and puts the end of its output into the error.
func runQuietly(cmd *exec.Cmd) error {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		tail := strings.TrimSpace(out.String())
		if len(tail) > 2000 {
			tail = tail[len(tail)-2000:]
		}
		return fmt.Errorf("running %s: %w: %s", filepath.Base(cmd.Path), err, tail)
	}
	return nil
}
