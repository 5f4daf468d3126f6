package bootstrap

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

const (
	defaultFilesystem   = "ext4"
	defaultMountOptions = "defaults"
	defaultShell        = "/bin/bash"
)

// machineSettings are the settings of the operating system, without files and
// users. Ignition sets kernel arguments before the system starts.
func machineSettings(in *Input) nodeconfig.Machine {
	spec, p := &in.Spec, &in.Platform
	settings := nodeconfig.Machine{
		KernelModules: kernelModules(in),
		SwapMiB:       int(spec.Swap.SizeMiB),
		NameServers:   p.DNS.Nodes.Servers,
		SearchDomains: p.DNS.Nodes.SearchDomains,
		TimeServers:   p.NTP.Servers,
		Proxy:         p.Proxy.Used(),
		TrustCAs:      len(in.PlatformData.ProxyCA) > 0 || len(in.PlatformData.MirrorCA) > 0,
		Mirrors:       len(registryHosts(in)) > 0,
		Snippets:      len(spec.Containerd.Snippets) > 0,
	}
	if spec.GetFormat() != bootstrapv1.FormatIgnition {
		settings.KernelArguments = spec.Kernel.Arguments
	}
	if in.Mode.controlPlane() {
		settings.EtcdDir = in.Etcd.DataDir
	}
	for _, s := range spec.Kernel.Sysctls {
		settings.Sysctls = append(settings.Sysctls, nodeconfig.Setting{Name: s.Name, Value: s.Value})
	}
	for _, p := range spec.Partitions {
		table := nodeconfig.PartitionTable{Device: p.Device}
		for _, size := range p.SizesMiB {
			table.SizesMiB = append(table.SizesMiB, int(size))
		}
		settings.Partitions = append(settings.Partitions, table)
	}
	for i := range spec.Disks {
		d := &spec.Disks[i]
		settings.Disks = append(settings.Disks, nodeconfig.Mount{
			Source: d.Device, Path: d.MountPath, Filesystem: cmp.Or(d.Filesystem, defaultFilesystem), Options: mountOptions(d.MountOptions),
		})
	}
	for _, m := range spec.Mounts {
		settings.Mounts = append(settings.Mounts, nodeconfig.Mount{Source: m.Source, Path: m.MountPath, Filesystem: m.Filesystem, Options: mountOptions(m.MountOptions)})
	}
	return settings
}

func mountOptions(options []string) string {
	return cmp.Or(strings.Join(options, ","), defaultMountOptions)
}

// addSnippets adds the snippets of containerd's configuration.
func addSnippets(in *Input, config *nodeconfig.Config) error {
	for _, s := range in.Spec.Containerd.Snippets {
		config.Machine.Files = append(config.Machine.Files, newFile(path.Join(nodeconfig.SnippetsDir, "nova-"+s.Name+".toml"), "0600", []byte(s.Content)))
	}
	return nil
}

// passwordHash matches the password field of /etc/shadow: algorithm, salt, and
// hash. It excludes the broken algorithms DES and MD5.
var passwordHash = regexp.MustCompile(`^\$(y|gy|7|2[abxy]|5|6)\$[./A-Za-z0-9$=,]{20,}$`)

// addAccounts adds users with their keys, passwords and sudo rules.
func addAccounts(in *Input, config *nodeconfig.Config) error {
	for i := range in.Spec.Users {
		u := &in.Spec.Users[i]
		user := nodeconfig.User{Name: u.Name, Shell: cmp.Or(u.Shell, defaultShell), Groups: u.Groups, Keys: u.SSHAuthorizedKeys}
		if from := u.PasswordHashSecretRef; from.Name != "" {
			user.PasswordHash = strings.TrimSpace(in.PasswordHashes[u.Name])
			if !passwordHash.MatchString(user.PasswordHash) {
				return renderErrorf(fmt.Sprintf("spec.users[%s].passwordHashSecretRef", u.Name),
					"key %s of Secret %s holds no hash of a password; make one with \"mkpasswd\"", from.Key, from.Name)
			}
		}
		config.Machine.Users = append(config.Machine.Users, user)
		if u.Sudo != "" {
			config.Machine.Files = append(config.Machine.Files, newFile("/etc/sudoers.d/90-nova-"+u.Name, "0440", []byte(u.Name+" "+u.Sudo+"\n")))
		}
	}
	return nil
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
