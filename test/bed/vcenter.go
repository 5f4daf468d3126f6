package bed

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed/guests"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed/supervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/host"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// Where things are in the bed's vCenter.
const (
	vcenterAddress      = host.Gateway + ":443"
	vcenterDatacenter   = "DC0"
	vcenterResourcePool = "/DC0/host/DC0_C0/Resources"
	vcenterDatastore    = "LocalDS_0"
	vcenterNetwork      = "VM Network"
)

// VCenter is how to reach the bed's vCenter.
type VCenter struct {
	// Server is its address as a NovaVSphereCluster names it.
	Server string
	// Thumbprint is the SHA-256 of its certificate.
	Thumbprint string
	// Username and Password are the only credentials it takes.
	Username string
	Password string
}

// controlSocket is where the vCenter is steered. It lies beside the record
// since the path of a socket has to be short.
func controlSocket(name string) string { return records + "/" + name + ".sock" }

// writeVCenter writes the settings of the bed's vCenter. The password is made
// for this bed, so that none can be used that somebody wrote into a file.
func (b *Bed) writeVCenter(assets host.Assets, delays map[string]time.Duration) error {
	if err := os.MkdirAll(b.layout.path("vcenter"), 0o700); err != nil {
		return fmt.Errorf("writing settings of vCenter: %w", err)
	}
	return guests.WriteConfig(b.layout.path("vcenter", "config.json"), guests.Config{
		Bed:          b.Name,
		Hosts:        b.layout.path("hosts"),
		Assets:       assets,
		Listen:       vcenterAddress,
		Certificates: b.layout.path("vcenter"),
		Control:      controlSocket(b.Name),
		Username:     vcenter.DefaultUsername,
		Password:     rand.Text(),
		Delays:       delays,
	})
}

// vcenterProcess runs the bed's vCenter. Its inventory is in memory, so it is
// not started again.
func (b *Bed) vcenterProcess(program string) supervisor.Process {
	return supervisor.Process{
		Name: "vcenter",
		Args: []string{program, "vcenter", b.layout.path("vcenter", "config.json")},
		Once: true,
	}
}

// VCenter returns how to reach the bed's vCenter.
func (b *Bed) VCenter() (VCenter, error) {
	config, err := guests.ReadConfig(b.layout.path("vcenter", "config.json"))
	if err != nil {
		return VCenter{}, err
	}
	data, err := os.ReadFile(b.layout.path("vcenter", "tls.crt"))
	if err != nil {
		return VCenter{}, fmt.Errorf("reading certificate of vCenter: %w", err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return VCenter{}, errors.New("reading certificate of vCenter: no PEM")
	}
	return VCenter{
		Server:     host.Gateway,
		Thumbprint: thumbprint(block.Bytes),
		Username:   config.Username,
		Password:   config.Password,
	}, nil
}

// thumbprint writes the SHA-256 of a certificate the way openssl does.
func thumbprint(der []byte) string {
	return strings.ReplaceAll(fmt.Sprintf("% X", sha256.Sum256(der)), " ", ":")
}

// awaitVCenter waits until vCenter takes connections.
func (b *Bed) awaitVCenter(ctx context.Context) error {
	return await(ctx, time.Minute, "waiting for vCenter", func(ctx context.Context) error {
		conn, err := b.Dial(ctx, "tcp", vcenterAddress)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}
