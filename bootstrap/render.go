package bootstrap

import (
	"bytes"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

// maxNodeName is the maximum length of the label kubernetes.io/hostname,
// without which a kubelet does not start.
const maxNodeName = 63

// maxDocument is the maximum size of a document. It is the limit of a Secret;
// if a hypervisor has a lower limit, its driver rejects the document.
const maxDocument = 1<<20 - 1<<10

// Render returns the machine's document in the format of its spec. A
// *RenderError means that the spec cannot be rendered.
func Render(in Input) ([]byte, error) {
	if err := validate(&in); err != nil {
		return nil, err
	}
	var files []writeFile
	for _, part := range []func(*Input) ([]writeFile, error){
		settingsFiles, reportFiles, pkiFiles, kubeadmFiles, kubeVIPFiles, balancerFiles, patchFiles, platformFiles, prepareFiles, commandFiles, restoreFiles, userFiles,
	} {
		more, err := part(&in)
		if err != nil {
			return nil, err
		}
		files = append(files, more...)
	}
	out, err := encode(&in, files)
	if err != nil {
		return nil, err
	}
	if len(out) > maxDocument {
		return nil, renderErrorf("spec.files", "the machine's %s document has %d KiB, the limit is %d KiB; compress large files (encoding Gzip), or download them with a command",
			in.Spec.GetFormat(), len(out)>>10, maxDocument>>10)
	}
	return out, nil
}

// encode encodes the files in the format of the spec.
func encode(in *Input, files []writeFile) ([]byte, error) {
	if in.Spec.GetFormat() == bootstrapv1.FormatIgnition {
		return ignitionDocument(in, files)
	}
	cloudInit := &cloudConfig{
		BootCmd:    in.Spec.BootCommands,
		WriteFiles: files,
		// Through sh, because /run may be mounted noexec.
		RunCmd: [][]string{{"sh", path.Join(runDir, "bootstrap.sh")}},
	}
	return cloudInit.marshal()
}

// validate rejects input from which no node can be created.
func validate(in *Input) error {
	if len(in.Machine) > maxNodeName {
		return renderErrorf("metadata.name", "the Machine's name %q, which is also the node's name, is longer than %d characters", in.Machine, maxNodeName)
	}
	if err := checkRoles(Roles(&in.Spec, in.Mode.controlPlane()), in.Mode.controlPlane()); err != nil {
		return err
	}
	if in.Mode == Init {
		return checkVersion(in.Version)
	}
	if in.Join == nil {
		return fmt.Errorf("rendering %s: no credentials to join with", in.Mode)
	}
	return nil
}

// oldestMinor is the oldest minor version of Kubernetes 1 whose kubeadm reads
// v1beta4.
const oldestMinor = 31

func checkVersion(version string) error {
	var major, minor, fix int
	if n, err := fmt.Sscanf(version, "v%d.%d.%d", &major, &minor, &fix); err != nil || n != 3 {
		return renderErrorf("spec.version", "the Machine's version %q is not a full Kubernetes version such as v1.36.3", version)
	}
	if major == 1 && minor < oldestMinor {
		return renderErrorf("spec.version", "Kubernetes %s is too old, v1.%d.0 is the oldest supported", version, oldestMinor)
	}
	return nil
}

// settingsFiles are the script and its settings.
func settingsFiles(in *Input) ([]writeFile, error) {
	skip, err := skipPhases(in)
	if err != nil {
		return nil, err
	}
	settings := &bytes.Buffer{}
	for _, setting := range []struct{ name, value string }{
		{"MODE", string(in.Mode)},
		{"CONTROL_PLANE", strconv.FormatBool(in.Mode.controlPlane())},
		{"NODE_NAME", in.Machine},
		{"FAMILIES", families(in.Network)},
		{"ADDRESS_INTERFACE", in.Spec.NodeAddress.Interface},
		{"ADDRESS_CIDRS", strings.Join(in.Spec.NodeAddress.CIDRs, " ")},
		{"ENDPOINT", "https://" + in.Endpoint.String()},
		{"VERBOSITY", strconv.Itoa(int(ptr.Deref(in.Spec.Kubeadm.Verbosity, 0)))},
		{"SKIP_PHASES", strings.Join(skip, ",")},
		{"KUBE_PROXY", strconv.FormatBool(usesKubeProxy(in))},
		{"CLUSTER_TIMEOUT", seconds(max(in.ClusterTimeout, in.Platform.GetJoinTimeout()))},
		{"JOIN_TIMEOUT", seconds(in.Platform.GetJoinTimeout())},
		{"HAS_TIME_SERVERS", strconv.FormatBool(len(in.Platform.NTP.Servers) > 0)},
	} {
		fmt.Fprintf(settings, "%s=%s\n", setting.name, quote(setting.value))
	}
	return []writeFile{
		newFile(path.Join(runDir, "bootstrap.sh"), "0700", nodeScript),
		newFile(path.Join(runDir, "settings"), "0600", settings.Bytes()),
	}, nil
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d.Seconds())) }

// families returns the IP versions of the cluster, the API server's first.
func families(network Network) string {
	ranges := network.Services
	if len(ranges) == 0 {
		ranges = network.Pods
	}
	versions := make([]string, 0, len(ranges))
	for _, cidr := range ranges {
		version := "4"
		if strings.Contains(cidr, ":") {
			version = "6"
		}
		versions = append(versions, version)
	}
	if len(versions) == 0 {
		return "4"
	}
	return strings.Join(versions, " ")
}

func pkiFiles(in *Input) ([]writeFile, error) {
	if !in.Mode.controlPlane() {
		return nil, nil
	}
	files := make([]writeFile, 0, len(in.PKI))
	for _, f := range in.PKI {
		files = append(files, newFile(f.Path, f.Permissions, f.Content))
	}
	return files, nil
}

// commandFiles are the user's commands, one per file, so that none needs
// quoting and each has its own exit status.
func commandFiles(in *Input) ([]writeFile, error) {
	var files []writeFile
	for _, list := range []struct {
		name     string
		commands []string
	}{
		{"preKubeadmCommands", in.Spec.PreKubeadmCommands},
		{"postKubeadmCommands", in.Spec.PostKubeadmCommands},
	} {
		for i, command := range list.commands {
			name := path.Join(runDir, list.name, fmt.Sprintf("%04d", i))
			files = append(files, newFile(name, "0600", []byte(strings.TrimSuffix(command, "\n")+"\n")))
		}
	}
	return files, nil
}
