package follow

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/disk"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

const (
	// Unit is the service that follows the desired settings.
	Unit = "nova-host-agent.service"
	// recordFile is readable by root only: the settings contain the content of
	// files that are.
	recordFile = "/var/lib/nova/settings.json"
	// firstBoot is the revision of the settings of the first boot.
	firstBoot = "first-boot"
)

// unitText is the service.
//
//go:embed nova-host-agent.service
var unitText string

// Node has the properties of a node that only the machine knows.
type Node struct {
	// Name is the name of the node.
	Name string `json:"name"`
	// Addresses are its addresses, separated by commas.
	Addresses string `json:"addresses"`
	// ProviderID is not set on unknown hardware.
	ProviderID string `json:"providerID,omitempty"`
}

// revision is one revision of the settings.
type revision struct {
	ID       string               `json:"id"`
	Settings *nodeconfig.Settings `json:"settings"`
}

// record is the state of the node's settings.
type record struct {
	Node Node `json:"node"`
	// Applied are the settings of the node.
	Applied revision `json:"applied"`
	// Started, if set, are settings that may be applied in part: a change to
	// them was begun after Applied.
	Started []revision `json:"started,omitempty"`
}

// Start records the settings of the first boot, and starts the service. The size of the
// boot disk is recorded too: what the disk gets later is for its file system.
func Start(ctx context.Context, m *machine.Machine, node Node, settings *nodeconfig.Settings) error {
	node.fill(settings)
	settings.Hardware.BootDiskGiB = disk.Size(m, "/")
	r := &record{Node: node, Applied: revision{ID: firstBoot, Settings: settings}}
	if err := r.save(ctx, m); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	if err := m.Write("/etc/systemd/system/"+Unit, strings.ReplaceAll(unitText, "__NOVA_HOST_AGENT__", self), 0o644); err != nil {
		return err
	}
	return m.Run(ctx, "systemctl", "enable", "--now", Unit)
}

func load(m *machine.Machine) (*record, error) {
	content, err := m.Load(recordFile)
	if err != nil {
		return nil, fmt.Errorf("reading the record of the node's settings: %w", err)
	}
	r := &record{}
	if err := json.Unmarshal([]byte(content), r); err != nil {
		return nil, fmt.Errorf("reading the record of the node's settings: %w", err)
	}
	if r.Applied.Settings == nil {
		return nil, errors.New("reading the record of the node's settings: it has no settings")
	}
	return r, nil
}

// save writes the record to the disk, so that it survives a reset.
func (r *record) save(ctx context.Context, m *machine.Machine) error {
	content, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("writing the record of the node's settings: %w", err)
	}
	if err := m.Write(recordFile, string(content), 0o600); err != nil {
		return fmt.Errorf("writing the record of the node's settings: %w", err)
	}
	return m.Flush(ctx)
}

// begin records that a change to a revision begins.
func (r *record) begin(ctx context.Context, m *machine.Machine, to revision) error {
	for _, started := range r.Started {
		if started.ID == to.ID {
			return nil
		}
	}
	if len(r.Started) == maxStarted {
		return fmt.Errorf("%d changes of the settings failed one after the other: replace the machine", maxStarted)
	}
	r.Started = append(r.Started, to)
	return r.save(ctx, m)
}

// maxStarted limits the record: each change that failed adds its settings.
const maxStarted = 10

// former returns all settings of which a part may be applied.
func (r *record) former() []*nodeconfig.Settings {
	all := []*nodeconfig.Settings{r.Applied.Settings}
	for _, started := range r.Started {
		all = append(all, started.Settings)
	}
	return all
}

// fill replaces the variables in settings. An argument with an unknown provider
// ID is left out.
func (n *Node) fill(s *nodeconfig.Settings) {
	s.Machine.SetNodeIP(n.Addresses)
	var args []nodeconfig.Setting
	for _, a := range s.Kubelet.Args {
		if n.ProviderID == "" && strings.Contains(a.Value, nodeconfig.ProviderID) {
			continue
		}
		a.Value = strings.NewReplacer(nodeconfig.NodeIP, n.Addresses, nodeconfig.ProviderID, n.ProviderID).Replace(a.Value)
		args = append(args, a)
	}
	s.Kubelet.Args = args
}
