package keys

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/cluster"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
)

// poll is the interval at which requests are read.
const poll = 2 * time.Second

// Requests has requests approved and signed in the cluster.
type Requests struct {
	Machine *machine.Machine
	Client  *cluster.Client
	// Node is the name of the node, and Until when the signer gives up.
	Node  string
	Until time.Time
}

// Sign implements Signer. The name of a request follows from its key, so an interrupted
// attempt continues with the same one.
func (s *Requests) Sign(ctx context.Context, requests []*Request) ([][]byte, error) {
	all, left := make([][]byte, len(requests)), len(requests)
	for left > 0 {
		var last error
		for i, r := range requests {
			if all[i] != nil {
				continue
			}
			request, err := s.requestOf(r)
			if err != nil {
				return nil, err
			}
			certificate, err := s.Client.Certificate(ctx, request)
			switch refused, is := errors.AsType[*cluster.RefusedError](err); {
			case is:
				return nil, fmt.Errorf("requesting the certificate %s: %w", r.Certificate.Name, refused)
			case err != nil:
				last = err
			case certificate == nil:
				last = fmt.Errorf("the request %s is not signed yet", request.Name)
			default:
				all[i] = certificate
				left--
			}
		}
		if left == 0 {
			break
		}
		if !s.Machine.Now().Before(s.Until) {
			return nil, fmt.Errorf("requesting certificates: %d of %d are not signed in time: %w", left, len(requests), last)
		}
		if err := s.Machine.Sleep(ctx, poll); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// requestOf returns the object of the cluster for a request.
func (s *Requests) requestOf(r *Request) (cluster.CertificateRequest, error) {
	public, err := x509.MarshalPKIXPublicKey(r.key.Public())
	if err != nil {
		return cluster.CertificateRequest{}, fmt.Errorf("reading key: %w", err)
	}
	// A renewal of the same key has another name, and so has a request to another CA.
	const length = 8
	sum := sha256.Sum256(fmt.Appendf(public, "%d%s", r.renewedBefore.Unix(), r.bundle[0].RawSubjectPublicKeyInfo))
	request := cluster.CertificateRequest{
		Name: fmt.Sprintf("%s-%s-%s", s.Node, r.Certificate.Name, hex.EncodeToString(sum[:length])), Signer: cmp.Or(r.signer, r.Certificate.Authority.Signer()),
		PEM: r.PEM, Validity: r.Validity, Usages: []string{"digital signature"},
	}
	if r.Certificate.Server {
		request.Usages = append(request.Usages, "server auth")
	}
	if r.Certificate.Client {
		request.Usages = append(request.Usages, "client auth")
	}
	return request, nil
}
