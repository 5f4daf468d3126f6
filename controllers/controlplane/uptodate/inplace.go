package uptodate

import (
	"encoding/json"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/bootstrap"
	"github.com/nova-platform/cluster-api-provider-nova/bootstrap/inplace"
)

// recordPrefix is the prefix of settings that are recorded only to decide whether
// a machine can be changed in place.
const recordPrefix = "inPlace."

const (
	certSANsRecord = recordPrefix + "platform.apiServer.certSANs"
	mirrorsRecord  = recordPrefix + "platform.registryMirrors"
	keysDir        = "/etc/kubernetes/pki/"
)

// inPlaceFields are the cluster-wide settings that the host agent of a control
// plane node changes: files, time and name servers, and the settings of components.
var inPlaceFields = []string{
	"platform.apiServer", "platform.controllerManager", "platform.scheduler", "platform.authentication", "platform.proxy",
	"platform.registryMirrors", "platform.mirrorCredentialsSecretRef", "platform.mirrorTrustedCAFrom", "platform.ntp", "platform.dns",
	"platform.packageRepositories",
}

// DesiredConfig returns the spec of the NovaConfig of a machine.
func DesiredConfig(controlPlane *controlplanev1.NovaControlPlane) *bootstrapv1.NovaConfigSpec {
	spec := &bootstrapv1.NovaConfigSpec{NodeConfigSpec: *controlPlane.Spec.Config.DeepCopy()}
	if mode := controlPlane.Spec.Rollout.GetInPlace(); mode != bootstrapv1.InPlaceNever {
		spec.Rollout.InPlace = mode
	}
	return spec
}

// Hardware is how an infrastructure machine differs from the template.
type Hardware struct {
	// Compared is true if both were read.
	Compared bool
	// Replaced are the fields that need another machine.
	Replaced []string
}

// OtherTemplate reports whether a machine was created from another template.
func OtherTemplate(differences []string) bool {
	return slices.Contains(differences, infrastructureField)
}

// NeedReplacement returns those of the differences that a running machine cannot
// change. The settings are those that the machine was created from, or was changed
// to.
func NeedReplacement(controlPlane *controlplanev1.NovaControlPlane, machine *clusterv1.Machine, config *bootstrapv1.NovaConfig, hardware Hardware, differences []string) ([]string, error) {
	if controlPlane.Spec.Rollout.GetInPlace() == bootstrapv1.InPlaceNever {
		return differences, nil
	}
	was, recorded, err := recordOf(machine)
	if err != nil || !recorded || config == nil {
		return differences, nil //nolint:nilerr // the settings of the machine are unknown
	}
	replaced, err := replacedConfig(&config.Spec, DesiredConfig(controlPlane), &controlPlane.Spec.Platform)
	if err != nil {
		return nil, err
	}
	is := settings(controlPlane)
	for _, field := range differences {
		if field == infrastructureField && hardware.Compared {
			for _, path := range hardware.Replaced {
				replaced = append(replaced, field+": "+path)
			}
			continue
		}
		replaced = append(replaced, replacedSetting(field, was, is, controlPlane.Spec.Platform.KubernetesPrograms)...)
	}
	return replaced, nil
}

// replacedSetting returns a field that differs, if a running machine cannot change it.
// Fields of the config are compared by themselves.
func replacedSetting(field string, was, is map[string]string, programs []bootstrapv1.KubernetesProgramsSpec) []string {
	switch {
	case strings.HasPrefix(field, configPrefix):
		return nil
	case strings.HasPrefix(field, versionField+" "):
		if why := inplace.RefuseVersion(was[versionField], is[versionField], programs); why != "" {
			return []string{versionField + " (" + why + ")"}
		}
		return nil
	case field == "platform.apiServer" && was[certSANsRecord] != is[certSANsRecord]:
		// Its certificate is that of the first boot.
		return []string{field + ".certSANs"}
	case field == "platform.registryMirrors" && was[mirrorsRecord] != is[mirrorsRecord] && is[mirrorsRecord] != "true",
		!slices.Contains(inPlaceFields, field):
		return []string{field}
	}
	return nil
}

