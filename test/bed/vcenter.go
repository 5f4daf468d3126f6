package bed

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"time"

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

// vcenterSettings say what the process of the bed's vCenter runs. They hold a
// password, so their file is for root only.
type vcenterSettings struct {
	Server vcenter.Config `json:"server"`
	Bed    string         `json:"bed"`
	Hosts  string         `json:"hosts"`
	Assets host.Assets    `json:"assets"`
}

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

// RunVCenter runs a vCenter whose VMs are hosts, as the settings in a file
// say, until the context ends.
func RunVCenter(ctx context.Context, path string) error {
	settings, err := readVCenter(path)
	if err != nil {
		return err
	}
	runner := &host.Runner{Bed: settings.Bed, Dir: settings.Hosts, Assets: settings.Assets}
	return vcenter.Main(ctx, settings.Server, vcenter.NewHostGuests(runner))
}

func readVCenter(path string) (vcenterSettings, error) {
	var settings vcenterSettings
	data, err := os.ReadFile(path)
	if err != nil {
		return settings, fmt.Errorf("reading settings of vCenter: %w", err)
	}
	if err := json.Unmarshal(data, &settings); err != nil {
		return settings, fmt.Errorf("reading settings of vCenter: %w", err)
	}
	return settings, nil
}

// vcenterFile holds the settings of the bed's vCenter.
func (b *Bed) vcenterFile() string { return b.layout.path("vcenter", "settings.json") }

// controlSocket is where the vCenter is steered. It lies beside the record
// since the path of a socket has to be short.
func controlSocket(name string) string { return records + "/" + name + ".sock" }

// writeVCenter writes the settings of the bed's vCenter. The password is made
// for this bed, so that none works that stands in a file of the project.
func (b *Bed) writeVCenter(assets host.Assets, delays map[string]time.Duration) error {
	settings := vcenterSettings{
		Server: vcenter.Config{
			Listen:        vcenterAddress,
			CertDir:       b.layout.path("vcenter"),
			Username:      vcenter.DefaultUsername,
			Password:      rand.Text(),
			ControlSocket: controlSocket(b.Name),
			Delays:        map[string]string{},
		},
		Bed:    b.Name,
		Hosts:  b.Hosts(),
		Assets: assets,
	}
	for method, delay := range delays {
		settings.Server.Delays[method] = delay.String()
	}
	data, err := json.Marshal(settings)
	if err != nil {
		return fmt.Errorf("writing settings of vCenter: %w", err)
	}
	if err := os.MkdirAll(b.layout.path("vcenter"), 0o700); err != nil {
		return fmt.Errorf("writing settings of vCenter: %w", err)
	}
	if err := os.WriteFile(b.vcenterFile(), data, 0o600); err != nil {
		return fmt.Errorf("writing settings of vCenter: %w", err)
	}
	return nil
}

// vcenterProcess runs the bed's vCenter. Its inventory is in memory, so it is
// not started again.
func (b *Bed) vcenterProcess(program string) supervisor.Process {
	return supervisor.Process{Name: "vcenter", Args: []string{program, "vcenter", b.vcenterFile()}, Once: true}
}

// VCenter returns how to reach the bed's vCenter.
func (b *Bed) VCenter(ctx context.Context) (VCenter, error) {
	settings, err := readVCenter(b.vcenterFile())
	if err != nil {
		return VCenter{}, err
	}
	info, err := b.Control().Info(ctx)
	if err != nil {
		return VCenter{}, err
	}
	return VCenter{
		Server:     host.Gateway,
		Thumbprint: info.Thumbprint,
		Username:   settings.Server.Username,
		Password:   settings.Server.Password,
	}, nil
}

// awaitVCenter waits until vCenter serves.
func (b *Bed) awaitVCenter(ctx context.Context) error {
	return await(ctx, time.Minute, "waiting for vCenter", func(ctx context.Context) error {
		_, err := b.VCenter(ctx)
		return err
	})
}
