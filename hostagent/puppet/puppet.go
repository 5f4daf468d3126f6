package puppet

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/cluster"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

const (
	// Unit is the service that runs Puppet's agent.
	Unit = "nova-puppet.service"
	// ConfDir has puppet.conf, also for runs by hand:
	// puppet agent --test --confdir /etc/nova/puppet.
	ConfDir = "/etc/nova/puppet"

	dataDir = "/var/lib/nova/puppet"
	sslDir  = dataDir + "/ssl"
	// recordFile is readable by root only: it has the token.
	recordFile     = "/var/lib/nova/puppet.json"
	attributesFile = ConfDir + "/csr_attributes.yaml"
	kubeconfig     = "/etc/kubernetes/kubelet.conf"
	// vendorProgram is the program of packages that do not install to the usual
	// folders.
	vendorProgram = "/opt/puppetlabs/bin/puppet"

	// runTimeout limits a run of the agent.
	runTimeout = 30 * time.Minute
	// enrollRetry is the time after an attempt to get the certificate that failed:
	// the token expires.
	enrollRetry = time.Minute
	// reportRetry is the time after a report that failed.
	reportRetry = 20 * time.Second
	// maxOutput limits the part of the agent's output that is read for the report,
	// in bytes.
	maxOutput = 1 << 20
)

// unitText is the service.
//
//go:embed nova-puppet.service
var unitText string

// record has the settings of the service.
type record struct {
	// Node is the name of the node.
	Node string `json:"node"`
	// Manager is the configuration.
	Manager *nodeconfig.ConfigurationManager `json:"manager"`
}