// TemplateOf returns the group kind and the name of the template that a machine was
// created from, or was changed to.
func TemplateOf(machine *clusterv1.Machine) (kind, name string, recorded bool) {
	was, found, err := recordOf(machine)
	if err != nil || !found {
		return "", "", false
	}
	return strings.Cut(was[infrastructureField], "/")
}

// unknown is the recorded value of a field that may differ on the node from the
// NovaConfig.
const unknown = "unknown"

// WithUnknown returns the record of a machine for which the change of its NovaConfig
// was canceled: the fields that it changed are unknown. It is empty if there are
// none.
func WithUnknown(machine *clusterv1.Machine, config *bootstrapv1.NovaConfig) (string, error) {
	was, recorded, err := recordOf(machine)
	if err != nil || !recorded || config == nil {
		return "", err
	}
	altered := Alterations(machine, nil, &bootstrapv1.NovaConfig{Spec: config.Spec})
	for _, field := range altered {
		if strings.HasPrefix(field, configPrefix) {
			was[field] = unknown
		}
	}
	encoded, err := json.Marshal(was)
	if err != nil {
		return "", fmt.Errorf("encoding settings: %w", err)
	}
	return string(encoded), nil
}

// replacedConfig returns the fields of the config that need another machine.
func replacedConfig(was, is *bootstrapv1.NovaConfigSpec, platform *bootstrapv1.PlatformSpec) ([]string, error) {
	was, is = withoutInit(was), withoutInit(is)
	_, fields, err := inplace.Compare(was, is)
	if err != nil {
		return nil, fmt.Errorf("comparing NovaConfig: %w", err)
	}
	var replaced []string
	for _, field := range fields {
		replaced = append(replaced, configPrefix+strings.TrimPrefix(field, "spec."))
	}
	for _, path := range changedFiles(was, is) {
		if readAtStart(path, platform) {
			replaced = append(replaced, fmt.Sprintf("%sfiles[%s], which a component reads when it starts", configPrefix, path))
		}
	}
	if !slices.Equal(etcdPatches(was), etcdPatches(is)) {
		replaced = append(replaced, configPrefix+"kubeadm.patches[etcd]")
	}
	return replaced, nil
}

// withoutInit returns a config without the patches that only kubeadm init reads.
func withoutInit(c *bootstrapv1.NovaConfigSpec) *bootstrapv1.NovaConfigSpec {
	c = c.DeepCopy()
	c.Kubeadm.ConfigPatches = slices.DeleteFunc(c.Kubeadm.ConfigPatches, func(p bootstrapv1.ConfigPatch) bool {
		return p.Kind == bootstrap.InitKind || p.Kind == bootstrap.KubeProxyKind
	})
	return c
}

// changedFiles returns the paths of files that existed with another content.
func changedFiles(was, is *bootstrapv1.NovaConfigSpec) []string {
	var changed []string
	for _, f := range is.Files {
		at := slices.IndexFunc(was.Files, func(w bootstrapv1.File) bool { return path.Clean(w.Path) == path.Clean(f.Path) })
		if at < 0 && !strings.HasPrefix(path.Clean(f.Path), keysDir) {
			continue
		}
		if at < 0 || !reflect.DeepEqual(was.Files[at], f) {
			changed = append(changed, f.Path)
		}
	}
	return changed
}

// readAtStart reports whether a component has a file in one of its volumes. It may
// read the file only when it starts.
func readAtStart(file string, platform *bootstrapv1.PlatformSpec) bool {
	file = path.Clean(file)
	volumes := slices.Concat(platform.APIServer.ExtraVolumes, platform.ControllerManager.ExtraVolumes, platform.Scheduler.ExtraVolumes)
	return strings.HasPrefix(file, keysDir) || slices.ContainsFunc(volumes, func(v bootstrapv1.HostPathMount) bool {
		of := path.Clean(v.HostPath)
		return file == of || strings.HasPrefix(file, strings.TrimSuffix(of, "/")+"/")
	})
}

// etcdPatches returns the patches of etcd's manifest, which is never changed.
func etcdPatches(c *bootstrapv1.NovaConfigSpec) []bootstrapv1.ComponentPatch {
	return slices.DeleteFunc(slices.Clone(c.Kubeadm.Patches), func(p bootstrapv1.ComponentPatch) bool { return p.Target != "etcd" })
}
