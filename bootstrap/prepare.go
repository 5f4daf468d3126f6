package bootstrap

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

const (
	// firstCommand sorts before the user's commands, in any locale.
	firstCommand = "000"
	// snippetsDir holds the files that containerd's configuration imports.
	snippetsDir = "/etc/containerd/conf.d"

	defaultFilesystem = "ext4"
	defaultShell      = "/bin/bash"
)

// prepareScript holds the functions that prepare a machine.
//
//go:embed prepare.sh
var prepareScript []byte

// rebootFiles let a machine with cloud-init continue after a reboot: cloud-init
// runs a command on the first boot only. Ignition sets kernel arguments before
// the system starts, and has the unit anyway.
func rebootFiles(in *Input) []writeFile {
	if len(in.Spec.Kernel.Arguments) == 0 || in.Spec.GetFormat() == bootstrapv1.FormatIgnition {
		return nil
	}
	return []writeFile{newFile("/etc/systemd/system/nova-bootstrap.service", "0644", []byte(unit))}
}

// prepareFiles prepare the machine before the user's commands run: the script
// with the functions, and a file with the calls. A machine without such
// settings has none of them.
func prepareFiles(in *Input) ([]writeFile, error) {
	files, err := nodeFiles(in)
	if err != nil {
		return nil, err
	}
	files = append(files, rebootFiles(in)...)
	calls := prepareCalls(in)
	if len(calls) == 0 {
		return files, nil
	}
	script := bytes.NewBuffer(bytes.Clone(prepareScript))
	script.WriteByte('\n')
	for _, call := range calls {
		for i, word := range call {
			if i > 0 {
				script.WriteByte(' ')
				word = quote(word)
			}
			script.WriteString(word)
		}
		script.WriteByte('\n')
	}
	return append(files, newFile(path.Join(runDir, "preKubeadmCommands", firstCommand), "0600", script.Bytes())), nil
}

// nodeFiles are the files for the settings of the NovaConfig.
func nodeFiles(in *Input) ([]writeFile, error) {
	files, err := accountFiles(in)
	if err != nil {
		return nil, err
	}
	spec := &in.Spec
	if modules := kernelModules(in); len(modules) > 0 {
		files = append(files, newFile("/etc/modules-load.d/90-nova.conf", "0644", []byte(strings.Join(modules, "\n")+"\n")))
	}
	if len(spec.Kernel.Sysctls) > 0 {
		settings := &bytes.Buffer{}
		for _, s := range spec.Kernel.Sysctls {
			fmt.Fprintf(settings, "%s = %s\n", s.Name, s.Value)
		}
		files = append(files, newFile("/etc/sysctl.d/90-nova.conf", "0644", settings.Bytes()))
	}
	for _, s := range spec.Containerd.Snippets {
		files = append(files, newFile(path.Join(snippetsDir, "nova-"+s.Name+".toml"), "0600", []byte(s.Content)))
	}
	return files, nil
}

// passwordHash matches the password field of /etc/shadow: algorithm, salt, and
// hash. It excludes the broken algorithms DES and MD5.
var passwordHash = regexp.MustCompile(`^\$(y|gy|7|2[abxy]|5|6)\$[./A-Za-z0-9$=,]{20,}$`)

// accountFiles are the keys, passwords and sudo rules of users.
func accountFiles(in *Input) ([]writeFile, error) {
	var files []writeFile
	for i := range in.Spec.Users {
		u := &in.Spec.Users[i]
		if len(u.SSHAuthorizedKeys) > 0 {
			keys := strings.Join(u.SSHAuthorizedKeys, "\n") + "\n"
			files = append(files, newFile(path.Join(runDir, "users", u.Name), "0600", []byte(keys)))
		}
		if from := u.PasswordHashSecretRef; from.Name != "" {
			hash := strings.TrimSpace(in.PasswordHashes[u.Name])
			if !passwordHash.MatchString(hash) {
				return nil, renderErrorf(fmt.Sprintf("spec.users[%s].passwordHashSecretRef", u.Name),
					"key %s of Secret %s holds no hash of a password; make one with \"mkpasswd\"", from.Key, from.Name)
			}
			files = append(files, newFile(path.Join(runDir, "users", u.Name+".hash"), "0600", []byte(u.Name+":"+hash+"\n")))
		}
		if u.Sudo != "" {
			files = append(files, newFile("/etc/sudoers.d/90-nova-"+u.Name, "0440", []byte(u.Name+" "+u.Sudo+"\n")))
		}
	}
	return files, nil
}

