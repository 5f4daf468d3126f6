package bootstrap

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

// APIServerNames are the names and addresses of the API servers of a cluster, without
// those of their machines and the names that each API server has.
func APIServerNames(network Network, endpoint Endpoint, certSANs []string) (dnsNames []string, ips []netip.Addr, err error) {
	services := defaultServices
	if len(network.Services) > 0 {
		services = network.Services[0]
	}
	prefix, err := netip.ParsePrefix(services)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the range of services: %w", err)
	}
	// The service kubernetes has the first address.
	ips = append(ips, prefix.Masked().Addr().Next())
	dnsNames = append(dnsNames, "kubernetes.default.svc."+cmp.Or(network.DNSDomain, defaultDNSDomain))
	for _, name := range append([]string{endpoint.Host}, certSANs...) {
		if address, err := netip.ParseAddr(name); err == nil {
			ips = append(ips, address)
		} else if name != "" {
			dnsNames = append(dnsNames, name)
		}
	}
	return dnsNames, ips, nil
}

// addCertificates adds the certificates that a control plane machine has signed, if it
// has no keys of CAs. The machine that initializes the cluster has a vault sign them.
func addCertificates(in *Input, config *nodeconfig.Config) error {
	if !in.Keyless || !in.Mode.controlPlane() {
		return nil
	}
	if in.Mode == Init {
		if in.Vault == nil {
			return fmt.Errorf("rendering %s: no credentials to have certificates signed", in.Mode)
		}
		config.Vault = in.Vault
	}
	var err error
	config.Certificates, err = certificates(in)
	return err
}

// certificates describes the certificates of a control plane machine.
func certificates(in *Input) (*nodeconfig.Certificates, error) {
	dnsNames, ips, err := APIServerNames(in.Network, in.Endpoint, in.Platform.APIServer.CertSANs)
	if err != nil {
		return nil, err
	}
	c := &nodeconfig.Certificates{
		ExternalEtcd: len(in.ExternalEtcd) > 0, Endpoint: "https://" + in.Endpoint.String(), Port: int(bindPort(in)), DNSNames: dnsNames,
		ValiditySeconds: int64(in.Platform.GetCertificateValidity().Seconds()),
	}
	for _, ip := range ips {
		c.IPs = append(c.IPs, ip.String())
	}
	return c, nil
}
