package keys

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/download"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

const (
	// vaultTimeout limits a request, and maxResponse its response, in bytes.
	vaultTimeout = 20 * time.Second
	maxResponse  = 256 << 10
	// vaultPause is the time between two attempts.
	vaultPause = 5 * time.Second
	// maxDetail limits the text of a server in an error, in bytes.
	maxDetail = 256
)

// Vault signs requests by the PKI engines of a vault.
type Vault struct {
	m      *machine.Machine
	client *http.Client
	at     *nodeconfig.Vault
	token  string
	// until is when failed requests are not repeated any more.
	until time.Time
}

// vaultError is the response of a vault that refuses a request.
type vaultError struct {
	status int
	detail string
}

func (e *vaultError) Error() string { return fmt.Sprintf("status %d %s", e.status, e.detail) }

// SignIn signs in with the credentials, which are valid once. Requests that fail are
// repeated until a time.
func SignIn(ctx context.Context, m *machine.Machine, at *nodeconfig.Vault, until time.Time) (*Vault, error) {
	client, err := download.Client(m, at.CA)
	if err != nil {
		return nil, fmt.Errorf("connecting to StarVault: %w", err)
	}
	client.Timeout = vaultTimeout
	// The credentials are for this server only.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	v := &Vault{m: m, client: client, at: at, token: at.WrappedSecretID, until: until}
	answer, err := v.repeat(ctx, "sys/wrapping/unwrap", map[string]any{})
	if refused, is := errors.AsType[*vaultError](err); is && refused.status == http.StatusBadRequest {
		return nil, fmt.Errorf("signing in to StarVault: the secret ID of this machine has expired or was used before, so the machine must be replaced: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("signing in to StarVault: %w", err)
	}
	v.token = ""
	answer, err = v.repeat(ctx, "auth/"+at.AuthPath+"/login", map[string]any{"role_id": at.RoleID, "secret_id": answer.Data.SecretID})
	if err != nil {
		return nil, fmt.Errorf("signing in to StarVault: %w", err)
	}
	if v.token = answer.Auth.Token; v.token == "" {
		return nil, errors.New("signing in to StarVault: the server returned no token")
	}
	return v, nil
}

// Sign implements Signer. The key of a request is all that the vault uses of it.
func (v *Vault) Sign(ctx context.Context, requests []*Request) ([][]byte, error) {
	var all [][]byte
	for _, r := range requests {
		answer, err := v.repeat(ctx, v.at.MountPath+"/"+string(r.Certificate.Authority)+"/sign/"+r.Certificate.Name, map[string]any{
			"csr": string(r.PEM), "common_name": r.CommonName, "exclude_cn_from_sans": true, "format": "pem",
			"alt_names": strings.Join(r.DNSNames, ","), "ip_sans": join(r.IPs), "ttl": fmt.Sprintf("%ds", int64(r.Validity.Seconds())),
		})
		if err != nil {
			return nil, fmt.Errorf("having the certificate %s signed by StarVault: %w", r.Certificate.Name, err)
		}
		all = append(all, []byte(answer.Data.Certificate))
	}
	return all, nil
}

func join(ips []netip.Addr) string {
	list := make([]string, 0, len(ips))
	for _, ip := range ips {
		list = append(list, ip.String())
	}
	return strings.Join(list, ",")
}

// vaultAnswer are the fields of a response that are used.
type vaultAnswer struct {
	Errors []string `json:"errors"`
	Auth   struct {
		Token string `json:"client_token"`
	} `json:"auth"`
	Data struct {
		SecretID    string `json:"secret_id"`
		Certificate string `json:"certificate"`
	} `json:"data"`
}

// repeat repeats a request while the server does not respond, or is sealed.
func (v *Vault) repeat(ctx context.Context, path string, body map[string]any) (*vaultAnswer, error) {
	for {
		answer, err := v.post(ctx, path, body)
		refused, is := errors.AsType[*vaultError](err)
		if err == nil || is && !temporary(refused.status) || !v.m.Now().Add(vaultPause).Before(v.until) {
			return answer, err
		}
		v.m.Logf("StarVault, path %s: %v", path, err)
		if err := v.m.Sleep(ctx, vaultPause); err != nil {
			return nil, err
		}
	}
}

// temporary reports whether a request may succeed later. A wrong secret ID may be
// answered with 500.
func temporary(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

func (v *Vault) post(ctx context.Context, path string, body map[string]any) (*vaultAnswer, error) {
	content, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("writing request: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(v.at.Server, "/")+"/v1/"+path, bytes.NewReader(content))
	if err != nil {
		return nil, errors.New("the URL of the server is malformed")
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Vault-Request", "true")
	if v.at.Namespace != "" {
		request.Header.Set("X-Vault-Namespace", v.at.Namespace)
	}
	if v.token != "" {
		request.Header.Set("X-Vault-Token", v.token)
	}
	response, err := v.client.Do(request)
	if failed, is := errors.AsType[*url.Error](err); is {
		return nil, fmt.Errorf("the server does not respond: %w", failed.Err)
	}
	if err != nil {
		return nil, fmt.Errorf("the server does not respond: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxResponse+1))
	if err != nil {
		return nil, fmt.Errorf("reading response: %w", err)
	}
	answer := &vaultAnswer{}
	malformed := json.Unmarshal(text, answer)
	if response.StatusCode != http.StatusOK {
		detail := strings.Join(strings.Fields(strings.Join(answer.Errors, "; ")), " ")
		return nil, &vaultError{status: response.StatusCode, detail: strings.ToValidUTF8(detail[:min(len(detail), maxDetail)], "")}
	}
	if malformed != nil || len(text) > maxResponse {
		return nil, errors.New("the response is malformed or too large")
	}
	return answer, nil
}
