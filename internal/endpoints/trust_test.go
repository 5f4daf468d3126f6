package endpoints

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestTrust(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	sum := sha256.Sum256(server.Certificate().Raw)
	hexadecimal := hex.EncodeToString(sum[:])
	pairs := make([]string, 0, len(sum))
	for i := range sum {
		pairs = append(pairs, hexadecimal[2*i:2*i+2])
	}
	pin := strings.Join(pairs, ":")
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	for name, tc := range map[string]struct {
		trust Trust
		want  error
	}{
		"System":         {Trust{}, ErrUntrusted},
		"CA":             {Trust{CABundle: ca}, nil},
		"Pin":            {Trust{Thumbprint: pin}, nil},
		"PinUpper":       {Trust{Thumbprint: strings.ToUpper(pin)}, nil},
		"OtherPin":       {Trust{Thumbprint: strings.Repeat("00:", 31) + "00"}, ErrUntrusted},
		"OtherPinWithCA": {Trust{Thumbprint: strings.Repeat("00:", 31) + "00", CABundle: ca}, ErrUntrusted},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := tc.trust.Config()
			if err != nil {
				t.Fatal(err)
			}
			client := http.Client{Transport: &http.Transport{TLSClientConfig: config}}
			defer client.CloseIdleConnections()
			res, err := client.Get(server.URL)
			if err == nil {
				_ = res.Body.Close()
			} else {
				err = Coarse("server", err)
			}
			if !errors.Is(err, tc.want) {
				t.Fatalf("want %v, got %v", tc.want, err)
			}
			if err != nil && strings.Contains(strings.ToLower(err.Error()), pin) {
				t.Errorf("the error contains the thumbprint: %v", err)
			}
		})
	}
	if _, err := (Trust{CABundle: "none"}).Config(); err == nil {
		t.Error("a bundle without a certificate is accepted")
	}
}