// prepareCalls are the calls of the script's functions. Calls that can reboot
// the machine come first, and disks next, because later calls may write to the
// disks.
func prepareCalls(in *Input) [][]string {
	return append(machineCalls(in), platformCalls(in)...)
}

// kernelModules are the modules to load, including those of kube-proxy.
func kernelModules(in *Input) []string {
	modules := slices.Clone(in.Spec.Kernel.Modules)
	for _, module := range kubeProxyModules(&in.Platform) {
		if !slices.Contains(modules, module) {
			modules = append(modules, module)
		}
	}
	return modules
}

// machineCalls are the calls for the settings of the NovaConfig.
func machineCalls(in *Input) [][]string {
	var calls [][]string
	spec := &in.Spec
	if len(spec.Kernel.Arguments) > 0 {
		calls = append(calls, append([]string{"boot_with"}, spec.Kernel.Arguments...))
	}
	for _, p := range spec.Partitions {
		call := []string{"partition_disk", p.Device}
		for _, size := range p.SizesMiB {
			call = append(call, strconv.Itoa(int(size)))
		}
		calls = append(calls, call)
	}
	for i := range spec.Disks {
		d := &spec.Disks[i]
		calls = append(calls, []string{
			"use_disk", d.Device, cmp.Or(d.Filesystem, defaultFilesystem), d.MountPath, cmp.Or(strings.Join(d.MountOptions, ","), "defaults"),
		})
	}
	for _, m := range spec.Mounts {
		calls = append(calls, []string{"mount_filesystem", m.Source, m.MountPath, m.Filesystem, cmp.Or(strings.Join(m.MountOptions, ","), "defaults")})
	}
	if in.Mode.controlPlane() && in.Etcd.DataDir != "" {
		calls = append(calls, []string{"make_etcd_dir", in.Etcd.DataDir})
	}
	if spec.Swap.SizeMiB > 0 {
		calls = append(calls, []string{"add_swap", strconv.Itoa(int(spec.Swap.SizeMiB))})
	}
	if modules := kernelModules(in); len(modules) > 0 {
		calls = append(calls, append([]string{"load_modules"}, modules...))
	}
	if len(spec.Kernel.Sysctls) > 0 {
		calls = append(calls, []string{"apply_sysctls"})
	}
	for i := range spec.Users {
		u := &spec.Users[i]
		calls = append(calls, append([]string{"add_user", u.Name, cmp.Or(u.Shell, defaultShell)}, u.Groups...))
	}
	return append(calls, chownCommands(spec)...)
}

// platformCalls are the calls for the settings of the platform, and for
// containerd.
func platformCalls(in *Input) [][]string {
	var calls [][]string
	p := &in.Platform
	if r := &p.DNS.Nodes; len(r.Servers) > 0 {
		calls = append(calls, []string{"set_resolvers", strings.Join(r.Servers, " "), strings.Join(r.SearchDomains, " ")})
	}
	forContainerd := len(calls)
	if p.Proxy.Used() {
		calls = append(calls, []string{"use_proxy"})
	}
	if len(in.PlatformData.ProxyCA) > 0 || len(in.PlatformData.MirrorCA) > 0 {
		calls = append(calls, []string{"trust"})
	}
	if len(registryHosts(in)) > 0 {
		calls = append(calls, []string{"set_config_path"})
	}
	if len(in.Spec.Containerd.Snippets) > 0 {
		calls = append(calls, []string{"import_snippets"})
	}
	// Each of these calls needs a restart of containerd; name and time servers
	// do not.
	if len(calls) > forContainerd {
		calls = append(calls, []string{"restart_containerd"})
	}
	if len(p.NTP.Servers) > 0 {
		calls = append(calls, append([]string{"set_time_servers"}, p.NTP.Servers...))
	}
	return calls
}
