package bed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// nodeName is the one Node of an Empty.
const nodeName = "bed"

const (
	// kubeletPeriod is how often the kubelet looks.
	kubeletPeriod = 250 * time.Millisecond
	// The timeout for a process to end after the request.
	stopTimeout = 5 * time.Second
)

// Programs replace container images: the path of the program that an image,
// with its name in a pod, would run. An empty path is an image that cannot be
// pulled.
type Programs func(image string) string

// kubelet runs the pods of an Empty: each first container as a process, with
// the arguments, the variables, the service account and the Secrets of its pod.
// It has no pod network: all share the address of their Node, so each gets
// ports of its own for health and metrics.
type kubelet struct {
	cluster  *Empty
	programs Programs
	pods     map[string]*pod
	started  int
}

// pod is one that runs.
type pod struct {
	cmd    *exec.Cmd
	exited chan struct{}
	health string
	ready  bool
	// again is when it is started again, after it has ended by itself.
	again    time.Time
	restarts int32
}

// run runs pods until the context ends, and then ends them.
func (k *kubelet) run(ctx context.Context) {
	certificates := &certificates{client: k.cluster.Client, ca: k.cluster.ca}
	for pause(ctx, kubeletPeriod) == nil {
		// A failure is retried, and the log contains it.
		if err := errors.Join(k.sync(ctx), certificates.sync(ctx)); err != nil && ctx.Err() == nil {
			k.log(err)
		}
	}
	for _, p := range k.pods {
		p.end()
	}
}

func (k *kubelet) log(err error) {
	file, openErr := os.OpenFile(filepath.Join(k.cluster.Logs(), "kubelet.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if openErr == nil {
		_, _ = fmt.Fprintln(file, time.Now().Format(time.TimeOnly), err)
		_ = file.Close()
	}
}

// sync looks at every pod once.
func (k *kubelet) sync(ctx context.Context) error {
	list := &corev1.PodList{}
	if err := k.cluster.Client.List(ctx, list); err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	there := map[string]bool{}
	var errs []error
	for i := range list.Items {
		uid := string(list.Items[i].UID)
		there[uid] = true
		if err := k.syncPod(ctx, &list.Items[i], k.pods[uid]); err != nil {
			errs = append(errs, fmt.Errorf("pod %s: %w", list.Items[i].Name, err))
		}
	}
	for uid, p := range k.pods {
		if !there[uid] {
			p.end()
			delete(k.pods, uid)
		}
	}
	return errors.Join(errs...)
}

func (k *kubelet) syncPod(ctx context.Context, object *corev1.Pod, p *pod) error {
	switch {
	case object.DeletionTimestamp != nil:
		if p != nil {
			p.end()
			delete(k.pods, string(object.UID))
		}
		return client.IgnoreNotFound(k.cluster.Client.Delete(ctx, object, client.GracePeriodSeconds(0)))
	case object.Spec.NodeName == "":
		return k.cluster.Client.SubResource("binding").Create(ctx, object,
			&corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: object.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: nodeName}})
	case p == nil:
		program := k.programs(object.Spec.Containers[0].Image)
		if program == "" {
			return nil
		}
		p = &pod{health: net.JoinHostPort(k.cluster.Address, strconv.Itoa(healthPort+k.started))}
		if err := k.start(ctx, object, p, program, diagnosticsPort+1000+k.started); err != nil {
			return err
		}
		k.started++
		k.pods[string(object.UID)] = p
	case p.ended():
		return k.restart(ctx, object, p)
	}
	return k.report(ctx, object, p)
}

// restart starts a pod again, a while after it has ended.
func (k *kubelet) restart(ctx context.Context, object *corev1.Pod, p *pod) error {
	if p.again.IsZero() {
		p.again = time.Now().Add(time.Second)
	}
	if time.Now().Before(p.again) {
		return nil
	}
	p.again, p.ready, p.restarts = time.Time{}, false, p.restarts+1
	return k.start(ctx, object, p, k.programs(object.Spec.Containers[0].Image), diagnosticsPort+1000+k.started+int(p.restarts))
}

// start starts a pod's process as soon as all that it mounts is there.
func (k *kubelet) start(ctx context.Context, object *corev1.Pod, p *pod, program string, diagnostics int) error {
	dir := k.cluster.layout.path("pods", string(object.UID))
	account, err := k.account(ctx, object, dir)
	if err != nil {
		return err
	}
	script := enterPod
	mounts, err := k.mounts(ctx, object, dir)
	if err != nil {
		return err
	}
	for at, from := range mounts {
		script = fmt.Sprintf("mkdir -p %q\nmount --bind %q %q\n", at, from, at) + script
	}
	container := &object.Spec.Containers[0]
	flags := []string{"health-addr=" + p.health, "diagnostics-address=" + loopback(diagnostics)}
	if name, _ := ImageName(container.Image); isFlux(name) {
		data := filepath.Join(dir, "data")
		if err := os.MkdirAll(data, 0o755); err != nil {
			return fmt.Errorf("making folder of pod: %w", err)
		}
		flags = fluxFlags(name, p.health, loopback(diagnostics), data)
	}
	if slices.ContainsFunc(container.Args, func(arg string) bool { return strings.HasPrefix(arg, "--runtime-extension-address=") }) {
		flags = append(flags, "runtime-extension-address="+loopback(diagnostics+extensionPort-diagnosticsPort))
	}
	args := withFlags(container.Args, flags...)
	line := append([]string{"--net=" + k.cluster.netns(), "--", "unshare", "--mount", "sh", "-euc", script, account, program}, args...)
	cmd, err := k.cluster.network().Command(context.WithoutCancel(ctx), "nsenter", line...)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(k.cluster.Logs(), object.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("opening log: %w", err)
	}
	defer func() { _ = log.Close() }()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(variables(object, container), "PATH="+os.Getenv("PATH"), "HOME=/", "KUBERNETES_SERVICE_HOST=127.0.0.1", "KUBERNETES_SERVICE_PORT=6443")
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting: %w", err)
	}
	p.cmd, p.exited = cmd, make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(p.exited)
	}()
	return nil
}

