package bed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// fleetProgram serves the fleet page.
	fleetProgram = "nova-fleet"
	// fleetAddress is the address of the page in the bed.
	fleetAddress = "127.0.0.1:9780"
	// fleetUser is the account whose Clusters the page shows, and its role.
	fleetUser = "fleet-user"
)

// ServeFleet runs the fleet page until ctx ends, and serves it at an address of this machine. It adds
// the token of a user who may list all Clusters to each request, as the login proxy of a platform does
// with the token of its user. serving is called with the URL when the page can be opened.
func (b *Bed) ServeFleet(ctx context.Context, address string, serving func(url string)) error {
	programs, err := buildPrograms(ctx, b.layout.path("bin"), "./cmd/"+fleetProgram)
	if err != nil {
		return err
	}
	token, err := b.fleetToken(ctx)
	if err != nil {
		return fmt.Errorf("creating the user of the fleet page: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("serving the fleet page: %w", err)
	}
	server := &http.Server{Handler: b.fleetProxy(token, listener.Addr().String()), ReadHeaderTimeout: time.Minute}
	group, groupCtx := errgroup.WithContext(ctx)
	defer context.AfterFunc(groupCtx, func() { _ = server.Close() })()
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serving the fleet page: %w", err)
		}
		return nil
	})
	group.Go(func() error { return b.runFleet(groupCtx, programs[fleetProgram]) })
	group.Go(func() error {
		err := await(groupCtx, time.Minute, "waiting for the fleet page", func(ctx context.Context) error {
			conn, err := b.Dial(ctx, "tcp", fleetAddress)
			if err != nil {
				return err
			}
			return conn.Close()
		})
		if err == nil {
			serving("http://" + listener.Addr().String())
		}
		return err
	})
	err = group.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// runFleet runs nova-fleet until ctx ends.
func (b *Bed) runFleet(ctx context.Context, program string) error {
	log, err := os.Create(filepath.Join(b.Logs(), fleetProgram+".log"))
	if err != nil {
		return fmt.Errorf("opening log: %w", err)
	}
	defer func() { _ = log.Close() }()
	cmd, err := b.command(ctx, program, "--kubeconfig="+b.Kubeconfig(), "--page-address="+fleetAddress, "--health-addr=127.0.0.1:0", "--diagnostics-address=127.0.0.1:0")
	if err == nil {
		cmd.Stdout, cmd.Stderr = log, log
		err = cmd.Run()
	}
	if err != nil {
		return fmt.Errorf("running %s, log in %s: %w", fleetProgram, log.Name(), err)
	}
	return nil
}

// fleetProxy passes requests to nova-fleet, with a token. It rejects requests for another host: a
// website could reach the page under a name of its own.
func (b *Bed) fleetProxy(token, host string) http.Handler {
	proxy := &httputil.ReverseProxy{
		FlushInterval: -1,
		Transport:     &http.Transport{DialContext: b.Dial},
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: fleetAddress})
			r.Out.Header.Set("Authorization", "Bearer "+token)
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != host {
			http.Error(w, "Open http://"+host, http.StatusMisdirectedRequest)
			return
		}
		proxy.ServeHTTP(w, r)
	})
}

// fleetToken returns a token of a user who may list all Clusters and nothing else.
func (b *Bed) fleetToken(ctx context.Context) (string, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fleetUser}}
	meta := metav1.ObjectMeta{Name: fleetUser}
	for _, object := range []client.Object{
		account,
		&rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"cluster.x-k8s.io"}, Resources: []string{"clusters"}, Verbs: []string{"list"}}}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: fleetUser},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}},
		},
	} {
		if err := b.Client.Create(ctx, object); client.IgnoreAlreadyExists(err) != nil {
			return "", err
		}
	}
	request := &authenticationv1.TokenRequest{}
	if err := b.Client.SubResource("token").Create(ctx, account, request); err != nil {
		return "", err
	}
	return request.Status.Token, nil
}
