package inplace

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"k8s.io/utils/ptr"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

type spec = bootstrapv1.NovaConfigSpec

// rule reports whether the change of a field can be applied in place.
type rule func(was, is *spec) bool

func always(_, _ *spec) bool { return true }
func never(_, _ *spec) bool  { return false }

// groups are the fields whose fields have rules of their own.
var groups = []string{"kubelet", "kubeadm", "kernel", "containerd", "platform", "rollout"}

// rules are the rules of all fields by their JSON path.
var rules = map[string]rule{
	"format": never, "roles": never, "taints": never, "nodeAddress": never, "partitions": never, "disks": never,
	"mounts": never, "swap": never, "bootCommands": never, "preKubeadmCommands": never, "postKubeadmCommands": never,
	"files": files, "users": users,
	"kubelet.extraArgs": kubeletArgs,
	// The pull policy is also that of the load balancer's pod.
	"kubeadm.imagePullPolicy": never,
	// Only kubeadm reads these, on the first boot.
	"kubeadm.ignorePreflightErrors": always, "kubeadm.verbosity": always,
	"kubeadm.configPatches": configPatches,
	// A worker deploys no component but the kubelet.
	"kubeadm.patches": always,
	"kernel.modules":  modules, "kernel.sysctls": sysctls, "kernel.arguments": never,
	"containerd.snippets": always,
	"rollout.inPlace":     inPlace,

	"platform.configurationManager": always, // only the first boot reads it
	"platform.hostAgent":            always, "platform.joinTimeoutSeconds": always, "platform.packageRepositories": always,
	"platform.kubernetesPrograms":            always,
	"platform.proxy":                         always,
	"platform.registryMirrors":               mirrors,
	"platform.mirrorCredentialsSecretRef":    always,
	"platform.mirrorTrustedCAFrom":           always,
	"platform.ntp":                           always,
	"platform.dns":                           always,
	"platform.imageRepository":               never,
	"platform.kubeProxy":                     never,
	"platform.apiServerLoadBalancer":         never,
	"platform.featureGates":                  never,
	"platform.kubeletCertificates":           never,
	"platform.certificateValidityPeriodDays": always, "platform.caCertificateValidityPeriodDays": always,
	// Only machines of the control plane read these.
	"platform.authentication": always, "platform.pki": always,
	"platform.apiServer": always, "platform.controllerManager": always, "platform.scheduler": always,
}

// Compare returns the fields that differ between two specs of a worker, sorted:
// those that can be changed in place, and those that need another machine.
func Compare(was, is *spec) (changed, replaced []string, err error) {
	before, err := fields(was)
	if err != nil {
		return nil, nil, err
	}
	after, err := fields(is)
	if err != nil {
		return nil, nil, err
	}
	all := maps.Clone(before)
	maps.Copy(all, after)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		if reflect.DeepEqual(before[path], after[path]) {
			continue
		}
		if r, known := rules[path]; known && r(was, is) {
			changed = append(changed, "spec."+path)
			continue
		}
		replaced = append(replaced, "spec."+path)
	}
	return changed, replaced, nil
}

// fields returns the fields of a spec by their JSON path.
func fields(s *spec) (map[string]any, error) {
	content, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("reading fields: %w", err)
	}
	top, found := map[string]any{}, map[string]any{}
	if err := json.Unmarshal(content, &top); err != nil {
		return nil, fmt.Errorf("reading fields: %w", err)
	}
	for name, value := range top {
		inner, is := value.(map[string]any)
		if !is || !slices.Contains(groups, name) {
			found[name] = value
			continue
		}
		for field, value := range inner {
			found[name+"."+field] = value
		}
	}
	return found, nil
}

// mirrors allows other mirrors, and the first ones. Without any, containerd would
// keep the setting for them, whose former value is unknown.
func mirrors(was, is *spec) bool {
	return len(is.Platform.RegistryMirrors) > 0 || len(was.Platform.RegistryMirrors) == 0
}

// inPlace allows a change between the modes in which the agent follows its
// settings. Machines that were created without do not.
func inPlace(was, is *spec) bool {
	return was.Rollout.GetInPlace() != bootstrapv1.InPlaceNever && is.Rollout.GetInPlace() != bootstrapv1.InPlaceNever
}

// files allows new files and other contents. A removed file may be one of the
// image, and text that was appended cannot be found in a file.
func files(was, is *spec) bool {
	now := map[string]*bootstrapv1.File{}
	for i := range is.Files {
		f := &is.Files[i]
		now[f.Path] = f
		before := slices.IndexFunc(was.Files, func(w bootstrapv1.File) bool { return w.Path == f.Path })
		if before >= 0 && reflect.DeepEqual(was.Files[before], *f) {
			continue
		}
		if ptr.Deref(f.Append, false) || before >= 0 && ptr.Deref(was.Files[before].Append, false) {
			return false
		}
	}
	return !slices.ContainsFunc(was.Files, func(w bootstrapv1.File) bool { return now[w.Path] == nil })
}

// users allows new users, and keys, groups, passwords and rules of sudo. The agent
// takes nothing from a user.
func users(was, is *spec) bool {
	for i := range was.Users {
		w := &was.Users[i]
		at := slices.IndexFunc(is.Users, func(u bootstrapv1.User) bool { return u.Name == w.Name })
		if at < 0 {
			return false
		}
		u := &is.Users[at]
		if u.Shell != w.Shell || !contains(u.SSHAuthorizedKeys, w.SSHAuthorizedKeys) || !contains(u.Groups, w.Groups) ||
			w.PasswordHashSecretRef.Name != "" && u.PasswordHashSecretRef.Name == "" {
			return false
		}
	}
	return true
}

func contains(all, some []string) bool {
	return !slices.ContainsFunc(some, func(one string) bool { return !slices.Contains(all, one) })
}

// registrationArgs are the arguments that a kubelet reads when it registers its
// Node, and those that kubeadm sets.
var registrationArgs = []string{
	"bootstrap-kubeconfig", "config", "container-runtime-endpoint", "hostname-override", "kubeconfig", "node-ip",
	"pod-infra-container-image", "provider-id", "register-node", "register-with-taints", "root-dir", "cert-dir", "cgroup-driver",
}

// kubeletArgs allows all arguments except for those of registration.
func kubeletArgs(was, is *spec) bool {
	return reflect.DeepEqual(registration(was), registration(is))
}

func registration(s *spec) []bootstrapv1.Arg {
	var found []bootstrapv1.Arg
	for _, a := range s.Kubelet.ExtraArgs {
		if slices.Contains(registrationArgs, a.Name) {
			found = append(found, a)
		}
	}
	return found
}

// configPatches allows changes of the kubelet's configuration.
func configPatches(was, is *spec) bool {
	others := func(s *spec) []bootstrapv1.ConfigPatch {
		return slices.DeleteFunc(slices.Clone(s.Kubeadm.ConfigPatches), func(p bootstrapv1.ConfigPatch) bool { return p.Kind == "KubeletConfiguration" })
	}
	return slices.Equal(others(was), others(is))
}

// modules allows more modules. The agent unloads none.
func modules(was, is *spec) bool { return contains(is.Kernel.Modules, was.Kernel.Modules) }

// sysctls allows other values. The former value of a parameter that is removed is
// unknown.
func sysctls(was, is *spec) bool {
	names := func(s *spec) []string {
		var all []string
		for _, p := range s.Kernel.Sysctls {
			all = append(all, p.Name)
		}
		return all
	}
	return contains(names(is), names(was))
}
