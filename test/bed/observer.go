package bed

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/nova-platform/cluster-api-provider-nova/test/leaks"
)

const (
	// observedLog has the events and statuses that an observer has seen.
	observedLog = "observed.log"
	// ownLogs matches the logs and metrics of this project's managers.
	ownLogs = "nova-*.log"
	// maxLeaks bounds how many leaks are reported. The first ones say enough.
	maxLeaks = 20
)

// observer watches a management cluster and notes the values of all Secrets,
// and everything that is shown to more people: events and the statuses of
// Cluster API's and Flux' kinds. It notes them while they exist, since most are
// deleted before the end of a run.
type observer struct {
	values  leaks.Values
	logs    string
	factory dynamicinformer.DynamicSharedInformerFactory
	stop    chan struct{}

	mu sync.Mutex
	// log is nil once the observer has ended.
	log  *os.File
	seen map[types.UID][sha256.Size]byte
	// watched are the kinds that are watched.
	watched map[schema.GroupResource]bool
}

// observe starts an observer. logs is the directory with the managers' logs.
func observe(config *rest.Config, logs string) (*observer, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making client of observer: %w", err)
	}
	log, err := os.OpenFile(filepath.Join(logs, observedLog), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening log of observer: %w", err)
	}
	o := &observer{
		logs: logs, log: log, factory: dynamicinformer.NewDynamicSharedInformerFactory(client, 0),
		stop: make(chan struct{}), seen: map[types.UID][sha256.Size]byte{}, watched: map[schema.GroupResource]bool{},
	}
	err = errors.Join(
		o.watch(corev1.SchemeGroupVersion.WithResource("secrets"), o.secret),
		o.watch(corev1.SchemeGroupVersion.WithResource("events"), o.event),
		o.watch(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"), o.definition),
	)
	return o, err
}

// watch shows every state of the objects of a kind to note. Only their names
// are kept in memory.
func (o *observer) watch(kind schema.GroupVersionResource, note func(*unstructured.Unstructured) error) error {
	o.mu.Lock()
	known := o.watched[kind.GroupResource()]
	o.watched[kind.GroupResource()] = true
	o.mu.Unlock()
	if known {
		return nil
	}
	informer := o.factory.ForResource(kind).Informer()
	err := errors.Join(
		informer.SetTransform(func(object any) (any, error) {
			u, is := object.(*unstructured.Unstructured)
			if !is {
				return object, nil
			}
			if err := note(u); err != nil {
				return nil, err
			}
			kept := &unstructured.Unstructured{Object: map[string]any{}}
			kept.SetNamespace(u.GetNamespace())
			kept.SetName(u.GetName())
			kept.SetUID(u.GetUID())
			kept.SetResourceVersion(u.GetResourceVersion())
			return kept, nil
		}),
		// The API server is killed in some suites, and the watch begins again.
		informer.SetWatchErrorHandler(func(*cache.Reflector, error) {}),
	)
	o.factory.Start(o.stop)
	return err
}

func (o *observer) secret(u *unstructured.Unstructured) error {
	secret := &corev1.Secret{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, secret); err != nil {
		return fmt.Errorf("reading Secret %s: %w", u.GetName(), err)
	}
	o.values.Add(secret)
	return nil
}

func (o *observer) event(u *unstructured.Unstructured) error {
	return o.note("Event", u, map[string]any{"reason": u.Object["reason"], "message": u.Object["message"]})
}

func (o *observer) status(u *unstructured.Unstructured) error {
	if u.Object["status"] == nil {
		return nil
	}
	return o.note(u.GetKind(), u, u.Object["status"])
}

