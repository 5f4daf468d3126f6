package spec

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/vim25/types"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

const (
	// maxValue is the longest value of one setting. A guest's tools exchange no
	// more in one message (GUESTMSG_MAX_IN_SIZE of open-vm-tools).
	maxValue = 64 << 10
	// maxPlain is the size up to which data is stored without compression, so
	// that the value in base64 is no longer than maxValue.
	maxPlain = 48 << 10
)

// networkKey is the setting in which Afterburn finds the network for the
// initial RAM disk.
const networkKey = "guestinfo.afterburn.initrd.network-kargs"

// guestinfo returns the settings that the guest reads at its first boot.
func guestinfo(name string, id uuid.UUID, all []nic, l hypervisor.CreateOptions) ([]types.BaseOptionValue, error) {
	switch l.Format {
	case "", "cloud-config":
		document, err := metadata(name, id, all)
		if err != nil {
			return nil, err
		}
		user, err := encoded("guestinfo.userdata", "guestinfo.userdata.encoding", l.UserData)
		if err != nil {
			return nil, err
		}
		meta, err := encoded("guestinfo.metadata", "guestinfo.metadata.encoding", document)
		return append(user, meta...), err
	case "ignition":
		network, err := kernelArguments(name, all)
		if err != nil {
			return nil, err
		}
		options, err := encoded("guestinfo.ignition.config.data", "guestinfo.ignition.config.data.encoding", l.UserData)
		if network != "" {
			options = append(options, &types.OptionValue{Key: networkKey, Value: network})
		}
		return options, err
	default:
		return nil, hypervisor.Terminal(infrav1.InvalidSpecReason, "bootstrap data of the format %q cannot be given to a vSphere VM", l.Format)
	}
}

// metadata returns the document from which cloud-init takes the host name and
// network.
func metadata(name string, id uuid.UUID, all []nic) ([]byte, error) {
	document, err := json.Marshal(map[string]any{
		// A clone with the instance ID of the template would not run cloud-init
		// again.
		"instance-id":    id.String(),
		"local-hostname": name,
		"network":        networkConfig(all),
	})
	if err != nil {
		return nil, fmt.Errorf("encoding metadata: %w", err)
	}
	return document, nil
}

// encoded stores data under key and its encoding under encodingKey.
func encoded(key, encodingKey string, data []byte) ([]types.BaseOptionValue, error) {
	encoding := "base64"
	if len(data) > maxPlain {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		if _, err := w.Write(data); err != nil {
			return nil, fmt.Errorf("compressing %s: %w", key, err)
		}
		if err := w.Close(); err != nil {
			return nil, fmt.Errorf("compressing %s: %w", key, err)
		}
		data, encoding = packed.Bytes(), "gzip+base64"
	}
	value := base64.StdEncoding.EncodeToString(data)
	if len(value) > maxValue {
		return nil, tooLong(key, value)
	}
	return []types.BaseOptionValue{
		&types.OptionValue{Key: key, Value: value},
		&types.OptionValue{Key: encodingKey, Value: encoding},
	}, nil
}

// tooLong returns the error for a value that a guest could not read, before a
// VM is created.
func tooLong(key, value string) error {
	return hypervisor.Terminal(infrav1.InvalidSpecReason, "%s is %d KiB, compressed and in base64, and a guest can read %d KiB at most; "+
		"leave out files that cannot be compressed, and have a command of the NovaConfig fetch them", key, (len(value)+1023)>>10, maxValue>>10)
}
