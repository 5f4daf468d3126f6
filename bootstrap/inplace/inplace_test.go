package inplace

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

// Every field of the API has a rule: whether a new field can be changed in place
// has to be decided.
func TestEveryFieldHasARule(t *testing.T) {
	paths := map[string]bool{}
	collect(reflect.TypeFor[bootstrapv1.NovaConfigSpec](), "", paths)
	if len(paths) < 40 {
		t.Fatalf("only %d fields were found", len(paths))
	}
	for path := range paths {
		if _, known := rules[path]; !known {
			t.Errorf("field %s has no rule", path)
		}
	}
	for path := range rules {
		if !paths[path] {
			t.Errorf("rule %s has no field", path)
		}
	}
}

func collect(of reflect.Type, prefix string, into map[string]bool) {
	for field := range of.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "" && field.Anonymous:
			collect(field.Type, prefix, into)
		case prefix == "" && slices.Contains(groups, name):
			collect(field.Type, name+".", into)
		default:
			into[prefix+name] = true
		}
	}
}

// base has a value for each field with a rule that depends on values.
func base() *bootstrapv1.NovaConfigSpec {
	s := &bootstrapv1.NovaConfigSpec{Rollout: bootstrapv1.WorkerRolloutSpec{InPlace: bootstrapv1.InPlacePrefer}}
	s.Files = []bootstrapv1.File{{Path: "/etc/a", Content: "1"}, {Path: "/etc/b", Content: "1", Append: ptr.To(true)}}
	s.Users = []bootstrapv1.User{{
		Name: "ops", SSHAuthorizedKeys: []string{"one"}, Groups: []string{"adm"}, PasswordHashSecretRef: bootstrapv1.KeyReference{Name: "ops", Key: "hash"}, Sudo: "ALL",
	}}
	s.Kubelet.ExtraArgs = []bootstrapv1.Arg{{Name: "v", Value: ptr.To("2")}, {Name: "node-labels", Value: ptr.To("disk=fast")}}
	s.Kubeadm.ConfigPatches = []bootstrapv1.ConfigPatch{{Kind: "KubeletConfiguration", Patch: "maxPods: 1"}, {Kind: "JoinConfiguration", Patch: "{}"}}
	s.Kernel = bootstrapv1.KernelSpec{Modules: []string{"ip_vs"}, Sysctls: []bootstrapv1.Sysctl{{Name: "vm.swappiness", Value: "1"}}}
	s.Containerd.Snippets = []bootstrapv1.ContainerdSnippet{{Name: "a", Content: "x = 1"}}
	s.Platform.NTP.Servers = []string{"a"}
	s.Platform.DNS.Nodes.Servers = []string{"10.0.0.53"}
	s.Platform.Proxy.HTTPProxy = "http://proxy:3128"
	s.Platform.Proxy.TrustedCAFrom.Secret = bootstrapv1.KeyReference{Name: "ca", Key: "ca.crt"}
	s.Platform.RegistryMirrors = []bootstrapv1.RegistryMirror{{Registry: "docker.io", Endpoints: []string{"https://mirror"}}}
	s.Platform.MirrorCredentialsSecretRef.Name = "mirror"
	s.Platform.MirrorTrustedCAFrom.Secret = bootstrapv1.KeyReference{Name: "ca", Key: "ca.crt"}
	return s
}

