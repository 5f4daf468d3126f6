package cluster_test

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/agenttest"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/cluster"
)

// kinds are the resources that the API server serves, by group.
var kinds = map[string]map[string]any{
	"/api":  {"kind": "APIVersions", "versions": []string{"v1"}},
	"/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []any{map[string]any{"name": "rbac.authorization.k8s.io", "versions": []any{map[string]any{"groupVersion": "rbac.authorization.k8s.io/v1", "version": "v1"}}}}},
	"/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": []any{
		map[string]any{"name": "namespaces", "kind": "Namespace", "namespaced": false, "verbs": []string{"patch"}},
	}},
	"/apis/rbac.authorization.k8s.io/v1": {"kind": "APIResourceList", "groupVersion": "rbac.authorization.k8s.io/v1", "resources": []any{
		map[string]any{"name": "roles", "kind": "Role", "namespaced": true, "verbs": []string{"patch"}},
	}},
}

func client(t *testing.T, handler http.HandlerFunc) *cluster.Client {
	t.Helper()
	c, err := cluster.New([]byte(agenttest.NewServer(t, handler).Kubeconfig()))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestManifestsAreApplied(t *testing.T) {
	var applied []string
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		if list, known := kinds[r.URL.Path]; known {
			agenttest.Respond(w, http.StatusOK, list)
			return
		}
		body, _ := io.ReadAll(r.Body)
		if r.Method != http.MethodPatch || r.Header.Get("Content-Type") != "application/apply-patch+yaml" || r.URL.Query().Get("force") != "true" {
			t.Errorf("%s %s is no server-side apply", r.Method, r.URL)
		}
		applied = append(applied, r.URL.Path)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body)
	})
	const manifest = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: b, namespace: default}\n"
	if err := c.Apply(t.Context(), manifest); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(applied, " "); got != "/api/v1/namespaces/a /apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/b" {
		t.Errorf("applied %s", got)
	}
	err := c.Apply(t.Context(), "apiVersion: example.org/v1\nkind: New\nmetadata: {name: c}\n")
	if err == nil || !strings.Contains(err.Error(), "applying New c: finding the kind") {
		t.Errorf("a kind that is not served yet: %v", err)
	}
}

func TestKubeProxyIsRedirected(t *testing.T) {
	const (
		before = "clusters:\n- cluster:\n    server: https://10.77.0.10:7443\n  name: default\n"
		after  = "clusters:\n- cluster:\n    server: https://127.0.0.1:7443\n    tls-server-name: kubernetes\n  name: default\n"
	)
	for name, tc := range map[string]struct {
		reason, proxy, fails, want, err string
	}{
		"Once":     {reason: "nothing fails", proxy: before, want: after},
		"Again":    {reason: "a redirected kube-proxy is not redirected twice", proxy: after, want: after},
		"NoProxy":  {reason: "a cluster without kube-proxy has nothing to redirect"},
		"Get":      {reason: "an unreadable object is not treated as missing", proxy: before, fails: http.MethodGet, err: "reading kube-proxy's configuration"},
		"Conflict": {reason: "another change is not overwritten", proxy: before, fails: http.MethodPut, err: "changing kube-proxy's configuration"},
		"Restart":  {reason: "kube-proxy would keep its old configuration", proxy: before, fails: http.MethodPatch, want: after, err: "restarting kube-proxy"},
	} {
		t.Run(name, func(t *testing.T) {
			written, restarted := "", false
			c := client(t, func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Method == tc.fails:
					agenttest.Fail(w, http.StatusConflict, "Conflict")
				case tc.proxy == "":
					agenttest.Fail(w, http.StatusNotFound, "NotFound")
				case r.Method == http.MethodPut:
					var object struct {
						Metadata struct{ ResourceVersion string }
						Data     map[string]string
					}
					if err := json.NewDecoder(r.Body).Decode(&object); err != nil || object.Metadata.ResourceVersion != "7" {
						t.Errorf("another change would be overwritten: %v %v", object, err)
					}
					written = object.Data["kubeconfig.conf"]
					agenttest.Respond(w, http.StatusOK, map[string]any{"kind": "ConfigMap", "apiVersion": "v1"})
				case r.Method == http.MethodPatch:
					restarted = strings.HasSuffix(r.URL.Path, "/daemonsets/kube-proxy")
					agenttest.Respond(w, http.StatusOK, map[string]any{"kind": "DaemonSet", "apiVersion": "apps/v1"})
				default:
					agenttest.Respond(w, http.StatusOK, map[string]any{
						"kind": "ConfigMap", "apiVersion": "v1", "metadata": map[string]any{"name": "kube-proxy", "resourceVersion": "7"},
						"data": map[string]any{"kubeconfig.conf": tc.proxy, "config.conf": "kept"},
					})
				}
			})
			err := c.RedirectKubeProxy(t.Context(), 7443)
			if (tc.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: err = %v", tc.reason, err)
			}
			if written != tc.want || restarted != (tc.want != "" && tc.err == "") {
				t.Errorf("%s: written %q, restarted %v", tc.reason, written, restarted)
			}
		})
	}
}