// note writes a state of an object if it differs from the one before.
func (o *observer) note(kind string, u *unstructured.Unstructured, state any) error {
	text, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("encoding %s %s: %w", kind, u.GetName(), err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	sum := sha256.Sum256(text)
	if o.seen[u.GetUID()] == sum || o.log == nil {
		return nil
	}
	o.seen[u.GetUID()] = sum
	if _, err := fmt.Fprintf(o.log, "%s %s/%s %s\n", kind, u.GetNamespace(), u.GetName(), text); err != nil {
		return fmt.Errorf("recording %s %s: %w", kind, u.GetName(), err)
	}
	return nil
}

// definition watches the statuses of a kind once it is defined.
func (o *observer) definition(u *unstructured.Unstructured) error {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, crd); err != nil {
		return fmt.Errorf("reading definition %s: %w", u.GetName(), err)
	}
	if !strings.HasSuffix(crd.Spec.Group, "cluster.x-k8s.io") && !strings.HasSuffix(crd.Spec.Group, "toolkit.fluxcd.io") {
		return nil
	}
	for _, version := range crd.Spec.Versions {
		if version.Storage {
			return o.watch(schema.GroupVersionResource{Group: crd.Spec.Group, Version: version.Name, Resource: crd.Spec.Names.Plural}, o.status)
		}
	}
	return nil
}

// end stops the observer and returns the leaks. Only the first call returns
// them. A nil observer has none.
func (o *observer) end() error {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	log := o.log
	o.log = nil
	o.mu.Unlock()
	if log == nil {
		return nil
	}
	close(o.stop)
	o.factory.Shutdown()
	if err := log.Close(); err != nil {
		return fmt.Errorf("closing log of observer: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(o.logs, ownLogs))
	if err != nil {
		return fmt.Errorf("finding logs: %w", err)
	}
	var errs []error
	for _, file := range append(files, filepath.Join(o.logs, observedLog)) {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("reading log: %w", err)
		}
		for _, leak := range o.values.Find(filepath.Base(file), text) {
			if len(errs) < maxLeaks {
				errs = append(errs, fmt.Errorf("leaking a secret: %s", leak))
			}
		}
	}
	return errors.Join(errs...)
}

// scraper is the ServiceAccount by which a bed reads metrics.
const scraper = `apiVersion: v1
kind: ServiceAccount
metadata: {name: nova-bed-scraper, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: nova-bed-scraper}
rules: [{nonResourceURLs: [/metrics], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: nova-bed-scraper}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: nova-bed-scraper}
subjects: [{kind: ServiceAccount, name: nova-bed-scraper, namespace: kube-system}]
`

// keepMetrics writes the metrics of this project's managers beside their logs.
// There are none of a manager that does not run any more, and none without an
// API server, which managers ask who reads them.
func (b *Bed) keepMetrics(ctx context.Context) error {
	if b.observer == nil {
		return nil
	}
	if serves := probe(ctx, b.Config) == nil; !serves {
		return nil
	}
	var errs []error
	for _, m := range b.managers {
		if own, _ := filepath.Match(ownLogs, m.name+".log"); !own || b.answers(ctx, m) != nil {
			continue
		}
		err := await(ctx, 30*time.Second, "reading metrics of "+m.name, func(ctx context.Context) error {
			text, err := b.Metrics(ctx, m.name)
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(b.layout.logs(), m.name+"-metrics.log"), text, 0o644)
		})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Metrics returns the metrics of a manager.
func (b *Bed) Metrics(ctx context.Context, name string) ([]byte, error) {
	at := slices.IndexFunc(b.managers, func(m manager) bool { return m.name == name })
	if at < 0 {
		return nil, fmt.Errorf("reading metrics: the test environment has no manager %s", name)
	}
	objects, err := parse([]byte(scraper))
	if err != nil {
		return nil, err
	}
	if err := Apply(ctx, b.Client, objects...); err != nil {
		return nil, err
	}
	account, request := &corev1.ServiceAccount{}, &authenticationv1.TokenRequest{}
	account.Namespace, account.Name = objects[0].GetNamespace(), objects[0].GetName()
	if err := b.Client.SubResource("token").Create(ctx, account, request); err != nil {
		return nil, fmt.Errorf("requesting token for metrics: %w", err)
	}
	return b.get(ctx, "https://"+b.managers[at].diagnostics+"/metrics", request.Status.Token)
}

// get reads a page of a program inside the bed.
func (b *Bed) get(ctx context.Context, url, token string) ([]byte, error) {
	httpClient := http.Client{Transport: &http.Transport{
		DialContext: b.Dial, DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // the manager signs its certificate itself
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := httpClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s responds with %s", url, response.Status)
	}
	return io.ReadAll(response.Body)
}