func TestChanges(t *testing.T) {
	type spec = bootstrapv1.NovaConfigSpec
	for name, tc := range map[string]struct {
		change func(*spec)
		// inPlace are the fields that can be changed, replaced those that cannot.
		inPlace, replaced string
	}{
		"Nothing":           {change: func(*spec) {}},
		"FileChanged":       {change: func(s *spec) { s.Files[0].Content = "2" }, inPlace: "spec.files"},
		"FileMode":          {change: func(s *spec) { s.Files[0].Permissions = "0600" }, inPlace: "spec.files"},
		"FileAdded":         {change: func(s *spec) { s.Files = append(s.Files, bootstrapv1.File{Path: "/etc/c"}) }, inPlace: "spec.files"},
		"FileRemoved":       {change: func(s *spec) { s.Files = s.Files[1:] }, replaced: "spec.files"},
		"AppendedChanged":   {change: func(s *spec) { s.Files[1].Content = "2" }, replaced: "spec.files"},
		"AppendedNoMore":    {change: func(s *spec) { s.Files[1].Append = nil }, replaced: "spec.files"},
		"AppendedNow":       {change: func(s *spec) { s.Files[0].Append = ptr.To(true) }, replaced: "spec.files"},
		"AppendedAdded":     {change: func(s *spec) { s.Files = append(s.Files, bootstrapv1.File{Path: "/etc/c", Append: ptr.To(true)}) }, replaced: "spec.files"},
		"UserAdded":         {change: func(s *spec) { s.Users = append(s.Users, bootstrapv1.User{Name: "new"}) }, inPlace: "spec.users"},
		"UserRemoved":       {change: func(s *spec) { s.Users = nil }, replaced: "spec.users"},
		"KeyAdded":          {change: func(s *spec) { s.Users[0].SSHAuthorizedKeys = []string{"two", "one"} }, inPlace: "spec.users"},
		"KeyRemoved":        {change: func(s *spec) { s.Users[0].SSHAuthorizedKeys = []string{"two"} }, replaced: "spec.users"},
		"GroupRemoved":      {change: func(s *spec) { s.Users[0].Groups = nil }, replaced: "spec.users"},
		"Shell":             {change: func(s *spec) { s.Users[0].Shell = "/bin/sh" }, replaced: "spec.users"},
		"Password":          {change: func(s *spec) { s.Users[0].PasswordHashSecretRef.Name = "other" }, inPlace: "spec.users"},
		"PasswordRemoved":   {change: func(s *spec) { s.Users[0].PasswordHashSecretRef = bootstrapv1.KeyReference{} }, replaced: "spec.users"},
		"SudoRemoved":       {change: func(s *spec) { s.Users[0].Sudo = "" }, inPlace: "spec.users"},
		"KubeletArgs":       {change: func(s *spec) { s.Kubelet.ExtraArgs[0].Value = ptr.To("4") }, inPlace: "spec.kubelet.extraArgs"},
		"KubeletArgsGone":   {change: func(s *spec) { s.Kubelet = bootstrapv1.KubeletSpec{} }, inPlace: "spec.kubelet.extraArgs"},
		"KubeletNodeIP":     {change: func(s *spec) { s.Kubelet.ExtraArgs[0].Name = "node-ip" }, replaced: "spec.kubelet.extraArgs"},
		"KubeletConfig":     {change: func(s *spec) { s.Kubeadm.ConfigPatches[0].Patch = "maxPods: 2" }, inPlace: "spec.kubeadm.configPatches"},
		"JoinConfig":        {change: func(s *spec) { s.Kubeadm.ConfigPatches[1].Patch = "x: 2" }, replaced: "spec.kubeadm.configPatches"},
		"Patches":           {change: func(s *spec) { s.Kubeadm.Patches = []bootstrapv1.ComponentPatch{{Target: "kubeletconfiguration"}} }, inPlace: "spec.kubeadm.patches"},
		"Verbosity":         {change: func(s *spec) { s.Kubeadm.Verbosity = ptr.To(int32(5)) }, inPlace: "spec.kubeadm.verbosity"},
		"PullPolicy":        {change: func(s *spec) { s.Kubeadm.ImagePullPolicy = "Always" }, replaced: "spec.kubeadm.imagePullPolicy"},
		"ModuleAdded":       {change: func(s *spec) { s.Kernel.Modules = []string{"ip_vs", "x"} }, inPlace: "spec.kernel.modules"},
		"ModuleRemoved":     {change: func(s *spec) { s.Kernel.Modules = nil }, replaced: "spec.kernel.modules"},
		"Sysctl":            {change: func(s *spec) { s.Kernel.Sysctls[0].Value = "2" }, inPlace: "spec.kernel.sysctls"},
		"SysctlRemoved":     {change: func(s *spec) { s.Kernel.Sysctls[0].Name = "vm.other" }, replaced: "spec.kernel.sysctls"},
		"KernelArguments":   {change: func(s *spec) { s.Kernel.Arguments = []string{"quiet"} }, replaced: "spec.kernel.arguments"},
		"Snippet":           {change: func(s *spec) { s.Containerd.Snippets = nil }, inPlace: "spec.containerd.snippets"},
		"NTP":               {change: func(s *spec) { s.Platform.NTP.Servers = []string{"b"} }, inPlace: "spec.platform.ntp"},
		"NTPRemoved":        {change: func(s *spec) { s.Platform.NTP = bootstrapv1.NTPSpec{} }, inPlace: "spec.platform.ntp"},
		"Proxy":             {change: func(s *spec) { s.Platform.Proxy.NoProxy = []string{"x"} }, inPlace: "spec.platform.proxy"},
		"ProxyRemoved":      {change: func(s *spec) { s.Platform.Proxy = bootstrapv1.ProxySpec{} }, inPlace: "spec.platform.proxy"},
		"ProxyCA":           {change: func(s *spec) { s.Platform.Proxy.TrustedCAFrom = bootstrapv1.FileSource{} }, inPlace: "spec.platform.proxy"},
		"NameServers":       {change: func(s *spec) { s.Platform.DNS.Nodes.Servers = []string{"10.0.0.54"} }, inPlace: "spec.platform.dns"},
		"NameServersGone":   {change: func(s *spec) { s.Platform.DNS.Nodes = bootstrapv1.NodeDNSSpec{} }, inPlace: "spec.platform.dns"},
		"BaseDomain":        {change: func(s *spec) { s.Platform.DNS.BaseDomain = "example.org" }, inPlace: "spec.platform.dns"},
		"Mirrors":           {change: func(s *spec) { s.Platform.RegistryMirrors[0].Endpoints = []string{"https://other"} }, inPlace: "spec.platform.registryMirrors"},
		"MirrorsRemoved":    {change: func(s *spec) { s.Platform.RegistryMirrors = nil }, replaced: "spec.platform.registryMirrors"},
		"MirrorCredentials": {change: func(s *spec) { s.Platform.MirrorCredentialsSecretRef.Name = "" }, inPlace: "spec.platform.mirrorCredentialsSecretRef"},
		"MirrorCA":          {change: func(s *spec) { s.Platform.MirrorTrustedCAFrom.Secret.Name = "other" }, inPlace: "spec.platform.mirrorTrustedCAFrom"},
		"Only":              {change: func(s *spec) { s.Rollout.InPlace = bootstrapv1.InPlaceOnly }, inPlace: "spec.rollout.inPlace"},
		"NeverAgain":        {change: func(s *spec) { s.Rollout.InPlace = "" }, replaced: "spec.rollout.inPlace"},
		"Several": {
			change: func(s *spec) {
				s.Files[0].Content, s.Kernel.Sysctls[0].Value = "2", "2"
				s.Disks, s.Taints = []bootstrapv1.Disk{{Device: "/dev/sdb"}}, []bootstrapv1.Taint{{Key: "x"}}
			},
			inPlace: "spec.files spec.kernel.sysctls", replaced: "spec.disks spec.taints",
		},
	} {
		t.Run(name, func(t *testing.T) {
			was, is := base(), base()
			tc.change(is)
			changed, replaced, err := Compare(was, is)
			if err != nil || strings.Join(changed, " ") != tc.inPlace || strings.Join(replaced, " ") != tc.replaced {
				t.Errorf("in place %v, replaced %v, err = %v; want %q, %q", changed, replaced, err, tc.inPlace, tc.replaced)
			}
		})
	}
}
