package bootstrap

import (
	"bytes"
	"crypto/x509"
	"errors"
	"maps"
	"slices"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

// Enrollment lets a node get a certificate of the Puppet server's CA.
type Enrollment struct {
	// Certname is the name of the certificate, and Token the token for it.
	Certname, Token string
	// Extensions are the trusted facts in the certificate, by Puppet's names.
	Extensions map[string]string
}

// addConfigurationManager adds the Puppet server that configures the node.
func addConfigurationManager(in *Input, config *nodeconfig.Config) error {
	manager := &in.Platform.ConfigurationManager
	if manager.Server == "" {
		return nil
	}
	if in.Enrollment == nil {
		return errors.New("rendering platform.configurationManager: no token for the node")
	}
	ca := bytes.TrimSpace(in.PlatformData.ConfigurationManagerCA)
	if !x509.NewCertPool().AppendCertsFromPEM(ca) {
		return renderErrorf("platform.configurationManager.trustedCAFrom", "contains no certificate in PEM")
	}
	config.ConfigurationManager = &nodeconfig.ConfigurationManager{
		Server: manager.Server, CA: string(ca) + "\n", Environment: manager.GetEnvironment(), IntervalSeconds: int(manager.GetInterval().Seconds()),
		Certname: in.Enrollment.Certname, Token: in.Enrollment.Token,
	}
	for _, name := range slices.Sorted(maps.Keys(in.Enrollment.Extensions)) {
		config.ConfigurationManager.Extensions = append(config.ConfigurationManager.Extensions, nodeconfig.Setting{Name: name, Value: in.Enrollment.Extensions[name]})
	}
	return nil
}
