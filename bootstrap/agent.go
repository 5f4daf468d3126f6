package bootstrap

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

// agentFolders are where a downloaded host agent may be stored, the preferred one
// first: SELinux lets services run programs in the usual folders only, and on
// some systems these are read-only.
const agentFolders = "/usr/local/bin /opt/bin /var/lib/nova/bin"

// startScript starts the host agent of the node image. If the platform names
// one, it starts that program only, and downloads it unless the image has it. A
// machine without agent can only say so on its console.
func startScript(in *Input) string {
	script := "export NOVA_BOOT_STARTED=$(cut -d' ' -f1 /proc/uptime)\nPATH=$PATH:/usr/local/bin:/opt/bin:/var/lib/nova/bin\nagent=$(command -v nova-host-agent) || agent=/usr/local/bin/nova-host-agent\n"
	if agent := in.Platform.HostAgent; agent.URL != "" {
		script += fmt.Sprintf(`verified() { echo "%s  $agent$1" | sha256sum -c - >/dev/null 2>&1; }
verified || {
  for folder in %s; do
    agent=$folder/nova-host-agent
    mkdir -p "$folder" 2>/dev/null && touch "$agent.new" 2>/dev/null && break
  done
  curl -fsSL --connect-timeout 30 --speed-limit 1 --speed-time 60 --retry 20 --retry-delay 5 -o "$agent.new" %s ||
    { echo "nova-host-agent cannot be downloaded from platform.hostAgent" >&2; exit 1; }
  verified .new && chmod 0755 "$agent.new" && mv "$agent.new" "$agent"
}
verified || { echo "nova-host-agent has another SHA-256 than platform.hostAgent" >&2; exit 1; }
`, agent.SHA256, agentFolders, quote(agent.URL))
	}
	return script + "exec \"$agent\" bootstrap\n"
}

// compress writes and compresses the configuration. The result is reproducible.
func compress(config *nodeconfig.Config) ([]byte, error) {
	content, err := config.Marshal()
	if err != nil {
		return nil, fmt.Errorf("rendering bootstrap data: %w", err)
	}
	if len(content) > nodeconfig.MaxSize {
		return nil, renderErrorf("spec.files", "the machine's configuration has %d MiB, the limit is %d MiB; compress large files (encoding Gzip), or download them with a command",
			len(content)>>20, nodeconfig.MaxSize>>20)
	}
	out := &bytes.Buffer{}
	writer, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err == nil {
		_, err = writer.Write(content)
	}
	if err == nil {
		err = writer.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("compressing the node's configuration: %w", err)
	}
	return out.Bytes(), nil
}

// newFile returns a file of root.
func newFile(path, mode string, content []byte) nodeconfig.File {
	f := nodeconfig.File{Path: path, Mode: mode}
	if utf8.Valid(content) {
		f.Text = string(content)
	} else {
		f.Data = content
	}
	return f
}

// isPrintable reports whether a text has no control characters.
func isPrintable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) || !unicode.IsPrint(r) && r != ' ' })
}
