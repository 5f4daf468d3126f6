package nodeconfig

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"
)

// The object in a workload cluster with the desired settings of a node. A
// namespace of its own lets the manager have permission for these Secrets alone:
// RBAC cannot select them by a prefix.
const (
	// SettingsNamespace is the namespace of the Secrets.
	SettingsNamespace = "nova-nodes"
	// SettingsKey is the key in a Secret. Its value is compressed with gzip.
	SettingsKey = "settings"
)

// SettingsName returns the name of the Secret with the settings of a node, of the
// Role that allows the node to read it, and of its binding.
func SettingsName(node string) string { return "nova-node-" + node }

// The condition of a Node about its settings, and its reasons.
const (
	// ConfiguredCondition is true if the node has its desired settings.
	ConfiguredCondition = "NodeConfigured"
	// AppliedReason means that the settings are applied.
	AppliedReason = "Applied"
	// ApplyingReason means that the agent applies the settings.
	ApplyingReason = "Applying"
	// RejectedReason means that the agent does not apply the settings: it cannot
	// read them, or they contain a change that needs another machine.
	RejectedReason = "Rejected"
	// FailedReason means that a step failed. The agent repeats it.
	FailedReason = "StepFailed"
)

// SettingsVersion is the version of the format of Settings. An agent rejects
// settings of another version: agents of version 1 keep name servers, time servers
// and trusted CAs that settings do not have any more, and report them as applied.
const SettingsVersion = 2

// Settings are the desired settings of a node that runs.
type Settings struct {
	// Version is the version of the format.
	Version int `json:"version"`
	// Node is the name of the node.
	Node string `json:"node"`
	// Machine are the settings of the operating system.
	Machine Machine `json:"machine,omitzero"`
	// Kubelet are the settings of the kubelet.
	Kubelet Kubelet `json:"kubelet,omitzero"`
	// Hardware is the hardware of the VM, as far as its machine sets it.
	Hardware Hardware `json:"hardware,omitzero"`
	// Components identifies the settings of the control plane components, which
	// kubeadm reads from the cluster. It is only set on a control plane node.
	Components string `json:"components,omitempty"`
	// ComponentsVersion is the Kubernetes version of the components.
	ComponentsVersion string `json:"componentsVersion,omitempty"`
	// RenewCertificates, if set, renews the certificates that kubeadm made on a
	// control plane node if one of them ends before this time.
	RenewCertificates time.Time `json:"renewCertificates,omitzero"`
	// Kubernetes, if set, is the version of the node's programs. Agents of former
	// releases reject it, so it is set only if the platform has programs to download.
	Kubernetes Kubernetes `json:"kubernetes,omitzero"`
	// Certificates, if set, are the certificates that RenewCertificates renews: kubeadm
	// has made none.
	Certificates *Certificates `json:"certificates,omitempty"`
	// Authorities, if set, are the CAs of a cluster whose CAs were, or are being, rotated.
	Authorities *Authorities `json:"authorities,omitempty"`
}

// Kubernetes is a version of Kubernetes on a node.
type Kubernetes struct {
	// Version is the version, as v1.36.3.
	Version string `json:"version"`
	// Programs are kubeadm, kubelet and kubectl of this version.
	Programs []Program `json:"programs,omitempty"`
	// IgnorePreflightErrors are checks of kubeadm that may fail.
	IgnorePreflightErrors []string `json:"ignorePreflightErrors,omitempty"`
}

// Program is a program that can be downloaded.
type Program struct {
	Name string `json:"name"`
	URL  string `json:"url"`
	// SHA256 is its hash, in hexadecimal.
	SHA256 string `json:"sha256"`
}

// WithoutKeys returns settings of a machine without the files of the cluster's
// PKI. They never change while a node runs, and keys of CAs must not be stored in
// the workload cluster.
func WithoutKeys(c Machine) Machine {
	c.Files = slices.DeleteFunc(slices.Clone(c.Files), func(f File) bool { return strings.HasPrefix(path.Clean(f.Path), KeysDir+"/") })
	return c
}

// Hardware is hardware that a VM may get while it runs. A number that is zero is not
// set.
type Hardware struct {
	CPUs      int64 `json:"cpus,omitempty"`
	MemoryMiB int64 `json:"memoryMiB,omitempty"`
	// BootDiskGiB is the size of the disk with the root file system.
	BootDiskGiB int64 `json:"bootDiskGiB,omitempty"`
}

// Kubelet are the settings of the kubelet. Its configuration file is made by
// kubeadm, from the cluster's configuration and the patches among the files.
type Kubelet struct {
	// Args are the arguments in addition to those that kubeadm sets, with
	// variables.
	Args []Setting `json:"args,omitempty"`
}

// ErrTooLarge means that no agent reads settings of this size.
var ErrTooLarge = fmt.Errorf("the node's settings are larger than %d MiB", MaxSize>>20)

// Pack writes and compresses settings, and returns their revision. The result is
// reproducible.
func (s *Settings) Pack() (packed []byte, revision string, err error) {
	written := *s
	written.Version = SettingsVersion
	content, err := json.Marshal(&written)
	if err != nil {
		return nil, "", fmt.Errorf("writing the node's settings: %w", err)
	}
	if len(content) > MaxSize {
		return nil, "", ErrTooLarge
	}
	out := &bytes.Buffer{}
	writer := gzip.NewWriter(out)
	if _, err := writer.Write(content); err != nil {
		return nil, "", fmt.Errorf("compressing the node's settings: %w", err)
	}
	if err := writer.Close(); err != nil {
		return nil, "", fmt.Errorf("compressing the node's settings: %w", err)
	}
	return out.Bytes(), revisionOf(content), nil
}

// Unpack reads settings and returns their revision, which is known even if the
// settings are rejected. It rejects another version of the format and unknown
// fields.
func Unpack(packed []byte) (settings *Settings, revision string, err error) {
	reader, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, "", fmt.Errorf("reading the node's settings: %w", err)
	}
	content, err := io.ReadAll(io.LimitReader(reader, MaxSize+1))
	if err != nil {
		return nil, "", fmt.Errorf("reading the node's settings: %w", err)
	}
	settings = &Settings{}
	return settings, revisionOf(content), decode(content, "settings", SettingsVersion, settings)
}

// revisionOf identifies the content of settings.
func revisionOf(content []byte) string {
	const length = 6
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:length])
}

// ReportMessage returns the message of the condition about a revision.
func ReportMessage(revision, text string) string { return "Revision " + revision + ": " + text }

// ReadMessage returns the revision and the text of a condition's message.
func ReadMessage(message string) (revision, text string, found bool) {
	rest, prefixed := strings.CutPrefix(message, "Revision ")
	revision, text, found = strings.Cut(rest, ": ")
	return revision, text, prefixed && found
}

// SetNodeIP replaces the node's addresses in the file with the proxy settings.
func (m *Machine) SetNodeIP(addresses string) {
	for i := range m.Files {
		if f := &m.Files[i]; f.Path == ProxyFile {
			f.Text = strings.ReplaceAll(f.Text, NodeIP, addresses)
		}
	}
}
