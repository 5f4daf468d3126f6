package uptodate

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/bootstrap"
)

const (
	versionField        = "version"
	infrastructureField = "machineTemplate.spec.infrastructureRef"
	configPrefix        = "config."
)

// onlyAtInit are the fields of the spec that only kubeadm init reads. After it, a
// new machine would be the same as one that was created before they changed.
var onlyAtInit = sets.New(
	"platform.kubeProxy",
	"platform.kubeletCertificates",
	configPatchField(bootstrap.InitKind),
	configPatchField(bootstrap.KubeProxyKind),
)

// Differences returns the fields of the spec that changed since a machine was
// created. Fields that are applied in place (metadata, timeouts, gates, taints)
// are not included. The record of the creation counts, not alterations of the
// machine by others: they would alter its replacement in the same way.
func Differences(controlPlane *controlplanev1.NovaControlPlane, machine *clusterv1.Machine,
	infra *metav1.PartialObjectMetadata, config *bootstrapv1.NovaConfig, initialized bool,
) []string {
	is := settings(controlPlane)
	was, recorded, err := recordOf(machine)
	if err != nil {
		return []string{"annotation " + controlplanev1.SettingsAnnotation + " is not readable"}
	}
	if !recorded {
		// Only the machine itself is known.
		was = observed(is, machine, infra, config)
	}
	return changed(was, is, initialized)
}

// Alterations returns the fields in which a machine differs from the spec that
// it was created from: another controller or an admission policy altered them.
func Alterations(machine *clusterv1.Machine, infra *metav1.PartialObjectMetadata, config *bootstrapv1.NovaConfig) []string {
	was, recorded, err := recordOf(machine)
	if err != nil || !recorded {
		return nil
	}
	return changed(observed(was, machine, infra, config), was, false)
}

// recordOf reads the fields that a machine was created from, if it has a
// record.
func recordOf(machine *clusterv1.Machine) (was map[string]string, recorded bool, err error) {
	text, recorded := machine.Annotations[controlplanev1.SettingsAnnotation]
	if !recorded {
		return nil, false, nil
	}
	was = map[string]string{}
	if err := json.Unmarshal([]byte(text), &was); err != nil {
		return nil, true, fmt.Errorf("reading annotation %s: %w", controlplanev1.SettingsAnnotation, err)
	}
	return was, true, nil
}

// observed returns recorded fields with their current values in a machine and
// its objects. Fields without a current value, or of missing objects, stay.
func observed(recorded map[string]string, machine *clusterv1.Machine, infra *metav1.PartialObjectMetadata, config *bootstrapv1.NovaConfig) map[string]string {
	is := maps.Clone(recorded)
	unknownFields := maps.Clone(recorded)
	maps.DeleteFunc(unknownFields, func(_, value string) bool { return value != unknown })
	is[versionField] = machine.Spec.Version
	if infra != nil {
		if name, ok := infra.Annotations[clusterv1.TemplateClonedFromNameAnnotation]; ok {
			is[infrastructureField] = infra.Annotations[clusterv1.TemplateClonedFromGroupKindAnnotation] + "/" + name
		}
	}
	if config != nil {
		maps.DeleteFunc(is, func(field, _ string) bool { return strings.HasPrefix(field, configPrefix) })
		maps.Copy(is, configFields(config.Spec.NodeConfigSpec))
		maps.Copy(is, unknownFields)
	}
	return is
}

// changed returns the fields that differ, sorted.
func changed(was, is map[string]string, initialized bool) []string {
	var diff []string
	all := sets.KeySet(was).Union(sets.KeySet(is))
	if initialized {
		all = all.Difference(onlyAtInit)
	}
	for _, field := range sets.List(all) {
		if was[field] == is[field] || strings.HasPrefix(field, recordPrefix) {
			continue
		}
		if field == versionField {
			field = fmt.Sprintf("version is %s instead of %s", was[field], is[field])
		}
		diff = append(diff, field)
	}
	return diff
}

// settings returns the fields of the spec that a machine is created from,
// hashed except for the version and the name of the template. DNS of pods,
// which modules configure, is not included, nor are timeouts that no longer
// affect existing machines, nor the validity of certificates, which only new
// machines get.
func settings(controlPlane *controlplanev1.NovaControlPlane) map[string]string {
	spec := &controlPlane.Spec
	ref := spec.MachineTemplate.Spec.InfrastructureRef
	fields := configFields(spec.Config)
	fields[versionField] = spec.Version
	fields[infrastructureField] = schema.GroupKind{Group: ref.APIGroup, Kind: ref.Kind}.String() + "/" + ref.Name
	platform := spec.Platform
	platform.DNS, platform.JoinTimeoutSeconds = bootstrapv1.DNSSpec{Nodes: platform.DNS.Nodes}, 0
	platform.HostAgent, platform.KubernetesPrograms, platform.ConfigurationManager = bootstrapv1.HostAgentSpec{}, nil, bootstrapv1.ConfigurationManagerSpec{}
	platform.CertificateValidityPeriodDays, platform.CACertificateValidityPeriodDays = 0, 0
	addHashes(fields, "platform.", platform)
	addHashes(fields, "endpoint.", spec.Endpoint)
	addHashes(fields, "etcd.local.", spec.Etcd.Local)
	addHashes(fields, "etcd.external.", spec.Etcd.External)
	fields[certSANsRecord] = hash([]byte(strings.Join(spec.Platform.APIServer.CertSANs, ",")))
	fields[mirrorsRecord] = strconv.FormatBool(len(spec.Platform.RegistryMirrors) > 0)
	return fields
}

// configFields returns the fields of a machine's NovaConfig. The patches of
// documents that only kubeadm init reads have fields of their own.
func configFields(spec bootstrapv1.NodeConfigSpec) map[string]string {
	fields := map[string]string{}
	var others []bootstrapv1.ConfigPatch
	for _, p := range spec.Kubeadm.ConfigPatches {
		if field := configPatchField(p.Kind); onlyAtInit.Has(field) {
			fields[field] = hash([]byte(p.Patch))
			continue
		}
		others = append(others, p)
	}
	spec.Kubeadm.ConfigPatches = others
	addHashes(fields, configPrefix, spec)
	return fields
}

func configPatchField(kind string) string {
	return fmt.Sprintf("%skubeadm.configPatches[%s]", configPrefix, kind)
}

// EncodeSettings returns the settings annotation of a new machine.
func EncodeSettings(controlPlane *controlplanev1.NovaControlPlane) (string, error) {
	encoded, err := json.Marshal(settings(controlPlane))
	if err != nil {
		return "", fmt.Errorf("encoding settings: %w", err)
	}
	return string(encoded), nil
}

// addHashes adds the hash of each field of a struct by its JSON name. Empty
// fields are omitted, so a field that a newer version adds changes no machine.
func addHashes(to map[string]string, prefix string, of any) {
	encoded, err := json.Marshal(of)
	if err != nil {
		return
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(encoded, &fields); err != nil {
		return
	}
	for field, value := range fields {
		to[prefix+field] = hash(value)
	}
}

func hash(value []byte) string {
	sum := sha256.Sum256(value)
	return hex.EncodeToString(sum[:4])
}