// variables are the environment variables of a container, with the fields of
// its pod.
func variables(object *corev1.Pod, container *corev1.Container) []string {
	fields := map[string]string{
		"metadata.name": object.Name, "metadata.namespace": object.Namespace, "metadata.uid": string(object.UID),
	}
	var set []string
	for _, v := range container.Env {
		value := v.Value
		if v.ValueFrom != nil && v.ValueFrom.FieldRef != nil {
			value = fields[v.ValueFrom.FieldRef.FieldPath]
		}
		set = append(set, v.Name+"="+value)
	}
	return set
}

// account writes the files of the pod's service account.
func (k *kubelet) account(ctx context.Context, object *corev1.Pod, dir string) (string, error) {
	account := &corev1.ServiceAccount{}
	account.Namespace, account.Name = object.Namespace, object.Spec.ServiceAccountName
	seconds := int64(validity / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	if err := k.cluster.Client.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("requesting token: %w", err)
	}
	return filepath.Join(dir, "account"), writeFiles(filepath.Join(dir, "account"), map[string][]byte{
		"namespace": []byte(object.Namespace), "ca.crt": k.cluster.ca.bundle(), "token": []byte(request.Status.Token),
	})
}

// mounts writes the Secrets that a pod mounts, and returns their paths.
func (k *kubelet) mounts(ctx context.Context, object *corev1.Pod, dir string) (map[string]string, error) {
	mounts := map[string]string{}
	for _, volume := range object.Spec.Volumes {
		if volume.Secret == nil {
			continue
		}
		secret := &corev1.Secret{}
		key := client.ObjectKey{Namespace: object.Namespace, Name: volume.Secret.SecretName}
		if err := k.cluster.Client.Get(ctx, key, secret); err != nil {
			return nil, fmt.Errorf("reading Secret %s: %w", key.Name, err)
		}
		from := filepath.Join(dir, volume.Name)
		if err := writeFiles(from, secret.Data); err != nil {
			return nil, err
		}
		for _, mount := range object.Spec.Containers[0].VolumeMounts {
			if mount.Name == volume.Name {
				mounts[path.Clean(mount.MountPath)] = from
			}
		}
	}
	return mounts, nil
}

func writeFiles(dir string, files map[string][]byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("writing files of pod: %w", err)
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return fmt.Errorf("writing files of pod: %w", err)
		}
	}
	return nil
}

// report reports to the API server whether the pod runs and is ready, if that
// has changed.
func (k *kubelet) report(ctx context.Context, object *corev1.Pod, p *pod) error {
	ready := p.answers(ctx, k.cluster)
	if object.Status.Phase == corev1.PodRunning && ready == p.ready {
		return nil
	}
	before := object.DeepCopy()
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	now := metav1.Now()
	object.Status.Phase, object.Status.PodIP, object.Status.HostIP, object.Status.StartTime = corev1.PodRunning, k.cluster.Address, k.cluster.Address, &now
	object.Status.PodIPs = []corev1.PodIP{{IP: k.cluster.Address}}
	object.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: now},
		{Type: corev1.ContainersReady, Status: status, LastTransitionTime: now},
		{Type: corev1.PodReady, Status: status, LastTransitionTime: now},
	}
	container := &object.Spec.Containers[0]
	object.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: container.Name, Image: container.Image, Ready: ready, RestartCount: p.restarts,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
	}}
	if err := k.cluster.Client.Status().Patch(ctx, object, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("reporting: %w", err)
	}
	p.ready = ready
	return nil
}

// answers reports whether the readiness probe of the process succeeds.
func (p *pod) answers(ctx context.Context, e *Empty) bool {
	httpClient := http.Client{Timeout: time.Second, Transport: &http.Transport{DialContext: e.Dial, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.health+"/readyz", http.NoBody)
	if err != nil {
		return false
	}
	response, err := httpClient.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

func (p *pod) ended() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// end requests the process to end, and kills it after a timeout.
func (p *pod) end() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-p.exited:
	case <-timer.C:
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
}

// ImageName is the last part of an image's name, and its tag.
func ImageName(image string) (name, tag string) {
	name, tag, _ = strings.Cut(path.Base(image), ":")
	return name, tag
}
