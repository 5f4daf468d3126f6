package cluster

import (
	"context"
	"encoding/base64"
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/qemu"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/schema"
)

// maxRead is the size of a file that can be read with the guest agent.
const maxRead = 16 << 20

// withAgent returns a handler for a command of the guest agent.
func withAgent(f func(q *call, v *vm) (any, error)) handler {
	return func(q *call) (any, error) {
		v, err := q.vm()
		if err != nil {
			return nil, err
		}
		agent, _ := qemu.Parse("agent", v.config.Options["agent"])
		switch {
		case v.config.Options["agent"] == "":
			return nil, schema.Failed("No QEMU guest agent configured")
		case !v.running:
			return nil, schema.Failed("VM %d is not running", v.vmid)
		case !agent.On("enabled") || !v.agent || v.paused:
			return nil, schema.Failed("QEMU guest agent is not running")
		}
		return f(q, v)
	}
}

// result is the form of the responses of the agent.
func result(value any) (any, error) { return map[string]any{"result": value}, nil }

func pingAgent(*call, *vm) (any, error) { return result(map[string]any{}) }

func agentHostName(_ *call, v *vm) (any, error) {
	return result(map[string]any{"host-name": v.guest.HostName})
}

func agentSystem(_ *call, v *vm) (any, error) {
	out := map[string]any{}
	for key, value := range v.guest.System {
		out[strings.ReplaceAll(key, "_", "-")] = value
	}
	return result(v.guest.answer("get-osinfo", out))
}

// agentInterfaces lists the interfaces of the guest, the loopback included.
func agentInterfaces(_ *call, v *vm) (any, error) {
	list := []map[string]any{{
		"name": "lo", "hardware-address": "00:00:00:00:00:00",
		"ip-addresses": []map[string]any{
			{"ip-address": "127.0.0.1", "ip-address-type": "ipv4", "prefix": 8},
			{"ip-address": "::1", "ip-address-type": "ipv6", "prefix": 128},
		},
	}}
	for _, nic := range v.guest.NICs {
		addresses := []map[string]any{}
		for _, prefix := range nic.Addresses {
			kind := "ipv6"
			if prefix.Addr().Is4() {
				kind = "ipv4"
			}
			addresses = append(addresses, map[string]any{"ip-address": prefix.Addr().String(), "ip-address-type": kind, "prefix": prefix.Bits()})
		}
		entry := map[string]any{"name": nic.Name, "hardware-address": strings.ToLower(nic.MAC)}
		if len(addresses) > 0 {
			entry["ip-addresses"] = addresses
		}
		list = append(list, entry)
	}
	return result(v.guest.answer("network-get-interfaces", list))
}

// agentReadFile handles GET …/agent/file-read.
func agentReadFile(q *call, v *vm) (any, error) {
	path, count, offset, decode := q.text("file"), q.number("count", maxRead), q.number("offset", 0), q.text("decode") != "0"
	described := q.c.describe(v)
	read := func(context.Context) ([]byte, error) {
		text, ok := v.guest.Files[path]
		if !ok {
			return nil, missingFile(path)
		}
		return []byte(text), nil
	}
	if reader, ok := q.c.guests.(FileReader); ok {
		read = func(ctx context.Context) ([]byte, error) {
			data, err := reader.ReadFile(ctx, described, path)
			if err != nil {
				return nil, missingFile(path)
			}
			return data, nil
		}
		return outside(func(ctx context.Context) (any, error) { return fileContent(ctx, read, count, offset, decode) }), nil
	}
	return fileContent(context.Background(), read, count, offset, decode)
}

func missingFile(path string) error {
	return schema.Failed("Agent error: failed to open file '%s' (mode: 'r'): No such file or directory", path)
}

func fileContent(ctx context.Context, read func(context.Context) ([]byte, error), count, offset int, decode bool) (any, error) {
	data, err := read(ctx)
	if err != nil {
		return nil, err
	}
	data = data[min(offset, len(data)):]
	out := map[string]any{}
	if len(data) > count {
		data = data[:count]
		out["truncated"] = 1
	}
	out["content"] = string(data)
	if !decode {
		out["content"] = base64.StdEncoding.EncodeToString(data)
	}
	return out, nil
}

// SetGuest reports the state of a running VM's guest agent. The VM is named by
// its unique ID, its VMID or its name.
func (c *Cluster) SetGuest(id string, guest Guest) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, err := c.find(id)
	if err != nil {
		return err
	}
	if !v.running {
		return schema.Failed("VM %d is not running", v.vmid)
	}
	if guest.Files == nil {
		guest.Files = v.guest.Files
	}
	v.guest, v.agent = guest, true
	return nil
}

// GuestStopped reports that a guest shut itself down, or that its machine failed.
func (c *Cluster) GuestStopped(id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, err := c.find(id)
	if err == nil && v.running {
		c.off(v)
	}
	return err
}
