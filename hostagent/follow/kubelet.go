package follow

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/prepare"
)

const (
	// kubeconfig has the kubelet's certificate, which the kubelet renews.
	kubeconfig = "/etc/kubernetes/kubelet.conf"
	// flagsFile is where kubeadm sets the arguments of the kubelet.
	flagsFile     = "/var/lib/kubelet/kubeadm-flags.env"
	flagsVariable = "KUBELET_KUBEADM_ARGS="
	patchesDir    = "/etc/kubernetes/patches"
	// kubeletPatchesPrefix is the prefix of kubeadm's patches for the kubelet.
	kubeletPatchesPrefix = patchesDir + "/kubeletconfiguration"
	labelsArg            = "node-labels"

	// keepsRunning is how long a restarted kubelet must run: one that rejects its
	// settings ends at once.
	keepsRunning = 15 * time.Second
)

// changeKubelet changes the configuration and the arguments of the kubelet, and
// restarts it if necessary.
func changeKubelet(ctx context.Context, m *machine.Machine, former []*nodeconfig.Settings, s *nodeconfig.Settings) error {
	configured := changed(kubeletPatches, former, s)
	if configured {
		m.Logf("Changing the configuration of the kubelet")
		// kubeadm makes it from the cluster's configuration and the patches.
		args := []string{"kubeadm", "upgrade", "node", "phase", "kubelet-config", "--kubeconfig", m.At(kubeconfig)}
		if err := m.Run(ctx, append(args, patchesArgs(m)...)...); err != nil {
			return err
		}
	}
	if changed(kubeletArgs, former, s) {
		m.Logf("Changing the arguments of the kubelet")
		if err := setArgs(m, former, s.Kubelet.Args); err != nil {
			return err
		}
		configured = true
	}
	if !configured && !changed(kubeletEnvironment, former, s) {
		return nil
	}
	return restartKubelet(ctx, m)
}

// changed reports whether a part of the settings differs from a former one. The
// files of an interrupted change do not count: the kubelet may not have been
// restarted since they were written.
func changed(part func(*nodeconfig.Settings) any, former []*nodeconfig.Settings, s *nodeconfig.Settings) bool {
	return slices.ContainsFunc(former, func(f *nodeconfig.Settings) bool { return !reflect.DeepEqual(part(f), part(s)) })
}

func kubeletArgs(s *nodeconfig.Settings) any { return s.Kubelet.Args }

func kubeletPatches(s *nodeconfig.Settings) any {
	return filesBelow(&s.Machine, kubeletPatchesPrefix)
}

// kubeletEnvironment are the settings that the kubelet's service reads.
func kubeletEnvironment(s *nodeconfig.Settings) any {
	return [][]nodeconfig.File{filesBelow(&s.Machine, nodeconfig.ProxyFile), filesBelow(&s.Machine, "/etc/systemd/system/kubelet.service.d/")}
}

func filesBelow(c *nodeconfig.Machine, prefix string) []nodeconfig.File {
	var found []nodeconfig.File
	for _, f := range c.Files {
		if strings.HasPrefix(f.Path, prefix) {
			found = append(found, f)
		}
	}
	return found
}

// setArgs replaces the arguments of former settings in the file of kubeadm.
// Those that kubeadm set itself stay.
func setArgs(m *machine.Machine, former []*nodeconfig.Settings, args []nodeconfig.Setting) error {
	text, err := m.Load(flagsFile)
	if err != nil {
		return err
	}
	value, found := strings.CutPrefix(strings.TrimSpace(text), flagsVariable)
	line, err := strconv.Unquote(value)
	if !found || err != nil {
		return fmt.Errorf("%s is not as kubeadm writes it", flagsFile)
	}
	ours := map[string]bool{}
	for _, list := range append(argsOf(former), args) {
		for _, a := range list {
			ours[a.Name] = true
		}
	}
	kept := slices.DeleteFunc(strings.Fields(line), func(arg string) bool {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		return ours[name]
	})
	for _, a := range args {
		kept = append(kept, fmt.Sprintf("--%s=%s", a.Name, a.Value))
	}
	return m.Edit(flagsFile, flagsVariable+strconv.Quote(strings.Join(kept, " "))+"\n", 0o644)
}

func argsOf(former []*nodeconfig.Settings) [][]nodeconfig.Setting {
	var lists [][]nodeconfig.Setting
	for _, f := range former {
		lists = append(lists, f.Kubelet.Args)
	}
	return lists
}

// restartKubelet restarts the kubelet, and makes sure that it keeps running. Pods
// keep running meanwhile.
func restartKubelet(ctx context.Context, m *machine.Machine) error {
	if err := m.Run(ctx, "systemctl", "daemon-reload"); err != nil {
		return err
	}
	if err := m.Run(ctx, "systemctl", "restart", "kubelet"); err != nil {
		return err
	}
	for until := m.Now().Add(keepsRunning); m.Now().Before(until); {
		if err := m.Sleep(ctx, time.Second); err != nil {
			return err
		}
		if _, err := m.Output(ctx, "systemctl", "is-active", "--quiet", "kubelet"); err != nil {
			return errors.New("the kubelet does not start with these settings; see journalctl -u kubelet on the node")
		}
	}
	return nil
}

// labelChanges returns the labels of the Node that the argument node-labels
// changes, which a kubelet reads only when it registers its Node. A nil value
// removes a label.
func labelChanges(former []*nodeconfig.Settings, s *nodeconfig.Settings) map[string]*string {
	is, changes := labels(s), map[string]*string{}
	for _, f := range former {
		for key, was := range labels(f) {
			switch now, found := is[key]; {
			case !found:
				changes[key] = nil
			case now != was:
				changes[key] = &now
			}
		}
		for key, now := range is {
			if _, found := labels(f)[key]; !found {
				changes[key] = &now
			}
		}
	}
	return changes
}

func labels(s *nodeconfig.Settings) map[string]string {
	all := map[string]string{}
	for _, a := range s.Kubelet.Args {
		if a.Name != labelsArg {
			continue
		}
		for label := range strings.SplitSeq(a.Value, ",") {
			if key, value, _ := strings.Cut(strings.TrimSpace(label), "="); key != "" {
				all[key] = value
			}
		}
	}
	return all
}

// machines returns the settings of the operating system.
func machines(former []*nodeconfig.Settings) []*nodeconfig.Machine {
	var all []*nodeconfig.Machine
	for _, f := range former {
		all = append(all, &f.Machine)
	}
	return all
}

// rejected returns why a running machine cannot apply settings, or nothing.
func (r *record) rejected(s *nodeconfig.Settings) string {
	if s.Node != r.Node.Name {
		return fmt.Sprintf("the settings are for node %q", s.Node)
	}
	if fixed := prepare.Fixed(&r.Applied.Settings.Machine, &s.Machine); len(fixed) > 0 {
		return fmt.Sprintf("a running machine cannot change its %s", strings.Join(fixed, ", "))
	}
	return ""
}