func TestPodsAreEvicted(t *testing.T) {
	started := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	controller := []any{map[string]any{"kind": "ReplicaSet", "name": "a", "controller": true}}
	pod := func(name string, volume, metadata map[string]any) map[string]any {
		maps.Copy(metadata, map[string]any{"namespace": "default", "name": name, "uid": "uid-of-" + name})
		return map[string]any{"metadata": metadata, "spec": map[string]any{"volumes": []any{volume}}, "status": map[string]any{"phase": "Running", "startTime": started.Format(time.RFC3339)}}
	}
	ca := map[string]any{"configMap": map[string]any{"name": "kube-root-ca.crt"}}
	projected := map[string]any{"projected": map[string]any{"sources": []any{map[string]any{"serviceAccountToken": map[string]any{"path": "token"}}, ca}}}
	evicted := ""
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.URL.Path == "/api/v1/pods" && r.URL.Query().Get("fieldSelector") == "spec.nodeName=a" {
			agenttest.Respond(w, http.StatusOK, map[string]any{"kind": "PodList", "apiVersion": "v1", "items": []any{
				pod("plain", ca, map[string]any{"ownerReferences": controller}),
				pod("deleted", projected, map[string]any{"ownerReferences": controller}),
				pod("protected", projected, map[string]any{"ownerReferences": controller}),
				pod("leaving", projected, map[string]any{"ownerReferences": controller, "deletionTimestamp": started.Format(time.RFC3339)}),
				pod("bare", projected, map[string]any{}),
				pod("other", map[string]any{"configMap": map[string]any{"name": "b"}}, map[string]any{"ownerReferences": controller}),
			}})
			return
		}
		name := path.Base(path.Dir(r.URL.Path))
		evicted += name + " "
		switch name {
		case "deleted":
			agenttest.Fail(w, http.StatusNotFound, "NotFound")
		case "protected":
			agenttest.Fail(w, http.StatusTooManyRequests, "TooManyRequests")
		default:
			agenttest.Respond(w, http.StatusCreated, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Success"})
		}
	})
	staying, err := c.EvictPods(t.Context(), "a", started.Add(time.Second))
	if want := []string{"default/bare"}; !slices.Equal(staying, want) || evicted != "plain deleted protected " {
		t.Errorf("staying %v, evicted %s", staying, evicted)
	}
	for _, want := range []string{"pod default/plain was evicted just now", "evicting pod default/protected: ", "pod default/leaving is being deleted"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err != nil && strings.Contains(err.Error(), "default/deleted") {
		t.Errorf("a pod that does not exist is awaited: %v", err)
	}
	evicted = ""
	if staying, err = c.EvictPods(t.Context(), "a", started); err != nil || len(staying) > 0 || evicted != "" {
		t.Errorf("later pods: %v, staying %v, evicted %s", err, staying, evicted)
	}
}
