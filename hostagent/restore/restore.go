package restore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"strings"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/download"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

const (
	// imageDir is where the image of etcd is mounted, in memory.
	imageDir = "/run/nova/etcd-image"
	// clusterFile is kubeadm's document, for the image of etcd.
	clusterFile = "/run/nova/restore.yaml"
	// loadTimeout is how long etcd may take to load the data.
	loadTimeout = 10 * time.Minute
	// requestTimeout limits a request to the restored etcd.
	requestTimeout = time.Minute
	// maxResponse limits a response of etcd, in bytes.
	maxResponse = 1 << 20
)

// Node is the etcd member that the snapshot is restored for.
type Node struct {
	// Name is the name of the node, which kubeadm gives to its member.
	Name string
	// Address is the first address of the node.
	Address string
}

// Run restores a snapshot to the data directory of etcd. It refuses to do so if
// there is a member.
func Run(ctx context.Context, m *machine.Machine, r *nodeconfig.Restore, node Node) error {
	if m.Exists(path.Join(r.DataDir, "member")) {
		return fmt.Errorf("%s already contains an etcd member", r.DataDir)
	}
	if err := m.Mkdir(r.DataDir, 0o700); err != nil {
		return err
	}
	// On the disk that etcd will use: it may not fit elsewhere.
	s := &session{m: m, r: r, node: node, work: path.Join(r.DataDir, ".nova-restore")}
	if err := errors.Join(m.Remove(s.work), m.Mkdir(s.work, 0o700)); err != nil {
		return err
	}
	m.Logf("Downloading snapshot %s", r.Snapshot)
	from := download.Source{Name: "snapshot " + r.Snapshot, URL: r.URL, SHA256: r.SHA256, CA: r.CA}
	if err := download.File(ctx, m, from, path.Join(s.work, "snapshot.db")); err != nil {
		return err
	}
	if err := s.findEtcd(ctx); err != nil {
		return err
	}
	if err := s.unpack(ctx); err != nil {
		return err
	}
	if err := s.disarm(ctx); err != nil {
		return err
	}
	if err := os.Rename(m.At(path.Join(s.work, "restored/member")), m.At(path.Join(r.DataDir, "member"))); err != nil {
		return fmt.Errorf("moving the restored data: %w", err)
	}
	if err := m.Run(ctx, "ctr", "--namespace", "k8s.io", "images", "unmount", "--rm", m.At(imageDir)); err != nil {
		m.Logf("The image of etcd stays mounted: %v", err)
	}
	m.Logf("Restored snapshot %s", r.Snapshot)
	return m.Remove(s.work, clusterFile)
}

type session struct {
	m    *machine.Machine
	r    *nodeconfig.Restore
	node Node
	// work is the folder of the restore, and image the name of etcd's image.
	work, image string
	// etcd and etcdutl are the paths of the programs.
	etcd, etcdutl string
}

// findEtcd mounts the image of etcd that kubeadm will run. It prefers the
// node's own etcdutl.
func (s *session) findEtcd(ctx context.Context) error {
	m := s.m
	if err := m.Write(clusterFile, s.r.ClusterConfiguration, 0o600); err != nil {
		return err
	}
	images, err := m.Output(ctx, "kubeadm", "config", "images", "list", "--config", m.At(clusterFile))
	if err != nil {
		return err
	}
	for image := range strings.FieldsSeq(images) {
		if strings.Contains(image, "/etcd:") {
			s.image = image
		}
	}
	if s.image == "" {
		return errors.New("kubeadm lists no etcd image")
	}
	// kubeadm pulls it through containerd's mirrors and credentials.
	present, err := m.Output(ctx, "ctr", "--namespace", "k8s.io", "images", "list", "--quiet", "name=="+s.image)
	if err != nil || present == "" {
		if err := m.Run(ctx, "kubeadm", "config", "images", "pull", "--config", m.At(clusterFile)); err != nil {
			return fmt.Errorf("image %s cannot be pulled: %w", s.image, err)
		}
	}
	if err := m.Mkdir(imageDir, 0o700); err != nil {
		return err
	}
	if err := m.Run(ctx, "ctr", "--namespace", "k8s.io", "images", "mount", s.image, m.At(imageDir)); err != nil {
		return fmt.Errorf("image %s cannot be mounted: %w", s.image, err)
	}
	s.etcd = m.At(imageDir + "/usr/local/bin/etcd")
	if s.etcdutl = m.Find("etcdutl"); s.etcdutl == "" {
		s.etcdutl = m.At(imageDir + "/usr/local/bin/etcdutl")
	}
	if !executable(s.etcdutl) {
		return fmt.Errorf("image %s has no etcdutl", s.image)
	}
	return nil
}