// Start configures Puppet's agent and starts the service. It can be repeated.
func Start(ctx context.Context, m *machine.Machine, node string, manager *nodeconfig.ConfigurationManager) error {
	content, err := json.Marshal(&record{Node: node, Manager: manager})
	if err != nil {
		return fmt.Errorf("writing the record of Puppet's agent: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	err = errors.Join(
		m.Write(recordFile, string(content), 0o600),
		m.Write(ConfDir+"/puppet.conf", configuration(m, manager), 0o644),
		// With this file the agent verifies the server from the first request on.
		m.Write(sslDir+"/certs/ca.pem", manager.CA, 0o644),
		m.Write(attributesFile, attributes(manager), 0o600),
		m.Write("/etc/systemd/system/"+Unit, strings.ReplaceAll(unitText, "__NOVA_HOST_AGENT__", self), 0o644),
	)
	if err == nil {
		err = m.Run(ctx, "systemctl", "enable", "--now", Unit)
	}
	if err != nil {
		return fmt.Errorf("starting Puppet's agent: %w", err)
	}
	return nil
}

// configuration returns puppet.conf. It has folders of its own: the image may
// contain an agent with another server.
func configuration(m *machine.Machine, manager *nodeconfig.ConfigurationManager) string {
	lines := []string{"# Written by nova-host-agent.", "[main]"}
	for _, s := range []nodeconfig.Setting{
		{Name: "server", Value: manager.Server}, {Name: "certname", Value: manager.Certname}, {Name: "environment", Value: manager.Environment},
		{Name: "vardir", Value: m.At(dataDir)}, {Name: "ssldir", Value: m.At(sslDir)}, {Name: "publicdir", Value: m.At(dataDir + "/public")},
		{Name: "rundir", Value: m.At("/run/nova-puppet")}, {Name: "logdir", Value: m.At("/var/log/nova-puppet")},
		// Puppet 8 would request permission to renew the certificate, which nova-autosign
		// refuses. Puppet 7 ignores the setting.
		{Name: "hostcert_renewal_interval", Value: "0"},
	} {
		lines = append(lines, s.Name+" = "+s.Value)
	}
	return strings.Join(lines, "\n") + "\n"
}

// attributes returns the file with the token and the trusted facts that the agent
// adds to its certificate request. JSON is YAML.
func attributes(manager *nodeconfig.ConfigurationManager) string {
	extensions := map[string]string{}
	for _, e := range manager.Extensions {
		extensions[e.Name] = e.Value
	}
	content, _ := json.Marshal(map[string]any{ //nolint:errchkjson // strings only
		"custom_attributes": map[string]string{"challengePassword": manager.Token}, "extension_requests": extensions,
	})
	return string(content) + "\n"
}

// Run runs Puppet's agent until the context ends.
func Run(ctx context.Context, m *machine.Machine) error {
	content, err := m.Load(recordFile)
	if err != nil {
		return fmt.Errorf("reading the record of Puppet's agent: %w", err)
	}
	r := &record{}
	if err := json.Unmarshal([]byte(content), r); err != nil || r.Manager == nil {
		return fmt.Errorf("reading the record of Puppet's agent: %w", errors.Join(err, errors.New("it has no settings")))
	}
	for ctx.Err() == nil {
		condition := r.once(ctx, m)
		wait := time.Duration(r.Manager.IntervalSeconds) * time.Second
		if !r.enrolled(m) {
			wait = min(wait, enrollRetry)
		}
		next := m.Now().Add(wait)
		for m.Now().Before(next) {
			left := next.Sub(m.Now())
			if err := r.report(ctx, m, condition); err != nil {
				m.Logf("%v", err)
				left = min(left, reportRetry)
			}
			if m.Sleep(ctx, left) != nil {
				return nil //nolint:nilerr // the service is stopped
			}
		}
	}
	return nil
}

// enrolled reports whether the node has its certificate.
func (r *record) enrolled(m *machine.Machine) bool {
	return m.Exists(sslDir + "/certs/" + r.Manager.Certname + ".pem")
}

// once runs the agent and returns its result.
func (r *record) once(ctx context.Context, m *machine.Machine) cluster.Condition {
	program := m.Find("puppet")
	if program == "" && m.Exists(vendorProgram) {
		program = m.At(vendorProgram)
	}
	if program == "" {
		return failed(nodeconfig.PuppetNotFoundReason, "The node image has no program puppet")
	}
	output := &tail{}
	running, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	// Without a server the agent would apply the catalog of an earlier run and
	// succeed.
	err := m.Logging(output).With("LC_ALL=C.UTF-8").Run(running, program, "agent", "--confdir", m.At(ConfDir), "--onetime",
		"--no-daemonize", "--no-splay", "--no-usecacheonfailure", "--detailed-exitcodes", "--waitforcert", "0", "--color", "false", "--verbose")
	m.Logf("%s", output)
	if running.Err() != nil {
		return failed(nodeconfig.PuppetRunFailedReason, "Puppet did not end within "+runTimeout.String())
	}
	if r.enrolled(m) && m.Exists(attributesFile) {
		r.forgetToken(m)
	}
	code := 0
	if err != nil {
		code = machine.Status(err)
	}
	return outcome(code, output.String(), r.enrolled(m))
}

// forgetToken deletes the token that was used.
func (r *record) forgetToken(m *machine.Machine) {
	r.Manager.Token = ""
	content, err := json.Marshal(r)
	if err = errors.Join(err, m.Write(recordFile, string(content), 0o600), m.Remove(attributesFile)); err != nil {
		m.Logf("The token stays: %v", err)
	}
}

// report sets the condition of the Node.
func (r *record) report(ctx context.Context, m *machine.Machine, condition cluster.Condition) error {
	// The kubelet renews its certificate, so it is read each time.
	client, err := cluster.Load(m.At(kubeconfig))
	if err != nil {
		return err
	}
	return client.SetNodeCondition(ctx, r.Node, condition)
}

// tail keeps the last part of the output.
type tail struct{ bytes.Buffer }

// Write drops the first bytes if there are too many.
func (t *tail) Write(p []byte) (int, error) {
	if t.Len() > maxOutput {
		t.Next(t.Len() - maxOutput/2) //nolint:mnd // half of it
	}
	return t.Buffer.Write(p) //nolint:wrapcheck // it never fails
}