func executable(file string) bool {
	info, err := os.Stat(file)
	return err == nil && info.Mode()&0o111 != 0
}

// unpack restores the snapshot. Revisions continue far above all earlier ones,
// and watchers must list again: a client never mistakes new data for data in its
// cache.
func (s *session) unpack(ctx context.Context) error {
	// The member name and peer URL that kubeadm uses.
	peer := "https://" + net.JoinHostPort(s.node.Address, "2380")
	err := s.m.Run(ctx, s.etcdutl, "snapshot", "restore", s.m.At(path.Join(s.work, "snapshot.db")), "--data-dir", s.m.At(path.Join(s.work, "restored")),
		"--name", s.node.Name, "--initial-cluster", s.node.Name+"="+peer, "--initial-advertise-peer-urls", peer,
		"--bump-revision", "1000000000", "--mark-compacted")
	if err != nil {
		return fmt.Errorf("etcdutl failed: %w", err)
	}
	return nil
}

// alarm is an alarm of etcd's API. Its JSON leaves out a member 0.
type alarm struct {
	MemberID string `json:"memberID,omitempty"`
	Alarm    string `json:"alarm,omitempty"`
}

// alarmRequest is a request of the alarm API.
type alarmRequest struct {
	Action string `json:"action"`
	alarm
}

// disarm clears the alarms of the snapshot: the members that raised them no
// longer exist, and etcd rejects all writes while an alarm is raised, also those
// of kubeadm. etcd raises an alarm again if the reason persists.
func (s *session) disarm(ctx context.Context) error {
	if !executable(s.etcd) {
		s.m.Logf("Image %s has no etcd at the usual path: alarms of the snapshot are not disarmed", s.image)
		return nil
	}
	output := &bytes.Buffer{}
	running, stop, err := s.m.Start(ctx, machine.Command{Dir: s.work, Args: []string{
		s.etcd, "--data-dir", "restored", "--name", s.node.Name, "--log-level", "warn",
		"--listen-client-urls", "unix://client:0", "--advertise-client-urls", "unix://client:0", "--listen-peer-urls", "unix://peer:0",
	}}, output)
	if err != nil {
		return err
	}
	raised, err := s.alarms(ctx, running)
	for i := 0; err == nil && i < len(raised); i++ {
		s.m.Logf("Disarming an alarm of the snapshot: %s of member %s", raised[i].Alarm, raised[i].MemberID)
		_, err = s.request(ctx, alarmRequest{Action: "DEACTIVATE", alarm: raised[i]})
	}
	stop()
	if err != nil {
		s.m.Logf("etcd: %s", output)
		return fmt.Errorf("etcd does not start with the restored data, or keeps its alarms: %w", err)
	}
	return nil
}

// alarms returns the alarms once etcd has loaded the data.
func (s *session) alarms(ctx context.Context, running func() bool) ([]alarm, error) {
	for until := s.m.Now().Add(loadTimeout); ; {
		raised, err := s.request(ctx, alarmRequest{Action: "GET"})
		if err == nil || !running() || !s.m.Now().Before(until) {
			return raised, err
		}
		if err := s.m.Sleep(ctx, time.Second); err != nil {
			return nil, err
		}
	}
}

// request calls the alarm API of the restored etcd, over a socket that only root
// can open.
func (s *session) request(ctx context.Context, body alarmRequest) ([]alarm, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	content, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("writing request: %w", err)
	}
	// A socket's path has at most 107 bytes, so it begins at the open folder.
	folder, err := os.Open(s.m.At(s.work))
	if err != nil {
		return nil, fmt.Errorf("opening the folder of etcd: %w", err)
	}
	defer func() { _ = folder.Close() }()
	socket := fmt.Sprintf("/proc/self/fd/%d/client:0", folder.Fd())
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/v3/maintenance/alarm", bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("writing request: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("reading alarms: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	var found struct {
		Alarms []alarm `json:"alarms"`
	}
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxResponse))
	if err != nil || response.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("etcd responds with %s", response.Status), err)
	}
	if err := json.Unmarshal(answer, &found); err != nil {
		return nil, fmt.Errorf("reading alarms: %w", err)
	}
	return found.Alarms, nil
}
